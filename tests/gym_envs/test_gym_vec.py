"""Gymnasium environments as rows of tensors: autoreset modes, ends, masks, seeds and saved state."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_envs.counting import Counting
from gym_envs.taxi import taxi_masks
from townlet.errors import TownletError
from townlet.gym.make import make_vec
from townlet.gym.settings import GymSettings
from townlet.gym.vector_env import GymVecEnv
from townlet.gym.wrappers.spec import ActionMaskSpec
from townlet.interfaces import conformance
from townlet.interfaces.vec_env import Binary, Continuous, Discrete

SAME, NEXT, OFF = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED
MODES = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def counting(mode: AutoresetMode, rows: int = 3, **how: Any) -> GymVecEnv:
    vec = Counting(rows, mode, both=how.pop("both", False))
    return GymVecEnv(vec, "Counting", **how)


def spec(**keys: Any) -> GymSettings:
    return GymSettings.model_validate(keys)


def idle(env: GymVecEnv) -> torch.Tensor:
    return torch.zeros(env.rows, dtype=torch.int64)


@MODES
def test_every_autoreset_mode_conforms(mode: AutoresetMode) -> None:
    shared = (conformance.rows_are_independent,)  # one random stream for all rows
    conformance.check(lambda rows: counting(mode, rows), exclude=shared)


@MODES
def test_final_observations_are_reported(mode: AutoresetMode) -> None:
    env = counting(mode)
    first = int(env.reset(0).obs[0, 0])
    assert not len(env.step(idle(env)).obs[:0])
    step = env.step(idle(env))  # row 0 ends at age 2
    assert step.terminated.tolist() == [True, False, False]
    assert step.reward.tolist() == [2, 2, 2]
    assert env.final_obs().rows.tolist() == [0]
    assert env.final_obs().obs.tolist() == [[first, 2]]
    assert step.obs[0].tolist() == ([first, 2] if mode is NEXT else [first + 1, 0])
    step = env.step(idle(env))
    assert step.truncated.tolist() == [False, True, False]
    assert env.final_obs().obs.tolist() == [[first, 3]]


def test_next_step_mode_marks_autoreset_steps() -> None:
    env = counting(NEXT)
    first = int(env.reset(0).obs[0, 0])
    env.step(idle(env))
    assert not env.step(idle(env)).episode_starts.any()
    step = env.step(idle(env))
    assert step.autoreset_step is not None
    assert step.autoreset_step.tolist() == step.episode_starts.tolist() == [True, False, False]
    assert step.obs[0].tolist() == [first + 1, 0]
    assert step.reward.tolist() == [0, 3, 3]
    assert env.step(idle(env)).episode_starts.tolist() == [False, True, False]


def test_reset_clears_pending_autoresets() -> None:
    env = counting(NEXT)
    env.reset(0)
    for _ in range(2):
        env.step(idle(env))
    env.reset(0)
    step = env.step(idle(env))
    assert step.autoreset_step is not None
    assert not step.autoreset_step.any()
    assert step.reward.tolist() == [1, 1, 1]


def test_disabled_mode_resets_only_ended_rows() -> None:
    env = counting(OFF)
    env.reset(0)
    assert isinstance(env.vec, Counting)
    env.vec.resets.clear()
    for _ in range(4):
        env.step(idle(env))
    assert env.vec.resets == [[0], [1], [0, 2]]


@MODES
def test_termination_wins_over_truncation(mode: AutoresetMode) -> None:
    env = counting(mode, both=True)
    env.reset(0)
    ends = [env.step(idle(env)) for _ in range(2)][-1]
    assert ends.terminated.tolist() == [True, False, False]
    assert not ends.truncated.any()


@MODES
def test_masks_are_read_from_info_and_final_info(mode: AutoresetMode) -> None:
    env = counting(mode, mask=ActionMaskSpec())
    assert env.reset(0).mask.tolist() == [[True, True]] * 3
    assert env.step(idle(env)).mask.tolist() == [[True, False]] * 3
    step = env.step(idle(env))
    assert step.mask.tolist() == [[True, True]] * 3
    step = env.step(idle(env))  # row 1 ended at age 3, where action 1 was invalid
    assert env.final_obs().mask.tolist() == [[True, False]]
    assert step.mask[1].tolist() == ([True, False] if mode is NEXT else [True, True])


def test_without_mask_wrapper_all_actions_are_valid() -> None:
    env = make_vec("Taxi-v4", spec(), 2)
    assert env.reset(0).mask.all()
    masked = make_vec("Taxi-v4", spec(wrappers=({"name": "action_mask"},)), 2)
    seen = masked.reset(0)
    assert not seen.mask.all()
    assert seen.mask.any(1).all()
    assert (seen.mask.numpy() == taxi_masks(masked)).all()


def test_a_list_of_valid_actions_is_the_mask() -> None:
    env = make_vec("CartPole-v1", spec(wrappers=({"name": "action_mask", "valid": (1,)},)), 3)
    assert env.reset(0).mask.tolist() == [[False, True]] * 3
    with pytest.raises(TownletError, match="no action 5"):
        make_vec("CartPole-v1", spec(wrappers=({"name": "action_mask", "valid": (5,)},)))
    with pytest.raises(TownletError, match="has no 'action_mask'"):
        make_vec("CartPole-v1", spec(wrappers=({"name": "action_mask"},))).reset(0)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"normalize_obs": "static", "frame_stack": 3}),
        ("Pendulum-v1", {"max_episode_steps": 70}),
        ("FrozenLake-v1", {}),
        ("Taxi-v4", {"max_episode_steps": 60}),
        pytest.param("Acrobot-v1", {"max_episode_steps": 70}, marks=pytest.mark.long),
        pytest.param("MountainCar-v0", {"max_episode_steps": 70}, marks=pytest.mark.long),
        ("Bandit-v0", {"kwargs": {"length": 50}}),
    ],
)
def test_environments_conform(name: str, more: dict[str, Any]) -> None:
    conformance.check(lambda rows: make_vec(name, spec(vectorization="sync", **more), rows))
    assert make_vec(name, spec(vectorization="sync", **more), 1).exact


@pytest.mark.parametrize("more", [{}, {"frame_stack": 2}, {"max_episode_steps": 9}])
def test_native_cart_pole_conforms(more: dict[str, Any]) -> None:
    shared = (conformance.rows_are_independent,)  # one random stream for all rows
    conformance.check(lambda rows: make_vec("CartPole-v1", spec(vectorization="native", **more), rows), exclude=shared)
    env = make_vec("CartPole-v1", spec(vectorization="native"), 2)
    assert env.exact
    assert env.actions == Discrete(("left", "right"))


@pytest.mark.parametrize("name", ["Blackjack-v1", "CliffWalking-v1"])
def test_toy_text_resumes_exactly(name: str) -> None:
    assert make_vec(name, spec(), 1).exact
    conformance.restored_state_continues(lambda rows: make_vec(name, spec(), rows))


def test_async_rows_equal_sync_rows() -> None:
    here, there = (make_vec("CartPole-v1", spec(vectorization=way), 2) for way in ("sync", "async"))
    try:
        assert torch.equal(here.reset(3).obs, there.reset(3).obs)
        chance = torch.Generator().manual_seed(0)
        for _ in range(60):
            actions = torch.randint(2, (2,), generator=chance)
            a, b = here.step(actions), there.step(actions)
            assert conformance.equal_steps(a, b)
            assert torch.equal(here.final_obs().obs, there.final_obs().obs)
        assert there.exact
        again = here.restore(there.state())
        assert torch.equal(again.obs, b.obs)
        assert there.restore(here.state()).obs.shape == (2, 4)
        assert conformance.equal_steps(here.step(actions), there.step(actions))
    finally:
        there.close()


def test_worker_process_does_not_import_torch() -> None:
    """Importing it would cost each process seconds and much memory."""
    code = "import sys, townlet.gym.row_factory; sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("promise", conformance.CHECKS, ids=lambda promise: promise.__name__)
def test_async_rows_conform(promise: Callable[[conformance.MakeEnv], None]) -> None:
    made: list[GymVecEnv] = []

    def make(rows: int) -> GymVecEnv:
        made.append(make_vec("CartPole-v1", spec(vectorization="async"), rows))
        return made[-1]

    try:
        promise(make)
    finally:
        for env in made:
            env.close()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**63 - 1), rows=st.integers(1, 5))
def test_row_seeds_do_not_depend_on_the_number_of_rows(seed: int, rows: int) -> None:
    few = make_vec("CartPole-v1", spec(vectorization="sync"), rows).reset(seed).obs
    many = make_vec("CartPole-v1", spec(vectorization="sync"), rows + 1).reset(seed).obs
    assert torch.equal(few, many[:rows])
    assert len(torch.unique(many, dim=0)) == rows + 1


def test_actions_are_clipped_to_bounds() -> None:
    env = make_vec("Pendulum-v1", spec(), 2)
    assert env.actions == Continuous(("0",), (-2.0,), (2.0,))
    env.reset(0)
    most = env.step(torch.full((2, 1), 2.0)).obs.clone()
    env.reset(0)
    assert torch.equal(env.step(torch.full((2, 1), 50.0)).obs, most)


class Switches(gym.Env[Any, Any]):
    """Observation with a subspace of every kind; binary actions."""

    action_space: gym.Space[Any] = gym.spaces.MultiBinary(3)
    observation_space = gym.spaces.Dict(
        {
            "way": gym.spaces.Discrete(4, start=2),
            "both": gym.spaces.Tuple((gym.spaces.MultiDiscrete([3, 5]), gym.spaces.MultiDiscrete([2, 2]))),
            "sight": gym.spaces.Box(0, 255, (2, 3, 3), np.uint8),
            "flags": gym.spaces.MultiBinary(3),
        }
    )

    def _seen(self, flags: Any) -> dict[str, Any]:
        sight = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
        return {"way": 5, "both": (np.array([2, 4]), np.array([1, 0])), "sight": sight, "flags": np.array(flags)}

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self._seen([0, 0, 0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._seen(action), 0.0, False, bool(action.all()), {}


class Odd(Switches):
    """Spaces that are not numeric."""

    def __init__(self, of: str) -> None:
        if of == "action":
            self.action_space = gym.spaces.Sequence(gym.spaces.Discrete(2))
        elif of == "bounds":
            self.action_space = gym.spaces.Box(-np.inf, np.inf, (2,))
        else:
            self.observation_space = gym.spaces.Dict({"words": gym.spaces.Text(4)})


ENTRY_POINTS: dict[str, Callable[..., gym.Env[Any, Any]]] = {"Switches-v0": Switches, "Odd-v0": Odd}
for switches_id, entry_point in ENTRY_POINTS.items():
    gym.register(switches_id, entry_point)


def test_every_kind_of_subspace_is_encoded() -> None:
    env = make_vec("Switches-v0", spec(), 2)
    assert env.actions == Binary(("0", "1", "2"))
    assert [(b.name, b.shape, b.kind, b.low, b.high) for b in env.layout] == [
        ("both.0.0", (1,), "index", 0, 2),
        ("both.0.1", (1,), "index", 0, 4),
        ("both.1", (2,), "index", 0, 1),
        ("flags", (3,), "values", 0, 1),
        ("sight", (3, 2, 3), "picture", 0, 1),
        ("way", (1,), "index", 2, 5),
    ]
    obs = env.reset(0).obs
    assert obs[1, :7].tolist() == [2, 4, 1, 0, 0, 0, 0]
    assert obs[1, -1] == 5
    sight = np.arange(18).reshape(2, 3, 3).transpose(2, 0, 1) / np.float32(255)
    assert np.array_equal(env.layout.view(obs, "sight")[0].numpy(), sight.astype(np.float32))
    step = env.step(torch.tensor([[1, 0, 1], [1, 1, 1]]))
    assert env.layout.view(step.obs, "flags").tolist() == [[1, 0, 1], [0, 0, 0]]
    assert env.layout.view(env.final_obs().obs, "flags").tolist() == [[1, 1, 1]]


@pytest.mark.parametrize(
    ("of", "says"), [("action", "Sequence"), ("bounds", "have no bounds"), ("words", r"'words' of .* Text.*keep")]
)
def test_non_numeric_spaces_are_rejected(of: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.config.user_code._permitted", True)  # the argument is a text
    with pytest.raises(TownletError, match=says):
        make_vec("Odd-v0", spec(kwargs={"of": of}))


@pytest.mark.parametrize(
    ("name", "keys", "says"),
    [
        ("CartPole-v9", {}, "did you mean 'CartPole-v1'"),
        ("CartPole-v1", {"kwargs": {"wheels": 3}}, "cannot be made.*wheels"),
        ("CartPole-v1", {"vectorization": "native", "kwargs": {"wheels": 3}}, "cannot be made.*wheels"),
        ("CartPole-v1", {"vectorization": "native", "frame_skip": 2}, "frame_skip does not work with"),
        ("Acrobot-v1", {"vectorization": "native"}, "no native vectorization"),
        ("CartPole-v1", {"observation": "ram"}, "not an Atari game"),
        ("CartPole-v1", {"grayscale": True}, "need an image"),
    ],
)
def test_construction_errors_are_explained(name: str, keys: dict[str, Any], says: str) -> None:
    with pytest.raises(TownletError, match=says):
        make_vec(name, spec(**keys))


def test_a_saved_state_needs_the_same_number_of_rows() -> None:
    env = make_vec("CartPole-v1", spec(), 2)
    env.reset(0)
    with pytest.raises(TownletError, match="2 rows"):
        make_vec("CartPole-v1", spec(), 3).restore(env.state())
