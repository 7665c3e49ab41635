"""Viewers that leave while the hub serves them."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import shutil
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Origin

from live.conftest import LiveServer
from townlet.runs.folder import Run

ROUNDS = 12  # connections of one client
POLICY = {"kind": "policy", "run": None, "checkpoint": "best", "epsilon": 0.0}


async def restless(server: LiveServer, names: list[str], number: int) -> None:
    """Connect, compare agents, switch between runs, and leave without a close frame, again and again."""
    draw = random.Random(number)
    for _ in range(ROUNDS):
        connection = await connect(server.socket, origin=Origin(server.origin))
        for name in draw.sample(names, len(names)):
            await connection.send(json.dumps({"type": "subscribe", "run": name, "source": "none"}))
            agents = [POLICY, draw.choice(({"kind": "random"}, {"kind": "planner"}, POLICY))]
            await connection.send(json.dumps({"type": "watch", "agents": agents}))
            await asyncio.sleep(draw.random() * 0.15)
        connection.transport.abort()


def test_viewers_that_leave_are_no_error(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"{run.name}-{number}" for number in range(3)]
    for name in names:
        shutil.copytree(run.path, tmp_path / "runs" / name)
    server = LiveServer(tmp_path / "runs", None, tmp_path / "worlds")
    server.wait()

    async def stress() -> None:
        await asyncio.gather(*(restless(server, names, number) for number in range(8)))

    try:
        with caplog.at_level(logging.WARNING):
            asyncio.run(stress())
    finally:
        server.stop()
    assert [record.getMessage() for record in caplog.records] == []
