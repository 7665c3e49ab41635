"""A batched environment: N rows on one device, each of which resets by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from townlet.contract.layout import Layout

if TYPE_CHECKING:  # the contract itself must not cost an import of torch
    from torch import Tensor


@dataclass(frozen=True)
class Discrete:
    """Actions 0 … n − 1, each with a name for people."""

    names: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.names)


class Seen(NamedTuple):
    """What an agent acts on: obs [N, D] float32 and mask [N, K] bool (true = makes sense)."""

    obs: Tensor
    mask: Tensor


class Step(NamedTuple):
    """What one step brought. Rows that ended already show the first moment of their next episode.

    reward [N] is the sum of components [N, R], which `VecEnv.components` names. terminated (the agent died
    or reached the goal) and truncated (time ran out) are never both true.
    """

    obs: Tensor
    mask: Tensor
    reward: Tensor
    components: Tensor
    terminated: Tensor
    truncated: Tensor


class Ended(NamedTuple):
    """Rows whose episode ended in the last step, and what they saw before their reset."""

    rows: Tensor  # [k] int64, ascending
    obs: Tensor  # [k, D]
    mask: Tensor  # [k, K]


class VecEnv(Protocol):
    """N independent rows. Tensors may be reused: they hold until the next call, copy what must stay."""

    rows: int
    device: str
    layout: Layout
    actions: Discrete
    components: tuple[str, ...]

    def reset(self, seed: int) -> Seen:
        """Begin anew; the same seed gives the same episodes."""

    def step(self, actions: Tensor) -> Step:
        """Act in every row: actions [N] int64. A masked action is legal and wasted."""

    def ended(self) -> Ended:
        """What rows that ended in the last step saw last: the state a truncated episode bootstraps from."""

    def state(self) -> Mapping[str, Any]:
        """Everything that decides what happens next, by name."""

    def restore(self, state: Mapping[str, Any]) -> Seen:
        """Go on exactly where `state` was taken."""

    def close(self) -> None:
        """Give back threads, windows and memory."""
