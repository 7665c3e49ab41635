"""Mean and variance of everything seen so far, value by value."""

from __future__ import annotations

import torch
from torch import Tensor

from townlet.contract.restore import copy_tensor
from townlet.contract.state import State


class Moments:
    """Running mean [D] and variance [D], batches merged as if they had come at once (Chan et al. 1983)."""

    def __init__(self, size: int, device: str = "cpu") -> None:
        self.count = 0
        self.mean = torch.zeros(size, dtype=torch.float64, device=device)
        self.variance = torch.zeros(size, dtype=torch.float64, device=device)  # of the population

    def add(self, batch: Tensor) -> None:
        """Take in values [B, D]."""
        if (new := len(batch)) == 0:
            return
        variance, mean = torch.var_mean(batch, 0, correction=0)
        share = new / (self.count + new)
        away = mean.double() - self.mean
        self.mean += away * share
        self.variance += (variance.double() - self.variance) * share + away.square() * (share * (1 - share))
        self.count += new

    def normalize(self, values: Tensor, limit: float, tiny: float = 1e-8) -> Tensor:
        """(values − mean) / √(variance + tiny) [B, D] float32, clipped to ±limit."""
        scale = (self.variance + tiny).rsqrt().float()
        return (values - self.mean.float()).mul_(scale).clamp_(-limit, limit)

    def state(self) -> State:
        """Count, mean and variance."""
        return {"count": self.count, "mean": self.mean, "variance": self.variance}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        copy_tensor(self.mean, state["mean"], "explore.bonus.mean")
        copy_tensor(self.variance, state["variance"], "explore.bonus.variance")
        self.count = int(state["count"])
