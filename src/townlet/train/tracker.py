"""What each row has lived through since its reset, and the episodes that ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes, FinalObs, Step

GUIDANCE: Final = "potential"  # the reward that guides learning and changes nothing about what is best
SUMS: Final = ("length", "reward", "intrinsic", "entropy", "guidance")


class Tracker:
    """Sums over the running episode of each row [N]; `components` are the names of the rewards [R].

    Guidance is summed apart: a life that was guided well need not be a good one.
    """

    def __init__(self, rows: int, device: str = "cpu", components: Sequence[str] = ()) -> None:
        self.length = torch.zeros(rows, dtype=torch.int64, device=device)
        self.reward, self.intrinsic, self.entropy, self.guidance = (torch.zeros(rows, device=device) for _ in range(4))
        self._own = [k for k, name in enumerate(components) if name != GUIDANCE]
        self._guiding = [k for k, name in enumerate(components) if name == GUIDANCE]
        nobody = torch.zeros(0, dtype=torch.int64, device=device)
        self._none = self._episodes(nobody, nobody.bool())

    def step(self, step: Step, ended: FinalObs, intrinsic: Tensor, entropy: Tensor | None) -> Episodes:
        """Add one step of all rows; the episodes that ended with it, whose sums begin anew."""
        self.length += 1 if step.autoreset_step is None else step.autoreset_step.logical_not()
        self._add_rewards(step)
        self.intrinsic += intrinsic
        if entropy is not None:
            self.entropy += entropy
        rows = ended.rows
        if not rows.shape[0]:
            return self._none
        over = self._episodes(rows, step.terminated[rows])
        for sums in self.state().values():
            sums.index_fill_(0, rows, 0)
        return over

    def witness(self, step: Step, lengths: Tensor, rewards: Tensor, guided: Tensor) -> None:
        """The same without a look at it: the sums of all rows [N], as if all had ended, and those that did begin anew.

        For steps that are never void, without intrinsic reward.
        """
        self.length += 1
        self._add_rewards(step)
        lengths.copy_(self.length)
        rewards.copy_(self.reward)
        guided.copy_(self.guidance)
        for sums in (self.length, self.reward, self.guidance):
            sums.masked_fill_(step.episode_starts, 0)

    def _add_rewards(self, step: Step) -> None:
        """Column by column: there are few of them."""
        if not self._guiding:
            self.reward += step.reward
            return
        for k in self._own:
            self.reward += step.components[:, k]
        for k in self._guiding:
            self.guidance += step.components[:, k]

    def _episodes(self, rows: Tensor, terminated: Tensor) -> Episodes:
        """The sums of some rows as episodes."""
        length = self.length[rows]
        return Episodes(
            rows.cpu(),
            length.cpu(),
            self.reward[rows].cpu(),
            self.intrinsic[rows].cpu(),
            (self.entropy[rows] / length).cpu(),
            terminated.cpu(),
            self.guidance[rows].cpu(),
        )

    def forget(self) -> None:
        """All rows begin anew: the episodes that were under way never end."""
        for sums in self.state().values():
            sums.zero_()

    def state(self) -> State:
        """The sums of all running episodes."""
        return {name: getattr(self, name) for name in SUMS}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        for name, mine in self.state().items():
            mine.copy_(torch.as_tensor(state[name]))
