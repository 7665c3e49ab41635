"""A policy as a player of towns, see `townlet.town.planner.Player`."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.tasks.evaluation import Acting
from townlet.town.engines.engine import Engine
from townlet.town.state import to_numpy


class TrainedPlayer:
    """Plays as a policy acts; its network may be on another device than the town."""

    name = "trained"

    def __init__(self, policy: Acting, greedy: bool = True, device: str = "cpu") -> None:
        self._policy, self._greedy, self._device, self._rows = policy, greedy, device, 0

    def act(self, engine: Engine) -> NDArray[np.int64]:
        """One action for each row [N]; a row of age 0 has nothing to remember."""
        if self._rows != engine.rows:
            self._rows = engine.rows
            self._policy.reset(engine.rows)
        parts = (to_numpy(engine.obs), to_numpy(engine.mask), engine.peek()["age"] == 0)
        obs, mask, fresh = (torch.from_numpy(part).to(self._device) for part in parts)
        return self._policy.act(obs, mask, fresh, self._greedy).cpu().numpy()
