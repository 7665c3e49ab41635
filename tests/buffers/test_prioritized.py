"""Prioritized replay: sampling in proportion to (|error| + ε)^α, and importance weights (Schaul et al. 2016)."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from buffers.scripted import LAYOUT, endless, generator
from townlet.buffers.prioritized import PrioritizedSampler, PrioritySpec
from townlet.buffers.replay import ReplayBuffer
from townlet.buffers.storage import VectorTransition
from townlet.config.schedule import Schedule
from townlet.interfaces.counters import Counters

ERRORS = [0.0, 0.5, -1.0, 2.0, 8.0]


def known(alpha: float = 0.6, epsilon: float = 0.01, size: int = 7) -> PrioritizedSampler:
    """A sampler of seven indices: five with known errors, two never written."""
    sampler = PrioritizedSampler(PrioritySpec(alpha=alpha, epsilon=epsilon), size)
    sampler.add(0, 5)
    sampler.update(torch.arange(5), torch.tensor(ERRORS))
    return sampler


def naive(alpha: float, epsilon: float) -> list[float]:
    """The probability of each index by the definition."""
    weights = [(abs(e) + epsilon) ** alpha for e in ERRORS]
    return [w / sum(weights) for w in weights]


def shares(index: Tensor) -> list[float]:
    return [n / len(index) for n in torch.bincount(index).tolist()]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_indices_are_sampled_in_proportion_to_their_priority(alpha: float) -> None:
    index, _ = known(alpha).sample(50_000, 0.4, generator())
    assert shares(index) == pytest.approx(naive(alpha, 0.01), abs=1e-4), "stratified sampling has little variance"
    one_by_one, chance = known(alpha), generator(2)
    alone = torch.cat([one_by_one.sample(1, 0.4, chance)[0] for _ in range(1500)])
    assert shares(alone) == pytest.approx(naive(alpha, 0.01), abs=0.04)


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_importance_is_the_power_of_n_times_probability_over_the_largest(beta: float) -> None:
    index, importance = known().sample(5000, beta, generator())
    raw = [(5 * p) ** -beta for p in naive(0.6, 0.01)]
    expected = torch.tensor([w / max(raw) for w in raw])
    assert importance.dtype == torch.float32
    assert set(index.tolist()) == set(range(5))
    torch.testing.assert_close(importance, expected[index])


def test_with_full_correction_the_mean_is_that_of_uniform_sampling() -> None:
    index, importance = known(alpha=1.0).sample(200_000, 1.0, generator())
    values = torch.tensor([3.0, -1.0, 4.0, 1.0, -5.0])
    assert (values[index] * importance).sum() / importance.sum() == pytest.approx(values.mean().item(), abs=0.02)


def test_new_transitions_get_the_largest_priority_so_far() -> None:
    sampler = known(alpha=1.0, epsilon=1e-6)
    sampler.add(5, 7)
    index, _ = sampler.sample(10_000, 0.4, generator())
    assert shares(index)[4:] == pytest.approx([8 / 27.5] * 3, abs=1e-3)
    sampler.update(torch.tensor([4]), torch.tensor([0.0]))
    sampler.add(0, 1)
    index, _ = sampler.sample(10_000, 0.4, generator())
    assert shares(index)[0] == pytest.approx(8 / 27.5, abs=1e-3), "the largest ever, not the largest now"


def test_a_repeated_index_keeps_the_larger_error() -> None:
    for errors in ([1.0, 3.0, 1.0], [1.0, 1.0, 3.0]):
        sampler = PrioritizedSampler(PrioritySpec(alpha=1.0), 2)
        sampler.add(0, 2)
        sampler.update(torch.tensor([0, 1, 1]), torch.tensor(errors))
        assert shares(sampler.sample(8000, 0.4, generator())[0]) == pytest.approx([0.25, 0.75], abs=1e-3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_non_finite_error_does_not_break_sampling(bad: float) -> None:
    sampler = known()
    sampler.update(torch.tensor([1, 2]), torch.tensor([bad, 1.0]))
    sampler.add(5, 7)
    index, importance = sampler.sample(1000, 0.4, generator())
    assert set(index.tolist()) <= set(range(7))
    assert torch.isfinite(importance).all()


def test_a_replay_buffer_samples_by_priority_and_resets_it_when_a_slot_is_overwritten() -> None:
    script = endless(5, 2)
    spec = PrioritySpec(alpha=1.0, epsilon=1e-9)
    buffer = ReplayBuffer(6, 2, LAYOUT, 3, n_step=1, gamma=0.5, generator=generator(), priority=spec)
    steps = [VectorTransition(*(value.clone() for value in step if value is not None)) for step in script.steps()]
    for step in steps[:3]:
        buffer.add(step)
    batch = buffer.sample(300)
    surprise = torch.where(batch.obs[:, 0] == 1.0, 3.0, 0.0)  # of the first step of the second row alone
    buffer.update_priorities(batch.index, surprise.requires_grad_())
    assert set(buffer.sample(100).obs[:, 0].tolist()) == {1.0}
    buffer.add(steps[3])  # overwrites the first step
    assert set(buffer.sample(100).obs[:, 0].tolist()) == {6.0, 7.0}


def test_without_priorities_errors_change_nothing() -> None:
    script = endless(4, 2)
    one, two = (ReplayBuffer(8, 2, LAYOUT, 3, n_step=1, gamma=0.5, generator=generator()) for _ in range(2))
    for step in script.steps():
        one.add(step)
        two.add(step)
    one.update_priorities(torch.tensor([0, 1]), torch.tensor([9.0, 9.0]))
    assert torch.equal(one.sample(50).obs, two.sample(50).obs)


def test_the_correction_rises_to_the_end_of_the_run_by_default() -> None:
    beta = PrioritySpec().beta
    assert isinstance(beta, Schedule)
    assert [beta.at(Counters(env_steps=n, budget=100)) for n in (0, 50, 100)] == pytest.approx([0.4, 0.7, 1.0])


@pytest.mark.parametrize("wrong", [{"beta": 1.5}, {"beta": {"start": -0.1}}, {"alpha": 2.0}, {"epsilon": 0.0}])
def test_invalid_settings_are_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PrioritySpec.model_validate(wrong)
