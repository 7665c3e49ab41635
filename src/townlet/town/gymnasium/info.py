"""The `info` of the Gymnasium environments: the same flat keys at every reset and step, numbers and arrays only.

`action_mask` marks the valid actions, `reward_<component>` are the components of the last reward (0 after a reset),
and `cause` is a code: −1 while the episode runs, else the index of `cause_names`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.town.engines.engine import Engine
from townlet.town.gymnasium.engine_views import EngineViews
from townlet.town.state import cause_names
from townlet.town.world.tables import World

RUNNING: Final = np.int64(-1)  # the cause of an episode that has not ended; TorchRL reads its dtype
RUNNING_NAME: Final = "running"


def reward_keys(world: World) -> tuple[str, ...]:
    return tuple(f"reward_{name}" for name in world.rewards)


def build_info(
    mask: NDArray[np.int8], cause: Any, rewards: NDArray[np.float64], reward_keys: tuple[str, ...]
) -> dict[str, Any]:
    """The info of mask [K], cause and reward components [R]; the dict of all rows from [N, K], [N] and [R, N]."""
    # A loop takes a quarter of the time of dict(zip(…)).
    found: dict[str, Any] = {"action_mask": mask, "cause": cause}
    for key, reward in zip(reward_keys, rewards, strict=True):
        found[key] = reward
    return found


def cause_name(world: World, code: int) -> str:
    """The name of a cause: a lethal meter, "time", or "running" for −1."""
    names = cause_names(world)
    if not RUNNING <= code < len(names):
        raise TownletError(f"there is no cause {code}", f"give {RUNNING} to {len(names) - 1}")
    return RUNNING_NAME if code == RUNNING else names[code]


class VectorInfo:
    """Builds the infos of N rows: arrays [N] or [N, K] under each key, and under `_key` which rows have a value."""

    def __init__(self, world: World, rows: int) -> None:
        self.reward_keys = reward_keys(world)
        self._rows = rows
        self._mark_keys = tuple(f"_{key}" for key in ("action_mask", "cause", *self.reward_keys))
        self._running = np.full(rows, RUNNING, np.int64)
        self._all_rows = np.ones(rows, np.bool_)

    def current(self, outputs: EngineViews, marked: NDArray[np.bool_] | None = None) -> dict[str, Any]:
        """Infos of rows whose episodes run; `marked` [N] are those that have a value, by default all."""
        if marked is None:
            return self._build(outputs.mask.copy(), self._running.copy(), reward_parts(outputs), self._all_rows.copy())
        masks, causes = outputs.mask * marked[:, None], self._running * marked  # 0 without a value, as in Gymnasium
        return self._build(masks, causes, reward_parts(outputs) * marked, marked.copy())

    def final(
        self,
        engine: Engine,
        outputs: EngineViews,
        ended_mask: NDArray[np.bool_],
        rows: NDArray[np.int64],
        mask: NDArray[Any],
    ) -> dict[str, Any]:
        """Infos at the end of the episodes that were reset in the same step; `mask` is the final one [k, K]."""
        masks, causes = np.zeros((self._rows, mask.shape[1]), np.int8), np.zeros(self._rows, np.int64)
        masks[rows], causes[rows] = mask, engine.final_causes(rows)
        return self._build(masks, causes, np.where(ended_mask, reward_parts(outputs), 0.0), ended_mask.copy())

    def _build(
        self, mask: NDArray[np.int8], cause: NDArray[np.int64], rewards: NDArray[np.float64], marks: NDArray[np.bool_]
    ) -> dict[str, Any]:
        """The dict of mask [N, K], cause [N], reward components [R, N] and the marks [N] of every key."""
        infos = build_info(mask, cause, rewards, self.reward_keys)
        for key in self._mark_keys:
            infos[key] = marks
        return infos


def reward_parts(outputs: EngineViews) -> NDArray[np.float64]:
    """A copy of the reward components of the last step: [R, N], or [R] of one row."""
    return outputs.components.astype(np.float64, "C")
