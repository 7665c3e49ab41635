"""State of Gymnasium environments, saved without pickle: exactly or not at all."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.toy_text.taxi import TaxiEnv
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gym_envs.unsavable import ID
from narrow import instance
from townlet.errors import TownletError
from townlet.gym import env_state
from townlet.gym.codec import TAG, UnsupportedValue, decode, digest, encode, pack, unpack
from townlet.gym.make import make_vec
from townlet.gym.settings import GymSettings
from townlet.interfaces import conformance
from townlet.runs import checkpoint, serialization

NUMBERS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**200), 2**200), st.floats(allow_nan=False), st.text(max_size=5)
)
ARRAYS = arrays.arrays(
    st.sampled_from(["f4", "f8", "i8", "u1", "?"]),
    arrays.array_shapes(max_dims=3, max_side=3),
    elements={"allow_nan": False},
)
VALUES = st.recursive(
    NUMBERS | ARRAYS | st.binary(max_size=5) | st.sampled_from([np.float32(0.1), np.int64(-3), np.str_("J")]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(lambda parts: deque(parts, 4))
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


def equal(a: Any, b: Any) -> bool:
    """Equal in value and type, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(map(equal, a, b)) and getattr(a, "maxlen", 0) == getattr(b, "maxlen", 0)
    return bool(a == b)


@given(rows=st.lists(st.fixed_dictionaries({"a": VALUES, "b": ARRAYS}), min_size=1, max_size=3))
def test_values_round_trip_through_a_checkpoint(rows: list[dict[str, Any]]) -> None:
    packed = pack([{"layer": {name: encode(value) for name, value in row.items()}} for row in rows])
    kept = serialization.unflatten(serialization.flatten(packed))  # as in a checkpoint
    back = [{name: decode(value) for name, value in row["layer"].items()} for row in unpack(kept, len(rows))]
    assert all(equal(mine[name], its[name]) for mine, its in zip(back, rows, strict=True) for name in ("a", "b"))


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([None]), [[object()]], 1j])
def test_unsupported_values_are_rejected(value: Any) -> None:
    with pytest.raises(UnsupportedValue):
        encode(value)


def test_generators_continue_with_the_same_draws() -> None:
    for bits in (np.random.PCG64, np.random.MT19937, np.random.Philox):
        live = np.random.Generator(bits(4))
        live.random(7)
        back = decode(serialization.unflatten(serialization.flatten({"g": encode(live)}))["g"])
        assert (back.random(50) == live.random(50)).all()


@pytest.mark.parametrize("way", ["sync", "native"])
def test_cart_pole_resumes_from_a_file(way: str, tmp_path: Path) -> None:
    spec = GymSettings.model_validate({"vectorization": way, "normalize_obs": "running", "frame_stack": 2})
    one, two = (make_vec("CartPole-v1", spec, 3) for _ in range(2))
    *_, last = conformance.random_steps(one, one.reset(0), 50)
    checkpoint.save(tmp_path, checkpoint.folder_name(50), {"env": dict(one.state())}, {})
    state, _ = checkpoint.load(tmp_path / checkpoint.folder_name(50))
    seen = two.restore(state["env"])
    assert torch.equal(seen.obs, last.obs)
    ahead, again = (conformance.random_steps(env, last, 60, seed=1) for env in (one, two))
    assert all(conformance.equal_steps(a, b) for a, b in zip(ahead, again, strict=True))


def test_unsavable_environment_restarts_reproducibly() -> None:
    env = make_vec(ID, GymSettings(), 3)
    assert not env.exact
    conformance.check(lambda rows: make_vec(ID, GymSettings(), rows))
    first = env.reset(5).obs.clone()
    state = env.state()
    one, two = (make_vec(ID, GymSettings(), 3).restore(state).obs for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, first)
    env.restore(state)
    again = env.restore(env.state()).obs
    assert not torch.equal(again, one)  # two resumes give different episodes


def test_state_of_another_map_is_rejected() -> None:
    small = GymSettings(kwargs={"desc": ["SFFG"] * 8})
    lake, other = (make_vec("FrozenLake-v1", s, 2) for s in (small, GymSettings(kwargs={"map_name": "8x8"})))
    lake.reset(0)
    with pytest.raises(TownletError, match="other observations or actions"):
        other.restore(lake.state())


def test_state_with_other_wrappers_is_rejected() -> None:
    env = make_vec("Acrobot-v1", GymSettings(frame_skip=2), 2)
    env.reset(0)
    with pytest.raises(TownletError, match="saved wrappers are"):
        make_vec("Acrobot-v1", GymSettings(), 2).restore(env.state())


def test_unchanged_large_table_is_saved_as_digest() -> None:
    taxi = env_state.RowEnv(gym.make("Taxi-v4"))
    taxi.reset(seed=0)
    *_, (where, _) = env_state.layers(taxi.env)
    game = instance(taxi.unwrapped, TaxiEnv)
    assert taxi.env_state[where]["plain"]["P"] == {"~": "table", "is": digest(game.P)}
    game.P[0][0] = [(1.0, 7, -1, False)]
    assert equal(decode(taxi.env_state[where]["plain"]["P"]), game.P)


def test_map_of_a_lake_is_saved_as_digest() -> None:
    """Encoding its transitions again in every rollout would take as long as the steps of the rollout."""
    for size in ("4x4", "8x8"):
        lake = env_state.RowEnv(gym.make("FrozenLake-v1", map_name=size))
        lake.reset(seed=0)
        *_, (where, _) = env_state.layers(lake.env)
        assert lake.env_state[where]["plain"]["P"][TAG] == "table"


def test_table_of_arrays_is_saved() -> None:
    lake = gym.make("FrozenLake-v1")
    for number in range(2):
        table = {k: np.full(3, number) for k in range(100)}
        vars(lake.unwrapped)["table"] = table
        row = env_state.RowEnv(lake)
        row.reset(seed=0)
        *_, (where, _) = env_state.layers(row.env)
        assert row.env_state[where]["plain"]["table"] == {TAG: "table", "is": digest(table)}


class State:
    """Fake state of an emulator."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def serialize(self) -> bytes:
        return self.data


class Console:
    """Fake emulator: it counts, draws random numbers, and returns its state as bytes."""

    def __init__(self) -> None:
        self.frames = 0

    def cloneState(self, include_rng: bool = False) -> State:  # noqa: N802
        return State(b"%d" % self.frames)

    def restoreState(self, state: State) -> None:  # noqa: N802
        self.frames = int(state.data)


class Game(gym.Env[Any, Any]):
    """A stand-in for ale_py's environment, which need not be installed."""

    observation_space = gym.spaces.Box(0, 255, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self) -> None:
        self.ale = Console()

    def restore_state(self, state: State) -> None:
        self.ale.restoreState(state)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.ale.frames = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.ale.frames += int(action)
        return self._seen(), 0.0, self.ale.frames > 200, False, {}

    def _seen(self) -> Any:
        return np.array([self.ale.frames], np.float32)


def test_ale_state_is_saved_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Game, "__module__", "ale_py.env")
    monkeypatch.setitem(sys.modules, "ale_py", ModuleType("ale_py"))
    gym.registry.pop("Game-v0", None)
    game: Callable[..., gym.Env[Any, Any]] = Game
    gym.register("Game-v0", game)
    conformance.restored_state_continues(lambda rows: make_vec("Game-v0", GymSettings(), rows))
    assert make_vec("Game-v0", GymSettings(), 1).exact
