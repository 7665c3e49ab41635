"""Engines beyond the rules: resets, endings, settings, threads, messages."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import townlet.town
from townlet.errors import TownletError
from townlet.jit import TOWN_SOURCES
from townlet.town.engines.engine import Engine, make_engine
from townlet.town.env import Town
from townlet.town.scene import read_scene
from townlet.town.state import StartsSpec, cause_codes
from townlet.town.world.load import load

KINDS = ("numba", "torch")
POOR = StartsSpec(fraction=0.5, meters=(0.15, 0.9))


def random_steps(engine: Engine, steps: int, seed: int = 0) -> None:
    chance = np.random.default_rng(seed)
    for _ in range(steps):
        engine.step(chance.integers(0, len(engine.world.actions), engine.rows))


@pytest.mark.parametrize("kind", KINDS)
def test_final_obs_is_the_observation_before_the_reset(kind: str) -> None:
    world = load("town-foggy", ["max_steps=5"])
    one, stays = make_engine(world, 6, kind), make_engine(world, 6, kind, autoreset=False)
    one.reset(1)
    stays.reset(1)
    for _ in range(5):
        one.step(np.full(6, 3))
        stays.step(np.full(6, 3))
    assert np.asarray(one.truncated).all()
    obs, mask = one.final_obs()
    np.testing.assert_array_equal(np.asarray(obs), np.asarray(stays.obs))
    np.testing.assert_array_equal(np.asarray(mask), np.asarray(stays.mask))
    some, _ = one.final_obs(np.array([4, 1]))
    np.testing.assert_array_equal(np.asarray(some), np.asarray(obs)[[4, 1]])
    assert np.abs(np.asarray(one.obs) - np.asarray(obs)).max() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_without_autoreset_an_ended_row_waits_for_its_reset(kind: str) -> None:
    engine = make_engine(load("town", ["max_steps=3"]), 4, kind, autoreset=False)
    engine.reset(2)
    random_steps(engine, 5)
    before = engine.state()
    assert np.asarray(engine.truncated).all()
    assert before["age"].tolist() == [3] * 4
    assert np.asarray(engine.reward).tolist() == [0] * 4
    engine.reset_rows(np.array([True, False, False, True]))
    assert engine.peek()["age"].tolist() == [0, 3, 3, 0]
    assert engine.peek()["episode"].tolist() == [1, 0, 0, 1]
    assert np.asarray(engine.truncated).tolist() == [False, True, True, False]


@pytest.mark.parametrize("starts", [None, POOR])
@pytest.mark.parametrize("kind", KINDS)
def test_restart_starts_the_next_episode_of_ended_rows(kind: str, starts: StartsSpec | None) -> None:
    world = load("town-shuffled", ["max_steps=3"])
    one, two = (make_engine(world, 5, kind, autoreset=False, starts=starts) for _ in range(2))
    chance = np.random.default_rng(0)
    for engine in (one, two):
        engine.reset(7)
    for step in range(20):
        actions = chance.integers(0, 6, 5)
        if step == 1:  # from here on, rows end in different steps
            for engine in (one, two):
                engine.reset_rows(np.array([False, True, True, False, False]))
        ended = np.asarray(two.terminated) | np.asarray(two.truncated)
        copied = np.full(two.obs.shape, np.nan, np.float32)
        one.step(actions, copied, reset_ended=True)
        two.step(actions)
        two.reset_rows(ended)
        for name in ("obs", "mask", "reward", "components", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
        np.testing.assert_array_equal(copied, one.obs)
    assert min(one.peek("episode")["episode"].tolist()) > 2


@pytest.mark.parametrize("autoreset", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_the_observations_after_the_step(kind: str, autoreset: bool) -> None:
    engine = make_engine(load("town-l2", ["max_steps=4"]), 6, kind, autoreset=autoreset, starts=POOR)
    engine.reset(3)
    copied = np.zeros(engine.obs.shape, np.float32)
    for step, actions in enumerate(np.random.default_rng(0).integers(0, 6, (12, 6))):
        copied[:] = np.nan
        engine.step(actions, None if step % 5 == 3 else copied)
        expected, _ = make_engine_like(engine).final_obs(np.arange(6))
        np.testing.assert_array_equal(engine.obs if step % 5 == 3 else copied, expected)
        if step % 3 == 0:
            np.testing.assert_array_equal(engine.obs, expected)


def make_engine_like(engine: Engine) -> Engine:
    """Another engine in the same state, whose observations are written from scratch."""
    other = make_engine(engine.world, engine.rows, engine.name, autoreset=False)
    other.restore(engine.state())
    return other


@pytest.mark.parametrize("autoreset", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_causes_are_those_of_the_final_meters(kind: str, autoreset: bool) -> None:
    engine = make_engine(load("town-l2", ["max_steps=40"]), 64, kind, autoreset=autoreset, starts=POOR)
    engine.reset(3)
    seen: set[int] = set()
    for actions in np.random.default_rng(0).integers(0, 6, (80, 64)):
        engine.step(actions, reset_ended=True)
        rows = np.flatnonzero(np.asarray(engine.terminated) | np.asarray(engine.truncated))
        found = engine.final_causes(rows)
        assert found.tolist() == cause_codes(engine.world, engine.final_state(rows, "meters")["meters"]).tolist()
        seen |= set(found.tolist())
    assert len(seen) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_settings_affect_the_next_step(kind: str) -> None:
    town = Town(load("town", ["rewards=[milestone, vitality]"]), 4, engine=kind)
    town.reset(3)
    town.set(
        multiplier=np.array([1, 2, 0, 1], np.float32),
        active=np.array([255, 255, 255, 255 ^ 1], np.int32),
        reward_mix=np.array([[1, 1], [1, 0], [1, 1], [1, 1]], np.float32),
    )
    import torch

    step = town.step(torch.full((4,), town.actions.names.index("WAIT")))
    energy = town.layout.view(step.obs, "meters")[:, 0]
    np.testing.assert_allclose(energy.numpy(), [0.994, 0.989, 0.999, 1.0], atol=1e-6)
    assert step.components[1, 1] == 0
    assert step.components[0, 1] > 0.9
    with pytest.raises(TownletError, match="no setting 'speed'"):
        town.set(speed=1)


def test_threads_give_the_same_bits_as_one() -> None:
    world = load("town-shuffled")
    one, two = make_engine(world, 8192, "numba", threads=1), make_engine(world, 8192, "numba", threads=2)
    one.reset(4)
    two.reset(4)
    random_steps(one, 130)
    random_steps(two, 130)
    for name, values in one.state().items():
        np.testing.assert_array_equal(values, two.state()[name], err_msg=name)
    np.testing.assert_array_equal(one.obs, two.obs)
    two.close()


def test_observation_updated_in_place_equals_a_fresh_one() -> None:
    for name in ("town", "town-l3", "town-foggy", "town-shuffled", "town-house"):
        engine = make_engine(load(name), 32, "numba")
        engine.reset(5)
        random_steps(engine, 300)
        obs, mask = np.array(engine.obs), np.array(engine.mask)
        engine.restore(engine.state())
        np.testing.assert_array_equal(obs, engine.obs, err_msg=name)
        np.testing.assert_array_equal(mask, engine.mask, err_msg=name)


def test_step_does_not_leak_memory() -> None:
    import tracemalloc

    engine = make_engine(load("town"), 4096, "numba")
    engine.reset(6)
    actions = np.zeros(4096, np.int64)
    engine.step(actions)
    tracemalloc.start()
    for _ in range(50):
        engine.step(actions)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000  # bytes: arguments of the call, no arrays of rows


def test_scene_has_the_cause_of_death() -> None:
    engine = make_engine(load("town"), 1, "numba", autoreset=False)
    engine.reset(7)
    for _ in range(100):
        engine.step(np.zeros(1, np.int64))
    scene = read_scene(engine, 0, action=0)
    assert scene.ended == "died: no energy left"
    assert (scene.age, scene.dollars) == (100, 50.0)


def test_cells_and_layouts_are_drawn_uniformly() -> None:
    engine = make_engine(load("town-shuffled"), 20_000, "numba")
    engine.reset(8)
    state = engine.peek()
    for cells in (state["cell"], state["cell_of"][:, 0], state["cell_of"][:, 14]):
        counts = np.bincount(cells, minlength=64)
        assert counts.min() > 230  # 312 ± 18 expected; five deviations
        assert counts.max() < 400
    assert all(len(set(places)) == 15 for places in state["cell_of"][:500].tolist())


@pytest.mark.parametrize("action", [-1, 6, 2**40])
def test_unknown_action_is_refused_without_a_step(action: int) -> None:
    engine = make_engine(load("town"), 3, "numba")
    engine.reset(9)
    with pytest.raises(TownletError, match=r"row 1 has the unknown action .*; give integers from 0 to 5"):
        engine.step(np.array([0, action, 0]))
    assert engine.peek()["age"].tolist() == [0, 0, 0]


def test_messages_name_the_fix() -> None:
    world = load("town")
    with pytest.raises(TownletError, match="did you mean 'numba'"):
        make_engine(world, 1, "numbra")
    with pytest.raises(TownletError, match="at least one row"):
        make_engine(world, 0)
    with pytest.raises(TownletError, match="runs on the CPU"):
        make_engine(world, 1, "numba", device="cuda")


def test_missing_device_is_refused() -> None:
    with pytest.raises(TownletError, match="torch has no device 'gpu' here"):
        make_engine(load("town"), 1, "torch", device="gpu")


@pytest.mark.parametrize("rows", [3, 8192])
def test_copies_of_an_engine_are_independent(rows: int) -> None:
    import copy
    import gc
    import pickle

    engine = make_engine(load("town"), rows, "numba")
    engine.reset(10)
    random_steps(engine, 5)
    written = pickle.dumps(engine)
    twin = copy.deepcopy(engine)
    random_steps(engine, 20)
    expected = engine.state()
    engine.close()
    del engine
    gc.collect()
    for other in (twin, pickle.loads(written)):  # noqa: S301  (our bytes)
        random_steps(other, 20)
        for name, values in expected.items():
            np.testing.assert_array_equal(values, other.state()[name], err_msg=name)
        other.close()


def test_refused_step_on_threads_changes_nothing() -> None:
    engine = make_engine(load("town"), 16384, "numba", threads=2)
    engine.reset(11)
    actions = np.zeros(16384, np.int64)
    actions[1] = 99
    with pytest.raises(TownletError, match="row 1 has the unknown action 99"):
        engine.step(actions)
    assert not engine.peek()["age"].any()
    engine.close()


def test_threaded_engine_works_in_a_forked_process() -> None:
    import os
    import warnings

    engine = make_engine(load("town"), 8192, "numba", threads=2)
    engine.reset(12)
    engine.step(np.zeros(8192, np.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads, which is tested here
        child = os.fork()
    if child == 0:
        engine.step(np.zeros(8192, np.int64))
        os._exit(0 if engine.peek()["age"].min() >= 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    engine.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"hour": np.full(4, 60000)}, "'hour' is out of range"),
        ({"cell": np.full(4, 64)}, "'cell' is out of range"),
        ({"here": np.full(4, 16)}, "'here' is out of range"),  # 15 affordances, and none
        ({"multiplier": np.full(4, np.nan, np.float32)}, "'multiplier' is out of range"),
        ({"multiplier": np.full(4, -1, np.float32)}, "'multiplier' is out of range"),
        ({"meters": np.zeros((1, 8), np.float32)}, r"'meters' has shape \(1, 8\)"),
        ({"reward_mix": np.ones((4, 3), np.float32)}, "'reward_mix' has shape"),
        ({"ages": np.zeros(4)}, "no field 'ages'; did you mean 'age'"),
    ],
)
def test_impossible_state_is_refused(kind: str, state: dict[str, np.ndarray], message: str) -> None:
    engine = make_engine(load("town"), 4, kind)
    with pytest.raises(TownletError, match=message):
        engine.restore(state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("actions", [np.zeros(1, np.int64), np.zeros(4), np.full(4, -1), np.full(4, 6)])
def test_wrong_actions_are_refused(kind: str, actions: np.ndarray) -> None:
    engine = make_engine(load("town"), 4, kind)
    engine.reset(13)
    with pytest.raises(TownletError, match="action"):
        engine.step(actions)


@pytest.mark.parametrize("kind", KINDS)
def test_restored_town_has_no_ended_rows(kind: str) -> None:
    import torch

    one = Town(load("town", ["max_steps=2"]), 2, engine=kind)
    one.reset(14)
    for _ in range(2):
        one.step(torch.zeros(2, dtype=torch.int64))
    assert len(one.final_obs().rows) == 2
    other = Town(one.world, 2, engine=kind)
    assert len(other.final_obs().rows) == 0
    other.restore(one.state())
    assert len(other.final_obs().rows) == 0


def test_actions_in_another_memory_layout_are_accepted() -> None:
    engine = make_engine(load("town"), 4, "numba")
    engine.reset(15)
    engine.step(np.zeros((4, 2), np.int64)[:, 0])
    engine.step(np.zeros(4, np.int32))
    assert engine.peek()["age"].tolist() == [2] * 4


def test_kernel_cache_depends_on_all_compiled_sources() -> None:
    """Every module of the town that the kernels import must be part of the cache folder's hash."""
    package = Path(townlet.town.__file__).parent
    pending, found = ["engines/numba_kernel.py"], set[str]()
    while pending:
        source = pending.pop()
        found.add(source)
        for node in ast.walk(ast.parse((package / source).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("townlet.town"):
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                paths = [
                    f"{module.removeprefix('townlet.town').lstrip('.').replace('.', '/')}.py" for module in modules
                ]
                pending += [path for path in paths if (package / path).is_file() and path not in found]
    assert found == set(TOWN_SOURCES)


OBSERVE = """
import sys
from townlet.town.engines.engine import make_engine
from townlet.town.world.load import load

for name in sys.argv[1:]:
    engine = make_engine(load(name), 4)
    engine.reset(1)
    print(engine.obs.tolist())
"""


@pytest.mark.long
def test_kernels_that_different_processes_cached_work_together(tmp_path: Path) -> None:
    """Worlds with different numbers of meters have their own kernels; none may call functions of another's."""
    worlds = ("town", "town-dark")
    environment = os.environ | {"TOWNLET_CACHE": str(tmp_path)}

    def observe(*names: str) -> str:
        command = [sys.executable, "-c", OBSERVE, *names]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    alone = [observe(name) for name in worlds]
    assert observe(*worlds) == "".join(alone)
