"""The terms of PPO's loss on cases that were worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from narrow import instance
from townlet.agents.distributions import distribution_family
from townlet.agents.networks import ActorCritic
from townlet.agents.on_policy import explained_variance
from townlet.agents.ppo import Coefficients, EvaluatedSteps, policy_loss, ppo_loss, ppo_metrics, value_loss
from townlet.buffers.rollout import Minibatch
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Discrete
from townlet.nets.spec import MlpSpec


def step(
    log_ratio: Tensor, advantage: float = 0.0, value: Tensor | None = None, *, old_value: float = 1.0,
    returns: float = 3.0,
) -> EvaluatedSteps:  # fmt: skip
    number = torch.tensor
    value = number(0.0) if value is None else value
    fixed = number(old_value), number(advantage, dtype=log_ratio.dtype), number(returns)
    return EvaluatedSteps(log_ratio, number(0.0), value, *fixed)


def clipped(clip: float = 0.2, value_clip: float | None = None) -> Coefficients:
    return Coefficients(clip, value_clip, 0.0, 0.5)


def terms(log_ratio: Tensor) -> dict[str, Tensor]:
    return ppo_metrics(step(log_ratio), clipped())


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),  # unchanged: the plain policy gradient
        (1.1, 2.0, -2.2, -2.2),  # within the clip range
        (1.5, 2.0, -2.4, 0.0),  # a good action is likely enough: no gradient
        (0.5, 2.0, -1.0, -1.0),  # a good action became unlikely: full gradient
        (0.5, -2.0, 1.6, 0.0),  # a bad action is unlikely enough
        (1.5, -2.0, 3.0, 3.0),  # a bad action became likely: full gradient
    ],
)
def test_clipped_surrogate_by_hand(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    """The loss, and its gradient with respect to the log-probability, ρ · dL/dρ."""
    log_ratio = torch.tensor(math.log(ratio), requires_grad=True)
    found = policy_loss(step(log_ratio, advantage), clipped())
    found.backward()
    assert found.item() == pytest.approx(loss)
    assert log_ratio.grad is not None
    assert log_ratio.grad.item() == pytest.approx(gradient, abs=1e-6)


@given(st.floats(-2, 2), st.floats(-5, 5), st.floats(0, 0.9))
def test_surrogate_matches_the_formula_of_the_paper(log_ratio: float, advantage: float, clip: float) -> None:
    ratio = math.exp(log_ratio)
    wanted = -min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage)
    found = policy_loss(step(torch.tensor(log_ratio, dtype=torch.float64), advantage), clipped(clip))
    assert found.item() == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(
    ("value", "clip", "error", "gradient"),
    [
        (1.5, None, 2.25, -3.0),
        (1.1, 0.2, 3.61, -3.8),  # changed by less than the clip range
        (1.5, 0.2, 3.24, 0.0),  # towards the return, too far: no gradient
        (0.5, 0.2, 6.25, -5.0),  # away from the return: full gradient
    ],
)
def test_value_loss_by_hand(value: float, clip: float | None, error: float, gradient: float) -> None:
    """The value was 1 when it was stored, the return is 3."""
    v = torch.tensor(value, requires_grad=True)
    found = value_loss(step(torch.tensor(0.0), value=v), clipped(value_clip=clip))
    found.backward()
    assert found.item() == pytest.approx(error)
    assert v.grad is not None
    assert v.grad.item() == pytest.approx(gradient)


def test_loss_of_one_step_by_hand() -> None:
    """π = (¼, ¾) over the valid actions; the old policy chose the second with probability ½. A = 2, V = 2, R = 5."""
    network = ActorCritic(MlpSpec(hidden=()), ObservationLayout.of(("one", (1,), 0.0, 1.0)), 3, shared=True)
    with torch.no_grad():
        instance(network.actor.head, nn.Linear).bias.copy_(torch.tensor([0.0, math.log(3.0), 9.0]))
        instance(network.critic, nn.Linear).bias.fill_(2.0)
    batch = Minibatch(
        torch.zeros(1, 1), torch.tensor([[True, True, False]]), torch.tensor([1]), torch.tensor([math.log(0.5)]),
        torch.tensor([2.0]), torch.tensor([2.0]), torch.tensor([5.0]), network.initial_hidden(1),
    )  # fmt: skip
    loss, _ = ppo_loss(
        network, distribution_family(Discrete(("a", "b", "c"))), batch, Coefficients(0.2, None, 0.1, 0.5)
    )
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert loss.item() == pytest.approx(-1.2 * 2 + 0.5 * (2 - 5) ** 2 - 0.1 * entropy)


def test_approx_kl_estimates_the_kl_of_two_policies() -> None:
    """Its mean under the old policy is KL(old ‖ new) exactly, since Σ old · (new / old − 1) = 0."""
    old, new = torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.4, 0.4, 0.2])
    log_ratio = (new / old).log()
    torch.testing.assert_close((old * terms(log_ratio)["approx_kl"]).sum(), (old * -log_ratio).sum())
    assert (terms(torch.linspace(-3, 3, 41))["approx_kl"] >= 0).all()
    assert terms(torch.zeros(1))["approx_kl"].item() == 0


def test_clip_fraction_counts_ratios_beyond_the_range() -> None:
    found = terms(torch.tensor([0.5, 0.79, 0.81, 1.0, 1.19, 1.21]).log())["clip_fraction"]
    assert found.tolist() == [1, 1, 0, 0, 0, 1]


def test_explained_variance_by_hand() -> None:
    returns = torch.tensor([1.0, 3.0, 5.0, 7.0])
    assert explained_variance(torch.zeros(4), returns).item() == 1, "perfect values"
    assert explained_variance(returns - 4, returns).item() == 0, "constant values"
    assert explained_variance(returns - torch.tensor([1.0, 3.0, 7.0, 5.0]), returns).item() == pytest.approx(0.6)
    assert explained_variance(returns, torch.ones(4)).item() == 0, "no variance to explain, and no division by it"
