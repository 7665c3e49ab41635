"""The mathematics that value-based agents share: targets, errors, losses and networks that lag behind."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from townlet.contract.vec_env import Continuous, Discrete, VecEnv
from townlet.errors import TownletError

Loss = Literal["mse", "huber"]


def require_discrete(name: str, env: VecEnv) -> None:
    """Who compares the values of actions can only choose from a list of them."""
    if not isinstance(env.actions, Discrete):
        kind = "numbers" if isinstance(env.actions, Continuous) else "switches"
        raise TownletError(f"{name} needs a list of actions, and those of this environment are {kind}", "take ppo")


def best_valid(ranking: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """values [..., K] of the valid action that `ranking` [..., K] puts first: [...]. An invalid one never wins.

    Q-learning ranks by the values themselves; double Q-learning (van Hasselt et al. 2016, eq. 4) ranks by
    the online network what the target network values.
    """
    best = ranking.masked_fill(~mask, -torch.inf).argmax(-1, keepdim=True)
    return values.gather(-1, best).squeeze(-1)


def pointwise_loss(error: Tensor, kind: Loss) -> Tensor:
    """Loss of each temporal-difference error δ: δ² for mse; for huber δ²/2 within ±1, then |δ| − 1/2."""
    if kind == "mse":
        return error.square()
    return functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=1.0)


def pointwise_slope(error: Tensor, kind: Loss) -> Tensor:
    """∂ pointwise_loss / ∂ δ: 2 δ for mse; for huber δ within ±1, then its sign."""
    return 2 * error if kind == "mse" else error.clamp(-1, 1)
