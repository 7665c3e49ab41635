"""Replay of transitions: what is drawn is what happened, n steps on and not one further."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memory import law
from memory.script import DIES, GOES_ON, TIME_OUT, Script, generator, mask_of, same, scripts, survivors, through_a_file
from townlet.errors import TownletError
from townlet.memory.priority import PrioritySpec
from townlet.memory.ring import Batch, Ring

GAMMA = 0.5


def make(script: Script, slots: int, n_step: int = 1, seed: int = 1, **more: Any) -> Ring:
    capacity = slots * script.rows
    return Ring(capacity, script.rows, 2, 3, n_step=n_step, gamma=GAMMA, generator=generator(seed), **more)


def feed(ring: Ring, script: Script, start: int = 0, stop: int | None = None) -> Ring:
    for step in script.steps(start, stop):
        ring.add(step)
    return ring


def naive(script: Script, t: int, row: int, n_step: int, weight: float) -> tuple[float, float, float]:
    """Reward, number of the next moment, and discount of one transition, step by step."""
    total, factor = 0.0, 1.0
    for k in range(t, min(t + n_step, len(script.ends))):
        total += factor * (script.reward(k, row) + weight * script.intrinsic(k, row))
        factor *= GAMMA
        if script.ends[k][row] != GOES_ON:
            break
    return total, script.next_moment(k, row), 0.0 if script.ends[k][row] == DIES else factor


@law
@given(scripts(), st.integers(1, 5), st.integers(1, 12), st.sampled_from((0.0, 0.25, 2.0)))
def test_what_is_drawn_is_what_happened(script: Script, n_step: int, slots: int, weight: float) -> None:
    ring = feed(make(script, slots, n_step), script)
    steps, kept = len(script.ends), max(slots, n_step + 1)
    assert len(ring) == min(steps, kept) * script.rows
    batch = ring.sample(64, weight)
    for i, (moment, _) in enumerate(batch.obs.tolist()):
        t, row = script.place(moment)
        assert steps - kept <= t < steps, "older than the ring"
        reward, next_moment, discount = naive(script, t, row, n_step, weight)
        assert batch.reward[i] == reward
        assert batch.next_obs[i].tolist() == [next_moment] * 2
        assert batch.discount[i] == discount
        assert batch.actions[i] == script.action(t, row)
    assert torch.equal(batch.next_mask, mask_of(batch.next_obs[:, 0]))
    assert torch.equal(batch.importance, torch.ones(64))


def first(ring: Ring, moment: float, weight: float = 0.0) -> tuple[float, float, float]:
    """Reward, next moment and discount of the transition from a moment."""
    batch = ring.sample(500, weight)
    i = batch.obs[:, 0].tolist().index(moment)
    return batch.reward[i].item(), batch.next_obs[i, 0].item(), batch.discount[i].item()


def test_no_return_goes_on_beyond_where_episodes_were_broken_off() -> None:
    script = survivors(6, 1)
    ring = feed(make(script, 8, n_step=3), script, 0, 3)
    ring.cut()
    feed(ring, script, 3)
    assert [first(ring, moment)[1] for moment in range(6)] == [3, 3, 3, 6, 6, 6]
    assert [first(ring, moment)[2] for moment in range(3)] == [GAMMA**3, GAMMA**2, GAMMA]


def test_running_out_of_time_bootstraps_from_the_final_observation_and_death_does_not() -> None:
    late, dead = (feed(make(s, 4, 3), s) for s in (Script([[0], [end], [0], [0]]) for end in (TIME_OUT, DIES)))
    # rewards are −5, 2, −2, 5 from step 0 on; both returns stop after the second
    assert first(late, 0.0) == (-5 + 0.5 * 2, -2.0, 0.25)
    assert first(dead, 0.0) == (-5 + 0.5 * 2, -2.0, 0.0)
    assert first(dead, 2.0) == (-2 + 0.5 * 5, 4.0, 0.25), "the next life begins anew, and ends at the newest step"


def test_around_the_end_of_the_ring_the_oldest_step_does_not_follow_the_newest() -> None:
    script = survivors(6, 1)
    ring = feed(make(script, 4, 3), script)  # keeps steps 2 to 5, the oldest right behind the newest
    assert first(ring, 5.0) == (script.reward(5, 0), 6.0, 0.5)
    assert first(ring, 4.0) == (script.reward(4, 0) + 0.5 * script.reward(5, 0), 6.0, 0.25)
    three = script.reward(3, 0) + 0.5 * script.reward(4, 0) + 0.25 * script.reward(5, 0)
    assert first(ring, 3.0) == (three, 6.0, 0.125), "steps 3 | 4 5 lie on both sides of the seam"


def test_the_intrinsic_weight_is_that_of_now_and_counts_once() -> None:
    script = survivors(3, 1)
    ring = feed(make(script, 3, 2), script)
    extrinsic, intrinsic = -5 + 0.5 * 2, 0 + 0.5 * 20
    assert first(ring, 0.0, weight=0.0)[0] == extrinsic
    assert first(ring, 0.0, weight=0.5)[0] == extrinsic + 0.5 * intrinsic
    assert first(ring, 0.0, weight=0.25)[0] == extrinsic + 0.25 * intrinsic
    assert first(ring, 0.0, weight=0.0)[0] == extrinsic, "drawing leaves what is stored as it was"


def test_first_in_first_out_and_every_stored_transition_alike() -> None:
    script = survivors(25, 4)
    ring = make(script, 10, 3)
    feed(ring, script, stop=9)
    assert len(ring) == 36
    feed(ring, script, start=9)
    assert len(ring) == 40
    counts = Counter(int(m) for _ in range(20) for m in ring.sample(2000).obs[:, 0].tolist())
    assert set(counts) == set(range(15 * 4, 25 * 4)), "exactly the newest ten steps of four rows"
    # 40 000 draws over 40 transitions; χ² with 39 degrees of freedom lies below 72.1 in 99.9 % of cases
    assert sum((n - 1000) ** 2 / 1000 for n in counts.values()) < 72.1


@pytest.mark.parametrize("priority", [None, PrioritySpec()], ids=["uniform", "prioritized"])
def test_void_steps_are_never_drawn_and_all_others_alike(priority: PrioritySpec | None) -> None:
    """Every fourth step of a row ends its life, and the one after that is void."""
    script = Script([[DIES if (t + row) % 4 == 3 else GOES_ON for row in range(4)] for t in range(20)])
    ring = make(script, 10, voids=True, priority=priority)
    void = [[t > 0 and script.ends[t - 1][row] == DIES for row in range(4)] for t in range(20)]
    for flags, step in zip(void, script.steps(), strict=True):
        ring.add(step._replace(void=torch.tensor(flags)))
    counts = Counter(script.place(m) for _ in range(30) for m in ring.sample(1000).obs[:, 0].tolist())
    assert set(counts) == {(t, row) for t in range(10, 20) for row in range(4) if not void[t][row]}
    # 30 000 draws over 30 transitions; χ² with 29 degrees of freedom lies below 58.3 in 99.9 % of cases
    assert len(counts) == 30
    assert sum((n - 1000) ** 2 / 1000 for n in counts.values()) < 58.3


def test_a_small_capacity_still_holds_a_whole_return() -> None:
    script = survivors(20, 3)
    ring = feed(Ring(1, 3, 2, 3, n_step=4, gamma=GAMMA, generator=generator()), script)
    assert len(ring) == 5 * 3


@pytest.mark.parametrize("priority", [None, PrioritySpec()], ids=["uniform", "prioritized"])
@pytest.mark.parametrize("steps", [3, 10, 14], ids=["part", "full", "wrapped"])
def test_a_restored_ring_goes_on_to_the_bit(steps: int, priority: PrioritySpec | None) -> None:
    script = Script([[(t + r) % 5 // 4 * (1 + t % 2) for r in range(3)] for t in range(40)])
    one, two = (make(script, 10, 3, seed=seed, priority=priority) for seed in (1, 2))
    feed(one, script, stop=steps)
    feed(two, script, stop=7)  # something else before
    one.reprioritize(learn(one).index[:1], torch.tensor([50.0]))  # what comes later will rank with this
    two.restore(through_a_file(one.state()))
    assert len(two) == len(one)
    for t in range(steps, 40):
        assert same(learn(one), learn(two))
        for ring in (one, two):
            feed(ring, script, t, t + 1)


def learn(ring: Ring) -> Batch:
    """Draw, and be surprised by some of it."""
    batch = ring.sample(16, 0.3, 0.7)
    ring.reprioritize(batch.index, batch.reward)
    return batch


def test_a_state_of_another_memory_is_refused() -> None:
    script = survivors(8, 2)
    state = through_a_file(feed(make(script, 6), script).state())
    wider = Ring(12, 2, 2, 4, n_step=1, gamma=GAMMA, generator=generator())
    others = {
        "6 slots and this one 7": make(script, 7),
        "float32 [6, 2, 2], needed is float32 [6, 3, 2]": make(survivors(1, 3), 6),
        "bool [6, 2, 3], needed is bool [6, 2, 4]": wider,
        "without priorities and this one with": make(script, 6, priority=PrioritySpec()),
    }
    for words, other in others.items():
        with pytest.raises(TownletError) as refused:
            other.restore(state)
        assert words in str(refused.value)
    for name in ("storage", "priorities", "generator"):
        with pytest.raises(TownletError, match=f"no '{name}'"):
            make(script, 6).restore({k: v for k, v in state.items() if k != name})
    with pytest.raises(TownletError, match="cannot go on at slot 6"):
        make(script, 6).restore(state | {"storage": state["storage"] | {"head": 6}})
    with pytest.raises(TownletError, match="random stream of the memory cannot be used"):
        make(script, 6).restore(state | {"generator": torch.zeros(3, dtype=torch.uint8)})


def test_an_empty_ring_says_so() -> None:
    with pytest.raises(TownletError, match="empty memory"):
        make(survivors(1, 2), 4).sample(8)
