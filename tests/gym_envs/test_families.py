"""Optional families of environments; skipped where they are not installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from townlet.errors import TownletError
from townlet.gym.make import make_vec
from townlet.gym.settings import GymSettings
from townlet.interfaces import conformance
from townlet.interfaces.vec_env import Discrete


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulators write files to the working directory."""
    monkeypatch.chdir(tmp_path)


def spec(**keys: Any) -> GymSettings:
    return GymSettings.model_validate({"max_episode_steps": 50, **keys})


BOX2D = pytest.mark.skipif(find_spec("Box2D") is None, reason="Box2D is not installed here")


@pytest.mark.parametrize(
    ("id", "keys", "exact"),
    [
        pytest.param("LunarLander-v3", {}, False, marks=BOX2D),
        pytest.param("InvertedPendulum-v5", {}, True, marks=pytest.mark.long),
        ("HalfCheetah-v5", {}, True),
    ],
)
def test_simulators_conform(id: str, keys: dict[str, Any], exact: bool) -> None:
    conformance.check(lambda rows: make_vec(id, spec(**keys), rows))
    assert make_vec(id, spec(**keys), 1).exact is exact


@pytest.mark.long
@pytest.mark.parametrize(
    "keys",
    [
        {"observation": "objects"},
        {"observation": "ram", "normalize_obs": "static"},
        {"observation": "rgb", "grayscale": True, "resize": (21, 21), "frame_stack": 2, "frame_skip": 4},
    ],
)
def test_atari_rows_resume_exactly(keys: dict[str, Any]) -> None:
    conformance.restored_state_continues(lambda rows: make_vec("ALE/Pong-v5", spec(**keys), rows))
    env = make_vec("ALE/Pong-v5", spec(**keys), 1)
    assert env.exact
    assert env.actions == Discrete(("noop", "fire", "right", "left", "rightfire", "leftfire"))


def test_minigrid_conforms_without_the_mission_text() -> None:
    with pytest.raises(TownletError, match="'mission'"):
        make_vec("MiniGrid-Empty-5x5-v0", spec())
    parts = ({"name": "keys", "keep": ("image", "direction")},)
    conformance.check(lambda rows: make_vec("MiniGrid-Empty-5x5-v0", spec(wrappers=parts), rows))


def test_a_level_of_doom_can_be_played() -> None:
    parts = ({"name": "keys", "keep": ("screen",)},)
    env = make_vec("VizdoomBasic-v1", spec(wrappers=parts), 1)
    seen = env.reset(0)
    assert env.layout.block("screen").kind == "picture"
    for step in conformance.random_steps(env, seen, 5):
        assert 0 < step.obs.mean() < 1
    env.close()


def test_images_in_dict_observations_are_resized() -> None:
    env = make_vec("VizdoomBasic-v1", spec(grayscale=True, resize=(30, 40)), 1)
    assert {block.name: (block.shape, block.kind) for block in env.layout} == {
        "gamevariables": ((1,), "values"),
        "screen": ((1, 30, 40), "picture"),
    }
    assert 0 < env.layout.view(env.reset(0).obs, "screen").mean() < 1
    env.close()


def test_minigrid_cells_are_one_hot() -> None:
    parts = ({"name": "keys", "keep": ("image", "direction")}, {"name": "minigrid_one_hot"})
    env = make_vec("MiniGrid-DoorKey-5x5-v0", spec(wrappers=parts), 1)
    cells = env.layout.view(env.reset(0).obs, "image")[0]
    assert cells.shape == (7, 7, 21)
    kinds, colors, states = cells.split((11, 6, 4), -1)
    assert all((part.sum(-1) == 1).all() for part in (kinds, colors, states))
    wall, gray = 2, 5
    walls = kinds[..., wall].bool()
    assert walls.any()
    assert colors[walls][:, gray].all()
    with pytest.raises(TownletError, match="'minigrid_one_hot'"):
        make_vec("CartPole-v1", spec(wrappers=({"name": "minigrid_one_hot"},)))
