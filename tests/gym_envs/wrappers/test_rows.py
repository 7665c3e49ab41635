"""Wrappers of single rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_envs.taxi import taxi_masks
from narrow import instance
from townlet.config import user_code
from townlet.errors import TownletError
from townlet.gym.make import make_vec
from townlet.gym.settings import GymSettings
from townlet.gym.wrappers.build import wrap
from townlet.gym.wrappers.observations import AtariObjects, EncodeDiscrete
from townlet.gym.wrappers.shaping import PotentialShaping
from townlet.gym.wrappers.spec import (
    CartPoleShapingSpec,
    FrameSkipSpec,
    LunarLanderShapingSpec,
    MountainCarShapingSpec,
    PongShapingSpec,
    WrapperSpec,
)
from townlet.interfaces import conformance
from townlet.interfaces.vec_env import Discrete


def spec(*wrappers: dict[str, Any], **keys: Any) -> GymSettings:
    return GymSettings.model_validate({"wrappers": wrappers, "vectorization": "sync", **keys})


class Numbers(gym.Env[Any, Any]):
    """Observes a random element of a given space."""

    action_space = gym.spaces.Discrete(1)

    def __init__(self, space: gym.spaces.Space[Any]) -> None:
        self.observation_space = space


@given(n=st.integers(1, 70), start=st.integers(-5, 5), data=st.data())
def test_every_state_has_a_unique_code(n: int, start: int, data: st.DataObject) -> None:
    env = Numbers(gym.spaces.Discrete(n, start=start))
    to = data.draw(st.sampled_from(["one_hot", "binary", "array"]))
    wrapped = EncodeDiscrete(env, to)
    codes = [wrapped.observation(start + state) for state in range(n)]
    assert len({code.tobytes() for code in codes}) == n
    assert all(code in wrapped.observation_space for code in codes)


def test_encodings_match_their_definition() -> None:
    lake, cards = gym.make("FrozenLake-v1"), gym.make("Blackjack-v1")
    assert EncodeDiscrete(lake, "one_hot").observation(3).tolist() == [0, 0, 0, 1] + [0] * 12
    assert EncodeDiscrete(lake, "binary").observation(6).tolist() == [0, 1, 1, 0]
    assert EncodeDiscrete(lake, "array").observation(6).tolist() == [6]
    assert EncodeDiscrete(cards, "array").observation((13, 10, 1)).tolist() == [13, 10, 1]
    assert np.flatnonzero(EncodeDiscrete(cards, "one_hot").observation((13, 10, 1))).tolist() == [13, 42, 44]
    with pytest.raises(TownletError, match="not discrete"):
        EncodeDiscrete(gym.make("CartPole-v1"), "array")


def test_actions_are_remapped() -> None:
    env = make_vec("Taxi-v4", spec({"name": "remap_actions", "use": (5, 0)}, {"name": "action_mask"}), 4)
    assert env.actions == Discrete(("drop off", "south"))
    seen = env.reset(0)
    assert (seen.mask.numpy() == taxi_masks(env)[:, [5, 0]]).all()
    assert env.step(torch.zeros(4, dtype=torch.int64)).reward.tolist() == [-10] * 4  # no passenger to drop off
    with pytest.raises(TownletError, match="no action 6"):
        make_vec("Taxi-v4", spec({"name": "remap_actions", "use": (6,)}))


def test_frame_skip_sums_rewards() -> None:
    env = make_vec("Acrobot-v1", spec(frame_skip=3, max_episode_steps=7), 1)
    env.reset(0)
    steps = [conformance.copy_step(env.step(torch.zeros(1, dtype=torch.int64))) for _ in range(7)]
    assert [float(step.reward[0]) for step in steps] == [-3.0] * 7
    assert [bool(step.truncated[0]) for step in steps] == [False] * 6 + [True]  # the limit counts agent steps
    random = wrap(gym.make("Acrobot-v1"), FrameSkipSpec(frames=1, max_frames=3))
    random.reset(seed=0)
    assert {float(random.step(0)[1]) for _ in range(40)} == {-1.0, -2.0, -3.0}
    short = wrap(gym.make("Acrobot-v1", max_episode_steps=2), FrameSkipSpec(frames=3))
    short.reset(seed=0)
    assert short.step(0)[1:4] == (-2.0, False, True)  # no frame follows the truncation


def test_sticky_actions_repeat_the_last_one() -> None:
    stuck = make_vec("Pendulum-v1", spec({"name": "sticky_actions", "probability": 0.9999}), 1)
    free = make_vec("Pendulum-v1", spec(), 1)
    for env in (stuck, free):
        env.reset(0)
        env.step(torch.tensor([[2.0]]))
    assert torch.equal(stuck.step(torch.tensor([[-2.0]])).obs, free.step(torch.tensor([[2.0]])).obs)


def test_time_limit_truncates() -> None:
    env = make_vec("MountainCar-v0", spec({"name": "time_limit", "steps": 5}, frame_skip=2), 2)
    env.reset(0)
    ends = [bool(env.step(torch.zeros(2, dtype=torch.int64)).truncated.all()) for _ in range(5)]
    assert ends == [False] * 4 + [True]


def shaping(env: gym.Env[Any, Any], spec: WrapperSpec) -> PotentialShaping:
    wrapped = wrap(env, spec)
    assert isinstance(wrapped, PotentialShaping)
    return wrapped


SHAPED: dict[str, CartPoleShapingSpec | MountainCarShapingSpec] = {
    "CartPole-v1": CartPoleShapingSpec(gamma=0.9),
    "MountainCar-v0": MountainCarShapingSpec(position=1.0, velocity=0.5, height=2.0, gamma=0.9),
}


@pytest.mark.parametrize("name", SHAPED)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_potential_shaping_telescopes(name: str, seed: int) -> None:
    """The discounted sum of shaping in an episode is γ^T Φ(end) − Φ(start), whatever the agent does."""
    plain = gym.make(name, max_episode_steps=60)
    shaped = shaping(gym.make(name, max_episode_steps=60), SHAPED[name])
    plain.reset(seed=seed)
    first, _ = shaped.reset(seed=seed)
    chance = np.random.default_rng(seed)
    paid, discount, over, terminated = 0.0, 1.0, False, False
    while not over:
        action = chance.integers(instance(plain.action_space, gym.spaces.Discrete).n)
        (_, reward, *_), (seen, more, terminated, truncated, _) = plain.step(action), shaped.step(action)
        paid += discount * (float(more) - float(reward))
        discount *= 0.9
        over = terminated or truncated
    end = 0.0 if terminated else shaped.potential(seen)
    assert paid == pytest.approx(discount * end - shaped.potential(first), abs=1e-6)


def test_potentials_are_higher_in_better_states() -> None:
    pole = shaping(gym.make("CartPole-v1"), CartPoleShapingSpec())
    assert pole.potential([0, 0, 0, 0]) == 0 > pole.potential([1, 0, 0, 0]) > pole.potential([1, 0, 0.1, 0])
    car = shaping(gym.make("MountainCar-v0"), MountainCarShapingSpec(position=1.0, velocity=1.0, height=1.0))
    assert car.potential([0.5, 0]) > car.potential([-0.5, 0])
    assert car.potential([-0.5, -0.07]) > car.potential([-0.5, 0.01])
    assert car.potential([-1.1, 0]) != car.potential([-0.5, 0])

    class Lander(Numbers):
        """Stand-in for LunarLander, whose simulator need not be installed."""

    lander = shaping(Lander(gym.spaces.Box(-10, 10, (8,))), LunarLanderShapingSpec())
    still: list[float] = [0, 0, 0, 0, 0, 0, 1, 1]
    assert lander.potential(still) == 0
    for place in range(5):
        worse = list(still)
        worse[place] = -0.5
        assert lander.potential(worse) < 0


def test_action_reward_is_paid_for_each_action() -> None:
    env = make_vec("CartPole-v1", spec({"name": "action_reward", "rewards": (-0.5, 0.25)}), 2)
    env.reset(0)
    assert env.step(torch.tensor([0, 1])).reward.tolist() == [0.5, 1.25]
    with pytest.raises(TownletError, match="has 1 rewards, but there are 2 actions"):
        make_vec("CartPole-v1", spec({"name": "action_reward", "rewards": (1.0,)}))
    with pytest.raises(TownletError, match="needs discrete actions"):
        make_vec("Pendulum-v1", spec({"name": "action_reward", "rewards": (1.0,)}))


def test_pong_shaping_draws_the_paddle_to_the_ball() -> None:
    env = shaping(AtariObjects(Memory(), "ALE/Pong-v5"), PongShapingSpec(weight=2.0, gamma=1.0))
    obs, _ = env.reset()
    assert env.potential(obs) == pytest.approx(-2 * 10 / 255)  # the paddle is at 100, the ball at 90
    assert env.step(0)[1] == pytest.approx(-2 * 2 / 255)  # the ball moves away by 2
    env.step(0)
    assert env.potential(env.step(0)[0]) == 0  # no ball
    with pytest.raises(TownletError, match="needs an observation of 6 numbers"):
        shaping(Memory(), PongShapingSpec())


def test_vizdoom_shaping_rewards_changes_of_game_variables() -> None:
    pytest.importorskip("vizdoom")
    shots = spec({"name": "vizdoom_shaping", "weights": {"AMMO2": 2.0}, "gamma": 1.0}, kwargs={"frame_skip": 4})
    shaped, plain = (make_vec("VizdoomBasic-v1", made, 1) for made in (shots, shots.unshaped()))
    for env in (shaped, plain):
        env.reset(0)
    actions = [torch.tensor([action]) for action in range(instance(plain.actions, Discrete).n)] * 3
    paid = [float(shaped.step(action).reward[0] - plain.step(action).reward[0]) for action in actions]
    assert set(paid) == {0, -2}  # a shot costs one round
    for env in (shaped, plain):
        env.close()
    with pytest.raises(TownletError, match="no game variable 'AMO2'"):
        make_vec("VizdoomBasic-v1", spec({"name": "vizdoom_shaping", "weights": {"AMO2": 1.0}}))
    with pytest.raises(TownletError, match="needs a game of VizDoom"):
        make_vec("CartPole-v1", spec({"name": "vizdoom_shaping", "weights": {"HEALTH": 1.0}}))


def test_shaping_is_rejected_for_other_environments() -> None:
    with pytest.raises(TownletError, match="put it first"):
        make_vec("CartPole-v1", spec({"name": "mountain_car_shaping", "position": 1.0}))


def test_count_bonus_fades_until_reseeded() -> None:
    env = make_vec("MountainCar-v0", spec({"name": "mountain_car_shaping", "count": 1.0, "bins": 2}), 1)
    for _ in range(2):
        env.reset(0)
        bonus = [float(env.step(torch.ones(1, dtype=torch.int64)).reward[0]) + 1 for _ in range(4)]
        assert bonus[0] == 1
        assert min(bonus) < 0.8
    conformance.restored_state_continues(
        lambda rows: make_vec("MountainCar-v0", spec({"name": "mountain_car_shaping", "count": 1.0}), rows)
    )


@pytest.mark.parametrize("how", [{"observation": "rgb"}, {"wrappers": ({"name": "pixels"},)}])
def test_images_are_resized_and_gray(how: dict[str, Any]) -> None:
    keys = {"vectorization": "sync", "grayscale": True, "resize": (40, 60), **how}
    env = make_vec("CartPole-v1", GymSettings.model_validate(keys), 2)
    assert [(b.shape, b.kind) for b in env.layout] == [((1, 40, 60), "picture")]
    obs = env.reset(0).obs
    assert 0 <= obs.min() < 0.5 < obs.max() <= 1  # a dark cart on a white background
    before = obs.clone()
    for _ in range(8):
        env.step(torch.ones(2, dtype=torch.int64))
    assert not torch.equal(before, env.step(torch.ones(2, dtype=torch.int64)).obs)
    assert env.exact  # rendering does not affect the simulation
    env.close()


class Memory(gym.Env[Any, Any]):
    """Stand-in for Pong's RAM: the ball moves by 3 and −2, and is lost after a while."""

    observation_space = gym.spaces.Box(0, 255, (128,), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def _seen(self) -> Any:
        cells = np.zeros(128, np.uint8)
        cells[[51, 50]] = 100, 200
        cells[[49, 54]] = (0, 0) if self.age == 3 else (60 + 3 * self.age, 90 - 2 * self.age)
        return cells

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.age = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.age += 1
        return self._seen(), 0.0, False, False, {}


def test_objects_are_read_from_ram() -> None:
    env = AtariObjects(Memory(), "ALE/Pong-v5")
    assert env.names == ("player_y", "enemy_y", "ball_x", "ball_y", "ball_dx", "ball_dy")
    seen, _ = env.reset()
    assert np.allclose(seen, [100 / 255, 200 / 255, 60 / 255, 90 / 255, 0, 0])
    seen, *_ = env.step(0)
    assert np.allclose(seen[4:], [3 / 16, -2 / 16])
    env.step(0)
    assert env.step(0)[0][4:].tolist() == [0, 0]  # no ball
    assert env.step(0)[0][4:].tolist() == [0, 0]  # a new one
    assert all(env.step(0)[0] in env.observation_space for _ in range(20))
    with pytest.raises(TownletError, match="Pong, Breakout"):
        AtariObjects(Memory(), "ALE/Tennis-v5")


OWN = """
import gymnasium, townlet.gym

@townlet.gym.wrapper("half")
class Half(gymnasium.RewardWrapper):
    def __init__(self, env, share=0.5):
        super().__init__(env)
        self.share = share

    def reward(self, reward):
        return reward * self.share
"""


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "_factories", {})
    monkeypatch.setattr(user_code, "_executed", [])


@pytest.mark.usefixtures("forgotten")
def test_custom_wrapper_runs_only_when_allowed(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    half = spec({"name": "custom", "wrapper": "half", "settings": {"share": 0.25}})
    with pytest.raises(TownletError, match=r"name the file that registers it"):
        make_vec("Acrobot-v1", half)
    with pytest.raises(TownletError, match=r"runs the Python file .*mine\.py.*--allow-code"):
        make_vec("Acrobot-v1", spec({"name": "custom", "wrapper": "half", "file": str(file)}))
    user_code.execute_file(file)
    env = make_vec("Acrobot-v1", half, 2)
    env.reset(0)
    assert env.step(torch.zeros(2, dtype=torch.int64)).reward.tolist() == [-0.25, -0.25]
    with pytest.raises(TownletError, match="did you mean 'half'"):
        make_vec("Acrobot-v1", spec({"name": "custom", "wrapper": "hlaf"}))
    with pytest.raises(TownletError, match=r"cannot be made.*speed"):
        make_vec("Acrobot-v1", spec({"name": "custom", "wrapper": "half", "settings": {"speed": 1}}))


@pytest.mark.usefixtures("forgotten")
def test_failing_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("1 / 0")
    loaded = set(sys.modules)
    with pytest.raises(TownletError, match=r"mine\.py.*ZeroDivisionError"):
        user_code.execute_file(file)
    assert not set(sys.modules) - loaded
    with pytest.raises(TownletError, match="no Python file"):
        user_code.execute_file(tmp_path / "none.py")
