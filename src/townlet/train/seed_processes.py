"""Training several runs in parallel processes: one process per run, a limited number of them at a time.

A process sends its run, its lines of progress and its result through a pipe. It runs in a process group of its own, so
Ctrl-C at the terminal reaches only the parent, which forwards it once; every process then saves its run and ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from townlet.child_processes import START_METHOD, starting
from townlet.config import user_code
from townlet.errors import EXIT_INTERRUPTED, TownletError
from townlet.gym import sources
from townlet.gym.sources import EnvName
from townlet.recipes.catalog import parse_recipe_name
from townlet.recipes.schema import Recipe
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.train.multi_seed import MultiSeedResult, RunHooks, SeedResult, collect_results, train_seed
from townlet.train.sinks import PlainConsole
from townlet.train.stop_conditions import STOP_SIGNALS

PARENT_ENDED: Final = "the process that started this training has ended"
LINE_SECONDS: Final = 10.0  # between lines of progress of one run
Message = str | Run | SeedResult  # a line of progress, the run once it exists, and the result


@dataclass(frozen=True)
class SeedJob:
    """One run to train in a child process."""

    recipe: str
    overrides: tuple[str, ...]
    root: Path
    seed: int
    code_permitted: bool
    user_files: tuple[str, ...]
    registered: EnvName | None  # the environment, if the program passed it as an object
    spec: str | None  # the environment, if it is a registered id, as JSON


Show = Callable[[SeedJob, str | Run], None]  # receives a run once it exists, and its lines of progress


def train_seeds_in_parallel(
    recipe: str, overrides: Sequence[str], root: Path, seeds: int, jobs: int, show: Callable[[str], None]
) -> MultiSeedResult:
    """Train consecutive seeds in up to `jobs` processes at a time; `show` receives lines of progress.

    A failed seed, even one whose process dies, does not stop the others. Ctrl-C stops all of them; their runs are
    saved and can be resumed.
    """

    def show_line(job: SeedJob, news: str | Run) -> None:
        if isinstance(news, str):
            show(f"seed {job.seed}: {news}")

    def in_processes(numbers: Sequence[int]) -> Iterator[SeedResult]:
        waiting = make_jobs(recipe, overrides, root, numbers, jobs)
        return (result for _, result in run_jobs(waiting, jobs, show_line))

    return collect_results(recipe, overrides, seeds, in_processes)


def make_jobs(recipe: str, overrides: Sequence[str], root: Path, seeds: Sequence[int], processes: int) -> list[SeedJob]:
    """One job per seed of a recipe, for `run_jobs` with this many processes."""
    loaded = load_experiment(recipe, overrides)
    if loaded.is_local:
        raise sources.not_importable(loaded.recipe.env, "train one seed at a time")
    shared = (*overrides, *_thread_limit(loaded.recipe, processes))
    name = parse_recipe_name(recipe)
    env = EnvName(name.source or "", name.env)
    registered = env if sources.is_registered_object(env) else None
    by_id = loaded.recipe.gym is not None and loaded.recipe.gym.source is None
    spec = sources.transferable_spec(loaded.recipe.env) if by_id else None
    permitted, files = user_code.permitted(), user_code.executed_files()
    return [SeedJob(recipe, shared, root, seed, permitted, files, registered, spec) for seed in seeds]


def run_jobs(jobs: Sequence[SeedJob], processes: int, show: Show) -> Iterator[tuple[SeedJob, SeedResult]]:
    """Train up to `processes` jobs at a time, and yield each with its result; after Ctrl-C no further job starts."""
    waiting = [*jobs]
    with _Processes(show) as children:
        while children.running or (waiting and not children.interrupted):
            while waiting and len(children.running) < processes and not children.interrupted:
                children.start(waiting.pop(0))
            yield from children.results()


def _thread_limit(recipe: Recipe, jobs: int) -> list[str]:
    """An override that divides the cores among the processes, if the recipe leaves the number of threads open."""
    limit = max(1, (os.cpu_count() or 1) // jobs)
    return [f"threads={limit}"] if recipe.threads == "auto" and recipe.thread_count > limit else []


@contextmanager
def _without_main_script() -> Iterator[None]:
    """Start child processes without executing `__main__` again, so scripts need no `if __name__ == "__main__":`."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class _Processes:
    """Child processes, keyed by the parent's end of their pipe; forwards stop signals to them."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self.running: dict[Connection, tuple[SeedJob, BaseProcess]] = {}
        self.interrupted = False
        self._previous: dict[int, Any] = {}
        self._runs: dict[Connection, Run] = {}  # as soon as they exist

    def __enter__(self) -> _Processes:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._forward) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        for connection, (_, process) in self.running.items():  # only after an error in this process
            process.terminate()
            connection.close()

    def _forward(self, number: int, frame: object) -> None:
        """Stop all processes: the first signal saves their runs, a second one ends them immediately."""
        self.interrupted = True
        for _, process in self.running.values():
            _signal(process, number)

    def start(self, job: SeedJob) -> None:
        context: Any = multiprocessing.get_context(START_METHOD)
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run_job, args=(job, theirs))
        with _without_main_script(), starting([__name__]):
            process.start()
        theirs.close()
        self.running[ours] = job, process
        if self.interrupted:  # a signal arrived while the process started
            _signal(process, signal.SIGINT)

    def results(self) -> Iterator[tuple[SeedJob, SeedResult]]:
        """Show the lines that have arrived, and yield the jobs that have ended, each with its result."""
        for connection in wait([*self.running], timeout=0.5):
            assert isinstance(connection, Connection)
            job, process = self.running[connection]
            try:
                message = connection.recv()
            except (EOFError, OSError):
                message = self._without_result(job, connection, process)
            if not isinstance(message, SeedResult):
                self._show(job, message)
                if isinstance(message, Run):
                    self._runs[connection] = message
            else:
                process.join()
                connection.close()
                del self.running[connection]
                yield job, message if self.interrupted else self._as_failure(message)

    def _as_failure(self, result: SeedResult) -> SeedResult:
        """A seed whose process alone was stopped by a signal counts as failed."""
        if result.exit_code != EXIT_INTERRUPTED:
            return result
        return replace(result, failure="its process was stopped by a signal; its run is saved", exit_code=1)

    def _without_result(self, job: SeedJob, connection: Connection, process: BaseProcess) -> SeedResult:
        """The result of a process that died, for example because memory ran out."""
        process.join()
        run = self._runs.get(connection)
        if self.interrupted:
            return SeedResult(job.seed, run, exit_code=EXIT_INTERRUPTED)
        return SeedResult(job.seed, run, failure=f"its process ended with code {process.exitcode}", exit_code=1)


def _signal(process: BaseProcess, number: int) -> None:
    if process.pid is not None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


class _PipeConsole(PlainConsole):
    """Sends the lines of progress of one seed to the parent; `parent_ended` once that is impossible."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(sys.stderr, LINE_SECONDS)
        self._connection, self.parent_ended = connection, False
        self.run: Run | None = None  # once it exists

    def message(self, text: str) -> None:
        self.send(text)

    def send(self, message: Message) -> None:
        try:
            self._connection.send(message)
        except OSError:
            self.parent_ended = True


class _EarlyStop:
    """Records a stop signal that arrives before the training handles signals itself."""

    def __init__(self) -> None:
        self.requested = False
        for number in STOP_SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: object) -> None:
        self.requested = True


def _run_job(job: SeedJob, connection: Connection) -> None:
    """Train one seed in this process, and send its run, its lines and its result."""
    os.setpgid(0, 0)  # the terminal sends Ctrl-C to the group of the parent
    early, console = _EarlyStop(), _PipeConsole(connection)

    def stop_reason() -> str | None:
        if console.parent_ended:
            return PARENT_ENDED
        return "interrupted" if early.requested else None

    def make_hooks(run: Run, recipe: Recipe) -> RunHooks:
        console.run = run
        console.send(run)
        return RunHooks([console], stop_reason)

    if job.code_permitted:
        user_code.permit()
    for file in job.user_files:
        user_code.execute_file(file)
    try:
        if job.registered:
            sources.register_importable(job.registered)
        if job.spec:
            sources.register_spec(job.spec)
        result = train_seed(job.recipe, job.overrides, job.root, job.seed, make_hooks)
    except TownletError as error:
        result = SeedResult(job.seed, failure=str(error.diagnostics[0]), exit_code=error.exit_code)
    except Exception as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        if console.run is not None:
            with suppress(OSError), console.run.log_file.open("a", encoding="utf-8") as log:
                log.writelines(traceback.format_exception(error))
        result = SeedResult(job.seed, console.run, failure=why, exit_code=1)
    console.send(result)
    connection.close()
