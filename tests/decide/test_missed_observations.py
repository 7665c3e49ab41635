"""Outcomes come from the next observation only: not after a disk failure or a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from decide.ads_service import FileService, ask, start_service, stop
from townlet.decide.domain import SimulatedGame

WORDS = ("policy=candidates", "gate.enabled=false")


def seen(game: SimulatedGame) -> dict[str, Any]:
    """An observation in which the queen can afford every action."""
    return game.observe() | {"queenEnergy": {"current": 100.0, "max": 100.0}}


def start(folder: Path) -> tuple[FileService, SimulatedGame]:
    """A service whose first decision is pending."""
    service, _, _ = start_service(folder, WORDS, "hive")
    game = service.domain.make_game(3, "a", 2)
    assert ask(service, seen(game))[0]["type"] == "spawn_decision"
    game.advance()
    assert service.storage.state.join.counts.pending == 1
    return service, game


def next_outcomes(service: FileService, game: SimulatedGame) -> list[int]:
    """Decisions that get an outcome from the next observation."""
    joined: list[int] = []
    service.storage.state.outcome_listeners.append(
        lambda experience, value, how: joined.append(experience.decision.number)
    )
    ask(service, seen(game))
    return joined


def test_next_observation_gives_the_outcome(tmp_path: Path) -> None:
    service, game = start(tmp_path)
    assert next_outcomes(service, game) == [1]
    service.storage.close()


def unseen(service: FileService, game: SimulatedGame) -> None:
    """The disk is full for one observation."""
    stop(service)
    ask(service, seen(game))
    service.storage.log.problem = None


def half_seen(service: FileService, game: SimulatedGame) -> None:
    """The disk accepts the decision, but not the outcome just before."""
    append = service.storage.log.append

    def refuse_once(payload: bytes) -> int:
        service.storage.log.problem, service.storage.log.append = "no room", back  # type: ignore[method-assign]
        return append(payload)

    def back(payload: bytes) -> int:
        service.storage.log.problem = None
        return append(payload)

    service.storage.log.wait(service.storage.log.last, 20)
    service.storage.log.append = refuse_once  # type: ignore[method-assign]
    ask(service, seen(game))


@pytest.mark.parametrize(("gap", "joined"), [(unseen, []), (half_seen, [2])])
def test_observation_after_a_gap_gives_no_outcome(
    tmp_path: Path, gap: Callable[[FileService, SimulatedGame], None], joined: list[int]
) -> None:
    service, game = start(tmp_path)
    gap(service, game)
    assert service.storage.state.join.counts.joined == 0
    game.advance()
    assert next_outcomes(service, game) == joined
    assert 1 in service.storage.state.pending  # until it expires
    service.storage.close()


def test_observation_after_a_restart_gives_no_outcome(tmp_path: Path) -> None:
    service, game = start(tmp_path)
    stop(service)
    for _ in range(30):
        ask(service, seen(game))
        game.advance()
    service.storage.log.problem = None
    service.storage.close()
    again, _, clock = start_service(tmp_path, WORDS, "hive")
    assert next_outcomes(again, game) == []
    game.advance()
    assert next_outcomes(again, game) == [2]
    clock.now += 30
    again.storage.maintain()
    counts = again.storage.state.join.counts
    assert (counts.joined, counts.expired, counts.pending, counts.balanced) == (1, 2, 0, True)
    again.storage.close()
