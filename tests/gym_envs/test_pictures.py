"""Rendering of a town: images, text and the window."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from rich.cells import cell_len

import townlet
from narrow import instance
from townlet.errors import TownletError
from townlet.town.gymnasium import TownEnv
from townlet.town.render import ansi, picture
from townlet.town.scene import Scene, monogram

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
UP, DOWN, LEFT, RIGHT, INTERACT, WAIT = range(6)


def scene_at(world: str, cell: str, actions: tuple[int, ...] = (), *overrides: str) -> Scene:
    """The scene after some actions from a given cell."""
    env = TownEnv(world, [f"map.start={cell}", *overrides])
    env.reset(seed=0)
    for action in actions:
        env.step(action)
    return env.scene()


def changed(a: Scene, b: Scene) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where the images of two scenes differ."""
    return np.asarray((picture.frame(a) != picture.frame(b)).any(axis=2))


@pytest.mark.parametrize("name", townlet.IDS)
def test_every_id_renders_in_every_mode(name: str) -> None:
    frames: dict[str, Any] = {}
    for mode in ("rgb_array", "ansi", "human"):
        env = gym.make(name, render_mode=mode)
        env.reset(seed=0)
        env.step(instance(env.action_space, gym.spaces.Discrete).n - 1)
        frames[mode] = env.render()
        env.close()
    assert frames["rgb_array"].shape == (640, 960, 3)
    assert frames["rgb_array"].dtype == np.uint8
    assert "age 1 of" in frames["ansi"]
    assert frames["human"] is None


def test_the_window_shows_the_picture() -> None:
    import pygame

    env = TownEnv("town-l0", render_mode="human")
    env.reset(seed=0)
    surface = pygame.display.get_surface()
    assert surface is not None
    shown = pygame.surfarray.array3d(surface).swapaxes(0, 1)
    assert (shown == picture.frame(env.scene())).all()
    env.close()
    assert not pygame.display.get_init()


def test_window_without_pygame_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    with pytest.raises(TownletError, match="pip install pygame-ce"):
        TownEnv("town-l0", render_mode="human").reset(seed=0)


def test_a_step_moves_the_agent_on_the_picture() -> None:
    here, there = scene_at("town-l0", "[0, 0]"), scene_at("town-l0", "[0, 0]", (RIGHT,))
    rows, columns = np.nonzero(changed(here, replace(here, cell=there.cell)))
    assert rows.max() < 640 / 5 + 20
    assert columns.max() < 2 * 640 / 5 + 20


def test_night_darkens_the_town_and_closes_affordances() -> None:
    noon = replace(scene_at("town-l3", "[3, 3]"), hour=12)
    night = replace(noon, hour=0)
    assert picture.frame(night)[:, :640].mean() < 0.6 * picture.frame(noon)[:, :640].mean()
    job = noon.world.affordances.index("Job")
    assert noon.is_open(job)
    assert not night.is_open(job)
    timeless = scene_at("town", "[3, 3]")
    assert not changed(timeless, replace(timeless, hour=12)).any()


@pytest.mark.parametrize(("value", "color"), [(0.9, None), (0.25, (240, 173, 48)), (0.15, (224, 72, 77))])
def test_low_meters_are_amber_and_critical_ones_red(value: float, color: tuple[int, int, int] | None) -> None:
    full = scene_at("town-l0", "[0, 0]")
    panel = picture.frame(replace(full, meters=(value,) * len(full.meters)))[:, 640:]
    found = {ink for ink in ((240, 173, 48), (224, 72, 77)) if (panel == ink).all(axis=2).sum() > 200}
    assert found == ({color} if color else set())


def test_money_is_shown_in_dollars() -> None:
    scene = scene_at("town-l0", "[2, 2]", (INTERACT,))
    assert "$45.00" in ansi.frame(scene, color=False)
    assert [g.text for g in scene.gauges()["resource"]] == ["$45.00"]


def test_a_session_under_way_is_ringed() -> None:
    scene = scene_at("town-l3", "[1, 1]", (INTERACT, INTERACT))
    assert scene.session_progress == pytest.approx(0.4)
    assert "Bed · $5.00 · 2 of 5" in ansi.frame(scene, color=False)
    assert changed(scene, replace(scene, progress=4))[:, :640].any()


@pytest.mark.parametrize("name", townlet.IDS)
@pytest.mark.parametrize("color", [True, False])
def test_columns_of_the_text_are_aligned(name: str, color: bool) -> None:
    env = TownEnv(townlet.IDS[name])
    env.reset(seed=0)
    lines = ESCAPE.sub("", ansi.frame(env.scene(), color)).splitlines()
    assert max(map(cell_len, lines)) <= 80
    bars = [(line, bar) for line in lines if (bar := re.search(r"[━#.]{20}", line))]
    assert len(bars) == len(env.world.meters)
    assert len({cell_len(line[: bar.start()]) for line, bar in bars}) == 1


def test_plain_text_has_no_escape_sequences() -> None:
    text = ansi.frame(scene_at("town", "[1, 1]"), color=False)
    assert "\x1b" not in text
    assert "[Be]" in text
    assert all(cell_len(letter) == 1 for letter in text.replace("\n", ""))


def test_end_of_episode_is_rendered() -> None:
    scene = scene_at("town", "[0, 0]", (RIGHT,) * 100)
    assert "died: no energy left" in ansi.frame(scene)
    assert changed(scene, replace(scene, ended="")).any()


def test_worlds_of_every_shape_show_the_agent() -> None:
    line = scene_at("town-l0", "[19]", (), "map.size=[30]", "affordances.Bed.cell=[20]")
    assert "[@ ]Be" in ansi.frame(line, color=False)
    huge = scene_at("town", "[90, 40]", (), "map.size=[100, 50]")
    assert "[@ ]" in ansi.frame(huge, color=False)
    assert "x 80 to 99, y 30 to 49" in ansi.frame(huge, color=False)
    house = scene_at("town-house", "[7, 7, 2]")
    assert ansi.frame(house, color=False).splitlines()[8].rstrip().endswith("[@ ]")
    nowhere = TownEnv("town-aspatial")
    nowhere.reset(seed=0)
    before = nowhere.scene()
    nowhere.step(0)
    assert "[Be]" not in ansi.frame(before, color=False)
    assert "[Be]" in ansi.frame(nowhere.scene(), color=False)
    for scene in (line, huge, house, before):
        assert changed(scene, replace(scene, cell=0)).any()


def test_image_size_can_be_chosen() -> None:
    assert picture.frame(scene_at("town", "[3, 3]"), width=1200).shape == (800, 1200, 3)


@pytest.mark.parametrize(
    ("name", "letters"), [("Bed", "Be"), ("LuxuryBed", "LB"), ("night shelter", "ns"), ("TV room", "Tr"), ("X", "X")]
)
def test_affordances_without_an_icon_show_initials(name: str, letters: str) -> None:
    assert monogram(name) == letters
