"""The dashboard of a service with two processes on PostgreSQL, and of one that does not learn."""

from __future__ import annotations

import asyncio
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from decide.service_process import Process
from decide.test_browser_dashboard import AWAY, PATIENT, opened
from townlet.decide.domains import DOMAINS
from townlet.decide.simulate import simulate

if TYPE_CHECKING:
    from live.browser import OpenPage

pytest_plugins = ["live.browser"]


def test_processes_are_listed_with_role_leader_version_and_lag(
    open_page: OpenPage, database: str, tmp_path: Path
) -> None:
    pytest.importorskip("psycopg")
    words = ("learning.interval=0.3", "learning.samples_per_insert=100", "--storage", database)
    decider = Process(tmp_path / "decide", "bandit-ads", *words, "--role", "decide")
    learner = Process(tmp_path / "learn", "bandit-ads", *words, "--role", "learn")
    for process in (decider, learner):
        process.start()
    for process in (decider, learner):
        process.wait()
    try:
        view = opened(open_page, decider)
        rows = view.page.locator("#processes tbody tr")
        expect(rows).to_have_count(2, timeout=PATIENT)
        leader = view.page.locator("#processes tr[data-leader=true]")
        expect(leader.locator("[data-column=leader]")).to_have_text("leader", timeout=PATIENT)
        expect(leader.locator("[data-column=role]")).to_have_text("learn")
        other = view.page.locator("#processes tr[data-leader=false]")
        expect(other.locator("[data-column=role]")).to_have_text("decide")
        games = simulate(decider.url, [DOMAINS["bandit-ads"].make_game(1, "listed", 0)], 60)
        with ThreadPoolExecutor() as thread:  # this one has the event loop of the browser
            thread.submit(asyncio.run, games).result()
        for row in (leader, other):
            expect(row.locator("[data-column=version]")).to_have_text(re.compile(r"^[2-9]|\d\d"), timeout=PATIENT)
        expect(other.locator("[data-column=lag]")).to_have_text(re.compile(r"^[\d,.]+ ms$"), timeout=PATIENT)
        expect(leader.locator("[data-column=lag]")).to_have_text("none", timeout=PATIENT)  # every event is applied
        listed = decider.get("/api/decide/stats")["processes"]
        assert {one["role"]: one["learns"] for one in listed} == {"decide": False, "learn": True}
        learner.end()  # the panel shows that it is silent, later it is no longer listed
        expect(leader).to_have_attribute("data-silent", "true", timeout=PATIENT)
        expect(view.page.locator("#processes")).to_be_visible()
    finally:
        decider.end(signal.SIGTERM)
        if learner.process is not None and learner.process.poll() is None:
            learner.end(signal.SIGTERM)


def test_service_in_a_folder_has_no_processes_and_shows_that_learning_is_off(
    open_page: OpenPage, tmp_path: Path
) -> None:
    service = Process(tmp_path / "service", "bandit-ads", "learning.enabled=false").start().wait()
    try:
        view = opened(open_page, service)
        expect(view.page.locator("#training-state")).to_have_text("learning is off")
        expect(view.page.locator("#status")).to_have_text("version 1 serving, learning is off")
        expect(view.page.locator("#processes")).to_be_hidden()
        view.allow_error(AWAY)
        service.end(signal.SIGTERM)
        service = Process(tmp_path / "service", "bandit-ads", "learning.validate=false").start().wait()
        view = opened(open_page, service)
        expect(view.page.locator("#training-state")).to_have_text(re.compile("without validation"))
        expect(view.page.locator("#gate-note")).to_contain_text("not used in training")
    finally:
        service.end(signal.SIGTERM)
