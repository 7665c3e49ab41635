"""Loops of the service: no error ends them, and a failure is a problem until the work succeeds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from townlet.decide import service_loop
from townlet.decide.service_loop import ServiceLoop
from townlet.errors import TownletError


def until(condition: Callable[[], object]) -> None:
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


@pytest.mark.parametrize("error", [ValueError("broken"), AssertionError(), MemoryError(), SystemExit(3)])
def test_no_error_ends_a_loop(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    failing, times = threading.Event(), list[float]()
    failing.set()

    def work() -> None:
        times.append(time.monotonic())
        if failing.is_set():
            raise error

    loop = ServiceLoop("work", work, 0.001)
    loop.start()
    until(lambda: len(times) > 4)
    assert type(error).__name__ in loop.problem
    failing.clear()
    count = len(times)
    until(lambda: len(times) > count + 2)
    assert not loop.ended
    assert loop.problem  # an unexpected error remains one for a minute
    loop.stop()
    logged = [record for record in caplog.records if record.name == service_loop.__name__]
    assert len(logged) == 1  # although it was repeated
    assert logged[0].exc_info


def test_an_expected_error_is_a_problem_until_the_work_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception] = [TownletError("the database is gone", "start it")] * 3

    def work() -> None:
        if errors:
            raise errors.pop()

    loop = ServiceLoop("work", work, 1.0)
    pauses = []
    while errors:
        pauses.append(loop.attempt())
        assert loop.problem == "the database is gone; start it"
    assert pauses == [2.0, 4.0, service_loop.MAX_PAUSE]
    assert loop.attempt() == pytest.approx(1.0, abs=0.5)
    assert loop.problem == ""
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
