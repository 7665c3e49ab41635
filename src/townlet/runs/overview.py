"""Runs at a glance: what each is, how it stands and how good it got. Only reads, also while a run is going on."""

from __future__ import annotations

import secrets
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from townlet.errors import TownletError
from townlet.runs import checkpoint, disk
from townlet.runs.checkpoint import REMOVED_PREFIX
from townlet.runs.folder import LATEST, Run
from townlet.runs.lock import Lock, lock_holder
from townlet.runs.metrics_reader import Columns, MetricsReader
from townlet.runs.summary_text import ReportTerms, report_terms

EVALUATED: Final = ("env_steps", "episodes", "limit", "length", "survived", "works", "return", "score", "wall")
BARS: Final = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Overview:
    """One run: running, finished, interrupted, diverged, published or damaged. Evaluations go from old to new."""

    run: Run
    state: str
    meta: dict[str, Any] = field(repr=False)
    env_steps: int
    checkpoints: int
    evaluations: Columns = field(repr=False)
    random: float | None  # the score of a random agent there
    problem: str = ""  # what is wrong with its files

    @property
    def recipe(self) -> str:
        """What was trained: ENV:VARIANT."""
        return str(self.meta.get("recipe", "?"))

    @property
    def seed(self) -> int | None:
        """The seed of the run."""
        return self.meta.get("seed")

    @property
    def told(self) -> ReportTerms:
        """How to speak of it."""
        return report_terms(self.meta)

    @property
    def metric(self) -> str:
        """What its scores are: the length or the return of episodes."""
        return str(self.meta.get("metric") or self.told.metric)

    @property
    def curve(self) -> list[float]:
        """What was lived, or won, in each evaluation."""
        return [float(value) for value in self.evaluations[self.told.metric] if value is not None]

    @property
    def scores(self) -> list[float]:
        """The score of each evaluation."""
        return [float(score) for score in self.evaluations["score"] if score is not None]

    @property
    def best(self) -> float | None:
        """The best score."""
        return max(self.scores, default=None)

    @property
    def last(self) -> float | None:
        """The last score."""
        return self.scores[-1] if self.scores else None

    @property
    def created(self) -> datetime | None:
        """When it was begun."""
        try:
            found = datetime.fromisoformat(str(self.meta["created"]))
        except (KeyError, ValueError):
            return None
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    def age(self, now: datetime | None = None) -> str:
        """How long ago it was begun, in one unit."""
        if self.created is None:
            return "?"
        seconds = max(0.0, ((now or datetime.now(UTC)) - self.created).total_seconds())
        for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
            if seconds >= size:
                return f"{seconds // size:.0f} {unit}"
        return f"{seconds:.0f} s"

    def as_json(self) -> dict[str, Any]:
        """All of it for programs."""
        return {
            "name": self.run.name,
            "path": str(self.run.path),
            "recipe": self.recipe,
            "seed": self.seed,
            "state": self.state,
            "created": self.meta.get("created"),
            "env_steps": self.env_steps,
            "checkpoints": self.checkpoints,
            "best": self.best,
            "last": self.last,
            "seconds": self.meta.get("seconds"),
            "problem": self.problem,
        }


def make_overview(run: Run) -> Overview:
    """What is known of a run; damage is told in `problem` instead of raised."""
    problems: list[TownletError] = []
    meta: dict[str, Any] = {}
    measured = _Measured({name: [] for name in EVALUATED}, None, 0)
    found = checkpoint.paths(run.checkpoints)
    problems += checkpoint.scan(run.checkpoints)[1].values()
    try:
        meta = run.meta()
    except TownletError as error:
        problems.append(error)
    try:
        # One that has just begun may have neither checkpoints nor figures, one that was published has no figures.
        if run.metrics_file.exists() or (found and not meta.get("published")):
            measured = _measured(run, report_terms(meta).metric)
    except TownletError as error:
        problems.append(error)
    env_steps = max([measured.env_steps, *(checkpoint.step_and_serial(path)[0] for path in found[-1:])])
    told = "; ".join(f"{mistake.what} (fix: {mistake.fix})" for error in problems for mistake in error.diagnostics)
    state = state_of(run, meta, bool(problems))
    return Overview(run, state, meta, env_steps, len(found), measured.greedy, measured.random, told)


def list_overviews(root: Path) -> list[Overview]:
    """All runs below `root`, newest first."""
    return [make_overview(run) for run in reversed(Run.list(root))]


def sort_by_score(runs: Iterable[Overview]) -> list[Overview]:
    """The best first; those never evaluated last, in the order given."""
    return sorted(runs, key=lambda one: -one.best if one.best is not None else float("inf"))


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Values as one line of small bars from 0 to the highest; the mean of neighbours where there are many."""
    if not values:
        return ""
    cuts = [round(i * len(values) / min(width, len(values))) for i in range(min(width, len(values)) + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(0.0, *means), max(0.0, *means)
    return "".join(BARS[round((mean - low) / ((high - low) or 1.0) * (len(BARS) - 1))] for mean in means)


def state_of(run: Run, meta: dict[str, Any], damaged: bool = False) -> str:
    """How it stands, in one word."""
    if lock_holder(run.path) is not None:
        return "running"
    if damaged:
        return "damaged"
    if meta.get("diverged"):
        return "diverged"
    if meta.get("published"):
        return "published"
    return "finished" if meta.get("finished") else "interrupted"


class _Measured(NamedTuple):
    """Evaluations of the agent, the score of a random one, and the last moment that was noted."""

    greedy: Columns
    random: float | None
    env_steps: int


def _measured(run: Run, metric: str) -> _Measured:
    with MetricsReader(run.metrics_file) as store:
        found = store.read("evaluations", EVALUATED, where={"policy": "greedy"})
        random = store.read("evaluations", (metric,), where={"policy": "random"}, last=1)[metric]
        noted = store.read("updates", ("env_steps",), last=1)["env_steps"]
    return _Measured(found, random[0] if random else None, max([0, *found["env_steps"], *noted]))


MIN_AGE: Final = 60  # seconds: between the making of a folder and its first checkpoint a training is being built


@dataclass(frozen=True)
class PruneCandidate:
    """A run that can go, and why."""

    one: Overview
    why: str


def prunable(runs: Sequence[Overview], keep: int | None = None) -> list[PruneCandidate]:
    """Runs without a checkpoint, with `keep` also all but the best few of each recipe.

    None that runs, that has just been begun, that was published, that is damaged or that is only a link to a folder
    elsewhere.
    """
    found, seen, now = [], Counter[str](), datetime.now(UTC)
    for one in sort_by_score(runs):
        young = one.created is not None and (now - one.created).total_seconds() < MIN_AGE
        if (
            one.state in ("running", "published", "damaged")
            or one.run.path.is_symlink()
            or (young and not one.checkpoints)
        ):
            continue
        if not one.checkpoints:
            found.append(PruneCandidate(one, "it has no checkpoint"))
            continue
        seen[one.recipe] += 1
        if keep is not None and seen[one.recipe] > keep:
            found.append(PruneCandidate(one, f"not among the best {keep} of {one.recipe}"))
    return found


def remove_run(leaving: PruneCandidate, root: Path) -> bool:
    """Remove a run's folder; False when somebody began to write in it meanwhile."""
    path = leaving.one.run.path
    try:
        with Lock(path):
            aside = path.with_name(f"{REMOVED_PREFIX}{secrets.token_hex(6)}")  # out of sight in one instant
            path.rename(aside)
            shutil.rmtree(aside)
    except TownletError:
        if lock_holder(path) is None:  # it cannot be written at all
            raise
        return False
    except OSError as error:
        raise disk.describe_error(error, f"cannot remove {path}") from error
    link = root / LATEST
    if link.is_symlink() and not link.exists():
        link.unlink()
    return True


def remove_leftovers(root: Path) -> None:
    """Remove what is left of runs whose removal was cut short."""
    for left in root.glob(f"{REMOVED_PREFIX}*"):
        if not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)


def folder_size(path: Path) -> int:
    """Bytes in a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())
