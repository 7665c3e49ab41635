"""The town as a Gymnasium environment: the API that other libraries rely on."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_sb3

import townlet
from townlet.errors import TownletError
from townlet.town.gymnasium import TownEnv

RIGHT, INTERACT, WAIT = 3, 4, 5


def play(env: Any, steps: int, seed: int) -> list[tuple[Any, ...]]:
    """Observations, rewards and infos of random valid actions, over several episodes."""
    chance = np.random.default_rng(seed)
    obs, info = env.reset(seed=seed)
    seen: list[tuple[Any, ...]] = [(obs.tobytes(), info["action_mask"].tobytes())]
    for _ in range(steps):
        obs, reward, terminated, truncated, info = env.step(chance.choice(np.flatnonzero(info["action_mask"])))
        seen.append((obs.tobytes(), info["action_mask"].tobytes(), reward, terminated, truncated))
        if terminated or truncated:
            obs, info = env.reset()
            seen.append((obs.tobytes(), info["action_mask"].tobytes()))
    return seen


def test_every_shipped_world_has_an_id() -> None:
    from townlet.town.world.load import shipped

    assert set(townlet.IDS.values()) == set(shipped())
    assert set(townlet.IDS) <= set(gym.registry)


@pytest.mark.parametrize("name", townlet.IDS)
def test_gymnasium_checker_passes(name: str) -> None:
    check_env(gym.make(name).unwrapped)


@pytest.mark.parametrize("name", townlet.IDS)
def test_stable_baselines_checker_passes(name: str) -> None:
    check_env_sb3(gym.make(name).unwrapped)


def test_spaces_follow_the_world() -> None:
    env = gym.make("Townlet/Town-L3-v0")
    assert env.observation_space.shape == (53,)
    assert env.action_space == gym.spaces.Discrete(6)
    sincos = TownEnv("town-l3", ["observation=[meters, {name: clock, encoding: sincos}]"])
    assert sincos.observation_space == gym.spaces.Box(
        np.array([0] * 8 + [-1] * 2, np.float32), np.ones(10, np.float32), dtype=np.float32
    )


def test_same_seed_same_episodes_and_another_seed_others() -> None:
    env = gym.make("Townlet/Town-Shuffled-v0")
    first = play(env, 400, seed=5)
    assert play(env, 400, seed=5) == first
    assert play(gym.make("Townlet/Town-Shuffled-v0"), 400, seed=5) == first
    assert play(env, 400, seed=6) != first


def test_reset_without_seed_continues_the_stream() -> None:
    env = TownEnv("town")
    starts = {env.reset(seed=3)[0].tobytes(), *(env.reset()[0].tobytes() for _ in range(8))}
    assert len(starts) > 4
    unseeded = {TownEnv("town").reset()[0].tobytes() for _ in range(8)}
    assert len(unseeded) > 3


def test_returned_observations_are_not_overwritten() -> None:
    env = TownEnv("town")
    obs, info = env.reset(seed=0)
    before, mask = obs.copy(), info["action_mask"].copy()
    for _ in range(3):
        env.step(int(np.flatnonzero(env.step(WAIT)[4]["action_mask"])[0]))
    assert (obs == before).all()
    assert (info["action_mask"] == mask).all()


def test_mask_forbids_edges_and_interact_on_open_ground() -> None:
    env = TownEnv("town-l0", ["map.start=[4, 0]"])
    _, info = env.reset(seed=0)
    assert info["action_mask"].dtype == np.int8
    assert info["action_mask"].tolist() == [0, 1, 1, 0, 0, 1]
    for action in (1, 1, 2, 2):
        info = env.step(action)[4]
    assert info["action_mask"].tolist() == [1, 1, 1, 1, 1, 1]


def test_walking_kills_at_step_100_with_its_cause_and_then_needs_a_reset() -> None:
    env = TownEnv("town")
    env.reset(seed=0)
    for age in range(1, 101):
        _, reward, terminated, truncated, info = env.step(RIGHT)
        assert terminated == (age == 100)
        assert not truncated
        assert info["reward_milestone"] == reward
        assert env.cause_name(info["cause"]) == ("energy" if terminated else "running")
    assert reward == -100
    with pytest.raises(TownletError, match="reset"):
        env.step(RIGHT)
    env.reset()
    assert not env.step(RIGHT)[2]


def test_the_world_truncates() -> None:
    env = TownEnv("town", ["max_steps=7"])
    env.reset(seed=0)
    ends = [env.step(WAIT)[2:] for _ in range(7)]
    assert [end[1] for end in ends] == [False] * 6 + [True]
    assert not ends[-1][0]
    assert env.cause_names[ends[-1][2]["cause"]] == "time"


@pytest.mark.parametrize("action", [-1, 6, 1.5, "UP", None, [1, 2]])
def test_invalid_action_is_rejected(action: Any) -> None:
    env = TownEnv("town")
    env.reset(seed=0)
    with pytest.raises(TownletError, match="0 to 5"):
        env.step(action)


def test_step_before_reset_is_rejected() -> None:
    with pytest.raises(TownletError, match=r"reset\(\)"):
        TownEnv("town").step(0)


def test_errors_name_the_key() -> None:
    with pytest.raises(TownletError, match="town-foggy"):
        TownEnv("town-fogy")
    with pytest.raises(TownletError, match="max_steps"):
        TownEnv("town", ["max_step=3"])
    with pytest.raises(TownletError, match="rgb_array"):
        TownEnv("town", render_mode="rgb-array")
    with pytest.raises(TownletError, match="overrides"):
        TownEnv(townlet.load_world("town"), ["max_steps=3"])
    with pytest.raises(TownletError, match="speed"):
        TownEnv("town").reset(options={"speed": 2})
    with pytest.raises(TownletError, match="-1 to"):
        TownEnv("town").cause_name(9)


def test_info_is_flat_numbers_with_the_same_keys_at_reset_and_step() -> None:
    env = TownEnv("town", ["rewards=[milestone, survival]", "max_steps=3"])
    infos = [env.reset(seed=0)[1], *(env.step(WAIT)[4] for _ in range(3)), env.reset()[1]]
    assert [list(info) for info in infos] == [["action_mask", "cause", "reward_milestone", "reward_survival"]] * 5
    assert [info["cause"] for info in infos] == [-1, -1, -1, env.cause_names.index("time"), -1]
    for info in infos:
        assert {key: type(value) for key, value in info.items()} == {
            "action_mask": np.ndarray, "cause": np.int64, "reward_milestone": np.float64, "reward_survival": np.float64,
        }  # fmt: skip


def test_the_spec_has_the_step_limit_of_the_world() -> None:
    env = gym.make("Townlet/Town-v0", overrides=["max_steps=7"])
    assert env.spec is not None
    assert env.spec.max_episode_steps == 7
    aware = gym.wrappers.TimeAwareObservation(env, flatten=False, normalize_time=True)
    aware.reset(seed=0)
    times = []
    truncated = terminated = False
    while not (truncated or terminated):
        obs, _, terminated, truncated, _ = aware.step(WAIT)
        times.append(float(obs["time"][0]))
    assert times == pytest.approx([n / 7 for n in range(1, 8)])
    assert (terminated, truncated) == (False, True)


def test_max_episode_steps_truncates_earlier() -> None:
    env = gym.make("Townlet/Town-v0", max_episode_steps=5)
    env.reset(seed=0)
    assert [env.step(WAIT)[3] for _ in range(5)] == [False] * 4 + [True]


def test_action_masks_are_reachable_through_wrappers() -> None:
    env = gym.make("Townlet/Town-v0")
    _, info = env.reset(seed=0)
    masks = env.get_wrapper_attr("action_masks")()
    assert masks.dtype == np.bool_
    assert (masks == info["action_mask"].astype(bool)).all()


def test_the_mask_can_be_part_of_the_observation() -> None:
    env, plain = gym.make("Townlet/Town-v0", mask_observation=True), TownEnv("town")
    check_env(env.unwrapped)
    for _ in range(2):
        (obs, info), (expected, _) = env.reset(seed=2), plain.reset(seed=2)
        assert set(obs) == {"observation", "action_mask"}
        assert (obs["observation"] == expected).all()
        assert (obs["action_mask"] == info["action_mask"]).all()
        assert env.step(RIGHT)[0] in env.observation_space


def test_a_copied_environment_continues_equally() -> None:
    env = TownEnv("town-shuffled")
    env.reset(seed=0)
    env.step(RIGHT)
    other = copy.deepcopy(env)
    for action in (RIGHT, WAIT, 0, 1, 1):
        wanted = env.step(action)
        got = other.step(action)
        assert (got[0] == wanted[0]).all()
        assert (got[4]["action_mask"] == wanted[4]["action_mask"]).all()


def test_import_is_light() -> None:
    code = "import sys, townlet; print(*sorted({'torch', 'numba', 'PIL', 'pydantic', 'pygame'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_town_is_played_without_torch() -> None:
    code = (
        "import sys, gymnasium, townlet\n"
        "env = gymnasium.make('Townlet/Town-L0-v0', render_mode='ansi')\n"
        "env.reset(seed=0); env.step(0); env.render()\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_make_gives_a_batched_town() -> None:
    town = townlet.make("town-l0", rows=3)
    assert town.reset(seed=0).obs.shape == (3, 35)
