"""Checkpoints of a run: saving and restoring them, choosing one, and starting another run from its weights."""

from __future__ import annotations

import operator
from contextlib import closing
from typing import Any, Final

from townlet.errors import SourceLocation, TownletError
from townlet.interfaces.state import State
from townlet.runs import checkpoint, checkpoint_files, disk, snapshots, videos
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.checkpoint_files import STATE
from townlet.runs.folder import Run
from townlet.runs.lock import Lock
from townlet.runs.metrics_store import MetricsStore, StorePosition
from townlet.tasks.experiment import saved_interface
from townlet.train.logger import MetricsLogger
from townlet.train.stop_conditions import StopConditions
from townlet.train.training import Training

NAMED: Final = ("best", "last")  # checkpoints with a name


class Checkpointer:
    """Saves and restores a run: metrics first, then the checkpoint that refers to them."""

    def __init__(
        self, run: Run, lock: Lock, t: Training, logger: MetricsLogger, store: MetricsStore, stop: StopConditions,
        identity: dict[str, Any],
    ) -> None:  # fmt: skip
        self._run, self._lock, self._t, self._logger, self._store = run, lock, t, logger, store
        self._stop, self._identity = stop, identity

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        """Write a checkpoint of the current step, and remove those that need not be kept.

        `score` is that of an evaluation at this step, `ended` the reason why the run is over. Videos are recorded
        first: a run that is killed in between records the same ones again when it is resumed.
        """
        self._lock.check()
        if ended is not None:
            record_video(self._run, self._t, self._logger, "end")
        elif score is not None and (self._stop.best is None or score > self._stop.best):
            record_video(self._run, self._t, self._logger, "best")
        now, position = self._t.counters, self._store.sync()
        info = {**self._identity, **now.state(), "seconds": round(self._stop.seconds, 3)}
        info |= {"metrics": position.rows, "metrics_digest": position.digest}
        if score is not None:
            info["score"] = score
        if self._stop.evaluation_pending:
            info["evaluation_pending"] = True
        if ended is not None:
            info |= {"ended": ended, "budget": self._stop.recipe.budget.model_dump()}
        state = {"training": self._t.state(), "logger": self._logger.state()}
        self._lock.check()
        checkpoint.save(self._run.checkpoints, checkpoint.folder_name(now.env_steps), state, info)
        checkpoint.prune(self._run.checkpoints, self._stop.recipe.checkpoints.keep_every or 0)

    def save_snapshot(self, score: float | None = None) -> None:
        """Write the policy of the current step, unless a process that was killed or stopped has written it before."""
        folder, now = self._run.snapshots, self._t.counters
        if any(checkpoint.step_and_serial(path)[0] == now.env_steps for path in checkpoint.paths(folder)):
            return
        info = {**self._identity, **now.state(), "snapshot": True}
        if score is not None:
            info["score"] = score
        self._lock.check()
        checkpoint.save(folder, checkpoint.folder_name(now.env_steps), {"training": self._t.policy_state()}, info)

    def rewind(self, env_steps: int) -> None:
        """Remove checkpoints, snapshots and videos after `env_steps`."""
        checkpoint.rewind(self._run.checkpoints, env_steps)
        checkpoint.rewind(self._run.snapshots, env_steps)
        videos.rewind(self._run.videos, env_steps)

    def restore(self, last: Checkpoint) -> bool:
        """Restore a checkpoint and remove everything after it. Returns whether the metrics of the run are missing."""
        t, stop, run = self._t, self._stop, self._run
        state, info = checkpoint.load(last.path)
        if "logger" not in state:
            what = f"{run.name} was saved by an earlier release and cannot be resumed"
            raise TownletError(what, f"start a new run with init_from={run.name}", run.path)
        t.restore(state["training"])
        if t.parallel_training:
            t.parallel_training.restore(last.path.name)
        self._logger.restore(state["logger"])
        position = StorePosition(info["metrics"], info["metrics_digest"])
        lost = self._store.empty and any(position.rows.values())  # the file was moved away
        if not lost:
            self._store.rewind(last.env_steps, position)
        self.rewind(last.env_steps)
        stop.previous_seconds, stop.evaluation_pending = float(info["seconds"]), bool(info.get("evaluation_pending"))
        stop.mark_saved(t)
        best = checkpoint.best(run.checkpoints)
        stop.best = None if best is None else float(best.info["score"])
        if info.get("ended"):  # the run continues only with a larger budget
            same = info.get("budget") == stop.recipe.budget.model_dump()
            stop.already_over = stop.end_reason(t, None) or (info["ended"] if same else None)
        return lost


def choose_checkpoint(run: Run, which: str | float = "best") -> Checkpoint:
    """The run's best checkpoint (its last if none was evaluated), its last, or the one saved nearest to a step.

    For a step, policy snapshots are considered too; of two equally near, the earlier is returned.
    """
    if which not in NAMED:
        step = _step(which)
        if step < 0:
            raise TownletError(f"a run has no step {step}", "count from 0, the untrained policy")
        if saved := snapshots.saved_policies(run)[0]:
            return min(saved, key=lambda one: abs(one.env_steps - step))
    if which == "best" and (damaged := checkpoint.scan(run.checkpoints)[1]):
        path, error = next(iter(damaged.items()))
        what = f"the best checkpoint cannot be determined: {error.diagnostics[0].what}"
        fix = "use the last one (--which last), or remove the damaged one"
        raise TownletError(what, fix, path)
    chosen = (checkpoint.best(run.checkpoints) if which == "best" else None) or checkpoint.latest(run.checkpoints)
    if chosen is None:
        raise TownletError("this run has no checkpoint yet", f"townlet train --resume {run.path}", run.path)
    return chosen


def _step(which: object) -> int:
    """A number of steps as an int, also if it is given as 1e5 or as a NumPy integer."""
    if isinstance(which, float) and which.is_integer():
        return int(which)
    try:
        return operator.index(which)  # type: ignore[arg-type]
    except TypeError:
        what = f"a run has no checkpoint '{str(which)[:60]}'"
        raise TownletError(what, f"use {' or '.join(NAMED)}, or a number of steps") from None


def training_state(chosen: Checkpoint) -> tuple[State, dict[str, Any]]:
    """The state of `Training` in a checkpoint, and the info of its manifest."""
    state, info = checkpoint.load(chosen.path)
    return state["training"], info


def warm_start(t: Training, source: Run) -> dict[str, Any]:
    """Load the weights of another run's best checkpoint, which must have the same interface and network.

    Returns the entry for meta.json.
    """
    chosen = choose_checkpoint(source)
    state, info = training_state(chosen)
    if saved_interface(source, info) != t.task.interface:
        what = f"the agent of {source.name} has another observation or other actions than {t.task.name}"
        fix = "name a run of a world with the same places, meters and actions; `townlet runs list` shows all runs"
        raise TownletError(what, fix, SourceLocation("init_from"))
    t.agent.load_weights(state["agent"]["network"])
    t.task.load_normalization(state["env"])
    sha256 = checkpoint_files.open_manifest(chosen.path).files[STATE].sha256
    return {"run": source.name, "checkpoint": chosen.name, "env_steps": chosen.env_steps, "sha256": sha256}


def require_rendering(t: Training) -> None:
    """Raise an error now if videos of this run could not be recorded later."""
    if t.recipe.video.episodes:
        videos.require_encoder()
        t.task.render(t.agent.policy(), t.recipe, t.recipe.device).close()


def record_video(run: Run, t: Training, logger: MetricsLogger, why: videos.VideoReason) -> None:
    """Record evaluation episodes of the current agent, if the recipe has videos.

    They use a separate environment, policy and random streams, so that training does not depend on them.
    """
    settings = t.recipe.video
    if not settings.episodes:
        return
    disk.make_folder(run.videos)
    path = run.videos / videos.video_name(t.counters.env_steps, why)
    with closing(t.task.render(t.agent.policy(), t.recipe, t.recipe.device)) as rendered:
        videos.record_video([rendered], path, episodes=settings.episodes, steps=settings.steps)
    logger.on_video(path)
