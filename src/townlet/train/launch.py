"""One process that trains one run: make or open its folder, take its lock, build, restore, loop, report."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from townlet.agents.optimizers import restore_weights
from townlet.contract.state import State, Stateful
from townlet.errors import Mark, TownletError
from townlet.rng import Streams
from townlet.runs import checkpoint, disk, report
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run
from townlet.runs.lock import Lock
from townlet.runs.store import Store
from townlet.train.build import Training, build
from townlet.train.evaluate import Acting, Evaluated, Uniform, evaluate
from townlet.train.guards import Diverged
from townlet.train.journal import Journal
from townlet.train.load import Loaded, load
from townlet.train.loop import Ending, Limits, loop
from townlet.train.resolved import asked_text, resolved_text
from townlet.train.signals import Signals
from townlet.train.sinks import LogFile, Sink, TensorBoard, closing
from townlet.train.summary import Summary, summarize

VERSIONS: Final = ("townlet", "torch", "numpy", "numba", "gymnasium")


@dataclass(frozen=True)
class Outcome:
    """What a training came to."""

    run: Run
    ending: Ending
    summary: Summary | None  # None when it was stopped on the way
    seconds: float
    seed: int


class Saver:
    """Commits a run: metrics first, then the checkpoint that counts them."""

    def __init__(
        self, run: Run, t: Training, journal: Stateful, store: Store, limits: Limits, facts: dict[str, Any]
    ) -> None:
        self._run, self._t, self._journal, self._store, self._limits = run, t, journal, store, limits
        self._facts = facts

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        """Write a checkpoint of this moment, and remove those that need not be kept."""
        now, budget = self._t.counters, self._limits.recipe.budget
        position = self._store.sync()
        info = {**self._facts, **now.state(), "seconds": round(self._limits.seconds, 3), "metrics": position}
        if score is not None:
            info["score"] = score
        if ended is not None:
            info |= {"ended": ended, "budget": budget.model_dump()}
        state = {"training": self._t.state(), "journal": self._journal.state()}
        checkpoint.write(self._run.checkpoints, checkpoint.name_at(now.env_steps), state, info)
        checkpoint.prune(self._run.checkpoints, self._limits.recipe.checkpoints.keep_every or 0)


def start(
    loaded: Loaded, root: Path = Path("runs"), *, sinks: Sequence[Sink] = (), pause_at: int | None = None
) -> Outcome:
    """Train a recipe from nothing, or from the weights of `init_from`, in a new run below `root`."""
    training = _begin(loaded, root)
    recipe = loaded.recipe
    run = Run.create(
        root, recipe.env, recipe.variant or "run", asked_text(loaded), resolved_text(loaded), describe(loaded)
    )
    with Lock(run.path):
        return _train(loaded, training, run, None, sinks, pause_at)


def resume(
    run: Run, overrides: Sequence[str] = (), *, sinks: Sequence[Sink] = (), pause_at: int | None = None
) -> Outcome:
    """Go on with a run from its last checkpoint, to the bit; `overrides` may give it a larger budget.

    A run that was killed before its first checkpoint begins anew.
    """
    changes = [*run.meta().get("resumed_with", ()), *overrides]
    loaded = load(str(run.resolved_file), changes)
    with Lock(run.path):  # before looking: whoever writes still may write another one
        last = checkpoint.newest(run.checkpoints)
        if last is not None:
            checkpoint.require(last, **_facts(loaded))
        training = build(loaded) if last else _begin(loaded, run.path.parent)
        return _train(loaded, training, run, last, sinks, pause_at, changes)


def _begin(loaded: Loaded, root: Path) -> Training:
    """A run before its first step."""
    training = build(loaded)
    if loaded.recipe.init_from:
        warm_start(training, Run.open(loaded.recipe.init_from, root))
    return training


def _train(
    loaded: Loaded,
    t: Training,
    run: Run,
    last: Checkpoint | None,
    sinks: Sequence[Sink],
    pause_at: int | None,
    changes: Sequence[str] = (),
) -> Outcome:
    """Whoever holds the run's lock trains it to its end, or until it is asked to stop."""
    recipe = loaded.recipe
    with Signals() as signals:
        limits = Limits(recipe, recipe.in_steps(recipe.evaluation.every), pause_at, lambda: signals.asked)
        ending = _loop(loaded, t, run, last, sinks, limits, changes)
        signals.urgent = True  # all is saved: whoever asks from here on need not wait
        summary = None
        if ending.finished and ending.last and not signals.asked:
            summary = summarize(t.agent.policy(), _random(loaded), ending.last, recipe.evaluation.seed)
        told = summary.sentences() if summary else []
        run.note(ended=ending.why, finished=ending.finished, seconds=round(limits.seconds, 1), summary=told)
        if summary:
            report.write(run)
    return Outcome(run, ending, summary, limits.seconds, recipe.seed)


def _loop(
    loaded: Loaded,
    t: Training,
    run: Run,
    last: Checkpoint | None,
    sinks: Sequence[Sink],
    limits: Limits,
    changes: Sequence[str],
) -> Ending:
    """Open everything that is written, put it where the last checkpoint was, and loop."""
    recipe = loaded.recipe
    own: list[Sink] = [LogFile(run.log_file)]
    if recipe.metrics.tensorboard:
        own.append(TensorBoard(run.tensorboard, last.env_steps + 1 if last else None))
    with Store(run.metrics_file) as store, closing([*own, *sinks]) as all_sinks:
        journal = Journal(t, recipe.in_steps(recipe.metrics.every), recipe.metrics.whole_episodes, store, all_sinks)
        keeper = Saver(run, t, journal, store, limits, _facts(loaded))
        try:
            if last:
                _restore(t, journal, store, limits, run, last)
                # Only now: a change that the checkpoint does not fit must leave nothing behind.
                run.note(ended=None, finished=False, diverged=None, resumed_with=list(changes))
            else:
                store.rewind(-1)  # what a process left that was killed before its first checkpoint
                journal.evaluated(_random(loaded), "random")
                keeper.save()  # a run that is killed early can be resumed too
            return loop(t, limits, journal, keeper, lambda: _measure(loaded, t.agent.policy()))
        except Diverged as error:
            journal.alert("diverged", error.mistakes[0].what)
            run.note(ended="diverged", diverged=error.mistakes[0].what)
            raise
        except OSError as error:
            then = "then go on from the last checkpoint"
            raise disk.explained(error, f"cannot write in {run.path}", then) from error
        finally:
            t.env.close()


def _measure(loaded: Loaded, policy: Acting) -> Evaluated:
    """An evaluation as the recipe wants it; the policy is a new one each time, at the start of its random stream."""
    wanted, there, device = loaded.recipe.evaluation, loaded.worlds.evaluation, loaded.recipe.device
    return evaluate(policy, there, wanted.episodes, wanted.seed, greedy=wanted.deterministic, device=device)


def _random(loaded: Loaded) -> Evaluated:
    """The yardstick."""
    return _measure(loaded, Uniform(Streams(loaded.recipe.evaluation.seed).torch("random", loaded.recipe.device)))


def _restore(t: Training, journal: Journal, store: Store, limits: Limits, run: Run, last: Checkpoint) -> None:
    """Everything as it was at the checkpoint; what came after it never happened."""
    state, info = checkpoint.read(last.path)
    t.restore(state["training"])
    journal.restore(state["journal"])
    store.rewind(last.env_steps, info.get("metrics"))
    checkpoint.rewind(run.checkpoints, last.env_steps)
    limits.spent, limits.saved_episodes = float(info["seconds"]), t.counters.episodes
    best = checkpoint.best(run.checkpoints)
    limits.best = None if best is None else float(best.info["score"])
    if info.get("budget") == limits.recipe.budget.model_dump():  # with a larger one it goes on
        limits.over = info.get("ended")


def warm_start(t: Training, source: Run) -> None:
    """Begin with the weights of another run's best checkpoint; it needs the same interface and network."""
    state, info = policy_state(source)
    if info.get("interface") != t.env.world.interface_hash:
        what = f"the run {source.name} sees or does other things than this one"
        raise TownletError(what, "init_from needs a run with the same observation and actions")
    agent: Any = t.agent
    for name in ("network", "target"):
        if hasattr(agent, name):
            restore_weights(getattr(agent, name), state["network"])


def policy_state(run: Run, which: str = "best") -> tuple[State, dict[str, Any]]:
    """The agent's part of the run's best (or last) checkpoint, and what the manifest says."""
    found = (checkpoint.best(run.checkpoints) if which == "best" else None) or checkpoint.newest(run.checkpoints)
    if found is None:
        raise TownletError("this run has no checkpoint yet", "train it first", Mark(str(run.path)))
    state, info = checkpoint.read(found.path)
    return state["training"]["agent"], info


def _facts(loaded: Loaded) -> dict[str, Any]:
    """What a checkpoint must share with the run that goes on from it."""
    world = loaded.worlds.training
    return {
        "env": loaded.recipe.env,
        "agent": loaded.recipe.agent.name,
        "rows": loaded.recipe.row_count,
        "world": world.content_hash,
        "interface": world.interface_hash,
    }


def describe(loaded: Loaded) -> dict[str, Any]:
    """What meta.json says of a new run."""
    recipe = loaded.recipe
    return {
        "recipe": recipe.title,
        "asked": loaded.asked,
        "overrides": list(loaded.overrides),
        "command": " ".join(["townlet", *sys.argv[1:]]) if "townlet" in Path(sys.argv[0]).parts[-2:] else "",
        "seed": recipe.seed,
        **_facts(loaded),
        "versions": {name: version(name) for name in VERSIONS},
        "python": platform.python_version(),
        "machine": {"system": platform.platform(), "processor": platform.machine()},
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the source tree, where there is one."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
