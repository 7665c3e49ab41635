"""Computations for viewers: one at a time, interruptible, and never silent."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from pathlib import Path

import pytest

from live.conftest import Page
from townlet.agents.agent import Interrupt
from townlet.live.computations import Computations
from townlet.live.hub import Hub
from townlet.live.protocol import Error
from townlet.live.viewer import Viewer
from townlet.runs.folder import Run


def test_one_computation_at_a_time_though_its_viewers_leave() -> None:
    running, peak, started = 0, 0, 0
    lock, begun, release = threading.Lock(), threading.Event(), threading.Event()

    def work(_: Interrupt) -> None:
        nonlocal running, peak, started
        with lock:
            running, started = running + 1, started + 1
            peak = max(peak, running)
        begun.set()
        assert release.wait(60)
        with lock:
            running -= 1

    async def come_and_go() -> None:
        computations = Computations("test")
        tasks = [asyncio.create_task(computations.run(work)) for _ in range(6)]
        await asyncio.to_thread(begun.wait, 60)  # the first one runs, the others wait for it
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        release.set()
        await computations.run(work)
        computations.close()

    asyncio.run(come_and_go())
    assert peak == 1
    assert started == 2  # the first and the last: what waited was dropped


def test_cancelled_computation_is_interrupted() -> None:
    ended = threading.Event()

    def work(check_interrupt: Interrupt) -> None:
        try:
            while True:
                check_interrupt()
                time.sleep(0.005)
        finally:
            ended.set()

    async def leave() -> None:
        computations = Computations("test")
        task = asyncio.create_task(computations.run(work))
        await asyncio.sleep(0.05)
        task.cancel()
        assert await asyncio.to_thread(ended.wait, 10)
        computations.close()

    asyncio.run(leave())


def test_unexpected_failure_is_answered_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The page would wait forever otherwise."""

    def fail(_: Interrupt) -> Error:
        raise ZeroDivisionError

    async def ask() -> str:
        hub = Hub(tmp_path)
        viewer, sent = Viewer(hub), asyncio.Queue[str]()
        delivery = asyncio.create_task(viewer.mailbox.deliver(sent.put))
        viewer._compute("answer", fail)
        answer = await asyncio.wait_for(sent.get(), 10)
        delivery.cancel()
        hub.close()
        return answer

    with caplog.at_level(logging.ERROR):
        answer = json.loads(asyncio.run(ask()))
    assert (answer["type"], answer["what"]) == ("error", "the answer could not be computed")
    assert "ZeroDivisionError" in caplog.text


def test_question_about_the_end_is_refused(page: Page, run: Run) -> None:
    """A dead agent lives nowhere: comparing 0% with 0% says nothing."""
    page.send("subscribe", run=run.name, source="recording")
    start = page.receive("episode_start")
    page.send("ask", timestep=start["length"], action=0)
    assert "the episode is over" in page.receive("error")["what"]
    page.send("ask", timestep=start["length"] - 1, action=0, number=2)
    answer = page.receive("answer", "error", seconds=60)
    assert answer["number"] == 2
    assert " at step " in answer["question"]
    assert all(option["low"] <= option["chance"] <= option["high"] for option in answer["options"])
