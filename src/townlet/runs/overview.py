"""Overview of runs: state, scores, and which of them can be pruned. Reading is safe while a run trains."""

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
from townlet.runs import checkpoint, disk, snapshots
from townlet.runs.checkpoint import REMOVED_PREFIX, Checkpoint
from townlet.runs.folder import LATEST, SHIPPED, Run
from townlet.runs.lock import Lock, lock_holder
from townlet.runs.metrics_reader import Columns, MetricsReader, as_rows
from townlet.runs.summary_text import ReportTerms, report_terms

EVALUATION_COLUMNS: Final = (
    "env_steps", "episodes", "limit", "length", "survived", "earns_money", "return", "score", "wall",
)  # fmt: skip
BARS: Final = "▁▂▃▄▅▆▇█"
STOPPED: Final = "stopped by a callback"  # why such a run ended
MIN_AGE: Final = 60  # seconds; a younger run may not have written its first checkpoint yet


class SavedPolicy(NamedTuple):
    """A checkpoint or a policy snapshot of a run, with the score of the evaluation at its step, if there was one."""

    name: str
    env_steps: int
    kind: str  # "checkpoint" or "snapshot"
    score: float | None
    best: bool  # whether it is the best checkpoint
    bytes: int


@dataclass(frozen=True)
class Overview:
    """A run with its state: running, finished, stopped, interrupted, diverged, published or damaged."""

    run: Run
    state: str
    meta: dict[str, Any] = field(repr=False)
    env_steps: int
    checkpoints: int
    evaluations: Columns = field(repr=False)  # of the greedy policy, oldest first
    random_evaluation: dict[str, Any] = field(repr=False)  # of the random policy; {} if there is none
    problem: str = ""  # what is wrong with the files of the run
    policies: list[SavedPolicy] = field(default_factory=list, repr=False)  # checkpoints and snapshots, oldest first

    @property
    def recipe(self) -> str:
        return str(self.meta.get("recipe", "?"))

    @property
    def seed(self) -> int | None:
        return self.meta.get("seed")

    @property
    def terms(self) -> ReportTerms:
        return report_terms(self.meta)

    @property
    def score_metric(self) -> str:
        """What scores measure, as set by the recipe: length or return of episodes."""
        return str(self.meta.get("metric") or self.terms.curve_metric)

    @property
    def curve(self) -> list[float]:
        """Mean length (in a town) or mean return (elsewhere) of each evaluation; the score may be the other one."""
        return [float(value) for value in self.evaluations[self.terms.curve_metric] if value is not None]

    @property
    def scores(self) -> list[float]:
        return [float(score) for score in self.evaluations["score"] if score is not None]

    @property
    def best(self) -> float | None:
        return max(self.scores, default=None)

    @property
    def last(self) -> float | None:
        return self.scores[-1] if self.scores else None

    @property
    def created(self) -> datetime | None:
        try:
            created = datetime.fromisoformat(str(self.meta["created"]))
        except (KeyError, ValueError):
            return None
        return created if created.tzinfo else created.replace(tzinfo=UTC)

    def age(self, now: datetime | None = None) -> str:
        """Time since the run was created, in one unit."""
        if self.created is None:
            return "?"
        seconds = max(0.0, ((now or datetime.now(UTC)) - self.created).total_seconds())
        for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
            if seconds >= size:
                return f"{seconds // size:.0f} {unit}"
        return f"{seconds:.0f} s"

    def as_json(self) -> dict[str, Any]:
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
    """The overview of a run; damage is reported in `problem` instead of raised."""
    meta: dict[str, Any] = {}
    greedy: Columns = {name: [] for name in EVALUATION_COLUMNS}
    random_rows: list[dict[str, Any]] = []
    recorded_steps: list[int] = []
    folders = checkpoint.paths(run.checkpoints)
    saved, damaged = snapshots.saved_policies(run)
    problems = list(damaged.values())
    try:
        meta = run.meta()
    except TownletError as error:
        problems.append(error)
    try:
        # A run that has just started has no checkpoint and no metrics, and a published one has no metrics.
        if run.metrics_file.exists() or (folders and not meta.get("published")):
            with MetricsReader(run.metrics_file) as store:
                greedy = store.read("evaluations", EVALUATION_COLUMNS, where={"policy": "greedy"})
                random_rows = as_rows(store.read("evaluations", EVALUATION_COLUMNS, where={"policy": "random"}, last=1))
                recorded_steps = store.read("updates", ("env_steps",), last=1)["env_steps"]
    except TownletError as error:
        problems.append(error)
    saved_steps = [checkpoint.step_and_serial(path)[0] for path in folders[-1:]]
    env_steps = max([0, *greedy["env_steps"], *recorded_steps, *saved_steps])
    problem = "; ".join(f"{d.what} (fix: {d.fix})" for error in problems for d in error.diagnostics)
    state = state_of(run, meta, bool(problems))
    random = random_rows[0] if random_rows else {}
    policies = _saved_policies(run, saved, greedy)
    return Overview(run, state, meta, env_steps, len(folders), greedy, random, problem, policies)


def _saved_policies(run: Run, saved: list[Checkpoint], evaluations: Columns) -> list[SavedPolicy]:
    scores = dict(zip(evaluations["env_steps"], evaluations["score"], strict=True))
    best = checkpoint.best_of([one for one in saved if one.path.parent == run.checkpoints])
    return [
        SavedPolicy(
            one.name,
            one.env_steps,
            "checkpoint" if one.path.parent == run.checkpoints else "snapshot",
            one.info.get("score", scores.get(one.env_steps)),
            one is best,
            folder_size(one.path),
        )
        for one in saved
    ]


def list_overviews(root: Path) -> list[Overview]:
    """All runs below `root`, newest first."""
    return [make_overview(run) for run in reversed(Run.list(root))]


def with_shipped(root: Path) -> list[Overview]:
    """All runs below `root`, newest first, then the shipped agents, unless a run there has their name."""
    own = list_overviews(root)
    names = {overview.run.name for overview in own}
    return own + [shipped for shipped in list_overviews(SHIPPED) if shipped.run.name not in names]


def sort_by_score(runs: Iterable[Overview]) -> list[Overview]:
    """Best first; runs that were never evaluated come last, in the order given."""
    return sorted(runs, key=lambda run: float("-inf") if run.best is None else run.best, reverse=True)


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Values as one line of small bars; neighbors are averaged where there are more than `width`."""
    if not values:
        return ""
    bars = min(width, len(values))
    bounds = [round(i * len(values) / bars) for i in range(bars + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    low, high = min(0.0, *means), max(0.0, *means)
    span = (high - low) or 1.0
    return "".join(BARS[round((mean - low) / span * (len(BARS) - 1))] for mean in means)


def state_of(run: Run, meta: dict[str, Any], damaged: bool = False) -> str:
    """The state of a run, in one word."""
    if lock_holder(run.path) is not None:
        return "running"
    if damaged:
        return "damaged"
    if meta.get("diverged"):
        return "diverged"
    if meta.get("published"):
        return "published"
    if meta.get("finished"):
        return "finished"
    return "stopped" if meta.get("ended") == STOPPED else "interrupted"


def prunable(runs: Sequence[Overview], keep: int | None = None) -> list[tuple[Run, str]]:
    """Runs without a checkpoint, and with `keep` all but the best few of each recipe; each with the reason.

    Runs that are running, published, damaged, links to folders elsewhere, or new and without a checkpoint are kept.
    """
    now = datetime.now(UTC)
    candidates: list[tuple[Run, str]] = []
    ranked = Counter[str]()  # runs with a checkpoint so far, by recipe
    for overview in sort_by_score(runs):
        new = overview.created is not None and (now - overview.created).total_seconds() < MIN_AGE
        protected = overview.state in ("running", "published", "damaged") or overview.run.path.is_symlink()
        if protected or (new and not overview.checkpoints):
            continue
        if not overview.checkpoints:
            candidates.append((overview.run, "it has no checkpoint"))
            continue
        ranked[overview.recipe] += 1
        if keep is not None and ranked[overview.recipe] > keep:
            candidates.append((overview.run, f"not among the best {keep} of {overview.recipe}"))
    return candidates


def remove_run(path: Path, root: Path) -> bool:
    """Remove a run's folder; False if another process has started to write in it."""
    try:
        with Lock(path):
            removed = path.with_name(f"{REMOVED_PREFIX}{secrets.token_hex(6)}")
            path.rename(removed)  # it disappears at once, even if deleting its files is interrupted
            shutil.rmtree(removed)
    except TownletError:
        if lock_holder(path) is None:  # not locked: the folder cannot be written at all
            raise
        return False
    except OSError as error:
        raise disk.describe_error(error, f"cannot remove {path}") from error
    link = root / LATEST
    if link.is_symlink() and not link.exists():
        link.unlink()
    return True


def remove_leftovers(root: Path) -> None:
    """Delete runs whose removal was interrupted."""
    for leftover in root.glob(f"{REMOVED_PREFIX}*"):
        if not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)


def folder_size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())
