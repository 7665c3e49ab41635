"""One process that trains one run: create or open its folder, lock it, build, restore, loop, report."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from townlet._version import __version__
from townlet.agents.agent import no_interrupt
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.errors import EnvironmentFailed, TownletError
from townlet.interfaces.counters import Sink
from townlet.recipes.render import original_text, resolved_text
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.runs import checkpoint, disk, provenance, snapshots
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run
from townlet.runs.lock import Lock
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.evaluation import ActingPolicy, BestCheckpoint, EvaluationResult, RandomPolicy, TrainingSummary
from townlet.tasks.experiment import LoadedExperiment, code_hashes, reopen, world_file
from townlet.train.checkpointer import Checkpointer, record_video, require_rendering, warm_start
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.logger import MetricsLogger
from townlet.train.loop import LoopResult, train_loop
from townlet.train.monitors import Diverged, has_fallen
from townlet.train.parallel_training import END, RESTORE, RUN, STATE, require_parallel_support
from townlet.train.sinks import CsvFile, LogFile, TensorBoard, closing_sinks
from townlet.train.stop_conditions import STOP_SIGNALS, SignalHandler, StopConditions
from townlet.train.training import Training, build_training
from townlet.train.tuning import tune_text
from townlet.train.wandb import WandbSink, require_login


@dataclass(frozen=True)
class TrainingOutcome:
    """The result of a session."""

    run: Run
    ending: LoopResult
    summary: TrainingSummary | None  # None if the run was stopped before its end
    seconds: float
    seed: int
    trained: bool = True  # False if the run was finished before and only evaluated again


def start(
    loaded: LoadedExperiment, root: Path = Path("runs"), *, sinks: Sequence[Sink] = (), pause_at: int | None = None
) -> TrainingOutcome:
    """Train an experiment from scratch, or from the weights of `init_from`, in a new run in `root`."""
    session = create_session(loaded, root)
    with Lock(session.run.path) as lock:
        return session.train(lock, sinks, pause_at)


def create_session(loaded: LoadedExperiment, root: Path, group: ProcessGroup = SINGLE_PROCESS) -> TrainingSession:
    """A new run in `root`, before its first step. If something is wrong, nothing is left behind."""
    loaded = replace(loaded, recipe=loaded.recipe.resolved())
    recipe = loaded.recipe
    training, init_from = _build_new(loaded, root, group)
    original, resolved = original_text(loaded), resolved_text(loaded)
    settings = provenance.parse_settings(resolved.encode())
    meta = _new_meta(loaded, init_from) | {"recipe_hash": provenance.recipe_hash(settings)}
    worlds, tune = loaded.task.files(), tune_text(recipe.agent)  # tune.yaml may be edited during training
    run = Run.create(root, recipe.env, recipe.variant or "run", original, resolved, meta, worlds, tune)
    return TrainingSession(loaded, training, run)


def resume(
    run: Run, overrides: Sequence[str] = (), *, sinks: Sequence[Sink] = (), pause_at: int | None = None,
    group: ProcessGroup = SINGLE_PROCESS, stop_reason: Callable[[], str | None] = lambda: None,
) -> TrainingOutcome:  # fmt: skip
    """Resume a run from its last checkpoint, bit for bit; `overrides` may change its budget and a few other keys.

    A run that was killed before its first checkpoint starts again.
    """
    loaded = reopen(run, overrides)
    all_overrides = [*run.meta().get("resumed_with", ()), *overrides]
    with Lock(run.path) as lock:  # taken before reading: another process may still add a checkpoint
        disk.refuse_links(run.path)
        last = checkpoint.latest(run.checkpoints)
        if last is None:
            training, init_from = _build_new(loaded, run.path.parent, group)
            run.update_meta(init_from=init_from)
        else:
            _require_same_experiment(run, last, loaded)
            training = _build(loaded, group)
        session = TrainingSession(loaded, training, run, last, all_overrides)
        return session.train(lock, sinks, pause_at, stop_reason)


def _build_new(loaded: LoadedExperiment, root: Path, group: ProcessGroup) -> tuple[Training, dict[str, Any] | None]:
    """The live objects of a run before its first step, and the entry of `init_from` for meta.json."""
    training, source = _build(loaded, group), loaded.recipe.init_from
    require_login(loaded.recipe)
    return training, warm_start(training, Run.open(source, root, for_policy=True)) if source else None


def _build(loaded: LoadedExperiment, group: ProcessGroup) -> Training:
    _require_device(loaded.recipe.device)
    if group.size > 1:
        require_parallel_support(loaded.recipe, group)
    training = build_training(loaded, group)
    require_rendering(training)
    return training


def _require_device(name: str) -> None:
    """Raise an error if torch cannot use the device."""
    device, found = torch.device(name), torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= found:
        what = f"device: {name}: torch finds {found or 'no'} CUDA device{'s' * (found > 1)}"
        raise TownletError(what, "write device=cpu, or check the driver and the version of torch: townlet doctor")


def _new_meta(loaded: LoadedExperiment, init_from: dict[str, Any] | None) -> dict[str, Any]:
    recipe = loaded.recipe
    return {
        "recipe": recipe.title,
        "recipe_argument": None if loaded.is_local else loaded.name,
        "overrides": list(loaded.overrides),
        "seed": recipe.seed,
        "metric": recipe.metric,
        "threads": recipe.thread_count,
        "init_from": init_from,
        **loaded.fingerprint(),
        **loaded.task.describe(),
        **provenance.describe_machine(__version__),
        **({"code": code_hashes(recipe)} if recipe.user_files else {}),
    }


def _require_same_experiment(run: Run, last: Checkpoint, loaded: LoadedExperiment) -> None:
    """Refuse to resume with a different world, number of rows or agent than the checkpoint's."""
    if last.info.get("published"):
        what = f"{run.name} was published without the state of its training and cannot be resumed"
        raise TownletError(what, f"start a new run with init_from={run.name}", run.path)
    provenance.require_resumable(run, last)
    expected = loaded.fingerprint()
    for role, name in (("training", "world"), ("evaluation", "evaluation_world")):
        saved, now = last.info.get(name), expected.pop(name, None)
        if saved not in (None, now):
            copy = world_file(run, role)
            where = copy if copy.exists() else Path(loaded.recipe.world or loaded.recipe.env)
            what = f"the {role} world of the run {run.name} was changed after the run started"
            fix = "restore the original, or start a new run with init_from"
            raise TownletError(what, fix, where)
    checkpoint.require_info(last, **expected)


@dataclass(frozen=True)
class TrainingSession:
    """A run on disk and its live objects: a new run, or one that resumes from its `last` checkpoint."""

    loaded: LoadedExperiment
    training: Training
    run: Run
    last: Checkpoint | None = None
    overrides: Sequence[str] = ()  # given when the run was resumed, this time and before

    def train(
        self,
        lock: Lock,
        sinks: Sequence[Sink] = (),
        pause_at: int | None = None,
        stop_reason: Callable[[], str | None] = lambda: None,
    ) -> TrainingOutcome:
        """Train to the end, or until a signal or `stop_reason` stops it. The caller holds the run's `lock`."""
        run, recipe, t = self.run, self.loaded.recipe, self.training
        with SignalHandler(ignored_repeats=1 if t.parallel_training else 0) as signals:  # torchrun repeats signals
            stop = StopConditions(recipe, recipe.evaluation_interval, pause_at, lambda: signals.requested, stop_reason)
            ending = self._loop(lock, sinks, stop)
            signals.urgent = True  # everything is saved: from now on a signal interrupts immediately
            seconds = stop.previous_seconds if stop.already_over else stop.seconds
            summary = None
            if ending.finished and ending.evaluation and not signals.requested:
                baseline, best = self._random_baseline, self._best(ending.evaluation)
                summary = t.task.summarize(t.agent.policy(), recipe, baseline, ending.evaluation, best)
            result = {"ended": ending.why, "finished": ending.finished}
            result |= {"summary": summary.sentences() if summary else []}
            result |= {} if stop.already_over else {"seconds": round(seconds, 1)}
            lock.check()
            run.update_meta(**result)
            if summary:
                write_run_report(run, recipe)
        return TrainingOutcome(run, ending, summary, seconds, recipe.seed, not stop.already_over)

    def _loop(self, lock: Lock, sinks: Sequence[Sink], stop: StopConditions) -> LoopResult:
        """Open all outputs, restore the last checkpoint, and loop."""
        loaded, t, run, recipe = self.loaded, self.training, self.run, self.loaded.recipe
        with (
            MetricsStore(run.metrics_file, lock.check) as store,
            closing_sinks([*self._run_sinks(), *sinks]) as all_sinks,
        ):
            every = recipe.to_env_steps(recipe.metrics.every)
            logger = MetricsLogger(t, every, recipe.metrics.whole_episodes, store, all_sinks)
            all_sinks.extend(logger.env_metrics.sinks(run.feed_file))
            identity = loaded.fingerprint() | provenance.checkpoint_identity(run, self.overrides)
            checkpointer = Checkpointer(run, lock, t, logger, store, stop, identity)
            t.tuning.file = run.tune_file
            if t.parallel_training:
                t.parallel_training.start(run, self.overrides)
            for note in [*loaded.notes, *self._wandb_notes(all_sinks)]:
                logger.message(note)
            try:
                if self.last:
                    self._restore(self.last, logger, stop, checkpointer)
                else:
                    try:
                        self._first_checkpoint(logger, store, stop, checkpointer)
                    except Exception:
                        run.withdraw()
                        raise
                if recipe.metrics.csv:  # only now: it is written from the restored metrics
                    all_sinks.append(CsvFile(run.csv_file, store))
                return train_loop(t, stop, logger, checkpointer, lambda: self._evaluate(check=stop.check_interrupt))
            except Diverged as error:
                logger.alert("diverged", error.diagnostics[0].what, tip=error.diagnostics[0].fix)
                run.update_meta(ended="diverged", diverged=error.diagnostics[0].what)
                raise
            except EnvironmentFailed as error:
                raise self._environment_error(error, logger) from error.__cause__
            except OSError as error:
                then = "then resume from the last checkpoint"
                raise disk.describe_error(error, f"cannot write in {run.path}", then) from error
            finally:
                t.env.close()
                if t.parallel_training:
                    t.parallel_training.close()

    def _first_checkpoint(
        self, logger: MetricsLogger, store: MetricsStore, stop: StopConditions, checkpointer: Checkpointer
    ) -> None:
        """Evaluate the random baseline and save a checkpoint, so that a run that is killed early can be resumed."""
        run, t = self.run, self.training
        if reached := store.last_env_steps:  # only written after the first checkpoint, which is lost
            what = f"the checkpoints are missing, but the metrics of this run reach env_steps {reached:,}"
            fix = "restore the folder from a backup, or start a new run; nothing was removed"
            raise TownletError(what, fix, run.checkpoints)
        store.rewind(-1)  # a process that was killed before its first checkpoint may have left metrics
        if self.overrides:
            run.update_meta(resumed_with=list(self.overrides))
        checkpointer.rewind(-1)
        logger.on_evaluation(self._random_baseline, "random")
        record_video(run, t, logger, "start")
        if self.loaded.recipe.checkpoints.snapshots:
            checkpointer.save_snapshot()
        checkpointer.save()
        stop.mark_saved(t)
        if t.parallel_training:  # all processes start with the same weights
            t.parallel_training.restore(checkpoint.folder_name(t.counters.env_steps))

    def _restore(
        self, last: Checkpoint, logger: MetricsLogger, stop: StopConditions, checkpointer: Checkpointer
    ) -> None:
        """Restore the last checkpoint, and report what is damaged or missing."""
        run, t = self.run, self.training
        metrics_missing = checkpointer.restore(last)
        # Only now: an override that does not fit the checkpoint must leave nothing behind.
        if not stop.already_over:
            run.update_meta(ended=None, finished=False, diverged=None, resumed_with=list(self.overrides))
        elif metrics_missing:  # the checkpoint saved below will record these overrides, so meta.json must have them
            run.update_meta(resumed_with=list(self.overrides))
        for error in snapshots.saved_policies(run)[1].values():
            logger.alert("checkpoint", f"{error.diagnostics[0].what}; it is kept on disk, but not used")
        if not t.env.exact:
            logger.message(f"New episodes start: {t.task.name} cannot be saved in the middle of one.")
        if metrics_missing:
            checkpointer.save(last.info.get("score"), stop.already_over)  # this checkpoint refers to the new metrics
            logger.alert("metrics", f"earlier metrics are missing; they restart at env_steps {last.env_steps:,}")
            logger.on_evaluation(self._random_baseline, "random")
            logger.on_evaluation(self._evaluate())

    def _environment_error(self, error: EnvironmentFailed, logger: MetricsLogger) -> TownletError:
        """Log the traceback of an environment's error, and return the error for the user."""
        run, what = self.run, error.diagnostics[0].what
        with run.log_file.open("a", encoding="utf-8") as log, suppress(OSError):
            log.writelines(traceback.format_exception(error.__cause__))
        run.update_meta(ended=what)
        last = checkpoint.latest(run.checkpoints)
        since = f" from step {last.env_steps:,}" if last else ""
        code = " --allow-code" if self.loaded.recipe.runs_code else ""
        then = f"resume{since}: townlet train --resume {run.path}{code}"
        if self.loaded.is_local:  # the corrected class or function is another one
            then = "train again"
        return TownletError(what, f"correct the environment (the traceback is in {run.log_file}), then {then}")

    def _run_sinks(self) -> list[Sink]:
        """Sinks that write to the run's folder or to a service."""
        run, recipe = self.run, self.loaded.recipe
        sinks: list[Sink] = [LogFile(run.log_file)]
        if recipe.metrics.tensorboard:
            sinks.append(TensorBoard(run.tensorboard, self.last.env_steps + 1 if self.last else None))
        if recipe.metrics.wandb:
            sinks.append(WandbSink(run, recipe))
        return sinks

    def _wandb_notes(self, sinks: Sequence[Sink]) -> list[str]:
        """Record in meta.json where Weights & Biases shows the run; returns a message about it, if it is used."""
        links = [sink.link for sink in sinks if isinstance(sink, WandbSink)]
        if links:
            self.run.update_meta(wandb=links[-1])
        return [f"Weights & Biases: {link}" for link in links]

    def _evaluate(
        self, policy: ActingPolicy | None = None, check: Callable[[], None] = no_interrupt
    ) -> EvaluationResult:
        """Evaluate a policy, by default the agent's current one, with the recipe's settings."""
        return self.loaded.task.evaluate(policy or self.training.agent.policy(), self.loaded.recipe, check)

    @cached_property
    def _random_baseline(self) -> EvaluationResult:
        recipe = self.loaded.recipe
        generator = Streams(recipe.evaluation.seed).torch("random", recipe.device)
        return self._evaluate(RandomPolicy(self.loaded.task.actions, generator))

    def _best(self, last: EvaluationResult) -> BestCheckpoint | None:
        """The best checkpoint; None if it is that of the current step, which `last` evaluated."""
        best, metric = checkpoint.best(self.run.checkpoints), self.loaded.recipe.metric
        if best is None or best.env_steps == self.training.counters.env_steps:
            return None
        score, highest = last.score(metric), float(best.info["score"])
        fallen = has_fallen(score, highest, self._random_baseline.score(metric), last.standard_error(metric))
        return BestCheckpoint(best.env_steps, metric, highest, score if fallen else None)


def write_run_report(run: Run, recipe: Recipe) -> None:
    """Write the report of a run, unless its recipe has `metrics.report: false`."""
    if recipe.metrics.report:
        from townlet.runs.report import write_report  # lazily: it imports matplotlib, which would delay the first step

        write_report(run)


def run_worker(group: ProcessGroup) -> None:
    """Train as a worker until the leader sends END: step the local rows, take part in updates, write nothing."""
    for number in STOP_SIGNALS:  # the leader handles them
        signal.signal(number, signal.SIG_IGN)
    t: Training | None = None
    command, *arguments = group.broadcast()
    while command != END:
        if command == RUN:
            run = Run(Path(arguments[0]))
            t = build_training(reopen(run, arguments[1]), group)
        elif t and command == RESTORE:
            t.restore(checkpoint.load(run.checkpoints / arguments[0])[0]["training"])
        elif t and command == STATE:
            t.state()
        elif t and t.parallel_training:  # ROLLOUT
            try:
                collect(t, t.agent.update_interval, NullListener())
            except Diverged as error:  # the leader reports it
                raise SystemExit(error.exit_code) from None
            t.parallel_training.sync_settings()
            t.agent.learn()
        command, *arguments = group.broadcast()
    if t:
        t.env.close()
    group.close()
