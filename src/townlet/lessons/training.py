"""Training of a lesson's arms side by side, each run in its own process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from townlet.errors import EXIT_INTERRUPTED, TownletError
from townlet.lessons.measures import Values, read_value
from townlet.lessons.schema import Lesson
from townlet.runs.folder import Run
from townlet.train.seed_processes import SeedJob, make_jobs, run_jobs

# A lesson reads the metrics itself; it needs neither TensorBoard files nor reports, nor checkpoints during training.
LEAN: Final = ("metrics.tensorboard=false", "metrics.report=false")
OnRun = Callable[[str, Run], None]  # receives an arm and a run of it, once that exists


@dataclass(frozen=True)
class LessonRuns:
    """The finished runs of a lesson by arm, in the order of their seeds."""

    lesson: Lesson
    runs: dict[str, list[Run]]
    seconds: dict[str, list[float]]

    @property
    def values(self) -> Values:
        """The measured values by arm and measure, one for each seed."""
        return {
            arm: {name: [read_value(run, m) for run in runs] for name, m in self.lesson.measures.items()}
            for arm, runs in self.runs.items()
        }


def train_lesson(
    lesson: Lesson,
    root: Path,
    seeds: Sequence[int],
    processes: int,
    overrides: Sequence[str] = (),
    on_run: OnRun = lambda arm, run: None,
) -> LessonRuns:
    """Train every arm with every seed; raises TownletError if one fails, and KeyboardInterrupt after Ctrl-C."""
    arms: dict[SeedJob, str] = {}
    for arm in lesson.arms:
        jobs = make_jobs(lesson.recipe(arm), (*LEAN, *overrides), root, seeds, processes)
        arms.update(dict.fromkeys(jobs, arm))
    queue = sorted(arms, key=lambda job: seeds.index(job.seed))  # the arms of one seed train side by side

    def show(job: SeedJob, news: str | Run) -> None:
        if isinstance(news, Run):
            on_run(arms[job], news)

    runs: dict[str, dict[int, Run]] = {arm: {} for arm in lesson.arms}
    seconds: dict[str, dict[int, float]] = {arm: {} for arm in lesson.arms}
    for job, result in run_jobs(queue, processes, show):
        if result.exit_code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if result.failure or result.run is None:
            what = f"arm '{arms[job]}' failed with seed {job.seed}: {result.failure}"
            raise TownletError(what, f"train it alone to see more: townlet train {job.recipe} seed={job.seed}")
        runs[arms[job]][job.seed] = result.run
        seconds[arms[job]][job.seed] = result.seconds
    ordered = {arm: [by_seed[seed] for seed in seeds] for arm, by_seed in runs.items()}
    return LessonRuns(lesson, ordered, {arm: [times[seed] for seed in seeds] for arm, times in seconds.items()})
