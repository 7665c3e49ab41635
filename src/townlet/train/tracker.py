"""What each row has lived through since its reset, and the episodes that ended."""

from __future__ import annotations

import torch
from torch import Tensor

from townlet.contract.episodes import Episodes
from townlet.contract.state import State
from townlet.contract.vec_env import Ended, Step


class Tracker:
    """Sums over the running episode of each row [N]."""

    def __init__(self, rows: int, device: str = "cpu") -> None:
        self.length = torch.zeros(rows, dtype=torch.int64, device=device)
        self.reward, self.intrinsic, self.entropy = (torch.zeros(rows, device=device) for _ in range(3))

    def step(self, step: Step, ended: Ended, intrinsic: Tensor, entropy: Tensor | None) -> Episodes:
        """Add one step of all rows; the episodes that ended with it, whose sums begin anew."""
        self.length += 1
        self.reward += step.reward
        self.intrinsic += intrinsic
        if entropy is not None:
            self.entropy += entropy
        rows = ended.rows
        length = self.length[rows]
        over = Episodes(
            rows.cpu(),
            length.cpu(),
            self.reward[rows].cpu(),
            self.intrinsic[rows].cpu(),
            (self.entropy[rows] / length).cpu(),
            step.terminated[rows].cpu(),
        )
        if len(over):
            for sums in (self.length, self.reward, self.intrinsic, self.entropy):
                sums[rows] = 0
        return over

    def state(self) -> State:
        """The sums of all running episodes."""
        return {"length": self.length, "reward": self.reward, "intrinsic": self.intrinsic, "entropy": self.entropy}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        for name, mine in self.state().items():
            mine.copy_(torch.as_tensor(state[name]))
