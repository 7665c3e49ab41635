"""Moments of dead units become zero, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from townlet.nets.optimizers import FlatOptimizer

STEPS = 1200


def test_vanishing_moments_become_zero_and_weights_match_adam() -> None:
    draws = torch.Generator().manual_seed(5)
    inputs = torch.randn(STEPS, 6, generator=draws)
    inputs[10:, :3] = 0.0  # three weights get no gradient any more
    ours, theirs = nn.Linear(6, 1), nn.Linear(6, 1)
    theirs.load_state_dict(ours.state_dict())
    swept, plain = FlatOptimizer("adam", ours, 1e-3), torch.optim.Adam(theirs.parameters(), 1e-3, fused=True)
    for row in inputs:
        swept.zero_grad()
        (ours(row) - 1).square().sum().backward()
        swept.step()
        plain.zero_grad()
        (theirs(row) - 1).square().sum().backward()
        plain.step()
    assert torch.allclose(ours.weight, theirs.weight, rtol=0, atol=1e-9)
    mean = swept.state()["weight"]["exp_avg"][0]
    assert mean[:3].count_nonzero() == 0
    assert mean[3:].count_nonzero() == 3
    # Adam keeps subnormal numbers, with which every operation takes longer.
    kept = plain.state[theirs.weight]["exp_avg"][0, :3]
    assert bool(((kept != 0) & (kept.abs() < torch.finfo(torch.float32).tiny)).any())


@pytest.mark.parametrize("limit", [None, 0.5])
def test_norms_of_parts_are_those_before_clipping(limit: float | None) -> None:
    module = nn.ModuleDict({"body": nn.Linear(2, 1, bias=False), "head": nn.Linear(1, 1, bias=False)})
    optimizer = FlatOptimizer("adam", module, 1e-3)
    optimizer.gradient.copy_(torch.tensor([3.0, 4.0, -12.0]))
    assert optimizer.step(limit).item() == 13
    assert optimizer.part_norms(dict(module.items())) == pytest.approx({"body": 5, "head": 12})
    optimizer.zero_grad()
    optimizer.step(limit)
    assert optimizer.part_norms(dict(module.items())) == {"body": 0, "head": 0}


def test_only_gradients_above_the_limit_are_scaled() -> None:
    """The gradient is (3, 4), of norm 5."""
    for limit, moved in ((None, [3.0, 4.0]), (10.0, [3.0, 4.0]), (1.0, [0.6, 0.8])):
        module = nn.Linear(2, 1, bias=False)
        optimizer = FlatOptimizer("sgd", module, 1.0)
        optimizer.vector.zero_()
        module(torch.tensor([3.0, 4.0])).sum().backward()
        assert optimizer.step(limit).item() == 5, "the norm before it is scaled"
        torch.testing.assert_close(module.weight.detach(), -torch.tensor([moved]))


def test_replaced_gradient_is_detected() -> None:
    module = nn.Linear(3, 1)
    optimizer = FlatOptimizer("sgd", module, 0.1)
    module.zero_grad()
    module(torch.ones(3)).sum().backward()
    with pytest.raises(RuntimeError, match="call zero_grad\\(\\) of this optimizer"):
        optimizer.step()
