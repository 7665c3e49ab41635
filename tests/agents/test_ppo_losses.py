"""The mathematics of PPO on cases that were worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from townlet.agents.losses import divergence, explained_variance, surrogate, surrogate_slope, value_error, value_slope

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),  # nothing moved: the plain policy gradient
        (1.1, 2.0, -2.2, -2.2),  # within the clip
        (1.5, 2.0, -2.4, 0.0),  # a good action is likely enough: no more pull
        (0.5, 2.0, -1.0, -1.0),  # a good action became unlikely: pulled back in full
        (0.5, -2.0, 1.6, 0.0),  # a bad action is unlikely enough
        (1.5, -2.0, 3.0, 3.0),  # a bad action became likely: pushed back in full
    ],
)
def test_the_clipped_surrogate(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    """Loss, and its gradient with respect to the log-probability, r · dL/dr."""
    log_ratio = torch.tensor(math.log(ratio), requires_grad=True)
    found = surrogate(log_ratio, torch.tensor(advantage), 0.2)
    found.backward()  # type: ignore[no-untyped-call]
    assert found.item() == pytest.approx(loss)
    assert log_ratio.grad is not None
    slope = surrogate_slope(log_ratio.detach(), torch.tensor(advantage), 0.2)
    assert log_ratio.grad.item() == pytest.approx(gradient, abs=1e-6) == slope.item()


@given(st.floats(-2, 2), st.floats(-5, 5), st.floats(0, 0.9))
def test_the_surrogate_is_the_formula_of_the_paper(log_ratio: float, advantage: float, clip: float) -> None:
    ratio = math.exp(log_ratio)
    wanted = -min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage)
    found = surrogate(torch.tensor(log_ratio, dtype=torch.float64), torch.tensor(advantage, dtype=torch.float64), clip)
    assert found.item() == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(
    ("value", "clip", "error", "gradient"),
    [
        (1.5, None, 2.25, -3.0),
        (1.1, 0.2, 3.61, -3.8),  # moved by less than the clip
        (1.5, 0.2, 3.24, 0.0),  # towards the return, too far: no more pull
        (0.5, 0.2, 6.25, -5.0),  # away from the return: pulled back in full
    ],
)
def test_the_error_of_values(value: float, clip: float | None, error: float, gradient: float) -> None:
    """The value was 1 when it was stored, the return is 3."""
    v = torch.tensor(value, requires_grad=True)
    found = value_error(v, torch.tensor(1.0), torch.tensor(3.0), clip)
    found.backward()  # type: ignore[no-untyped-call]
    assert found.item() == pytest.approx(error)
    assert v.grad is not None
    slope = value_slope(v.detach(), torch.tensor(1.0), torch.tensor(3.0), clip)
    assert v.grad.item() == pytest.approx(gradient) == slope.item()


def test_the_divergence_estimates_the_kl_of_two_policies() -> None:
    """Its mean under the old policy is KL(old ‖ new) exactly, since Σ old · (new / old − 1) = 0."""
    old, new = torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.4, 0.4, 0.2])
    log_ratio = (new / old).log()
    torch.testing.assert_close((old * divergence(log_ratio)).sum(), (old * -log_ratio).sum())
    assert (divergence(torch.linspace(-3, 3, 41)) >= 0).all()
    assert divergence(torch.zeros(1)).item() == 0


def test_explained_variance_by_hand() -> None:
    returns = torch.tensor([1.0, 3.0, 5.0, 7.0])
    assert explained_variance(torch.zeros(4), returns).item() == 1, "perfect values"
    assert explained_variance(returns - 4, returns).item() == 0, "constant values"
    assert explained_variance(returns - torch.tensor([1.0, 3.0, 7.0, 5.0]), returns).item() == pytest.approx(0.6)
    assert explained_variance(returns, torch.ones(4)).item() == 0, "nothing to explain, and no division by it"


@given(st.floats(-3, 3), st.floats(-1e3, 1e3), st.floats(-3, 3), st.floats(0.01, 0.5))
def test_the_slope_of_values_is_that_of_their_error(value: float, before: float, returns: float, clip: float) -> None:
    """Also where rounding makes the clipped value differ from one that lies within the clip."""
    v, then, target = (torch.tensor(number, dtype=torch.float32) for number in (before + value * clip, before, returns))
    v.requires_grad_(True)
    value_error(v, then, target, clip).backward()  # type: ignore[no-untyped-call]
    assert v.grad is not None
    slope = value_slope(v.detach(), then, target, clip)
    if abs(abs(v.item() - before) - clip) > 1e-3:  # on the edge either is right
        assert slope.item() == pytest.approx(v.grad.item(), rel=1e-4, abs=1e-4)
