"""Policies of checkpoints, cached and shared between viewers."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from townlet.errors import TownletError
from townlet.runs import checkpoint as checkpoints
from townlet.runs import snapshots
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run
from townlet.train.policies import TrainedPolicy, load_checkpoint

CACHED_POLICIES: Final = 8


class PolicyCache:
    """Loaded policies by checkpoint; the least recently used is evicted first."""

    def __init__(self) -> None:
        self._policies: OrderedDict[str, TrainedPolicy] = OrderedDict()

    def find(self, run: Run, name: str) -> Checkpoint:
        """A checkpoint by name, `latest` or `best`; `best` is the latest one while there is no evaluation."""
        found: Checkpoint | None
        if name == "latest":
            found = checkpoints.latest(run.checkpoints)
        elif name == "best":
            found = checkpoints.best(run.checkpoints) or checkpoints.latest(run.checkpoints)
        else:
            intact, _ = snapshots.saved_policies(run)
            found = next((checkpoint for checkpoint in intact if checkpoint.name == name), None)
        if found is None:
            raise TownletError(f"this run has no checkpoint '{name[:60]}'", "choose one from the list of checkpoints")
        return found

    def policy(self, run: Run, checkpoint: Checkpoint) -> TrainedPolicy:
        """The policy of a checkpoint, from memory or from disk."""
        key = str(checkpoint.path)
        if key not in self._policies:
            self._policies[key] = load_checkpoint(run, checkpoint)
            if len(self._policies) > CACHED_POLICIES:
                self._policies.popitem(last=False)
        self._policies.move_to_end(key)
        return self._policies[key]


def player_label(name: str, checkpoint: Checkpoint) -> str:
    """Label of the acting checkpoint on the page, such as `best checkpoint, after 1,200 steps`."""
    label = f"{name} checkpoint" if name in ("latest", "best") else "checkpoint"
    return f"{label}, {progress_text(checkpoint.env_steps)}"


def progress_text(env_steps: int) -> str:
    """How long an agent was trained."""
    return f"after {env_steps:,} steps"
