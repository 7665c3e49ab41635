"""Policy snapshots: weights and observation statistics, saved at geometrically spaced steps to show how a run learned.

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


def snapshot_due(before: int, now: int, budget: int | None, count: int) -> bool:
    """Whether a snapshot is due after the rollout from env_steps `before` to `now`.

    `count` snapshots are saved: at step 0, and at budget / 2^k for k = count − 2, …, 1, 0. Without a budget they are
    saved at 1000, 2000, 4000, … env_steps, doubling until the run ends.
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
