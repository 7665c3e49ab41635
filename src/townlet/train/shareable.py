"""What several processes can train together, and what they cannot."""

from __future__ import annotations

from typing import Final

import torch

from townlet.agents.registry import entries, entry
from townlet.distributed.process_group import ProcessGroup
from townlet.errors import TownletError
from townlet.recipes.schema import Recipe
from townlet.town.episode_recorder import RECORDED_ROWS

ALONE: Final = "start it without torchrun"


def require_shared(recipe: Recipe, group: ProcessGroup) -> None:
    """Refuse what cannot be split over these processes."""
    agent, size = entry(recipe.agent.name), group.size
    if recipe.gym is not None:
        what = "several processes train towns together, not environments of Gymnasium"
        raise TownletError(what, f"{ALONE}, and let its rows live in processes with gym.vectorization=async")
    if not agent.shard_axes:
        able = _or([e.name for e in entries() if e.shard_axes])
        raise TownletError(f"{agent.name} cannot be trained by several processes", f"{ALONE}, or train {able}")
    kept = {"curriculum": recipe.curriculum, "explore.bonus": recipe.explore.bonus}
    kept |= {f"agent.{key}": getattr(recipe.agent, key) for key in agent.unshardable}
    for key, asked in kept.items():
        if asked is not None:
            raise TownletError(f"several processes cannot follow one {key}", f"write {key}=null, or {ALONE}")
    rows = recipe.row_count
    if rows % size or rows < RECORDED_ROWS * size:
        fitting = [str(count) for count in range(1, rows // RECORDED_ROWS + 1) if rows % count == 0]
        fix = f"start {_or(fitting[:6])}, or begin a run with rows={max(RECORDED_ROWS, round(rows / size)) * size}"
        raise TownletError(f"{rows} rows cannot be split evenly over {size} processes", fix)
    if recipe.device.startswith("cuda") and (
        recipe.device != "cuda" or group.on_this_machine > torch.cuda.device_count()
    ):
        what = f"device {recipe.device} cannot be shared by {group.on_this_machine} processes"
        raise TownletError(what, f"write device=cuda and start one process for each GPU: {torch.cuda.device_count()}")


def _or(words: list[str]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words) or "1"
