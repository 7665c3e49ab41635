"""Nothing that is not a number goes on: the first such value stops the run and is named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn

from townlet.errors import TownletError

FIX: Final = (
    "lower agent.lr and resume, since the last checkpoint is from before this; "
    "or begin anew with a lower agent.reward_scale"
)

ITS_OWN: Final = (
    "it comes from the environment: look at its rewards and at what shapes them, and resume, "
    "since the last checkpoint is from before this"
)


class Diverged(TownletError):
    """Training met NaN or Inf; `tensor` names where."""

    exit_code = 3

    def __init__(self, tensor: str, value: float, when: str, fix: str = FIX) -> None:
        super().__init__(f"training diverged: {tensor} is {value} {when}", fix)
        self.tensor = tensor


def check_reward(reward: Tensor, when: str) -> None:
    """Refuse a reward [N] that is not finite."""
    if found := wrong_reward(reward):
        row, value = found
        raise Diverged(f"reward of row {row}", value, when, ITS_OWN)


def wrong_reward(reward: Tensor) -> tuple[int, float] | None:
    """The first row whose reward [N] is not finite, and that reward; None where all are.

    Their sum tells it in one look, unless finite ones overflow it.
    """
    if math.isfinite(float(reward.sum())):
        return None
    wrong = torch.isfinite(reward).logical_not().nonzero()
    return (int(wrong[0]), float(reward[wrong[0]])) if len(wrong) else None


def check_figures(figures: Mapping[str, float], when: str) -> None:
    """Refuse figures of an update that are not finite, the loss first."""
    if all(map(math.isfinite, figures.values())):
        return
    for name in sorted(figures, key=lambda name: "loss" not in name):
        if not math.isfinite(figures[name]):
            raise Diverged(name, figures[name], when)


@torch.no_grad()
def check_weights(weights: Mapping[str, Tensor], when: str) -> None:
    """Refuse weights that are not finite. Their total norm shows it at one look, unless large ones overflow."""
    if math.isfinite(nn.utils.get_total_norm(weights.values()).item()):
        return
    for name, values in weights.items():
        wrong = values[torch.isfinite(values).logical_not()]
        if len(wrong):
            raise Diverged(f"weight {name}", float(wrong[0]), when)
