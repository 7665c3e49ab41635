"""One process per row: says which rows do not answer, and how a process has ended."""

from __future__ import annotations

import logging
import select
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, Final

from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import _async_worker

from townlet.child_processes import START_METHOD, starting
from townlet.gym.row_factory import RowFactory
from townlet.interrupt import stop_requested

logger = logging.getLogger(__name__)

PRELOADED: Final = ["__main__", "townlet.gym.row_factory"]
POLL_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 30.0  # without an answer of a row, until that is reported; each report doubles it
EXIT_SECONDS: Final = 1.0  # between the end of a process and its exit code, at most
CLOSE_SECONDS: Final = 5.0  # in which a row closes its environment; then its process is killed
STOP_AT_ONCE: Final = "Ctrl-C again stops at once, without saving"


def _run_row(*arguments: Any) -> None:
    """The main function of a row's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches all processes; the parent decides
    with suppress(BrokenPipeError):  # the parent was killed
        _async_worker(*arguments)


class RowProcesses(AsyncVectorEnv[Any, Any]):
    """Rows that are stepped at the same time, each in a process of its own."""

    def __init__(self, factory: RowFactory, rows: int, autoreset_mode: AutoresetMode) -> None:
        self._name = factory.id
        with starting(PRELOADED):
            super().__init__(
                [factory] * rows, copy=False, context=START_METHOD, worker=_run_row, autoreset_mode=autoreset_mode
            )
        self._pollers = [select.poll() for _ in self.parent_pipes]
        for poller, pipe in zip(self._pollers, self.parent_pipes, strict=True):
            poller.register(pipe, select.POLLIN)

    def _poll_pipe_envs(self, timeout: float | None = None) -> bool:
        """Wait until all rows have answered; Gymnasium calls this before it reads the answers."""
        started = time.monotonic()
        next_report = SILENT_SECONDS
        reported_stop = False
        for row, poller in enumerate(self._pollers):
            while not poller.poll(1000 * POLL_SECONDS):
                seconds = time.monotonic() - started
                if stop_requested.is_set() and not reported_stop:
                    reported_stop = True
                    logger.warning("Stopping, but %s; %s.", self._silence(row, seconds), STOP_AT_ONCE)
                elif seconds >= next_report:
                    next_report *= 2
                    logger.warning("%s.", self._silence(row, seconds))
        return True

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Raise the exception of a row, with the traceback of its process as a note, instead of printing it."""
        failed = [row for row, success in enumerate(successes) if not success]
        errors = [self.error_queue.get() for _ in failed]
        for row in failed:
            self.parent_pipes[row].close()
        for row, _, error, trace in errors:
            error.add_note(f"In the process of row {row}:\n{trace}")
            raise error

    def _silence(self, first: int, seconds: float) -> str:
        """A clause about the rows that have not answered; those before `first` have."""
        silent = [first, *(row for row in range(first + 1, self.num_envs) if not self._pollers[row].poll(0))]
        have = "has" if len(silent) == 1 else "have"
        return f"{_rows(silent)} of {self._name} {have} not answered for {seconds:.0f} s"

    def ended(self) -> str | None:
        """How processes have ended that did not report an error; None if none has."""
        how: dict[str, list[int]] = {}
        wait([process.sentinel for process in self.processes], EXIT_SECONDS)
        for row, (process, pipe) in enumerate(zip(self.processes, self.parent_pipes, strict=True)):
            if pipe.closed:  # its environment has raised an exception
                continue
            process.join(0)
            if (code := process.exitcode) is not None:
                how.setdefault(_exit_text(code), []).append(row)
        return "; ".join(f"the process of {_rows(rows)} {text}" for text, rows in how.items()) or None

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End all processes, even those that hang or have ended."""
        for pipe in self.parent_pipes:
            if not pipe.closed and not terminate:
                with suppress(OSError):
                    pipe.send(("close", None))
        deadline = time.monotonic() + (0.0 if terminate else CLOSE_SECONDS)
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()
        for pipe in self.parent_pipes:
            pipe.close()


def _rows(rows: Sequence[int]) -> str:
    return f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows))}"


def _exit_text(code: int) -> str:
    """An exit code of multiprocessing, which is negative for a signal, as a verb phrase."""
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"
