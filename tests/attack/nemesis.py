"""Faults for a running service: `kill -9`, pauses, jumps of the wall clock and a full disk, at random instants."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from urllib.error import HTTPError

from attack.history import History, Poll
from crash.shim import Shim
from decide.service_process import Process

BETWEEN = (0.2, 1.5)  # seconds between two faults
PAUSE = (0.1, 3.0)  # seconds of SIGSTOP
FULL = (0.5, 3.0)  # seconds with a full disk
OFFSETS = (-3600, 0, 3600)  # seconds, of the wall clock from the true time
KINDS = ("kill", "pause", "full", "jump")


class Nemesis:
    """Disturbs one service and reads its statistics in between."""

    def __init__(self, server: Process, shim: Shim | None, history: History, chance: random.Random) -> None:
        self._server, self._shim, self._history, self._chance = server, shim, history, chance
        self._offset = 0  # seconds of the service's wall clock
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []  # of the service, noticed from outside
        self.refused = 0  # operations of the service on a full disk

    @property
    def kinds(self) -> tuple[str, ...]:
        """The faults that are possible here."""
        return KINDS if self._shim else KINDS[:2]

    async def disturb(self, kind: str) -> None:
        """One fault, after a while; afterwards the service runs again."""
        await asyncio.sleep(self._chance.uniform(*BETWEEN))
        await getattr(self, f"_{kind}")()
        self.done[kind] += 1
        await self.poll()

    async def poll(self) -> None:
        """Read the statistics."""
        begin = time.monotonic()
        stats = await asyncio.to_thread(self._server.get, "/api/decide/stats")
        self._history.polls.append(Poll(begin, stats["buffer"]))

    async def _kill(self) -> None:
        await asyncio.to_thread(self._server.end)
        await self._start()

    async def _start(self) -> None:
        self._server.start()
        await asyncio.to_thread(self._server.wait)

    async def _pause(self) -> None:
        assert self._server.process is not None
        os.kill(self._server.process.pid, signal.SIGSTOP)
        await asyncio.sleep(self._chance.uniform(*PAUSE))
        os.kill(self._server.process.pid, signal.SIGCONT)

    async def _jump(self) -> None:
        """The service reads the wall clock at its start, so half of the jumps come with a restart."""
        assert self._shim is not None
        before, self._offset = self._offset, self._chance.choice([to for to in OFFSETS if to != self._offset])
        self._shim.jump(self._offset - before)
        if self._chance.random() < 0.5:
            await self._kill()
            self.done["kill"] += 1

    async def _full(self) -> None:
        """Sometimes it is killed and restarted on the full disk: it must still answer."""
        assert self._shim is not None
        self._shim.fill_disk()
        await asyncio.sleep(self._chance.uniform(*FULL))
        if self._chance.random() < 0.3:
            self.done["kill without room"] += 1
            await asyncio.to_thread(self._server.end)
            self._server.start()
            if not await asyncio.to_thread(self._answers):
                self.problems.append("a start on a full disk ended unexpectedly")
                self._server.start()
            await asyncio.sleep(self._chance.uniform(*FULL))
        self.refused += self._shim.failed
        self._shim.heal()
        await asyncio.to_thread(self._server.wait)

    def _answers(self) -> bool:
        """Wait until a service on a full disk answers; returns whether it does."""
        assert self._server.process is not None
        while self._server.process.poll() is None:
            try:
                self._server.get("/health")
                return True
            except HTTPError:
                return True  # 503: decisions are made but not stored
            except OSError:
                time.sleep(0.1)
        return False
