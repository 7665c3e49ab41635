"""The town as Gymnasium environments: `TownEnv` has one row, `TownVectorEnv` many.

`townlet.gym` is the reverse: it makes any Gymnasium environment a `VecEnv` for agents.

Both give the same flat `info` at every reset and step: numbers and arrays only, see `info.py`.
"""

from townlet.town.gymnasium.env import TownEnv
from townlet.town.gymnasium.vector_env import TownVectorEnv

__all__ = ["TownEnv", "TownVectorEnv"]
