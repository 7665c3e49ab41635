"""Optional environment families, and unknown ids."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import gymnasium as gym
import pytest

from townlet.errors import TownletError
from townlet.gym import extras

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("id", "extra"),
    [
        ("ALE/Pong-v5", "atari"),
        ("BreakoutNoFrameskip-v4", "atari"),
        ("LunarLander-v3", "box2d"),
        ("CarRacing-v3", "box2d"),
        ("HalfCheetah-v5", "mujoco"),
        ("MiniGrid-Empty-5x5-v0", "minigrid"),
        ("VizdoomBasic-v1", "vizdoom"),
        ("retro/Airstriker-Genesis-v0", "retro"),
    ],
)
def test_an_id_names_the_extra_it_needs(id: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = extras.family(id)
    assert found is not None
    assert found.extra == extra
    monkeypatch.setattr(extras, "find_spec", lambda _: None)  # as if nothing were installed
    with pytest.raises(
        TownletError, match=found.why_not_installable[:20] or re.escape(f"pip install 'townlet[{extra}]'")
    ):
        extras.require(id)


@pytest.mark.parametrize("id", ["CartPole-v1", "Taxi-v4", "Bandit-v0", "Townlet/Town-v0"])
def test_builtin_ids_need_no_extra(id: str) -> None:
    assert extras.family(id) is None
    extras.require(id)


def test_registered_ids_match_their_family() -> None:
    rooms = {"box2d": "box2d", "mujoco": "mujoco"}
    for id, spec in gym.registry.items():
        for room, extra in rooms.items():
            if isinstance(spec.entry_point, str) and spec.entry_point.startswith(f"gymnasium.envs.{room}"):
                found = extras.family(id)
                assert found is not None
                assert found.extra == extra, id


def test_misspelled_id_gets_a_suggestion() -> None:
    with pytest.raises(TownletError, match="did you mean 'MountainCar-v0'"):
        extras.require("MountainCar-v7")


def test_every_extra_is_declared() -> None:
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {f.extra for f in extras.FAMILIES if not f.why_not_installable} <= set(offered)
