"""What a run tells those who watch it now: lives as they end, and where all rows are. Nothing while nobody looks."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from townlet.interfaces.counters import Counters
from townlet.runs.feed import EPISODE_ENDED, ROWS_OVERVIEW, Feed
from townlet.town.env import Town
from townlet.town.episode_recorder import Recording

if TYPE_CHECKING:
    from townlet.train.build import Training
    from townlet.train.sinks import Mark

LIVES: Final = 0.4  # seconds between two lives that are told: a page shows one for longer than that
WALLS: Final = 0.2  # seconds between two pictures of all rows
ROWS: Final = 64


class Broadcast:
    """A sink that writes into the run's feed."""

    def __init__(self, path: Path, t: Training, town: Town) -> None:
        self._t, self._town, self._feed = t, town, Feed.create(path)
        self._life = self._wall = 0.0
        self._lethal = [int(m) for m in town.world.tables.lethal]

    def heard(self, row: int, life: Recording, cause: str) -> None:
        """A life of a watched row is over."""
        now = time.monotonic()
        if now - self._life < LIVES or not self._feed.has_readers:
            return
        self._life = now
        about = {
            "row": row, "env_steps": self._t.counters.env_steps, "outputs": self._t.agent.output_label,
            "length": int(life.age[-1]), "cause": cause, "ended": time.time(),
        }  # fmt: skip
        self._feed.publish(EPISODE_ENDED, json.dumps(about).encode() + b"\n" + life.to_bytes())

    def tick(self, counters: Counters) -> None:
        """Where the rows are."""
        now = time.monotonic()
        if now - self._wall < WALLS or not self._feed.has_readers:
            return
        self._wall = now
        seen = self._town.engine.peek("cell", "age", "meters")
        alive = seen["meters"][:ROWS][:, self._lethal].min(1) if self._lethal else seen["meters"][:ROWS].min(1)
        told = {
            "env_steps": counters.env_steps,
            "cell": seen["cell"][:ROWS].tolist(),
            "age": seen["age"][:ROWS].tolist(),
            "alive": [round(float(value), 3) for value in alive],
            "stage": None if self._t.curriculum is None else self._t.curriculum.stage[:ROWS].tolist(),
        }
        self._feed.publish(ROWS_OVERVIEW, json.dumps(told).encode())

    def mark(self, mark: Mark) -> None:
        """Figures are read from the store."""

    def evaluated(self, counters: Counters, columns: Mapping[str, Any]) -> None:
        """As figures."""

    def note(self, text: str) -> None:
        """As figures."""

    def close(self) -> None:
        """The run no longer trains."""
        self._feed.remove()
