"""Replay buffer: sampled transitions are those that were stored, with the n-step returns of the definition."""

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
from townlet.buffers.prioritized import PrioritySpec
from townlet.buffers.replay import ReplayBuffer, TransitionBatch
from townlet.distributed.process_group import ProcessGroup
from townlet.errors import TownletError

GAMMA = 0.5


def make(script: Script, slots: int, n_step: int = 1, seed: int = 1, **more: Any) -> ReplayBuffer:
    capacity = slots * script.rows
    return ReplayBuffer(capacity, script.rows, LAYOUT, 3, n_step=n_step, gamma=GAMMA, generator=generator(seed), **more)


def feed(buffer: ReplayBuffer, script: Script, start: int = 0, stop: int | None = None) -> ReplayBuffer:
    for step in script.steps(start, stop):
        buffer.add(step)
    return buffer


def naive(script: Script, t: int, row: int, n_step: int, weight: float) -> tuple[float, float, float]:
    """Reward, number of the next observation, and discount of one transition, by the definition."""
    total, factor = 0.0, 1.0
    for k in range(t, min(t + n_step, len(script.ends))):
        total += factor * (script.reward(k, row) + weight * script.intrinsic(k, row))
        factor *= GAMMA
        if script.ends[k][row] != CONTINUES:
            break
    return total, script.next_number(k, row), 0.0 if script.ends[k][row] == TERMINATES else factor


@law
@given(scripts(), st.integers(1, 5), st.integers(1, 12), st.sampled_from((0.0, 0.25, 2.0)))
def test_sampled_transitions_match_the_script(script: Script, n_step: int, slots: int, weight: float) -> None:
    buffer = feed(make(script, slots, n_step), script)
    steps, kept = len(script.ends), max(slots, n_step + 1)
    assert len(buffer) == min(steps, kept) * script.rows
    batch = buffer.sample(64, weight)
    for i, (number, _) in enumerate(batch.obs.tolist()):
        t, row = script.locate(number)
        assert steps - kept <= t < steps, "older than the capacity"
        reward, next_number, discount = naive(script, t, row, n_step, weight)
        assert batch.reward[i] == reward
        assert batch.next_obs[i].tolist() == [next_number] * 2
        assert batch.discount[i] == discount
        assert batch.actions[i] == script.action(t, row)
    assert torch.equal(batch.next_mask, mask_of(batch.next_obs[:, 0]))
    assert batch.importance is None


def first(buffer: ReplayBuffer, number: float, weight: float = 0.0) -> tuple[float, float, float]:
    """Reward, number of the next observation and discount of the transition whose observation has this number."""
    batch = buffer.sample(500, weight)
    i = batch.obs[:, 0].tolist().index(number)
    return batch.reward[i].item(), batch.next_obs[i, 0].item(), batch.discount[i].item()


def test_returns_stop_where_open_episodes_were_truncated() -> None:
    script = endless(6, 1)
    buffer = feed(make(script, 8, n_step=3), script, 0, 3)
    buffer.truncate_unfinished_episodes()
    feed(buffer, script, 3)
    assert [first(buffer, number)[1] for number in range(6)] == [3, 3, 3, 6, 6, 6]
    assert [first(buffer, number)[2] for number in range(3)] == [GAMMA**3, GAMMA**2, GAMMA]


def test_truncation_bootstraps_from_the_final_observation_and_termination_does_not() -> None:
    truncated, terminated = (
        feed(make(s, 4, 3), s) for s in (Script([[0], [end], [0], [0]]) for end in (TRUNCATES, TERMINATES))
    )
    # rewards are −5, 2, −2, 5 from step 0 on; both returns stop after the second
    assert first(truncated, 0.0) == (-5 + 0.5 * 2, -2.0, 0.25)
    assert first(terminated, 0.0) == (-5 + 0.5 * 2, -2.0, 0.0)
    assert first(terminated, 2.0) == (-2 + 0.5 * 5, 4.0, 0.25), "a return stops at the newest step"


def test_the_oldest_step_does_not_follow_the_newest_in_a_full_buffer() -> None:
    script = endless(6, 1)
    buffer = feed(make(script, 4, 3), script)  # holds steps 2 to 5; the oldest is in the slot after the newest
    assert first(buffer, 5.0) == (script.reward(5, 0), 6.0, 0.5)
    assert first(buffer, 4.0) == (script.reward(4, 0) + 0.5 * script.reward(5, 0), 6.0, 0.25)
    three = script.reward(3, 0) + 0.5 * script.reward(4, 0) + 0.25 * script.reward(5, 0)
    assert first(buffer, 3.0) == (three, 6.0, 0.125), "step 3 is in the last slot, steps 4 and 5 in the first two"


def test_the_intrinsic_weight_is_applied_when_sampling() -> None:
    script = endless(3, 1)
    buffer = feed(make(script, 3, 2), script)
    extrinsic, intrinsic = -5 + 0.5 * 2, 0 + 0.5 * 20
    assert first(buffer, 0.0, weight=0.0)[0] == extrinsic
    assert first(buffer, 0.0, weight=0.5)[0] == extrinsic + 0.5 * intrinsic
    assert first(buffer, 0.0, weight=0.25)[0] == extrinsic + 0.25 * intrinsic
    assert first(buffer, 0.0, weight=0.0)[0] == extrinsic, "sampling does not change the stored rewards"


def test_the_oldest_steps_are_overwritten_and_sampling_is_uniform() -> None:
    script = endless(25, 4)
    buffer = make(script, 10, 3)
    feed(buffer, script, stop=9)
    assert len(buffer) == 36
    feed(buffer, script, start=9)
    assert len(buffer) == 40
    counts = Counter(int(m) for _ in range(20) for m in buffer.sample(2000).obs[:, 0].tolist())
    assert set(counts) == set(range(15 * 4, 25 * 4)), "exactly the newest ten steps of four rows"
    # 40 000 samples of 40 transitions; χ² with 39 degrees of freedom lies below 72.1 in 99.9 % of cases
    assert sum((n - 1000) ** 2 / 1000 for n in counts.values()) < 72.1


@pytest.mark.parametrize("priority", [None, PrioritySpec()], ids=["uniform", "prioritized"])
def test_autoreset_steps_are_never_sampled_and_all_others_uniformly(priority: PrioritySpec | None) -> None:
    """Every fourth step of a row terminates its episode, and the next one is an autoreset step."""
    script = Script([[TERMINATES if (t + row) % 4 == 3 else CONTINUES for row in range(4)] for t in range(20)])
    buffer = make(script, 10, autoreset_steps=True, priority=priority)
    autoreset = [[t > 0 and script.ends[t - 1][row] == TERMINATES for row in range(4)] for t in range(20)]
    for flags, step in zip(autoreset, script.steps(), strict=True):
        buffer.add(step._replace(autoreset=torch.tensor(flags)))
    counts = Counter(script.locate(m) for _ in range(30) for m in buffer.sample(1000).obs[:, 0].tolist())
    assert set(counts) == {(t, row) for t in range(10, 20) for row in range(4) if not autoreset[t][row]}
    # 30 000 samples of 30 transitions; χ² with 29 degrees of freedom lies below 58.3 in 99.9 % of cases
    assert len(counts) == 30
    assert sum((n - 1000) ** 2 / 1000 for n in counts.values()) < 58.3


def test_small_capacity_still_holds_a_complete_return() -> None:
    script = endless(20, 3)
    buffer = feed(ReplayBuffer(1, 3, LAYOUT, 3, n_step=4, gamma=GAMMA, generator=generator()), script)
    assert len(buffer) == 5 * 3


@pytest.mark.parametrize("priority", [None, PrioritySpec()], ids=["uniform", "prioritized"])
@pytest.mark.parametrize("steps", [3, 10, 14], ids=["part", "full", "wrapped"])
def test_a_restored_buffer_samples_the_same_batches(steps: int, priority: PrioritySpec | None) -> None:
    script = Script([[(t + r) % 5 // 4 * (1 + t % 2) for r in range(3)] for t in range(40)])
    one, two = (make(script, 10, 3, seed=seed, priority=priority) for seed in (1, 2))
    feed(one, script, stop=steps)
    feed(two, script, stop=7)  # restoring must replace this
    index = sample_and_update(one).index[:1]
    one.update_priorities(index, torch.tensor([50.0]))  # the maximal priority, which new transitions get
    two.restore(saved_and_loaded(one.state()))
    assert len(two) == len(one)
    for t in range(steps, 40):
        assert same(sample_and_update(one), sample_and_update(two))
        for buffer in (one, two):
            feed(buffer, script, t, t + 1)


def sample_and_update(buffer: ReplayBuffer) -> TransitionBatch:
    """Sample a batch and update its priorities."""
    batch = buffer.sample(16, 0.3, 0.7)
    buffer.update_priorities(batch.index, batch.reward)
    return batch


def test_state_of_another_buffer_is_rejected() -> None:
    script = endless(8, 2)
    state = saved_and_loaded(feed(make(script, 6), script).state())
    wider = ReplayBuffer(12, 2, LAYOUT, 4, n_step=1, gamma=GAMMA, generator=generator())
    others = {
        "6 slots, but this one has 7": make(script, 7),
        "float32 [6, 2, 2], expected float32 [6, 3, 2]": make(endless(1, 3), 6),
        "bool [6, 2, 3], expected bool [6, 2, 4]": wider,
        "does not have priorities, but this one does": make(script, 6, priority=PrioritySpec()),
    }
    for words, other in others.items():
        with pytest.raises(TownletError) as refused:
            other.restore(state)
        assert words in str(refused.value)
    for name in ("storage", "priorities", "generator"):
        with pytest.raises(TownletError, match=f"no '{name}'"):
            make(script, 6).restore({k: v for k, v in state.items() if k != name})
    with pytest.raises(TownletError, match="invalid write position: slot 6"):
        make(script, 6).restore(state | {"storage": state["storage"] | {"head": 6}})
    with pytest.raises(TownletError, match="random stream of the replay buffer cannot be used"):
        make(script, 6).restore(state | {"generator": torch.zeros(3, dtype=torch.uint8)})


def test_an_empty_buffer_cannot_be_sampled() -> None:
    with pytest.raises(TownletError, match="the replay buffer is empty"):
        make(endless(1, 2), 4).sample(8)


def test_priorities_and_autoreset_steps_need_a_single_process() -> None:
    group = ProcessGroup()
    group.size = 2
    for more in ({"priority": PrioritySpec()}, {"autoreset_steps": True}):
        with pytest.raises(ValueError, match="not supported with several processes"):
            make(endless(1, 2), 4, group=group, **more)
