"""What several processes can train together, and what they cannot."""

from __future__ import annotations

from typing import Final

from townlet.agents.dqn import DqnSettings
from townlet.agents.ppo import PpoSettings
from townlet.agents.pqn import PqnSettings
from townlet.errors import TownletError
from townlet.sim.tape import WATCHED
from townlet.train.recipe import Recipe

ALONE: Final = "start it without torchrun"


def require_shared(recipe: Recipe, size: int) -> None:
    """Refuse what cannot be split over so many processes."""
    agent = recipe.agent
    if recipe.gym is not None:
        what = "several processes train towns together, not environments of Gymnasium"
        raise TownletError(what, f"{ALONE}, and let its rows live in processes with gym.vectorization=async")
    if not isinstance(agent, PpoSettings | PqnSettings | DqnSettings):
        raise TownletError(f"several processes train ppo, pqn and dqn together, not {agent.name}", ALONE)
    kept = {
        "curriculum": recipe.curriculum,
        "explore.bonus": recipe.explore.bonus,
        "agent.prioritized": agent.prioritized if isinstance(agent, DqnSettings) else None,
    }
    for key, asked in kept.items():
        if asked is not None:
            raise TownletError(f"several processes cannot follow one {key}", f"write {key}=null, or {ALONE}")
    rows = recipe.row_count
    if rows % size or rows < WATCHED * size:
        even = max(WATCHED, round(rows / size)) * size
        raise TownletError(f"{rows} rows cannot be split evenly over {size} processes", f"write rows={even}")
