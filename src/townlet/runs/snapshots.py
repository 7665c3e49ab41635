"""Policy snapshots: the weights alone, saved at geometrically spaced steps, so that a run can show how it learned.

A snapshot has the format of a checkpoint, but a folder of its own: it can be evaluated and played, not resumed, and it
is never pruned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from townlet.errors import TownletError
from townlet.runs import checkpoint
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run

FIRST_WITHOUT_BUDGET: Final = 1000  # env_steps of the first snapshot after step 0 if the run has no limit of env_steps


def is_due(before: int, now: int, budget: int | None, count: int) -> bool:
    """Whether a snapshot is due after the rollout from env_steps `before` to `now`.

    `count` snapshots have halving distances from the end: at step 0, budget / 2^(count − 2), …, budget / 2, budget.
    Without a budget they are at 1000, 2000, 4000, … env_steps, as many as the run is long.
    """
    if not count:
        return False
    if budget is None:
        step = FIRST_WITHOUT_BUDGET
        while step <= before:
            step *= 2
        return step <= now
    return any(before < budget / 2**halvings <= now for halvings in range(count - 1))


def saved_policies(run: Run) -> tuple[list[Checkpoint], dict[Path, TownletError]]:
    """Checkpoints and snapshots that are intact, by step, and the errors of the others.

    A snapshot is left out if a checkpoint of the same step has the same weights.
    """
    checkpoints, damaged = checkpoint.scan(run.checkpoints)
    snapshots, damaged_snapshots = checkpoint.scan(run.snapshots)
    steps = {saved.env_steps for saved in checkpoints}
    distinct = [saved for saved in snapshots if saved.env_steps not in steps]
    return sorted([*checkpoints, *distinct], key=lambda saved: saved.env_steps), {**damaged, **damaged_snapshots}
