"""The story of a life: which events are found in recorded steps."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from live.test_explain import METER, WORLD, life
from townlet.live.messages import OutputKind
from townlet.live.names import NAMES, first_name
from townlet.live.playback import PlayedEpisode
from townlet.live.story import Story, completed_use
from townlet.town.engines.engine import Engine
from townlet.town.episode_recorder import Recording
from townlet.town.planner import PlannerPlayer
from townlet.town.world.load import load, shipped
from townlet.town.world.tables import World

STEPS = 250
USE = int(WORLD.tables.first_interact)


def story(r: Recording, record: int | None = None) -> list[str]:
    one = Story(WORLD, record)
    one.advance(r)
    return [text for found in one.events(0, len(r)) for text in found or []]


def test_first_uses_and_shifts_are_told_once() -> None:
    r = life()
    r.actions[[3, 9, 30, 60]] = USE
    job = WORLD.affordances.index("Job")
    r.cell[60:] = r.cell_of[job]
    money = METER["money"]
    r.meters[61:, money] += 0.05
    assert [text for text in story(r) if "first" in text] == [
        "Day 1: first time at the Bed",
        "Day 3: first shift at the Job",
    ]


def test_use_that_fails_is_no_event() -> None:
    r = life(money=0.0)
    r.actions[3] = USE  # the bed costs money
    assert not any("first time at" in text for text in story(r))


def test_being_broke_is_told_once() -> None:
    r = life(money=np.where(np.arange(201) % 50 < 25, 0.3, 0.004))
    (text,) = (text for text in story(r) if "broke" in text)
    assert text == "Day 2: broke for the first time, with $0.40 left"


def test_danger_and_rescue() -> None:
    r = life(energy=np.concatenate([np.linspace(0.9, 0.1, 50), np.full(50, 0.4), np.full(101, 0.8)]))
    assert [text for text in story(r) if "energy" in text] == [
        "Day 2: energy is critical, at 20%",
        "Day 5: saved: energy is back at 80%",
    ]


def test_age_and_records() -> None:
    assert [text for text in story(life(), record=150) if "steps" in text] == [
        "Day 5: 100 steps old",
        "Day 7: a new record, longer than 150 steps",
    ]


@pytest.mark.parametrize(("cause", "text"), [("time", "lives to the step limit"), ("health", "dies: no health left")])
def test_end(cause: str, text: str) -> None:
    one, r = Story(WORLD), life()
    one.advance(r)
    one.end(r, cause)
    (last,) = one.events(200, 200)
    assert last == [f"Day 9: {text}"]


def test_story_grows_with_its_recording() -> None:
    """Reading it in parts gives the same events."""
    r = life(energy=np.linspace(0.9, 0.05, 201))
    parts = Story(WORLD)
    for end in (1, 7, 100, 200):
        part = {name: getattr(r, name) for name in ("cell_of",)}
        cut = {name: getattr(r, name)[: end + 1] for name in ("cell", "age", "hour", "progress", "using", "meters")}
        steps = {name: getattr(r, name)[:end] for name in ("actions", "outputs", "mask", "reward", "components")}
        parts.advance(Recording(**part, **cut, **steps))
    whole = Story(WORLD)
    whole.advance(r)
    assert parts.events(0, 200) == whole.events(0, 200)


def test_hours_are_told_in_worlds_with_time_of_day() -> None:
    world, r = load("town-l3"), life(energy=np.where(np.arange(201) < 30, 0.9, 0.1))
    r.hour[:] = (np.arange(201) + 8) % 24
    one = Story(world)
    one.advance(r)
    assert one.events(30, 30) == [["Day 2, 13:00: energy is critical, at 10%"]]


def test_names_are_stable_and_spread() -> None:
    assert first_name("run", 3) == first_name("run", 3)
    assert len({first_name("run", row) for row in range(200)}) > len(NAMES) * 0.7
    assert len({*NAMES}) == len(NAMES)


class RestlessPlanner:
    """A planner that takes a third of its actions at random; `used` is what each step but the last has used."""

    output_kind: OutputKind = "none"

    def __init__(self, world: World) -> None:
        self._player, self._rng, self.used = PlannerPlayer(world), np.random.default_rng(3), list[int]()
        self._outputs = np.zeros(len(world.actions), np.float32)

    def act(self, engine: Engine, episode_start: bool) -> tuple[int, NDArray[np.float32]]:
        if episode_start:
            engine.track_usage(1)
        else:
            self.used.append(int(engine.used[0]))
        action = int(self._player.act(engine)[0])
        if self._rng.random() < 1 / 3:
            action = int(self._rng.choice(np.flatnonzero(np.asarray(engine.mask)[0])))
        return action, self._outputs


@pytest.mark.parametrize("name", shipped())
def test_completed_uses_are_those_of_the_rules(name: str) -> None:
    """The story reads recorded steps, `rules.predict_use` the state: both must find the same uses."""
    world = load(name, ["max_steps=1000"])
    completed, seed = 0, 0
    while completed < 5 and seed < 8:
        actor = RestlessPlanner(world)
        episode = PlayedEpisode(world, actor, seed, "", 0, "")
        while episode.reach(STEPS) < STEPS and not episode.over:
            pass
        none = 2 * world.tables.n_affordances
        expected = [used // 2 if used % 2 and used < none else None for used in actor.used]
        assert [completed_use(world, episode.recording, at) for at in range(1, len(expected) + 1)] == expected
        completed += sum(used is not None for used in expected)
        seed += 1
    assert completed >= 5
