"""Sequence replay: sequences within one episode, with burn-in before and padding on both sides."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from buffers import law
from buffers.scripted import (
    CONTINUES,
    LAYOUT,
    TERMINATES,
    TRUNCATES,
    Script,
    endless,
    generator,
    mask_of,
    same,
    saved_and_loaded,
    scripts,
)
from townlet.buffers.sequence_replay import SequenceBatch, SequenceReplay
from townlet.errors import TownletError

GAMMA = 0.5
TIMED = ("actions", "reward", "discount", "valid", "start")  # columns [L, B]


def make(script: Script, slots: int, length: int = 4, burn_in: int = 2, seed: int = 1) -> SequenceReplay:
    sizes: dict[str, Any] = {"length": length, "burn_in": burn_in}
    return SequenceReplay(slots * script.rows, script.rows, LAYOUT, 3, gamma=GAMMA, generator=generator(seed), **sizes)


def feed(buffer: SequenceReplay, script: Script, start: int = 0, stop: int | None = None) -> SequenceReplay:
    for step in script.steps(start, stop):
        buffer.add(step)
    return buffer


def sampled(sequences: SequenceBatch, burn_in: int) -> list[int]:
    """Numbers of the sampled observations, one of each sequence."""
    return [int(m) for m in sequences.obs[burn_in, :, 0].tolist()]


@law
@given(scripts(), st.integers(1, 6), st.integers(0, 4), st.integers(1, 14), st.sampled_from((0.0, 0.5)))
def test_sampled_sequences_match_the_script(
    script: Script, length: int, burn_in: int, slots: int, weight: float
) -> None:
    buffer = feed(make(script, slots, length, burn_in), script)
    steps, kept = len(script.ends), max(slots, length + burn_in)
    oldest = max(0, steps - kept)
    assert len(buffer) == (steps - oldest) * script.rows
    sequences = buffer.sample(32, weight)
    assert sequences.obs.shape == (length + burn_in + 1, 32, 2)
    assert sequences.mask.shape == (length + burn_in + 1, 32, 3)
    for b, number in enumerate(sampled(sequences, burn_in)):
        t, row = script.locate(number)
        first, last = t, t
        while first > max(oldest, t - burn_in) and script.ends[first - 1][row] == CONTINUES:
            first -= 1
        while last < min(steps, t + length) - 1 and script.ends[last][row] == CONTINUES:
            last += 1
        check_sequence(script, sequences, b, row, t - burn_in, (first, t, last), weight)


def check_sequence(
    script: Script, sequences: SequenceBatch, b: int, row: int, start: int, span: tuple[int, int, int], weight: float
) -> None:
    """Sequence b, whose position 0 is step `start`: burn-in from span[0] on, learning from span[1] to span[2]."""
    first, t, last = span
    for k in range(len(sequences.actions)):
        step = start + k
        assert sequences.valid[k, b] == (t <= step <= last)
        assert sequences.start[k, b] == (step == first)
        if first <= step <= last:
            assert sequences.obs[k, b, 0] == script.number(step, row)
            assert sequences.obs[k + 1, b, 0] == script.next_number(step, row)
            assert sequences.actions[k, b] == script.action(step, row)
            assert sequences.reward[k, b] == script.reward(step, row) + weight * script.intrinsic(step, row)
            assert sequences.discount[k, b] == (0.0 if script.ends[step][row] == TERMINATES else GAMMA)
            assert torch.equal(sequences.mask[k : k + 2, b], mask_of(sequences.obs[k : k + 2, b, 0]))
    assert not sequences.start[-1, b]


@law
@given(scripts(max_steps=15))
def test_padding_is_harmless(script: Script) -> None:
    """Padding repeats a step of the same sequence, so values are finite and some action is always valid."""
    sequences = feed(make(script, 12, 5, 3), script).sample(16)
    assert sequences.mask.any(2).all()
    own = sequences.obs[3, :, 0]
    for b in range(16):
        reached = sequences.obs[3 : 4 + int(sequences.valid[:, b].sum()), b, 0].tolist()
        assert set(sequences.obs[4:, b, 0].tolist()) <= set(reached)
        assert script.locate(own[b].item())[1] in range(script.rows)


def shown(sequences: SequenceBatch, number: int, burn_in: int) -> dict[str, list[float]]:
    """The sequence of the step with this number."""
    b = sampled(sequences, burn_in).index(number)
    return {name: field[:, b].tolist() for name, field in sequences._asdict().items() if name in TIMED}


def test_truncated_and_terminated_episodes_differ_in_the_discount_alone() -> None:
    late, dead = (Script([[0], [0], [end], [0], [0]]) for end in (TRUNCATES, TERMINATES))
    one, two = (feed(make(s, 6, 3, 2), s).sample(200) for s in (late, dead))
    assert same(one[:4] + one[5:], two[:4] + two[5:]), "sequences differ in the discount alone"
    end = shown(one, 2, 2)
    assert end["start"] == [True, False, False, False, False, False]
    assert end["valid"] == [False, False, True, False, False]
    assert end["discount"][2] == 0.5, "bootstraps"
    assert one.obs[3, sampled(one, 2).index(2), 0] == -3.0, "from the final observation"
    assert shown(two, 2, 2)["discount"][2] == 0.0
    begin = shown(one, 3, 2)
    assert begin["start"] == [False, False, True, False, False, False], "no step of the episode before"


def test_an_endless_episode_is_sampled_uniformly_within_the_capacity() -> None:
    script = endless(300, 2)
    buffer = make(script, 20, 4, 3)
    sizes = set()
    for step in script.steps():
        buffer.add(step)
        sizes.add(len(buffer))
    assert max(sizes) == 40
    counts = Counter(m for _ in range(20) for m in sampled(buffer.sample(1000), 3))
    assert set(counts) == set(range(280 * 2, 300 * 2)), "exactly the newest twenty steps, from the oldest on"
    # 20 000 samples of 40 steps; χ² with 39 degrees of freedom lies below 72.1 in 99.9 % of cases
    assert sum((n - 500) ** 2 / 500 for n in counts.values()) < 72.1
    oldest = shown(buffer.sample(1000), 280 * 2, 3)
    assert oldest["start"] == [False] * 3 + [True] + [False] * 4, "the sequence starts in the middle of the episode"
    newest = shown(buffer.sample(1000), 299 * 2, 3)
    assert newest["valid"] == [False] * 3 + [True] + [False] * 3
    assert newest["start"][0], "with all of its burn-in"


def test_a_small_capacity_still_holds_a_whole_sequence() -> None:
    script = endless(50, 3)
    buffer = feed(SequenceReplay(1, 3, LAYOUT, 3, length=6, burn_in=2, gamma=GAMMA, generator=generator()), script)
    assert len(buffer) == 8 * 3
    assert buffer.sample(200).valid.sum(0).max() == 6


@pytest.mark.parametrize("steps", [3, 10, 14], ids=["part", "full", "wrapped"])
def test_a_restored_buffer_samples_the_same_sequences(steps: int) -> None:
    script = Script([[(t + r) % 7 // 6 * (1 + t % 2) for r in range(3)] for t in range(30)])
    one, two = (make(script, 10, seed=seed) for seed in (1, 2))
    feed(one, script, stop=steps)
    feed(two, script, stop=7)  # restoring must replace this
    one.sample(5)
    two.restore(saved_and_loaded(one.state()))
    for t in range(steps, 30):
        assert same(one.sample(8, 0.3), two.sample(8, 0.3))
        for buffer in (one, two):
            feed(buffer, script, t, t + 1)


def test_empty_buffer_and_state_of_another_are_rejected() -> None:
    script = endless(8, 2)
    with pytest.raises(TownletError, match="the replay buffer is empty"):
        make(script, 8).sample(4)
    with pytest.raises(TownletError, match="8 slots, but this one has 9"):
        make(script, 9).restore(feed(make(script, 8), script).state())


@law
@given(scripts(), st.integers(1, 4), st.integers(0, 3), st.integers(1, 20))
def test_sequence_has_the_hidden_state_of_its_first_step(script: Script, length: int, burn_in: int, slots: int) -> None:
    """The stored state is the observation's number, so each sequence must have that of its first observation."""
    sizes: dict[str, Any] = {"length": length, "burn_in": burn_in, "hidden": 1}
    buffer = SequenceReplay(slots * script.rows, script.rows, LAYOUT, 3, gamma=GAMMA, generator=generator(), **sizes)
    for step in script.steps():
        buffer.add(step._replace(hidden=step.obs[:, :1]))
    sequences = buffer.sample(32)
    assert (sequences.start.sum(0) == 1).all()
    assert torch.equal(sequences.hidden[:, 0], sequences.obs[..., 0].T[sequences.start.T])
