"""The hand-written players: random, passive, and a planner that survives wherever possible."""

from __future__ import annotations

import re
from collections import deque
from importlib.resources import files

import numpy as np
import pytest
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.rng import Streams
from townlet.town.engines.engine import make_engine
from townlet.town.feasibility import measure_survival
from townlet.town.planner import NEVER, PassivePlayer, PlannerPlayer, RandomPlayer, make_player, opening_hours
from townlet.town.world.load import from_text, load
from townlet.town.world.tables import World

LIVABLE = (
    "town", "town-l0", "town-l0-dual", "town-l2", "town-l3", "town-shuffled", "town-foggy", "town-dark",
    "town-house", "town-aspatial", "cascades-weak", "cascades-strong",
)  # fmt: skip


def dice() -> np.random.Generator:
    return Streams(1).numpy("players")


def test_random_is_uniform_over_the_valid_actions() -> None:
    world = load("town")
    engine = make_engine(world, 6000)
    engine.reset(0)
    engine.restore({"cell": np.zeros(6000, np.int32)})  # the upper left corner, without an affordance
    counts = np.bincount(RandomPlayer(dice()).act(engine), minlength=len(world.actions))
    valid = [world.actions.index(name) for name in ("DOWN", "RIGHT", "WAIT")]
    assert counts.sum() == counts[valid].sum()
    assert counts[valid] == pytest.approx(2000, abs=200)


def test_random_player_survives_about_137_steps_in_town_l0() -> None:
    world = load("town-l0")
    assert measure_survival(world, RandomPlayer(dice()), 2000, key=3).mean == pytest.approx(137, abs=5)


def test_passive_player_waits_until_energy_is_empty() -> None:
    world = load("town")
    stats = measure_survival(world, PassivePlayer(world), 3, key=0)
    assert stats.ages.tolist() == [164, 164, 164]
    assert stats.deaths == {"energy": 3}


@pytest.mark.parametrize("name", LIVABLE)
def test_planner_reaches_the_limit(name: str) -> None:
    world = load(name)
    assert measure_survival(world, PlannerPlayer(world), 24, key=5).reached >= 0.9


@pytest.mark.long  # test_town_is_sustainable follows it for 1500 steps
def test_planner_outlives_the_limit_in_town() -> None:
    world = load("town")
    assert measure_survival(world, PlannerPlayer(world), 16, key=7, limit=2500).mean >= 2000


def test_planner_outlives_the_limit_with_hours_and_sessions() -> None:
    world = load("town-l3")
    assert measure_survival(world, PlannerPlayer(world), 16, key=7, limit=1200).mean >= 700


@pytest.mark.parametrize("hour", [0, 9, 20])
def test_planner_survives_from_any_hour(hour: int) -> None:
    world = load("town-l3", [f"clock.start={hour}"])
    assert measure_survival(world, PlannerPlayer(world), 16, key=7).reached >= 0.9


def test_planner_finishes_its_sessions() -> None:
    world = load("town-l3")
    engine, planner = make_engine(world, 32), PlannerPlayer(world)
    engine.reset(2)
    begun = finished = 0
    for _ in range(300):
        before = {name: engine.peek()[name].astype(int) for name in ("progress", "using")}
        engine.step(planner.act(engine))
        after = engine.peek()["progress"].astype(int)
        last_tick = before["progress"] == world.tables.ticks[before["using"]] - 1
        begun += int(((before["progress"] == 0) & (after == 1)).sum())
        finished += int(((before["progress"] > 0) & last_tick & (after == 0)).sum())
    assert begun > 300
    assert finished / begun > 0.9  # some are unfinished at the end


def test_planner_does_not_depend_on_names() -> None:
    text = (files("townlet") / "town" / "worlds" / "town.yaml").read_text(encoding="utf-8")
    world = load("town")
    for n, name in enumerate((*world.meters, *world.affordances)):
        text = re.sub(rf"\b{name}\b", f"thing{n}", text)
    renamed = from_text(text)
    assert set(world.meters).isdisjoint(renamed.meters)
    paths = [_path(w, 120) for w in (world, renamed)]
    assert (paths[0] == paths[1]).all()


def _path(world: World, steps: int, kind: str = "auto") -> NDArray[np.float64]:
    """Cells and meters of four rows that the planner plays [steps, 4, 1 + M]."""
    engine, planner = make_engine(world, 4, kind), PlannerPlayer(world)
    engine.reset(11)
    seen = []
    for _ in range(steps):
        engine.step(planner.act(engine))
        state = engine.peek()
        seen.append(np.column_stack([state["cell"], state["meters"]]))
    return np.array(seen)


def test_planner_plays_the_same_on_the_tensor_engine() -> None:
    world = load("town")
    assert _path(world, 60, "torch") == pytest.approx(_path(world, 60), abs=1e-4)


def test_planner_spends_freely_while_the_currency_is_frozen() -> None:
    world = load("town")
    engine, planner = make_engine(world, 8, autoreset=False), PlannerPlayer(world)
    engine.reset(1)
    everything = (1 << len(world.meters)) - 1
    frozen = everything & ~(1 << world.tables.currency)
    meters = engine.state()["meters"]
    meters[:, world.tables.currency] = 0
    engine.restore({"active": np.full(8, frozen, np.int32), "meters": meters})
    for _ in range(400):
        engine.step(planner.act(engine))
    assert not np.asarray(engine.terminated).any()


@pytest.mark.parametrize("boundary", ["clamp", "wrap", "bounce"])
@pytest.mark.parametrize("size", [[7], [5, 4], [3, 4, 3]])
def test_distance_is_the_number_of_moves(boundary: str, size: list[int]) -> None:
    cell = [0] * len(size)
    overrides = [f"map.size={size}", f"map.boundary={boundary}", "map.layout=fixed", f"affordances.Bed.cell={cell}"]
    world = load("town-l0", overrides)
    planner = PlannerPlayer(world)
    moves = world.tables.next_cell[:-2]
    cells = moves.shape[1]
    for start in range(cells):
        steps = {start: 0}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            for there in moves[:, here].tolist():
                if there not in steps:
                    steps[there] = steps[here] + 1
                    queue.append(there)
        found = planner.distance(np.full(cells, start), np.arange(cells))
        assert found.tolist() == [steps[c] for c in range(cells)]


def test_opening_hours_look_ahead_past_midnight() -> None:
    hours = np.zeros((3, 6), bool)
    hours[0, [5, 0]] = True  # 5–1
    hours[1] = True
    until, stays = opening_hours(hours)
    assert until[0].tolist() == [0, 4, 3, 2, 1, 0]
    assert stays[0].tolist() == [1, 0, 0, 0, 0, 2]
    assert until[1].tolist() == [0] * 6
    assert (stays[1] == NEVER).all()
    assert (until[2] == NEVER).all()


def test_unknown_player_suggests_the_nearest_name() -> None:
    with pytest.raises(TownletError, match="did you mean 'planner'"):
        make_player("planer", load("town-l0"), dice())
