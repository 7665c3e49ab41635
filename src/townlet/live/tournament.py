"""A tournament: all agents of a folder play in the same world with the same seeds; their lifetimes are compared."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import Field

from townlet.errors import TownletError
from townlet.live.agents import SCRIPTED_LABELS, scripted_player
from townlet.live.messages import Message, RunName
from townlet.live.policy_cache import PolicyCache
from townlet.live.watched_run import WatchedTownRun, find_run, open_watched_run
from townlet.live.world_editing import interface_changes, parse_world
from townlet.rng import Streams
from townlet.runs.folder import Run
from townlet.runs.overview import list_overviews
from townlet.tasks.town import PolicyPlayer
from townlet.town.feasibility import SurvivalStats, measure_survival
from townlet.town.planner import Player
from townlet.town.world.tables import World

SEED: Final = 10_001  # of the towns, as in evaluations
RAISED: Final = 4  # the step limit is raised by this factor, to distinguish agents that reach it
MAX_LIMIT: Final = 4000  # steps
RESAMPLES: Final = 2000
KEPT: Final = 8  # tournaments


class TournamentRequest(Message):
    """Request to compare all agents in the world of a run, or in an edited one."""

    run: RunName
    text: str | None = Field(None, max_length=120_000, description="Text of an edited world.")
    episodes: int = Field(50, ge=2, le=200, description="Episodes per agent.")


@dataclass
class Tournament:
    """Lines of the table, in the order in which agents play; `over` once all have played."""

    id: str
    world: str
    limit: int
    episodes: int
    lines: list[dict[str, Any]] = field(default_factory=list)
    over: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "world": self.world, "limit": self.limit, "episodes": self.episodes, "over": self.over,
            "lines": sorted(self.lines, key=lambda line: -line.get("mean", -1.0)),
        }  # fmt: skip


class Tournaments:
    """Plays tournaments, one at a time, in a thread."""

    def __init__(self, root: Path) -> None:
        self._root, self._policies = root, PolicyCache()
        self._all: dict[str, Tournament] = {}
        self._pool, self._lock, self._closed = ThreadPoolExecutor(1, "tournament"), threading.Lock(), False

    def start(self, request: TournamentRequest) -> Tournament:
        """Start a tournament; refused while another one runs."""
        watched = open_watched_run(find_run(self._root, request.run)).town()
        world = parse_world(request.text) if request.text is not None else watched.world
        with self._lock:
            if any(not one.over for one in self._all.values()):
                raise TownletError("a tournament is already running", "wait until it ends")
            limit = min(MAX_LIMIT, RAISED * int(world.tables.max_steps))
            tournament = Tournament(secrets.token_hex(4), world.name, limit, request.episodes)
            self._all[tournament.id] = tournament
            for old in [*self._all][:-KEPT]:
                del self._all[old]
        self._pool.submit(self._play, tournament, world, watched)
        return tournament

    def find(self, id: str) -> Tournament:
        """A tournament of this server."""
        if id not in self._all:
            raise TownletError("there is no such tournament", "start a new one")
        return self._all[id]

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _play(self, tournament: Tournament, world: World, watched: WatchedTownRun) -> None:
        try:
            for label, run, player in self._players(world):
                if self._closed:
                    return
                line: dict[str, Any] = {"label": label, "run": None if run is None else run.name}
                if isinstance(player, TownletError):
                    line["problem"] = player.diagnostics[0].what
                else:
                    line |= _result(measure_survival(world, player, tournament.episodes, SEED, tournament.limit))
                tournament.lines.append(line)
        finally:
            tournament.over = True

    def _players(self, world: World) -> Iterator[tuple[str, Run | None, Player | TownletError]]:
        """All agents with their labels; an error for those that cannot play in this world."""
        for kind in ("random", "planner"):
            yield SCRIPTED_LABELS[kind], None, scripted_player(kind, world, SEED)
        for overview in list_overviews(self._root):
            if overview.state == "damaged" or overview.meta.get("gym"):
                continue
            label = f"{overview.recipe}, seed {overview.seed}" if overview.state != "published" else overview.run.name
            try:
                found = self._policies.find(overview.run, "best")
                trained = self._policies.policy(overview.run, found)
                if changes := interface_changes(world, trained.world):
                    raise TownletError(changes[0], "train it in this world")
                player = PolicyPlayer(trained.policy(SEED), trained.use_greedy())
            except TownletError as error:
                yield label, overview.run, error
            else:
                yield label, overview.run, player


def _result(stats: SurvivalStats) -> dict[str, Any]:
    """Mean lifetime with its 95% bootstrap interval, and the fraction that reached the limit."""
    ages = stats.ages.astype(np.float64)
    draws = Streams(SEED).numpy("bootstrap").choice(ages, (RESAMPLES, len(ages))).mean(1)
    low, high = np.quantile(draws, (0.025, 0.975))
    causes = stats.deaths
    return {
        "mean": float(ages.mean()), "low": float(low), "high": float(high), "reached": stats.reached,
        "dies_of": next(iter(causes), None),
    }  # fmt: skip
