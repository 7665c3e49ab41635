"""Runs at a glance: what each is, how it stands and how good it got. Only reads, also while a run is going on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from townlet.errors import TownletError
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.lock import holder
from townlet.runs.reader import Columns, Reader
from townlet.runs.vocabulary import Vocabulary, vocabulary

EVALUATED: Final = ("env_steps", "episodes", "limit", "length", "survived", "works", "return", "score", "wall")
STEPS: Final = "▁▂▃▄▅▆▇█"


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
    def told(self) -> Vocabulary:
        """How to speak of it."""
        return vocabulary(self.meta)

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


def overview(run: Run) -> Overview:
    """What is known of a run; damage is told in `problem` instead of raised."""
    problems: list[TownletError] = []
    meta: dict[str, Any] = {}
    measured = _Measured({name: [] for name in EVALUATED}, None, 0)
    found = checkpoint.listing(run.checkpoints)
    problems += checkpoint.survey(run.checkpoints)[1].values()
    try:
        meta = run.meta()
    except TownletError as error:
        problems.append(error)
    try:
        # One that has just begun may have neither checkpoints nor figures, one that was published has no figures.
        if run.metrics_file.exists() or (found and not meta.get("published")):
            measured = _measured(run, vocabulary(meta).metric)
    except TownletError as error:
        problems.append(error)
    env_steps = max([measured.env_steps, *(checkpoint.order(path)[0] for path in found[-1:])])
    told = "; ".join(f"{mistake.what} (fix: {mistake.fix})" for error in problems for mistake in error.mistakes)
    state = state_of(run, meta, bool(problems))
    return Overview(run, state, meta, env_steps, len(found), measured.greedy, measured.random, told)


def overviews(root: Path) -> list[Overview]:
    """All runs below `root`, newest first."""
    return [overview(run) for run in reversed(Run.list(root))]


def by_score(runs: Iterable[Overview]) -> list[Overview]:
    """The best first; those never evaluated last, in the order given."""
    return sorted(runs, key=lambda one: -one.best if one.best is not None else float("inf"))


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Values as one line of small bars from 0 to the highest; the mean of neighbours where there are many."""
    if not values:
        return ""
    cuts = [round(i * len(values) / min(width, len(values))) for i in range(min(width, len(values)) + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(0.0, *means), max(0.0, *means)
    return "".join(STEPS[round((mean - low) / ((high - low) or 1.0) * (len(STEPS) - 1))] for mean in means)


def state_of(run: Run, meta: dict[str, Any], damaged: bool = False) -> str:
    """How it stands, in one word."""
    if holder(run.path) is not None:
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
    with Reader(run.metrics_file) as store:
        found = store.read("evaluations", EVALUATED, where={"policy": "greedy"})
        random = store.read("evaluations", (metric,), where={"policy": "random"}, last=1)[metric]
        noted = store.read("updates", ("env_steps",), last=1)["env_steps"]
    return _Measured(found, random[0] if random else None, max([0, *found["env_steps"], *noted]))
