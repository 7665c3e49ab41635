"""What changes the observations of all rows at once, after the environment and before the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from townlet.gym.spaces import Floats, Observations
from townlet.interfaces.layout import Layout
from townlet.interfaces.state import State


class Scaling(NamedTuple):
    """How each number was brought to size: less `centre`, divided by `spread`, cut off beyond ± `limit`; each [D]."""

    centre: Floats
    spread: Floats
    limit: Floats


class Stage(Protocol):
    """One change of observations [N, D] into others [N, E], in memory of its own that is used again."""

    frozen: bool

    def fit(self, layout: Layout, rows: int, sight: Observations) -> tuple[Layout, Floats]:
        """Make room for `rows` of this layout; gives the layout and the memory of what comes out."""

    def forget(self) -> None:
        """Forget what was learned of observations, unless it is frozen."""

    def begin(self, obs: Floats) -> Floats:
        """The first moment of all rows."""

    def step(
        self, obs: Floats, begins: NDArray[np.bool_], ended: NDArray[np.int64], last: Floats
    ) -> tuple[Floats, Floats]:
        """What a step brought. `begins` [N] rows show their first moment; `last` [k, D] is what `ended` [k] rows saw
        before that, or nothing where they still show it."""

    def follow(self, other: Any) -> None:
        """See as another stage of the same kind does now."""

    def scaling(self, before: Scaling | None) -> Scaling | None:
        """How all that comes out was scaled, where what goes in was scaled so before."""

    def state(self) -> State:
        """What it remembers."""

    def restore(self, state: Mapping[str, Any], *, exact: bool) -> None:
        """Remember it again; where episodes are not `exact`ly gone on with, only what outlives them."""
