"""The gradient of `ppo_loss` for plain MLPs, without autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from townlet.agents.accelerated.analytic_mlp import AnalyticMLP, MLPSpec
from townlet.agents.accelerated.gradients import policy_grad, surrogate_grad, value_loss_grad
from townlet.agents.distributions import Family
from townlet.agents.ppo import Coefficients, ppo_terms
from townlet.memory.rollout import Minibatch


class AnalyticPpo:
    """Computes what `ppo_loss(…).backward()` computes, in two thirds of the time for small networks on a CPU."""

    def __init__(self, specs: list[MLPSpec], family: Family, dtype: torch.dtype) -> None:
        self.mlp = AnalyticMLP(specs, dtype)
        self._family = family

    @torch.no_grad()
    def backward(self, batch: Minibatch, coefficients: Coefficients, weight: Any = 1.0) -> dict[str, Tensor]:
        """Add `weight` times the gradient of the loss to the parameters' `.grad`; the terms of `ppo_loss`."""
        clip, value_clip, entropy_coef, value_coef = coefficients
        outputs, value = self.mlp.forward(batch.obs)
        value = value.view_as(batch.value)
        policy = self._family.of(outputs, batch.mask)
        log_ratio = policy.log_prob(batch.actions) - batch.log_prob
        each = weight / batch.value.numel()
        log_prob_grad = surrogate_grad(log_ratio, batch.advantage, clip) * each
        outputs_grad = policy_grad(policy, batch.actions, log_prob_grad, -entropy_coef * each)
        value_grad = value_loss_grad(value, batch.value, batch.returns, value_clip) * (value_coef * each)
        self.mlp.backward([outputs_grad, value_grad])
        return ppo_terms(log_ratio, value, policy.entropy(), batch, coefficients)
