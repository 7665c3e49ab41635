"""Prioritized replay: drawn in proportion to (error + ε)^α, and weighed by how often."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from memory.script import generator, survivors
from townlet.config.schedule import Schedule
from townlet.contract.counters import Counters
from townlet.memory.priority import Priorities, PrioritySpec
from townlet.memory.ring import Ring
from townlet.memory.storage import Transition

ERRORS = [0.0, 0.5, -1.0, 2.0, 8.0]


def known(alpha: float = 0.6, epsilon: float = 0.01, size: int = 7) -> Priorities:
    """Five places with known errors, the last two never written."""
    priorities = Priorities(PrioritySpec(alpha=alpha, epsilon=epsilon), size)
    priorities.written(0, 5)
    priorities.update(torch.arange(5), torch.tensor(ERRORS))
    return priorities


def naive(alpha: float, epsilon: float) -> list[float]:
    """The probability of each place, written out."""
    weights = [(abs(e) + epsilon) ** alpha for e in ERRORS]
    return [w / sum(weights) for w in weights]


def shares(index: Tensor) -> list[float]:
    return [n / len(index) for n in torch.bincount(index).tolist()]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_places_are_drawn_in_proportion_to_their_priority(alpha: float) -> None:
    index, _ = known(alpha).draw(50_000, 0.4, generator())
    assert shares(index) == pytest.approx(naive(alpha, 0.01), abs=1e-4), "shares of the total leave hardly any chance"
    one_by_one, chance = known(alpha), generator(2)
    alone = torch.cat([one_by_one.draw(1, 0.4, chance)[0] for _ in range(4000)])
    assert shares(alone) == pytest.approx(naive(alpha, 0.01), abs=0.03)


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_importance_is_the_power_of_n_times_probability_over_the_largest(beta: float) -> None:
    index, importance = known().draw(5000, beta, generator())
    raw = [(5 * p) ** -beta for p in naive(0.6, 0.01)]
    expected = torch.tensor([w / max(raw) for w in raw])
    assert importance.dtype == torch.float32
    assert set(index.tolist()) == set(range(5))
    torch.testing.assert_close(importance, expected[index])


def test_with_full_correction_the_mean_is_that_of_uniform_draws() -> None:
    index, importance = known(alpha=1.0).draw(200_000, 1.0, generator())
    values = torch.tensor([3.0, -1.0, 4.0, 1.0, -5.0])
    assert (values[index] * importance).sum() / importance.sum() == pytest.approx(values.mean().item(), abs=0.02)


def test_what_is_new_has_the_largest_priority_so_far() -> None:
    priorities = known(alpha=1.0, epsilon=1e-6)
    priorities.written(5, 7)
    index, _ = priorities.draw(10_000, 0.4, generator())
    assert shares(index)[4:] == pytest.approx([8 / 27.5] * 3, abs=1e-3)
    priorities.update(torch.tensor([4]), torch.tensor([0.0]))
    priorities.written(0, 1)
    index, _ = priorities.draw(10_000, 0.4, generator())
    assert shares(index)[0] == pytest.approx(8 / 27.5, abs=1e-3), "the largest ever, not the largest now"


def test_a_place_named_twice_keeps_the_larger_error() -> None:
    for errors in ([1.0, 3.0, 1.0], [1.0, 1.0, 3.0]):
        priorities = Priorities(PrioritySpec(alpha=1.0), 2)
        priorities.written(0, 2)
        priorities.update(torch.tensor([0, 1, 1]), torch.tensor(errors))
        assert shares(priorities.draw(8000, 0.4, generator())[0]) == pytest.approx([0.25, 0.75], abs=1e-3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_error_that_is_no_number_does_not_break_the_next_draw(bad: float) -> None:
    priorities = known()
    priorities.update(torch.tensor([1, 2]), torch.tensor([bad, 1.0]))
    priorities.written(5, 7)
    index, importance = priorities.draw(1000, 0.4, generator())
    assert set(index.tolist()) <= set(range(7))
    assert torch.isfinite(importance).all()


def test_a_ring_draws_by_priority_and_forgets_it_with_the_transition() -> None:
    script = survivors(5, 2)
    spec = PrioritySpec(alpha=1.0, epsilon=1e-9)
    ring = Ring(6, 2, 2, 3, n_step=1, gamma=0.5, generator=generator(), priority=spec)
    steps = [Transition(*(value.clone() for value in step if value is not None)) for step in script.steps()]
    for step in steps[:3]:
        ring.add(step)
    batch = ring.sample(300)
    surprise = torch.where(batch.obs[:, 0] == 1.0, 3.0, 0.0)  # of the first step of the second row alone
    ring.reprioritize(batch.index, surprise.requires_grad_())
    assert set(ring.sample(100).obs[:, 0].tolist()) == {1.0}
    ring.add(steps[3])  # over the first step
    assert set(ring.sample(100).obs[:, 0].tolist()) == {6.0, 7.0}


def test_without_priorities_errors_change_nothing() -> None:
    script = survivors(4, 2)
    one, two = (Ring(8, 2, 2, 3, n_step=1, gamma=0.5, generator=generator()) for _ in range(2))
    for step in script.steps():
        one.add(step)
        two.add(step)
    one.reprioritize(torch.tensor([0, 1]), torch.tensor([9.0, 9.0]))
    assert torch.equal(one.sample(50).obs, two.sample(50).obs)


def test_the_correction_rises_to_the_end_of_the_run_by_default() -> None:
    beta = PrioritySpec().beta
    assert isinstance(beta, Schedule)
    assert [beta.at(Counters(env_steps=n, budget=100)) for n in (0, 50, 100)] == pytest.approx([0.4, 0.7, 1.0])


@pytest.mark.parametrize("wrong", [{"beta": 1.5}, {"beta": {"start": -0.1}}, {"alpha": 2.0}, {"epsilon": 0.0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PrioritySpec.model_validate(wrong)
