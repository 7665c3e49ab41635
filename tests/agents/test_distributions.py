"""Distributions of actions: samples are valid and as frequent as their probabilities."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from townlet.agents.distributions import Bernoulli, Categorical, Distribution, Gaussian

LOG3 = math.log(3.0)
WEIGHT = torch.linspace(-2.0, 2.0, 12).view(4, 3)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gradient(ours: Distribution, actions: Tensor, outputs: Tensor) -> Tensor:
    """∂/∂outputs of Σ (WEIGHT · log p + 3 H)."""
    (found,) = torch.autograd.grad((WEIGHT * ours.log_prob(actions) + 3 * ours.entropy()).sum(), outputs)
    return found


@st.composite
def masked_logits(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Logits of any size, and a mask with at least one valid action."""
    k = draw(st.integers(1, 7))
    numbers = st.floats(-1e6, 1e6, width=32)
    logits = torch.tensor(draw(st.lists(numbers, min_size=k, max_size=k)), dtype=torch.float32)
    mask = torch.tensor(draw(st.lists(st.booleans(), min_size=k, max_size=k)))
    mask[draw(st.integers(0, k - 1))] = True
    return logits, mask


@given(masked_logits(), st.integers(0, 2**31))
def test_masked_action_is_never_taken(case: tuple[Tensor, Tensor], seed: int) -> None:
    logits, mask = case
    choice = Categorical(logits.expand(64, -1), mask.expand(64, -1))
    assert mask[choice.sample(generator(seed))].all()
    edges = torch.tensor([0.0, 1 - 2**-24]).repeat(32)  # the lowest and the highest draw
    assert mask[choice.icdf(edges)].all()
    assert mask[choice.mode()].all()
    assert (choice.probs[:, ~mask] == 0).all()


def test_probabilities_log_probabilities_and_entropy_by_hand() -> None:
    choice = Categorical(torch.tensor([[0.0, LOG3, 9.0], [1.0, 1.0, 1.0]]), torch.tensor([[True, True, False]] * 2))
    torch.testing.assert_close(choice.probs, torch.tensor([[0.25, 0.75, 0.0], [0.5, 0.5, 0.0]]))
    logs = choice.log_prob(torch.tensor([1, 0]))
    torch.testing.assert_close(logs, torch.tensor([math.log(0.75), math.log(0.5)]))
    first = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    torch.testing.assert_close(choice.entropy(), torch.tensor([first, math.log(2.0)]))
    assert choice.mode().tolist() == [1, 0], "the first of equals"


@pytest.mark.parametrize("rows_first", [True, False])
def test_categorical_values_and_gradients_match_torch(rows_first: bool) -> None:
    """For logits of both memory layouts, over a sequence [T, B, K]."""
    drawn = torch.randn(4, 3, 5, generator=generator(1))
    logits = (drawn if rows_first else drawn.movedim(-1, 0).contiguous().movedim(0, -1)).requires_grad_()
    mask = torch.rand(4, 3, 5, generator=generator(2)) > 0.4
    mask[..., 2] = True
    theirs = torch.distributions.Categorical(logits=logits.masked_fill(~mask, -1e30))
    actions = theirs.probs.argmax(-1)
    ours = Categorical(logits, mask)
    torch.testing.assert_close(ours.log_prob(actions), theirs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    (wanted,) = torch.autograd.grad((WEIGHT * theirs.log_prob(actions) + 3 * theirs.entropy()).sum(), logits)
    found = gradient(ours, actions, logits)
    torch.testing.assert_close(found, wanted)
    assert (found[~mask] == 0).all(), "a masked action has no gradient"


def test_action_frequencies_match_their_probabilities() -> None:
    n = 40_000
    logits = torch.tensor([0.0, LOG3, 5.0, -1.0])
    choice = Categorical(logits.expand(n, -1), torch.tensor([True, True, False, True]).expand(n, -1))
    found = choice.sample(generator(3)).bincount(minlength=4) / n
    torch.testing.assert_close(found, choice.probs[0], atol=4 * math.sqrt(0.25 / n), rtol=0)


def test_highest_draw_selects_the_last_action() -> None:
    """Probabilities sum to slightly less than 1 in many of these rows; the highest draw must still select an action."""
    choice = Categorical(torch.randn(5000, 6, generator=generator(4)))
    assert choice.icdf(torch.full((5000,), 1 - 2**-24)).max() == 5
    assert choice.icdf(torch.zeros(5000)).max() == 0


def test_same_stream_samples_the_same_actions() -> None:
    choice = Categorical(torch.zeros(50, 6))
    assert torch.equal(choice.sample(generator(5)), choice.sample(generator(5)))
    assert not torch.equal(choice.sample(generator(5)), choice.sample(generator(6)))


def test_bernoulli_matches_torch() -> None:
    logits = (3 * torch.randn(4, 3, 5, generator=generator(1))).requires_grad_()
    theirs, ours = torch.distributions.Bernoulli(logits=logits), Bernoulli(logits)
    actions = (torch.rand(4, 3, 5, generator=generator(2)) < 0.5).long()
    torch.testing.assert_close(ours.log_prob(actions), theirs.log_prob(actions.float()).sum(-1))
    torch.testing.assert_close(ours.entropy(), theirs.entropy().sum(-1))
    weighted = WEIGHT.unsqueeze(-1) * theirs.log_prob(actions.float())
    (wanted,) = torch.autograd.grad((weighted + 3 * theirs.entropy()).sum(), logits)
    torch.testing.assert_close(gradient(ours, actions, logits), wanted)


def test_gaussian_matches_torch() -> None:
    outputs = torch.randn(4, 3, 10, generator=generator(1)).requires_grad_()
    mean, log_std = outputs.chunk(2, -1)
    theirs, ours = torch.distributions.Normal(mean, log_std.exp()), Gaussian(outputs)
    actions = 3 * torch.randn(4, 3, 5, generator=generator(2))
    torch.testing.assert_close(ours.log_prob(actions), theirs.log_prob(actions).sum(-1))
    torch.testing.assert_close(ours.entropy(), theirs.entropy().sum(-1))
    weighted = WEIGHT.unsqueeze(-1) * theirs.log_prob(actions)
    (wanted,) = torch.autograd.grad((weighted + 3 * theirs.entropy()).sum(), outputs)
    torch.testing.assert_close(gradient(ours, actions, outputs), wanted)


def test_binary_and_continuous_actions_are_sampled_from_their_distributions() -> None:
    n = 40_000
    logits = torch.tensor([0.0, LOG3, -LOG3, 50.0])
    bernoulli = Bernoulli(logits.expand(n, -1))
    on = bernoulli.sample(generator(3)).float().mean(0)
    torch.testing.assert_close(on, torch.tensor([0.5, 0.75, 0.25, 1.0]), atol=4 * math.sqrt(0.25 / n), rtol=0)
    assert bernoulli.mode()[0].tolist() == [0, 1, 0, 1], "on is what is more likely on than off"
    numbers = Gaussian(torch.tensor([1.0, -2.0, 0.0, LOG3]).expand(n, -1))
    drawn = numbers.sample(generator(4))
    torch.testing.assert_close(drawn.mean(0), torch.tensor([1.0, -2.0]), atol=12 / math.sqrt(n), rtol=0)
    torch.testing.assert_close(drawn.std(0), torch.tensor([1.0, 3.0]), atol=12 / math.sqrt(n), rtol=0)
    assert numbers.mode()[0].tolist() == [1.0, -2.0]
    assert torch.equal(numbers.sample(generator(4)), drawn)


def test_extreme_bernoulli_logits_stay_finite() -> None:
    sure = Bernoulli(torch.tensor([1e6, -1e6]))
    assert sure.log_prob(torch.tensor([1, 0])) == 0
    assert sure.entropy() == 0
    assert sure.log_prob(torch.tensor([0, 0])) == -1e6
