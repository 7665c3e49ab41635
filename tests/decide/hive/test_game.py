"""The simulated game follows its rules and is reproducible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.game import FLEE, MINE, SPOTS, STAGES, HiveGame, center
from townlet.errors import TownletError


def play_messages(seed: int, territory: str = "1", ticks: int = 600) -> list[dict[str, Any]]:
    game = HiveGame(seed, territory)
    messages = []
    for _ in range(ticks // 5):
        messages.append(game.observe())
        game.spawn((7 * game.time) % 400, ("energy", "combat")[game.time % 2])
        game.advance()
    return messages


def quiet_game(**settings: Any) -> HiveGame:
    """A game with protectors and workers out of the way, in a corner."""
    game = HiveGame(0, **settings)
    for unit in (*game.workers, *game.protectors):
        unit.x, unit.z = 0.5, 0.5
        unit.head_to((0.5, 0.5), 1.0)
    return game


def test_equal_seeds_give_equal_games() -> None:
    assert play_messages(1) == play_messages(1)
    assert play_messages(1) != play_messages(2)
    other = play_messages(1, "2")
    assert [m | {"territoryId": "1"} for m in other] != play_messages(1)


def test_every_message_is_valid() -> None:
    for message in play_messages(3, ticks=3000):
        observation = DOMAIN.parse_observation(message)
        assert observation.row["present"].sum() + observation.row["mining"].sum() == 8
        assert observation.row["protectors"].sum() <= 3


@pytest.mark.parametrize("stage", range(3))
def test_stage_sets_numbers_of_units(stage: int) -> None:
    game = DOMAIN.make_game(0, "north", stage)
    message = game.observe()
    assert (len(message["workersPresent"]), len(message["protectors"])) == STAGES[stage]
    assert message["territoryId"] == "north"
    assert message["queenEnergy"] == {"current": 50.0, "max": 100.0}
    assert (message["playerEnergy"]["end"], message["playerMinerals"]["end"]) == (100.0, 50.0)


def test_unknown_stage_is_refused() -> None:
    with pytest.raises(TownletError, match="no stage 3"):
        HiveGame(0, stage=3)


def test_workers_mine_ten_ticks_at_spots_and_deliver_units() -> None:
    game = HiveGame(0, stage=0)
    spots, since = {int(z) * 20 + int(x) for x, z in SPOTS}, [0] * 4
    lengths = []
    for _ in range(1000):
        game.tick()
        for n, worker in enumerate(game.workers):
            if worker.activity == MINE:
                assert worker.chunk in spots
                since[n] += 1
            elif since[n]:
                lengths.append(since[n])
                since[n] = 0
    assert set(lengths) == {10}
    units = round((game.energy - 100) / 0.5)
    assert len(lengths) - 4 <= units <= len(lengths)
    assert game.minerals == pytest.approx(50 + 0.3 * units)


def test_units_do_not_exceed_their_speed() -> None:
    game = HiveGame(5)
    for _ in range(500):
        game.spawn(int(game.time * 13) % 400, "energy")
        before = [(u.x, u.z, down) for u, down in pairs(game)]
        game.tick()
        for (x, z, down), (unit, now) in zip(before, pairs(game), strict=True):
            speed = 1.0 if unit in game.workers else 1.5
            if not down and not now:
                assert np.hypot(unit.x - x, unit.z - z) <= speed + 1e-9


def pairs(game: HiveGame) -> list[tuple[Any, int]]:
    return [(w, 0) for w in game.workers] + [(p, p.down) for p in game.protectors]


def test_queen_pays_for_spawns_and_gains_energy() -> None:
    game = quiet_game()
    assert game.spawn(399, "energy")
    assert game.queen == 35.0
    assert game.spawn(399, "combat")
    assert game.queen == 10.0
    assert not game.spawn(399, "energy")
    for _ in range(400):
        game.tick()
    assert game.queen == 100.0


def test_invalid_spawns_fail() -> None:
    game = quiet_game()
    assert not game.spawn(400, "energy")
    assert not game.spawn(-1, "energy")
    assert not game.spawn(3, "fire")
    assert not game.spawn(0, "energy")  # a protector is in that chunk
    assert game.queen == 50.0
    assert game.observe()["parasitesEnd"] == []


def test_parasites_stay_for_twenty_ticks() -> None:
    game = quiet_game(stage=0)
    game.spawn(399, "combat")
    game.observe()
    for _ in range(19):
        game.tick()
    assert game.observe()["parasitesEnd"] == [{"chunkId": 399, "type": "combat"}]
    game.tick()
    message = game.observe()
    assert message["parasitesStart"] == [{"chunkId": 399, "type": "combat"}]
    assert message["parasitesEnd"] == []


@pytest.mark.parametrize(("far", "flees"), [(0, True), (2, True), (4, False)])
def test_workers_flee_within_three_chunks(far: int, flees: bool) -> None:
    game = quiet_game(stage=0)
    worker = game.workers[0]
    worker.x, worker.z = center(210)
    worker.activity, worker.ticks_left = MINE, 10
    game.spawn(210 + far, "combat")
    game.tick()
    assert (worker.activity == FLEE) == flees
    if flees and far:
        assert worker.x < center(210)[0]  # away from the parasite


def test_fleeing_lasts_five_ticks_then_work_resumes() -> None:
    game = quiet_game(stage=0)
    worker = game.workers[0]
    worker.x, worker.z = center(210)
    worker.spot = center(210)
    worker.activity, worker.ticks_left = MINE, 10
    game.spawn(211, "combat")
    game.parasites[0] = game.parasites[0]._replace(until=1)
    activities = []
    for _ in range(12):
        game.tick()
        activities.append(worker.activity)
    assert activities[:4] == [FLEE] * 4
    assert FLEE not in activities[4:]
    assert activities[-1] == MINE


def test_energy_is_drained_per_worker_within_six_chunks() -> None:
    for kind, left in (("energy", 100 * 0.96**2), ("combat", 100.0)):
        game = quiet_game(stage=0)
        for worker, chunk in zip(game.workers[:2], (210, 214), strict=True):
            worker.x, worker.z = center(chunk)
        game.spawn(209, kind)
        game.tick()
        assert game.energy == pytest.approx(left, abs=0.02)


@pytest.mark.parametrize(("kill_range", "far", "dies"), [(2.0, 3, True), (2.0, 4, False), (4.0, 4, True)])
def test_protectors_kill_before_parasites_act(kill_range: float, far: int, dies: bool) -> None:
    game = quiet_game(stage=1)
    game.kill_range = kill_range
    game.protectors[0].x, game.protectors[0].z = center(210)
    game.workers[0].x, game.workers[0].z = center(210 + far)
    game.spawn(210 + far, "energy")
    game.tick()
    assert (not game.parasites) == dies
    assert (game.workers[0].activity == FLEE) == (not dies)


def test_protectors_ignore_distant_parasites() -> None:
    game = quiet_game(stage=1)
    game.spawn(210, "energy")
    for _ in range(3):
        game.tick()
        assert game.parasites


def test_combat_parasites_strike_protectors_down_for_thirty_ticks() -> None:
    struck = 0
    for seed in range(200):
        game = HiveGame(seed, stage=1)
        for worker in game.workers:
            worker.x, worker.z = 0.5, 0.5
        first, second = game.protectors
        first.x, first.z = center(390)
        second.x, second.z = center(0)
        game.spawn(391, "combat")
        game.tick()
        if first.down:
            struck += 1
            assert len(game.observe()["protectors"]) == 1
            game.parasites.clear()
            for _ in range(29):
                game.tick()
            assert len(game.observe()["protectors"]) == 1
            game.tick()
            assert len(game.observe()["protectors"]) == 2
        else:
            assert not game.parasites
    assert 50 < struck < 110


def test_messages_contain_changes_since_the_last_one() -> None:
    game = HiveGame(0)
    game.observe()
    for _ in range(60):
        game.tick()
    first = game.observe()
    for _ in range(60):
        game.tick()
    second = game.observe()
    assert first["playerEnergy"]["start"] == 100.0
    assert second["playerEnergy"]["start"] == first["playerEnergy"]["end"] < second["playerEnergy"]["end"]
    assert second["timestamp"] == 120


def test_replies_are_carried_out_and_reported() -> None:
    game = quiet_game()
    decision = {"type": "spawn_decision", "decisionId": "a-1", "spawnChunk": 399, "spawnType": "energy"}
    (report,) = game.apply(decision)
    assert DOMAIN.parse_report(report).failed is False
    assert game.parasites[0].chunk == 399
    (report,) = game.apply(decision | {"spawnChunk": 0})
    assert DOMAIN.parse_report(report).failed is True
    assert game.apply({"type": "observation_ack", "decisionId": "a-2"}) == []
    assert game.apply({"type": "error", "code": "X", "message": ""}) == []
    assert game.advance() == []
    assert game.time == 5
