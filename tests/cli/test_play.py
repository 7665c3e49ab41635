"""`townlet play`: in a pipe, in a terminal, and with the keyboard."""

from __future__ import annotations

import os
import pty
import re
import termios
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from rich.console import Console

from cli.program import Program
from cli.terminal import at_a_terminal
from townlet.cli.play_screen import Keyboard, PlayerView, parse_keys, render_players
from townlet.cli.play_targets import TownKeys
from townlet.rng import Streams
from townlet.town.engines.engine import make_engine
from townlet.town.planner import make_player
from townlet.town.render.rendered_town import RenderedTown
from townlet.town.scene import Scene, read_scene
from townlet.town.world.load import load
from townlet.town.world.tables import World


def keys_of(world: World, scene: Scene) -> TownKeys:
    return TownKeys(cast(RenderedTown, SimpleNamespace(world=world, scene=scene)))


def town_action(world: World, scene: Scene, key: str) -> int | str:
    return keys_of(world, scene).choose(key)


def town_legend(world: World) -> str:
    return keys_of(world, scene_at(world, 0)).legend()


def scene_at(world: World, cell: int, hour: int = 0) -> Scene:
    engine = make_engine(world, 1)
    engine.reset(0)
    engine.restore({"cell": np.array([cell], np.int32), "hour": np.array([hour], np.int16)})
    return read_scene(engine, 0)


def test_pipe_prints_three_frames_per_player_and_the_table(townlet: Program) -> None:
    done = townlet("play", "town", "--table-episodes", "50")
    assert done.code == 0
    steps = {name: re.findall(rf"^{name}, step (\d+)$", done.out, re.MULTILINE) for name in ("random", "planner")}
    assert len(steps["random"]) == 3
    assert steps["planner"] == ["0", "250", "500"]
    assert "died: no energy left" in done.out
    assert "time ran out" in done.out
    random, planner = (re.search(rf"{name} +│ +50 │ +(\d+) │", done.out) for name in ("random", "planner"))
    assert random is not None
    assert planner is not None
    assert 80 < int(random[1]) < 150
    assert int(planner[1]) == 500
    assert f"A random agent survives about {random[1]} steps in town" in done.out


def test_seed_determines_the_episodes(townlet: Program) -> None:
    first, again, other = (
        townlet("play", "town-l0", "--table-episodes", "9", "--seed", seed).out for seed in ("1", "1", "2")
    )
    assert first == again
    assert first != other


def test_overrides_and_modes_are_applied(townlet: Program) -> None:
    done = townlet("play", "town", "max_steps=40", "--mode", "planner", "--table-episodes", "5")
    assert "age 40 of 40" in done.out
    assert "random, step" not in done.out
    assert "100% of 40" in done.out


def test_fewer_steps_show_less(townlet: Program) -> None:
    done = townlet("play", "town", "--mode", "planner", "--steps", "30", "--table-episodes", "2")
    assert re.findall(r"^planner, step (\d+)$", done.out, re.MULTILINE) == ["0", "15", "30"]


def test_every_episode_starts_anew_after_a_limit_of_steps(townlet: Program) -> None:
    done = townlet("play", "town", "--mode", "planner", "--steps", "10", "--episodes", "2", "--table-episodes", "2")
    assert re.findall(r"^planner, step (\d+)$", done.out, re.MULTILINE) == ["0", "5", "10"] * 2


def test_human_mode_needs_a_terminal(townlet: Program) -> None:
    done = townlet("play", "--mode", "human")
    assert done.code == 2
    assert "needs a keyboard" in done.err


def test_unknown_world_exits_with_2(townlet: Program) -> None:
    done = townlet("play", "twon")
    assert done.code == 2
    assert "town" in done.err


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOC\x1bOD", ["right", "left"]),
        ("w \x1b[Dq", ["w", " ", "left", "q"]),
        ("\x1b[3~q", ["\x1b[3~", "q"]),  # Delete is one key, not four
        ("<é.", ["<", "é", "."]),
    ],
)
def test_key_sequences_are_parsed(sent: str, keys: list[str]) -> None:
    assert parse_keys(sent) == keys


def test_keyboard_reads_single_keys_and_restores_the_terminal() -> None:
    far, near = pty.openpty()
    try:
        before = termios.tcgetattr(near)
        with Keyboard(near) as keys:
            assert keys.key(0) == ""
            os.write(far, b"\x1b[Ae")
            assert [keys.key(5), keys.key(5), keys.key(0)] == ["up", "e", ""]
            assert termios.tcgetattr(near) != before
        assert termios.tcgetattr(near) == before
    finally:
        os.close(far)
        os.close(near)


def test_keys_map_to_actions() -> None:
    world = load("town")
    scene = scene_at(world, 9)  # the Bed
    names = {key: world.actions[choice] for key in ("up", "a", "s", "right", " ", "e", ".")
             if isinstance(choice := town_action(world, scene, key), int)}  # fmt: skip
    assert names == {
        "up": "UP", "a": "LEFT", "s": "DOWN", "right": "RIGHT", " ": "INTERACT", "e": "INTERACT", ".": "WAIT",
    }  # fmt: skip


def test_impossible_keys_are_explained() -> None:
    world = load("town")
    corner = scene_at(world, 0)
    assert town_action(world, corner, "up") == "UP: the map ends here"
    assert "nothing to use on this cell" in str(town_action(world, corner, "e"))
    assert town_legend(world) in str(town_action(world, corner, "x"))
    assert town_legend(world) in str(town_action(world, corner, ">"))
    timed = load("town-l3")
    job = int(timed.tables.cell_of[0, timed.affordances.index("Job")])
    assert town_action(timed, scene_at(timed, job, hour=3), "e") == "Job is closed at hour 3"
    assert town_action(timed, scene_at(timed, job, hour=9), "e") == timed.actions.index("INTERACT")


def test_masked_unaffordable_action_is_explained() -> None:
    world = load("town", ["mask_unaffordable=true", "meters.money.start=0"])
    assert town_action(world, scene_at(world, 9), "e") == "Bed costs more than you have"


def test_levels_have_keys() -> None:
    world = load("town-house")
    scene = scene_at(world, 64)
    assert [town_action(world, scene, key) for key in "<>"] == [
        world.actions.index("BELOW"),
        world.actions.index("ABOVE"),
    ]
    assert "< > levels" in town_legend(world)


def test_affordances_have_keys_without_a_map() -> None:
    world = load("town-aspatial")
    engine = make_engine(world, 1)
    engine.reset(0)
    scene = read_scene(engine, 0)
    assert town_action(world, scene, "1") == world.actions.index("INTERACT Bed")
    assert town_action(world, scene, ".") == world.actions.index("WAIT")
    assert "1 Bed" in town_legend(world)
    assert isinstance(town_action(world, scene, "up"), str)


@pytest.mark.parametrize(("width", "height", "together"), [(200, 30, 2), (90, 60, 2), (90, 24, 1)])
def test_layout_fits_the_terminal(width: int, height: int, together: int) -> None:
    world = load("town")
    players = {name: make_player(name, world, Streams(0).numpy(name)) for name in ("random", "planner")}
    seats = [PlayerView(name, RenderedTown(world, player, 0)) for name, player in players.items()]
    console = Console(width=width, height=height, no_color=True)
    shown = []
    for moment in (0.0, 4.5):
        with console.capture() as capture:
            console.print(render_players(seats, console, "the keys", moment))
        shown.append(capture.get())
        assert "the keys" in shown[-1]
    assert sum(name in shown[0] for name in (" random ", " planner ")) == together
    assert all(any(name in s for s in shown) for name in (" random ", " planner "))


def test_episode_end_is_shown_before_the_next_starts() -> None:
    world = load("town", ["max_steps=3"])
    seat = PlayerView("passive", RenderedTown(world, make_player("passive", world, Streams(0).numpy("x")), 0))
    ages = []
    for _ in range(8):
        seat.step(pause_steps=2)
        ages.append(seat.env.age)
    assert ages == [1, 2, 3, 3, 3, 0, 1, 2]
    assert seat.caption() == "episode 2 · last: 3 steps, time ran out · longest: 3"


def test_human_plays_at_a_terminal() -> None:
    code, seen = at_a_terminal(
        ["play", "--table-episodes", "3", "town", "--mode", "human", "--mode", "planner"], ["x", ".", ".", "q"]
    )
    assert code == 0
    assert "'x' does nothing here" in seen
    assert "age 2 of 500" in seen
    assert "age 3 of 500" not in seen
    assert "A random agent survives about" in seen


def test_q_quits_and_prints_the_table() -> None:
    code, seen = at_a_terminal(["play", "--table-episodes", "3", "town", "--speed", "10"], ["q"])
    assert code == 0
    assert "A random agent survives about" in seen


def test_interrupt_exits_with_130() -> None:
    code, seen = at_a_terminal(["play", "--table-episodes", "3", "town"], ["\x03"])
    assert code == 130
    assert "A random agent survives about" not in seen
    assert "Traceback" not in seen
