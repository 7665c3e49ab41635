"""Episodes that ended in one step of all rows, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Episodes(NamedTuple):
    """k finished episodes, each column [k] on the CPU. Only `terminated` tells death from running out of time."""

    rows: Tensor  # int64, ascending
    length: Tensor  # int64, steps lived
    reward: Tensor  # float32, sum of the world's own rewards, unscaled
    intrinsic: Tensor  # float32, sum of the unweighted intrinsic reward; 0 without one
    entropy: Tensor  # float32, mean normalised entropy of the behaviour policy in [0, 1]; 0 where nobody asks
    terminated: Tensor  # bool
    guidance: Tensor  # float32, sum of what guides learning beside the world's own rewards; 0 without any

    def __len__(self) -> int:  # a NamedTuple would count its columns
        return int(self.rows.shape[0])
