"""The town as Gymnasium environments: `TownEnv` has one row, `TownVectorEnv` many.

Both give the same flat `info` at every reset and step: numbers and arrays only, see `info.py`.
"""

from townlet.town.gymnasium.env import TownEnv
from townlet.town.gymnasium.vector_env import TownVectorEnv

__all__ = ["TownEnv", "TownVectorEnv"]
