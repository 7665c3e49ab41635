"""The weights in a run's checkpoints: to act with, and to begin another run with."""

from __future__ import annotations

from typing import Any

from townlet.errors import SourceLocation, TownletError
from townlet.interfaces.state import State
from townlet.runs import checkpoint, checkpoint_files
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.checkpoint_files import STATE
from townlet.runs.folder import Run
from townlet.train.build import Training


def warm_start(t: Training, source: Run) -> dict[str, Any]:
    """Begin with the weights of another run's best checkpoint, which needs the same interface and network.

    Gives what meta.json should say of it.
    """
    found = chosen(source)
    state, info = training_state(found)
    if info.get("interface") != t.task.interface:
        what = f"the agent of {source.name} sees or does other things than one in {t.task.name}"
        fix = "name a run of a world with the same observation and actions; `townlet runs list` shows all runs"
        raise TownletError(what, fix, SourceLocation("init_from"))
    t.agent.load_weights(state["agent"]["network"])
    t.task.recall(state["env"])
    sha256 = checkpoint_files.open_manifest(found.path).files[STATE].sha256
    return {"run": source.name, "checkpoint": found.name, "env_steps": found.env_steps, "sha256": sha256}


def chosen(run: Run, which: str = "best") -> Checkpoint:
    """The run's best checkpoint (the last where none was measured), or its last."""
    if which == "best" and (damaged := checkpoint.scan(run.checkpoints)[1]):
        path, error = next(iter(damaged.items()))
        what = f"which checkpoint is the best cannot be told: {error.diagnostics[0].what}"
        raise TownletError(
            what, "ask for the last one (--which last), or remove the damaged one", SourceLocation(str(path))
        )
    found = (checkpoint.best(run.checkpoints) if which == "best" else None) or checkpoint.latest(run.checkpoints)
    if found is None:
        raise TownletError(
            "this run has no checkpoint yet", f"townlet train --resume {run.path}", SourceLocation(str(run.path))
        )
    return found


def training_state(found: Checkpoint) -> tuple[State, dict[str, Any]]:
    """What a checkpoint holds of its training, and what the manifest says."""
    state, info = checkpoint.load(found.path)
    return state["training"], info
