"""The gradient of a temporal-difference loss for plain MLPs, without autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from townlet.agents.accelerated.analytic_mlp import AnalyticMLP, mlp_specs
from townlet.agents.accelerated.gradients import td_loss_grad
from townlet.agents.q_network import QNetwork
from townlet.agents.value_agent import LossName, td_loss


class AnalyticTD:
    """Computes what `q_loss(…).backward()` computes, faster for small networks on a CPU."""

    def __init__(self, mlp: AnalyticMLP) -> None:
        self._mlp = mlp

    @staticmethod
    def of(network: QNetwork) -> AnalyticTD | None:
        """For this network, if it is a plain MLP."""
        specs = mlp_specs(network)
        return AnalyticTD(AnalyticMLP(specs)) if specs else None

    @torch.no_grad()
    def backward(
        self, obs: Tensor, actions: Tensor, target: Tensor, kind: LossName, importance: Tensor | float = 1.0,
        weight: float = 1.0,
    ) -> dict[str, Tensor]:  # fmt: skip
        """Add `weight` times the gradient of the loss to the parameters' `.grad`; the terms of `q_loss`."""
        (values,) = self._mlp.forward(obs)
        index = actions.unsqueeze(1)
        chosen = values.gather(1, index).squeeze(1)
        error = chosen - target
        grad = importance * td_loss_grad(error, kind) * (weight / max(1, len(obs)))
        self._mlp.backward([torch.zeros_like(values).scatter_(1, index, grad.unsqueeze(1))])
        return {"loss": importance * td_loss(error, kind), "td_error": error.abs(), "mean_q": chosen}
