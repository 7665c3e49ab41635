"""Outcomes come from the next observation only: not after a disk failure or a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from decide.ads_service import ask, start_service, stop
from townlet.decide.domain import SimulatedGame
from townlet.decide.service import Service

WORDS = ("policy=candidates", "gate.enabled=false")


def seen(game: SimulatedGame) -> dict[str, Any]:
    """An observation in which the queen can afford every action."""
    return game.observe() | {"queenEnergy": {"current": 100.0, "max": 100.0}}


def start(folder: Path) -> tuple[Service, SimulatedGame]:
    """A service whose first decision is pending."""
    service, _, _ = start_service(folder, WORDS, "hive")
    game = service.domain.make_game(3, "a", 2)
    assert ask(service, seen(game))[0]["type"] == "spawn_decision"
    game.advance()
    assert service.state.join.counts.pending == 1
    return service, game


def next_outcomes(service: Service, game: SimulatedGame) -> list[int]:
    """Decisions that get an outcome from the next observation."""
    joined: list[int] = []
    service.state.outcome_listeners.append(lambda experience, value, how: joined.append(experience.decision.number))
    ask(service, seen(game))
    return joined


def test_next_observation_gives_the_outcome(tmp_path: Path) -> None:
    service, game = start(tmp_path)
    assert next_outcomes(service, game) == [1]
    service.close()


def unseen(service: Service, game: SimulatedGame) -> None:
    """The disk is full for one observation."""
    stop(service)
    ask(service, seen(game))
    service.log.problem = None


def half_seen(service: Service, game: SimulatedGame) -> None:
    """The disk accepts the decision, but not the outcome just before."""
    append = service.log.append

    def refuse_once(payload: bytes) -> int:
        service.log.problem, service.log.append = "no room", back  # type: ignore[method-assign]
        return append(payload)

    def back(payload: bytes) -> int:
        service.log.problem = None
        return append(payload)

    service.log.wait(service.log.last, 20)
    service.log.append = refuse_once  # type: ignore[method-assign]
    ask(service, seen(game))


@pytest.mark.parametrize(("gap", "joined"), [(unseen, []), (half_seen, [2])])
def test_observation_after_a_gap_gives_no_outcome(
    tmp_path: Path, gap: Callable[[Service, SimulatedGame], None], joined: list[int]
) -> None:
    service, game = start(tmp_path)
    gap(service, game)
    assert service.state.join.counts.joined == 0
    game.advance()
    assert next_outcomes(service, game) == joined
    assert 1 in service.state.pending  # until it expires
    service.close()


def test_observation_after_a_restart_gives_no_outcome(tmp_path: Path) -> None:
    service, game = start(tmp_path)
    stop(service)
    for _ in range(30):
        ask(service, seen(game))
        game.advance()
    service.log.problem = None
    service.close()
    again, _, clock = start_service(tmp_path, WORDS, "hive")
    assert next_outcomes(again, game) == []
    game.advance()
    assert next_outcomes(again, game) == [2]
    clock.now += 30
    again.expire()
    counts = again.state.join.counts
    assert (counts.joined, counts.expired, counts.pending, counts.balanced) == (1, 2, 0, True)
    again.close()
