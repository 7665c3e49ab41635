"""One process that trains one run: make or open its folder, take its lock, build, restore, loop, report."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from townlet.agents.agent import no_interrupt
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.errors import EnvironmentFailed, SourceLocation, TownletError
from townlet.interfaces.state import Stateful
from townlet.recipes.render import original_text, resolved_text
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.runs import checkpoint, disk, provenance, videos
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run
from townlet.runs.lock import Lock
from townlet.runs.metrics_store import MetricsStore, StorePosition
from townlet.tasks.evaluation import Acting, Evaluated, Uniform
from townlet.tasks.experiment import LoadedExperiment
from townlet.tasks.task import Best, Summary
from townlet.train.build import Training, build
from townlet.train.fingerprint import describe, facts
from townlet.train.guards import Diverged
from townlet.train.logger import Journal
from townlet.train.loop import Ending, loop
from townlet.train.reopen import reopen, world_file
from townlet.train.shareable import require_shared
from townlet.train.signals import Signals
from townlet.train.sinks import LogFile, Sink, TensorBoard, closing
from townlet.train.stop_conditions import Limits
from townlet.train.tuning import tune_text
from townlet.train.videos import film, require_films
from townlet.train.wandb import Wandb, require_login
from townlet.train.weights import warm_start


@dataclass(frozen=True)
class Outcome:
    """What a training came to."""

    run: Run
    ending: Ending
    summary: Summary | None  # None when it was stopped on the way
    seconds: float
    seed: int
    trained: bool = True  # False when the run had been finished before, and was only measured once more


@dataclass(frozen=True)
class Begun:
    """A run on disk and all that lives while it trains: new, or about to go on from its `last` checkpoint."""

    loaded: LoadedExperiment
    training: Training
    run: Run
    last: Checkpoint | None = None
    changes: Sequence[str] = ()  # `key=value` with which it was ever resumed

    def train(
        self,
        lock: Lock,
        sinks: Sequence[Sink] = (),
        pause_at: int | None = None,
        stop: Callable[[], str | None] = lambda: None,
    ) -> Outcome:
        """Train to the end, or until a signal or `stop` ends it. `lock` is the run's, held by the caller."""
        return _train(self, lock, sinks, pause_at, stop)


class Saver:
    """Commits a run: metrics first, then the checkpoint that counts them."""

    def __init__(
        self,
        run: Run,
        lock: Lock,
        t: Training,
        journal: Stateful,
        store: MetricsStore,
        limits: Limits,
        facts: dict[str, Any],
    ) -> None:
        self._run, self._lock, self._t, self._journal, self._store = run, lock, t, journal, store
        self._limits, self._facts = limits, facts

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        """Write a checkpoint of this moment, and remove those that need not be kept.

        What is to be filmed is filmed before it: whoever is killed in between films the same again.
        """
        self._lock.check()
        if ended is not None:
            film(self._run, self._t, "end")
        elif score is not None and (self._limits.best is None or score > self._limits.best):
            film(self._run, self._t, "best")
        now, budget = self._t.counters, self._limits.recipe.budget
        position = self._store.sync()
        info = {**self._facts, **now.state(), "seconds": round(self._limits.seconds, 3)}
        info |= {"metrics": position.rows, "metrics_digest": position.digest}
        if score is not None:
            info["score"] = score
        if self._limits.owed:
            info["owed"] = True
        if ended is not None:
            info |= {"ended": ended, "budget": budget.model_dump()}
        state = {"training": self._t.state(), "journal": self._journal.state()}
        self._lock.check()
        checkpoint.save(self._run.checkpoints, checkpoint.folder_name(now.env_steps), state, info)
        checkpoint.prune(self._run.checkpoints, self._limits.recipe.checkpoints.keep_every or 0)


def start(
    loaded: LoadedExperiment, root: Path = Path("runs"), *, sinks: Sequence[Sink] = (), pause_at: int | None = None
) -> Outcome:
    """Train a recipe from nothing, or from the weights of `init_from`, in a new run below `root`."""
    begun = begin(loaded, root)
    with Lock(begun.run.path) as lock:
        return begun.train(lock, sinks, pause_at)


def begin(loaded: LoadedExperiment, root: Path, group: ProcessGroup = SINGLE_PROCESS) -> Begun:
    """A new run below `root`, before its first step; a mistake leaves nothing behind. A `group` trains it together."""
    loaded = replace(loaded, recipe=loaded.recipe.resolved())
    recipe = loaded.recipe
    training, begun_with = _before_first_step(loaded, root, group)
    texts = (original_text(loaded), resolved_text(loaded))
    meta = describe(loaded, begun_with) | {"recipe_hash": provenance.hash_resolved_text(texts[1])}
    worlds, tune = loaded.task.texts(), tune_text(recipe.agent)
    run = Run.create(root, recipe.env, recipe.variant or "run", *texts, meta, worlds, tune)
    return Begun(loaded, training, run)


def resume(
    run: Run, overrides: Sequence[str] = (), *, sinks: Sequence[Sink] = (), pause_at: int | None = None,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Outcome:  # fmt: skip
    """Go on with a run from its last checkpoint, to the bit; `overrides` may give it a larger budget.

    A run that was killed before its first checkpoint begins anew.
    """
    loaded = reopen(run, overrides)
    changes = [*run.meta().get("resumed_with", ()), *overrides]
    with Lock(run.path) as lock:  # before reading: a process that still writes may add a checkpoint
        if run.checkpoints.is_dir():
            checkpoint.reject_symlinks(run.checkpoints)
        last = checkpoint.latest(run.checkpoints)
        if last is None:
            training, begun_with = _before_first_step(loaded, run.path.parent, group)
            run.update_meta(init_from=begun_with)
        else:
            _require(run, last, loaded)
            training = _build(loaded, group)
            require_films(training)
        return Begun(loaded, training, run, last, changes).train(lock, sinks, pause_at)


def _before_first_step(
    loaded: LoadedExperiment, root: Path, group: ProcessGroup
) -> tuple[Training, dict[str, Any] | None]:
    """All that lives while it trains, and whose weights it begins with."""
    training, source = _build(loaded, group), loaded.recipe.init_from
    require_films(training)
    require_login(loaded.recipe)
    return training, warm_start(training, Run.open(source, root)) if source else None


def _build(loaded: LoadedExperiment, group: ProcessGroup) -> Training:
    """All that lives here, with or without others that train along."""
    if group.size > 1:
        require_shared(loaded.recipe, group)
    return build(loaded, group)


def _require(run: Run, last: Checkpoint, loaded: LoadedExperiment) -> None:
    """Refuse to go on in another world, with other rows or another agent than those of the checkpoint."""
    if last.info.get("published"):
        what = f"{run.name} was published with what acts alone: its training cannot go on"
        raise TownletError(
            what, "start a new run, with init_from to begin with its weights", SourceLocation(str(run.path))
        )
    provenance.require_resumable(run, last)
    wanted = facts(loaded)
    for role, name in (("training", "world"), ("evaluation", "evaluation_world")):
        own, now = last.info.get(name), wanted.pop(name, None)
        if own not in (None, now):  # older releases did not write both
            kept = world_file(run, role)
            where = kept if kept.exists() else Path(loaded.recipe.world or loaded.recipe.env)
            what = f"this is not the world that the {role} of the run {run.name} started with"
            raise TownletError(
                what, "restore the original, or start a new run with init_from", SourceLocation(str(where))
            )
    checkpoint.require_info(last, **wanted)


def _train(
    begun: Begun, lock: Lock, sinks: Sequence[Sink], pause_at: int | None, stop: Callable[[], str | None]
) -> Outcome:
    """Loop, then note the outcome and write the report."""
    loaded, run, recipe = begun.loaded, begun.run, begun.loaded.recipe
    # torchrun hands on what a terminal has told everybody already.
    with Signals(echoes=0 if begun.training.company.size == 1 else 1) as signals:
        limits = Limits(recipe, recipe.evaluation_interval, pause_at, lambda: signals.asked, stop)
        ending = _loop(begun, lock, sinks, limits)
        signals.urgent = True  # all is saved: whoever asks from here on need not wait
        seconds = limits.spent if limits.over else limits.seconds
        summary = None
        if ending.finished and ending.last and not signals.asked:
            policy = begun.training.agent.policy()
            summary = loaded.task.summarize(policy, recipe, _random(loaded), ending.last, _best(begun))
        told = summary.sentences() if summary else []
        took = {} if limits.over else {"seconds": round(seconds, 1)}
        lock.check()
        run.update_meta(ended=ending.why, finished=ending.finished, summary=told, **took)
        if summary:
            report(run, recipe)
    return Outcome(run, ending, summary, seconds, recipe.seed, not limits.over)


def report(run: Run, recipe: Recipe) -> None:
    """Write the report of a run, if its recipe asks for one."""
    if recipe.metrics.report:
        from townlet.runs.report import write_report  # with matplotlib, for which the first step need not wait

        write_report(run)


def _best(begun: Begun) -> Best | None:
    """The checkpoint that `eval` and `play` take, where it is not the last one."""
    found = checkpoint.best(begun.run.checkpoints)
    if found is None or found.env_steps == begun.training.counters.env_steps:
        return None
    return Best(found.env_steps, begun.loaded.recipe.metric, float(found.info["score"]))


def _loop(begun: Begun, lock: Lock, sinks: Sequence[Sink], limits: Limits) -> Ending:
    """Open everything that is written, put it where the last checkpoint was, and loop."""
    loaded, t, run, last = begun.loaded, begun.training, begun.run, begun.last
    recipe = loaded.recipe
    with MetricsStore(run.metrics_file, lock.check) as store, closing([*_own_sinks(begun), *sinks]) as all_sinks:
        journal = Journal(t, recipe.to_env_steps(recipe.metrics.every), recipe.metrics.whole_episodes, store, all_sinks)
        all_sinks.extend(loaded.task.broadcasts(run, t, journal.env_metrics))
        keeper = Saver(
            run, lock, t, journal, store, limits, facts(loaded) | provenance.checkpoint_identity(run, begun.changes)
        )
        t.tuning.file = run.tune_file
        t.company.begin(run, begun.changes)
        for note in loaded.notes:
            journal.note(note)
        try:
            if last:
                _go_on(begun, last, journal, store, limits, keeper)
            else:
                _set_out(begun, journal, store, limits, keeper)
            return loop(t, limits, journal, keeper, lambda: _measure(loaded, t.agent.policy(), limits.ask))
        except Diverged as error:
            journal.alert("diverged", error.diagnostics[0].what, tip=error.diagnostics[0].fix)
            run.update_meta(ended="diverged", diverged=error.diagnostics[0].what)
            raise
        except EnvironmentFailed as error:
            raise _failed(begun, error, journal) from error.__cause__
        except OSError as error:
            then = "then go on from the last checkpoint"
            raise disk.describe_error(error, f"cannot write in {run.path}", then) from error
        finally:
            t.env.close()
            t.company.end()


def _failed(begun: Begun, error: EnvironmentFailed, journal: Journal) -> TownletError:
    """The environment's own mistake for people; all that is known of it stands in the log."""
    run, what = begun.run, error.diagnostics[0].what
    journal.alert("environment", what)
    with run.log_file.open("a", encoding="utf-8") as log, suppress(OSError):
        log.writelines(traceback.format_exception(error.__cause__))
    run.update_meta(ended=what)
    last = checkpoint.latest(run.checkpoints)
    since = f" from step {last.env_steps:,}" if last else ""
    fix = f"mend it ({run.log_file} tells where), then go on{since}: townlet train --resume {run.path}"
    return TownletError(what, fix)


def _set_out(begun: Begun, journal: Journal, store: MetricsStore, limits: Limits, keeper: Saver) -> None:
    """Before the first step: the yardstick, and a checkpoint, so that a run that is killed early can be resumed too."""
    if reach := store.reach:  # no step is made before the first checkpoint is committed
        what = f"the checkpoints are missing, but the metrics of this run reach env_steps {reach:,}"
        fix = "restore the folder from a backup, or start a new run; nothing was removed"
        raise TownletError(what, fix, SourceLocation(str(begun.run.checkpoints)))
    store.rewind(-1)  # what a process left that was killed before its first checkpoint
    if begun.changes:
        begun.run.update_meta(resumed_with=list(begun.changes))
    videos.rewind(begun.run.videos, -1)
    journal.evaluated(_random(begun.loaded), "random")
    film(begun.run, begun.training, "start")
    keeper.save()
    limits.note_kept(begun.training)
    # Others begin with the same weights, wherever these come from.
    begun.training.company.restore(checkpoint.folder_name(begun.training.counters.env_steps))


def _go_on(
    begun: Begun, last: Checkpoint, journal: Journal, store: MetricsStore, limits: Limits, keeper: Saver
) -> None:
    """Everything as it was at the last checkpoint, and a word about what is damaged or gone."""
    loaded, t, run = begun.loaded, begun.training, begun.run
    lost = _restore(t, journal, store, limits, run, last)
    # Only now: a change that the checkpoint does not fit must leave nothing behind.
    if not limits.over:
        run.update_meta(ended=None, finished=False, diverged=None, resumed_with=list(begun.changes))
    elif lost:  # the checkpoint that is written below carries them
        run.update_meta(resumed_with=list(begun.changes))
    for error in checkpoint.scan(run.checkpoints)[1].values():
        journal.alert("checkpoint", f"{error.diagnostics[0].what}; it is kept, and counts neither as best nor last")
    if not t.env.exact:
        journal.note(f"Episodes begin anew: {loaded.task.name} cannot be saved in the middle of one. All else goes on.")
    if lost:
        keeper.save(last.info.get("score"), limits.over)  # from here on it counts the new metrics
        journal.alert("metrics", f"they begin anew at env_steps {last.env_steps:,}: the old ones are gone")
        journal.evaluated(_random(loaded), "random")
        journal.evaluated(_measure(loaded, t.agent.policy()))


def _own_sinks(begun: Begun) -> list[Sink]:
    """What every run writes beside its metrics."""
    run, last = begun.run, begun.last
    own: list[Sink] = [LogFile(run.log_file)]
    if begun.loaded.recipe.metrics.tensorboard:
        own.append(TensorBoard(run.tensorboard, last.env_steps + 1 if last else None))
    if begun.loaded.recipe.metrics.wandb:
        own.append(Wandb(run, begun.loaded.recipe))
    return own


def _measure(loaded: LoadedExperiment, policy: Acting, ask: Callable[[], None] = no_interrupt) -> Evaluated:
    """An evaluation as the recipe wants it; the policy is a new one each time, at the start of its random stream."""
    return loaded.task.measure(policy, loaded.recipe, ask)


def _random(loaded: LoadedExperiment) -> Evaluated:
    """The yardstick."""
    chance = Streams(loaded.recipe.evaluation.seed).torch("random", loaded.recipe.device)
    return _measure(loaded, Uniform(loaded.task.actions, chance))


def _restore(t: Training, journal: Journal, store: MetricsStore, limits: Limits, run: Run, last: Checkpoint) -> bool:
    """Everything as it was at the checkpoint; what came after it never happened. True when its metrics are gone."""
    state, info = checkpoint.load(last.path)
    t.restore(state["training"])
    t.company.restore(last.path.name)
    journal.restore(state["journal"])
    position = StorePosition(info["metrics"], info["metrics_digest"])
    lost = store.empty and any(position.rows.values())  # the file was moved away
    if not lost:
        store.rewind(last.env_steps, position)
    checkpoint.rewind(run.checkpoints, last.env_steps)
    videos.rewind(run.videos, last.env_steps)
    limits.spent, limits.owed = float(info["seconds"]), bool(info.get("owed"))
    limits.note_kept(t)
    best = checkpoint.best(run.checkpoints)
    limits.best = None if best is None else float(best.info["score"])
    if info.get("ended"):  # with a larger budget it goes on
        same = info.get("budget") == limits.recipe.budget.model_dump()
        limits.over = limits.ending(t, None) or (info["ended"] if same else None)
    return lost
