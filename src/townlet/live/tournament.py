"""Tournaments: all agents of a folder play in the same world with the same seeds; their lifetimes are compared."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import Field

from townlet.errors import TownletError
from townlet.live.agents import SCRIPTED_LABELS, scripted_player
from townlet.live.messages import Message, RunName
from townlet.live.policy_cache import PolicyCache
from townlet.live.watched_run import find_run, open_watched_run
from townlet.rng import Streams
from townlet.runs.folder import Run
from townlet.runs.overview import with_shipped
from townlet.tasks.town import PolicyPlayer
from townlet.tasks.transfer import transfer_note
from townlet.town.engines.engine import Engine
from townlet.town.feasibility import SurvivalStats, measure_survival
from townlet.town.planner import Player
from townlet.town.world.tables import World
from townlet.train.policies import TrainedPolicy

SEED: Final = 10_001  # of the towns, the same for all agents
RAISED: Final = 4  # the step limit is raised up to this factor, to distinguish agents that reach it
MAX_LIMIT: Final = 4000  # steps to which it is raised
RESAMPLES: Final = 2000
KEPT: Final = 8  # tournaments
LOGGER: Final = logging.getLogger(__name__)


class TournamentRequest(Message):
    """Request to compare all agents in the world of a run."""

    run: RunName
    episodes: int = Field(50, ge=2, le=200, description="Episodes per agent.")


@dataclass
class Tournament:
    """Lines of the table, in the order in which agents play; `over` once all have played, or after a `problem`."""

    id: str
    run: str
    world: str
    limit: int
    episodes: int
    lines: list[dict[str, Any]] = field(default_factory=list)
    over: bool = False
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "run": self.run, "world": self.world, "limit": self.limit, "episodes": self.episodes,
            "over": self.over, "problem": self.problem,
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
        world = watched.world
        with self._lock:
            if any(not one.over for one in self._all.values()):
                raise TownletError("a tournament is already running", "wait until it ends")
            limit = raised_limit(int(world.tables.max_steps))
            tournament = Tournament(secrets.token_hex(4), request.run, world.name, limit, request.episodes)
            self._all[tournament.id] = tournament
            for old in [*self._all][:-KEPT]:
                del self._all[old]
        self._pool.submit(self._play, tournament, world)
        return tournament

    def find(self, id: str) -> Tournament:
        """A tournament of this server."""
        found = self._all.get(id)  # one lookup: `start` removes old ones in another thread
        if found is None:
            raise TownletError("there is no such tournament", "start a new one")
        return found

    def newest(self, run: str) -> Tournament | None:
        """The newest tournament in the world of a run, if there was one."""
        return next((one for one in reversed([*self._all.values()]) if one.run == run), None)

    def close(self) -> None:
        """Stop a tournament that is played now."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _play(self, tournament: Tournament, world: World) -> None:
        try:
            for label, run, player in self._players(world):
                line: dict[str, Any] = {"label": label, "run": None if run is None else run.name}
                tournament.lines.append(line | self._line(tournament, world, player))
        except _Stopped:
            tournament.problem = "the server has stopped"
        except Exception:
            LOGGER.exception("a tournament in %s failed", world.name)
            tournament.problem = "it failed; the log of the server has the details"
        finally:
            tournament.over = True

    def _line(self, tournament: Tournament, world: World, player: Player | TownletError) -> dict[str, Any]:
        """The result of one agent, or the problem that it has in this world."""
        if isinstance(player, TownletError):
            return {"problem": player.diagnostics[0].what}
        stoppable = _StoppablePlayer(player, lambda: self._closed)
        try:
            return _result(measure_survival(world, stoppable, tournament.episodes, SEED, tournament.limit))
        except TownletError as error:
            return {"problem": error.diagnostics[0].what}
        except Exception as error:
            if isinstance(error, _Stopped):
                raise
            LOGGER.exception("an agent failed in a tournament in %s", world.name)
            return {"problem": f"it failed with {type(error).__name__}; the log of the server has the details"}

    def _players(self, world: World) -> Iterator[tuple[str, Run | None, Player | TownletError]]:
        """All agents with their labels; an error for those that cannot play in this world."""
        for kind in ("random", "planner"):
            yield SCRIPTED_LABELS[kind], None, scripted_player(kind, world, SEED)
        for overview in with_shipped(self._root):
            if overview.state == "damaged" or overview.meta.get("gym"):
                continue
            label = f"{overview.recipe}, seed {overview.seed}" if overview.state != "published" else overview.run.name
            try:
                trained = self._trained(overview.run, world)
            except TownletError as error:
                yield label, overview.run, error
            except Exception:
                LOGGER.exception("the policy of %s cannot be loaded", overview.run.name)
                yield label, overview.run, TownletError("its policy cannot be loaded", "see the log of the server")
            else:
                if note := transfer_note(trained.unobserved, trained.missing):
                    label += f", {note}"
                yield label, overview.run, PolicyPlayer(trained.policy(SEED), trained.use_greedy())

    def _trained(self, run: Run, world: World) -> TrainedPolicy:
        """The best policy of a run, if it can act in the world."""
        return self._policies.policy(run, self._policies.find(run, "best")).in_world(world)


class _Stopped(Exception):
    """The server stops."""


class _StoppablePlayer:
    """A player that stops in the middle of an episode when the server does."""

    def __init__(self, player: Player, stopped: Callable[[], bool]) -> None:
        self.name, self._player, self._stopped = player.name, player, stopped

    def act(self, engine: Engine) -> NDArray[np.int64]:
        if self._stopped():
            raise _Stopped
        return self._player.act(engine)


def raised_limit(max_steps: int) -> int:
    """Step limit of a tournament in a world: up to four times its own, and never less."""
    return max(max_steps, min(MAX_LIMIT, RAISED * max_steps))


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


def tournament_router(tournaments: Tournaments) -> APIRouter:
    """Routes that start tournaments and show their tables."""
    router = APIRouter(prefix="/api/tournaments")

    @router.post("")
    def start(request: TournamentRequest) -> dict[str, Any]:
        """Let all agents play in one world."""
        return tournaments.start(request).as_json()

    @router.get("")
    async def newest(run: RunName) -> dict[str, Any] | None:
        """The newest tournament in the world of a run; null if there is none."""
        found = tournaments.newest(run)
        return None if found is None else found.as_json()

    @router.get("/{id}")
    def tournament(id: str) -> dict[str, Any]:
        """The table of a tournament so far."""
        return tournaments.find(id).as_json()

    return router
