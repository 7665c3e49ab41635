"""How new each cell of a town still is to an agent that is paid for novelty."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import Agent
from townlet.explore.intrinsic_reward import novelty_map
from townlet.town.env import Town

LARGEST: Final = 4096  # cells: beyond, a map would cost more than it tells


class NoveltyMap:
    """Asks the agent's bonus what being on each cell is worth, at the start of a life. Nothing is counted as seen."""

    def __init__(self, env: Town, agent: Agent) -> None:
        self._agent, self._layout = agent, env.layout
        self._everywhere = _everywhere(env) if agent.bonus and env.world.size else None

    def look(self) -> NDArray[np.float64] | None:
        """Novelty [C], or None without a bonus or a map."""
        if self._agent.bonus is None or self._everywhere is None:
            return None
        return np.asarray(novelty_map(self._agent.bonus, self._layout, self._everywhere).double().cpu())


def _everywhere(env: Town) -> Tensor | None:
    """What is seen from each cell [C, D]: a town with a row on every one of them."""
    cells = env.world.tables.next_cell.shape[1]
    if cells > LARGEST:
        return None
    town = Town(env.world, cells, engine="torch", device=env.device)
    town.reset(0)
    seen = town.restore({**town.state(), "cell": np.arange(cells)}).obs.clone()
    town.close()
    return seen
