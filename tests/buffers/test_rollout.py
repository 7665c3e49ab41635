"""Rollout buffer: GAE by the definition, and minibatches that contain every step once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from buffers import law
from buffers.scripted import (
    ACTIONS,
    CONTINUES,
    LAYOUT,
    TERMINATES,
    TRUNCATES,
    Script,
    generator,
    mask_of,
    same,
    saved_and_loaded,
    scripts,
)
from townlet.buffers.rollout import RolloutBuffer
from townlet.errors import TownletError
from townlet.interfaces.vec_env import FinalObs, Step


def value(t: int, row: int) -> float:
    return float((3 * t + row) % 5)


def final_value(t: int, row: int) -> float:
    return float((2 * t + row) % 9 - 4)


def feed(rollout: RolloutBuffer, script: Script, start: int = 0, stop: int | None = None) -> RolloutBuffer:
    for t, step in enumerate(script.steps(start, stop), start):
        rows = range(script.rows)
        rollout.add_action(
            step.obs,
            step.mask,
            step.actions,
            log_prob=torch.tensor([-0.5 * script.action(t, row) for row in rows]),
            value=torch.tensor([value(t, row) for row in rows]),
            episode_start=torch.tensor([t == 0 or script.ends[t - 1][row] != CONTINUES for row in rows]),
        )
        bootstrap = torch.tensor([final_value(t, row) for row in rows])
        ended = (step.terminated | step.truncated).nonzero().squeeze(1)
        components = step.reward.unsqueeze(1)
        outcome = Step(step.obs, step.mask, step.reward, components, step.terminated, step.truncated)
        last = FinalObs(ended, step.obs[ended], step.mask[ended])
        rollout.add_outcome(outcome, last, bootstrap[ended].__getitem__, intrinsic=step.intrinsic)
    return rollout


def make(script: Script, steps: int | None = None, hidden: int = 0) -> RolloutBuffer:
    return RolloutBuffer(steps or len(script.ends), script.rows, LAYOUT, ACTIONS, hidden=hidden)


def naive(script: Script, last: list[float], gamma: float, lam: float, weight: float) -> list[list[float]]:
    """Advantages [T][N] by the definition: a sum of TD errors up to the end of the episode or of the rollout."""
    steps, found = len(script.ends), []
    for t in range(steps):
        found.append([0.0] * script.rows)
        for row in range(script.rows):
            factor = 1.0
            for k in range(t, steps):
                following = value(k + 1, row) if k + 1 < steps else last[row]
                following = {CONTINUES: following, TERMINATES: 0.0, TRUNCATES: final_value(k, row)}[script.ends[k][row]]
                gain = script.reward(k, row) + weight * script.intrinsic(k, row)
                found[t][row] += factor * (gain + gamma * following - value(k, row))
                factor *= gamma * lam
                if script.ends[k][row] != CONTINUES:
                    break
    return found


@law
@given(
    scripts(), st.sampled_from((0.0, 0.5, 0.95, 1.0)), st.sampled_from((0.0, 0.9, 1.0)), st.sampled_from((0.0, 0.25))
)
def test_advantages_are_those_of_the_definition(script: Script, gamma: float, lam: float, weight: float) -> None:
    rollout = feed(make(script), script)
    last = [float(row + 1) for row in range(script.rows)]
    for w in (0.7, weight):  # a second call with another weight starts from the same rewards
        advantage, returns = rollout.advantages(torch.tensor(last), gamma, lam, w)
    expected = torch.tensor(naive(script, last, gamma, lam, weight))
    torch.testing.assert_close(advantage, expected, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(returns, expected + rollout.value, rtol=1e-4, atol=1e-3)


def one_row(*ends: int) -> RolloutBuffer:
    return feed(make(Script([[end] for end in ends])), Script([[end] for end in ends]))


def test_truncation_bootstraps_and_termination_does_not() -> None:
    # rewards −5, 2, −2; values 0, 3, 1; the final observation of step 1 is worth −2, what follows the last 10
    last = torch.tensor([10.0])
    open_ended, terminated, truncated = (
        one_row(0, end, 0).advantages(last, 0.5, 1.0)[0].flatten().tolist() for end in (0, 1, 2)
    )
    after = -2 + 0.5 * 10 - 1
    assert terminated == [-5 + 0.5 * 3 - 0 + 0.5 * (2 - 3), 2 - 3, after]
    assert truncated == [-5 + 0.5 * 3 - 0 + 0.5 * (2 + 0.5 * -2 - 3), 2 + 0.5 * -2 - 3, after]
    middle = 2 + 0.5 * 1 - 3 + 0.5 * after
    assert open_ended == [-5 + 0.5 * 3 - 0 + 0.5 * middle, middle, after]


def test_a_last_step_that_ended_ignores_the_value_that_follows() -> None:
    for end, worth in ((TERMINATES, 0.0), (TRUNCATES, 0.5 * final_value(1, 0))):
        advantage, _ = one_row(0, end).advantages(torch.tensor([1e6]), 0.5, 0.9)
        assert advantage[1, 0] == 2 + worth - 3


@pytest.mark.parametrize("size", [1, 5, 7, 12, 99])
def test_minibatches_contain_every_step_once(size: int) -> None:
    script = Script([[0, 1, 0], [0, 0, 0], [2, 0, 0], [0, 0, 0]])
    rollout = feed(make(script), script)
    advantage, returns = rollout.advantages(torch.zeros(3), 0.9, 0.9)
    parts = [part.indices for part in rollout.shards(size, generator())]
    assert all(len(part) <= size for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1, "no tiny batch at the end"
    together = torch.cat(parts)
    assert sorted(together.tolist()) == list(range(12))
    assert together.tolist() != list(range(12))
    assert torch.equal(together, torch.cat([part.indices for part in rollout.shards(size, generator())]))
    for part in parts:
        batch = rollout.gather(part)
        t, row = part // 3, part % 3
        assert torch.equal(batch.obs[:, 0], part.float())
        assert torch.equal(batch.mask, mask_of(batch.obs[:, 0]))
        for name in ("actions", "log_prob", "value"):
            assert torch.equal(getattr(batch, name), getattr(rollout, name)[t, row])
        assert torch.equal(batch.advantage, advantage[t, row])
        assert torch.equal(batch.returns, returns[t, row])


def test_row_batches_are_whole_rows_in_order() -> None:
    script = Script([[0, 1, 0, 0, 2], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]])
    rollout = make(script, hidden=4)
    rollout.clear(torch.arange(20.0).view(5, 4))
    feed(rollout, script)
    advantage, returns = rollout.advantages(torch.zeros(5), 0.9, 0.9)
    parts = [part.indices for part in rollout.shards(2 * 3, generator())]
    assert sorted(torch.cat(parts).tolist()) == list(range(5))
    for rows in parts:
        steps = rollout.gather_rows(rows)
        assert steps.episode_start is not None
        assert torch.equal(steps.obs[:, :, 0], torch.arange(3).unsqueeze(1) * 5.0 + rows)
        assert torch.equal(steps.advantage, advantage[:, rows])
        assert torch.equal(steps.returns, returns[:, rows])
        assert torch.equal(steps.episode_start, rollout.episode_start[:, rows])
        assert torch.equal(steps.hidden, torch.arange(20.0).view(5, 4)[rows])


def test_a_partly_filled_rollout_can_be_used() -> None:
    script = Script([[0, 0], [0, 1], [0, 0]])
    whole, part = feed(make(script), script), feed(make(script, steps=8), script)
    last = torch.tensor([1.0, 2.0])
    assert same(whole.advantages(last, 0.9, 0.9), part.advantages(last, 0.9, 0.9))
    assert sorted(torch.cat([some.indices for some in part.shards(4, generator())]).tolist()) == list(range(6))
    fresh = part.gather_rows(torch.tensor([1])).episode_start
    assert fresh is not None
    assert fresh.shape == (3, 1)


def test_a_full_rollout_must_be_cleared() -> None:
    script = Script([[0, 0], [0, 0]])
    rollout = make(script)
    seen: list[tuple[int, int, bool]] = []
    for t in range(2):
        seen.append((rollout.steps, len(rollout), rollout.full))
        feed(rollout, script, t, t + 1)
    assert seen == [(0, 0, False), (1, 2, False)]
    assert rollout.full
    with pytest.raises(IndexError, match="clear"):
        feed(rollout, script, stop=1)
    rollout.clear()
    assert (rollout.steps, len(rollout), rollout.full) == (0, 0, False)
    feed(rollout, script)
    assert rollout.full


@pytest.mark.parametrize("steps", [0, 3, 5])
def test_a_rollout_saved_half_way_continues_identically(steps: int) -> None:
    script = Script([[t % 3, 0] for t in range(5)])
    one, two = make(script, hidden=2), make(script, hidden=2)
    one.clear(torch.ones(2, 2))
    feed(one, script, stop=steps)
    feed(two, script, stop=4)  # restoring must replace this
    two.restore(saved_and_loaded(one.state()))
    assert two.steps == steps
    results: list[tuple[Tensor, ...]] = []
    for rollout in (one, two):
        feed(rollout, script, start=steps)
        rollout.advantages(torch.ones(2), 0.9, 0.9, 0.5)
        batch = rollout.gather_rows(torch.arange(2))
        results.append(tuple(part for part in batch if part is not None))
    assert same(results[0], results[1])
    with pytest.raises(TownletError, match="'hidden'"):
        make(script, hidden=3).restore(one.state())
