"""The Python API: train, load, make."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import townlet
from small import PPO, SMALL, ctrl_c_once_training
from townlet.config import user_code
from townlet.errors import TownletError
from townlet.gym import sources
from townlet.interfaces.vec_env import MaskedObs
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader
from townlet.runs.overview import make_overview
from townlet.tasks.experiment import load_experiment
from townlet.train.api import recipe_name
from townlet.train.callbacks import RunProgress
from townlet.train.trained_run import TrainedRun

WORDS = [*SMALL["town:ppo"], "budget.env_steps=256"]
GYM_WORDS = (*PPO, "evaluation.every=256")
EVERY_256 = ("metrics.every=256", "evaluation.every=256")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    return townlet.train("town:ppo", seed=3, overrides=WORDS, root=tmp_path_factory.mktemp("runs"))


def test_every_public_name_exists() -> None:
    assert all(hasattr(townlet, name) for name in townlet.__all__)


def test_train_returns_the_run(trained: TrainedRun) -> None:
    assert isinstance(trained, Run)
    assert trained.meta()["seed"] == 3
    assert trained.score is not None
    assert trained.score > 0
    assert any("checkpoint, this agent survives" in sentence for sentence in trained.summary)
    assert len(repr(trained)) < 300


def test_train_is_callable_after_its_submodules_were_imported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`townlet.train` is a package that can be called, whatever was imported before."""
    import townlet.recipes.load as recipes

    assert recipes.load_recipe("town:ppo").recipe.env == "town"
    changes = {"rows": np.int64(4), "network.hidden": (8,), "evaluation.episodes": 2, "metrics.tensorboard": False}
    changes |= {"budget.env_steps": 64, "agent.n_steps": 8, "agent.batch_size": 1.0, "threads": 1}
    again = townlet.train("town:ppo", overrides=changes, root=tmp_path)
    resolved = again.resolved_file.read_text(encoding="utf-8")
    assert "rows: 4 " in resolved
    assert "hidden: [8]" in resolved
    assert again.report_html.is_file()  # by default
    assert capfd.readouterr() == ("", "")  # quiet by default


def test_progress_is_shown_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    townlet.train("town:ppo", overrides=WORDS, root=tmp_path, progress=True)
    assert "evaluation: " in capsys.readouterr().err


def test_run_is_loaded_by_object_path_name_or_latest(trained: TrainedRun) -> None:
    root = trained.path.parent
    obs = np.zeros(88, np.float32)
    policies = [townlet.load(trained), townlet.load(trained.path), townlet.load(str(trained.path))]
    policies += [townlet.load(trained.name, root=root), townlet.load("latest", root=root), trained.load()]
    policies.append(townlet.load(trained.meta()["recipe"], root=root))
    assert len({policy.act(obs) for policy in policies}) == 1
    with pytest.raises(TownletError, match="there is no run 'missing'"):
        townlet.load("missing", root=root)
    with pytest.raises(TownletError, match=r"no run of town:drqn.*townlet train town:drqn"):
        townlet.load("town:drqn", root=root)


def test_loaded_policy_acts_in_a_gymnasium_town(trained: Run) -> None:
    policy, env = townlet.load(trained), gym.make("Townlet/Town-v0")
    obs, info = env.reset(seed=0)
    policy.reset()
    for _ in range(20):
        action = policy.act(obs, info["action_mask"])
        assert info["action_mask"][action]
        obs, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    env.close()


def test_loaded_policy_acts_in_a_vector_environment(trained: Run) -> None:
    policy, env = townlet.load(trained), townlet.make("town", rows=16)
    seen = env.reset(0)
    policy.reset(16)
    for _ in range(5):
        step = env.step(policy.act(seen.obs, seen.mask))
        seen = MaskedObs(step.obs, step.mask)
    assert seen.obs.shape == (16, 88)
    env.close()


def test_unknown_override_is_named_and_creates_no_run(tmp_path: Path) -> None:
    with pytest.raises(TownletError, match=r"agent\.lrr"):
        townlet.train("town:ppo", overrides={"agent.lrr": 1}, root=tmp_path)
    assert Run.list(tmp_path) == []


def test_ctrl_c_saves_the_run_and_interrupts_the_program(tmp_path: Path) -> None:
    changes = [*SMALL["town:ppo"], "budget.env_steps=100000000"]
    with ctrl_c_once_training(tmp_path), pytest.raises(KeyboardInterrupt, match=r"open_run\(.*\)\.resume\(\)"):
        townlet.train("town:ppo", overrides=changes, root=tmp_path)
    assert townlet.load("latest", "last", root=tmp_path).env_steps > 0


OWN_CLASS = """
class Own(CartPoleEnv):
    pass
"""


class Corridor(gym.Env[NDArray[np.float32], np.int64]):
    """Five cells; the right end pays 1 and ends the episode."""

    observation_space = gym.spaces.Box(0, 1, (5,), np.float32)
    action_space: gym.spaces.Discrete = gym.spaces.Discrete(2)

    def __init__(self, reward: float = 1.0) -> None:
        self._reward, self._cell, self._steps = reward, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._cell = self._steps = 0
        return self._obs(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self._cell, self._steps = max(0, self._cell + (1 if action else -1)), self._steps + 1
        done = self._cell == 4
        return self._obs(), self._reward * done, done, not done and self._steps == 30, {}

    def _obs(self) -> NDArray[np.float32]:
        obs: NDArray[np.float32] = np.eye(5, dtype=np.float32)[self._cell]
        return obs


def test_class_trains_stops_and_resumes(tmp_path: Path) -> None:
    seen: list[RunProgress] = []

    def stop_at_256(progress: RunProgress) -> bool:
        seen.append(progress)
        return progress.env_steps < 256

    run = townlet.train(
        Corridor,
        "ppo",
        steps=2048,
        seed=4,
        callbacks=[stop_at_256],
        overrides=GYM_WORDS,
        agent={"lr": 1e-3},
        root=tmp_path,
    )
    assert (run.finished, run.meta()["ended"], run.meta()["seed"]) == (False, "stopped by a callback", 4)
    assert "lr: 0.001" in run.resolved_file.read_text(encoding="utf-8")
    assert [(progress.env_steps, progress.event) for progress in seen] == [(256, "interval"), (256, "evaluation")]
    assert seen[0].evaluation is None
    assert seen[1].evaluation is not None
    assert "earns_money" not in seen[1].evaluation  # which only towns have
    assert make_overview(run).state == "stopped"
    assert seen[-1].budget == 2048
    assert seen[-1].run == run
    assert seen[-1].metrics["episode_length"] > 0
    assert run.resume(steps=512) is run
    assert (run.finished, run.metrics()["env_steps"][-1]) == (False, 768)
    result = run.evaluate(episodes=7)
    assert result.length.shape == (7,)
    assert result.mean_return == result.returns.mean()
    assert run.evaluate(episodes=7).returns.tolist() == result.returns.tolist()


@pytest.mark.parametrize("deterministic", [True, False])
def test_callback_sees_every_evaluation(deterministic: bool, tmp_path: Path) -> None:
    """Also the last one, and evaluations whose actions are sampled."""
    scores: dict[tuple[int, int], float] = {}

    def record(progress: RunProgress) -> None:
        if progress.evaluation is not None:
            scores[progress.evaluation["episodes"], progress.env_steps] = progress.evaluation["score"]

    changes = [*GYM_WORDS, f"evaluation.deterministic={str(deterministic).lower()}"]
    run = townlet.train("CartPole-v1", callbacks=[record], overrides=changes, root=tmp_path)
    assert scores == {(5, 256): run.evaluations()["score"][0], (5, 512): run.score}


def test_class_of_a_module_is_rebuilt_elsewhere_and_a_local_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local(Corridor):
        pass

    (tmp_path / "own_envs.py").write_text("from gymnasium.envs.classic_control import CartPoleEnv\n\n\n" + OWN_CLASS)
    monkeypatch.syspath_prepend(tmp_path)
    own = import_module("own_envs").Own
    importable, local = (townlet.train(make, steps=256, overrides=GYM_WORDS, root=tmp_path) for make in (own, Local))
    monkeypatch.setattr(sources, "_registered_objects", {})  # as in another process
    monkeypatch.setattr(user_code, "_permitted", False)
    with pytest.raises(TownletError, match=r"the recipe runs the Python file .*own_envs\.py"):
        importable.load("last")
    with pytest.raises(TownletError, match=r"'Local' is known only to the program that passed it to townlet\.train"):
        local.load("last")
    townlet.allow_code()
    assert importable.evaluate(episodes=2).length.shape == (2,)
    with pytest.raises(TownletError, match="cannot be sent to other processes"):
        townlet.train(Local, overrides=[*GYM_WORDS, "gym.vectorization=async"], root=tmp_path)


def test_policy_in_a_callback_is_the_best_one_so_far(tmp_path: Path) -> None:
    seen: list[tuple[int, int, int]] = []

    def record(progress: RunProgress) -> None:
        run = progress.run
        assert isinstance(run, TrainedRun)
        seen.append((progress.env_steps, run.policy.env_steps, run.load("best").env_steps))

    townlet.train("CartPole-v1", overrides=[*PPO, "env_steps=1024", *EVERY_256], root=tmp_path, callbacks=[record])
    assert [policy for _, policy, _ in seen] == [loaded for _, _, loaded in seen]
    assert seen[-1][1] > 0


def test_policy_is_selected_by_any_kind_of_whole_number(tmp_path: Path) -> None:
    run = townlet.train("CartPole-v1", overrides=[*PPO, "env_steps=1024"], root=tmp_path)
    steps: list[Any] = [0, np.int64(0), 5.12e2, np.float64(512)]
    assert [run.load(step).env_steps for step in steps] == [0, 0, 512, 512]


def test_resume_by_steps_keeps_the_budget_and_extends_it_only_beyond(tmp_path: Path) -> None:
    def stop(progress: RunProgress) -> bool:
        return progress.env_steps < 256

    run = townlet.train("CartPole-v1", overrides=[*PPO, "env_steps=1024", *EVERY_256], root=tmp_path, callbacks=[stop])
    steps = [make_overview(run).env_steps]
    for more in (256, None, 512):
        run.resume(more)
        steps.append(make_overview(run).env_steps)
    assert steps == [256, 512, 1024, 1536]
    assert run.finished


def test_run_is_found_after_a_change_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = townlet.train(Corridor, overrides=GYM_WORDS)
    monkeypatch.chdir("/")
    assert run.score is not None
    assert run.evaluate(episodes=2).length.shape == (2,)


@pytest.mark.parametrize("id", ["Townlet/Town-L0-v0", "Townlet/Town-L0-v0:dqn"])
def test_id_of_a_town_is_trained_as_a_town(id: str) -> None:
    assert load_experiment(recipe_name(id)).task.name == "town-l0"


def test_function_makes_the_environment(tmp_path: Path) -> None:
    run = townlet.train(lambda: Corridor(reward=3), steps=256, overrides=GYM_WORDS, root=tmp_path)
    assert set(run.evaluate(episodes=3).returns.tolist()) <= {0.0, 3.0}
    assert run.meta()["recipe"] == "lambda:ppo"
    assert run.meta()["recipe_argument"] is None


@pytest.mark.parametrize(
    ("env", "algorithm", "message"),
    [
        (Corridor(), None, "Corridor is given as an object"),
        (dict, None, "dict is not a gymnasium.Env"),
        (7, None, "an object of type int is not an environment"),
        ("CartPole-v1:ppo", "dqn", "'CartPole-v1:ppo' already names a variant"),
        ("CartPole-v1", "sac", "CartPole-v1 has no variant 'sac'"),
        ("own.py", "ppo", "'own.py' is a Python file"),
        ("no_such_module:Env-v0", "ppo", "the recipe imports the Python module no_such_module"),
    ],
)
def test_mistakes_are_one_line(env: Any, algorithm: str | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(TownletError, match=message) as caught:
        townlet.train(env, algorithm, root=tmp_path)
    assert "\n" not in str(caught.value)
    assert Run.list(tmp_path) == []


def test_algorithm_defaults_to_that_of_the_recipe() -> None:
    assert recipe_name("town") == "town"  # whose own default is dqn
    assert recipe_name("CartPole-v1") == "CartPole-v1:ppo"
    assert recipe_name("CartPole-v1", "dqn") == "CartPole-v1:dqn"


def test_metrics_are_columns_of_numbers(trained: TrainedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    table, evaluations = trained.metrics(), trained.evaluations()
    assert {"env_steps", "updates", "episode_length", "loss", "steps_per_second"} <= table.keys()
    assert {len(column) for column in table.values()} == {len(table["env_steps"])}
    with MetricsReader(trained.metrics_file) as store:
        steps, losses = store.series("loss")
    assert table["loss"][np.isin(table["env_steps"], steps)].tolist() == losses
    assert evaluations["score"][-1] == trained.score
    assert evaluations["env_steps"].tolist() == [256]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TownletError, match="pandas is not installed"):
        trained.metrics(pandas=True)


def test_run_is_plotted_and_shown_in_notebooks(trained: TrainedRun) -> None:
    figure = trained.plot()
    assert figure.axes[0].get_xlabel() == "env_steps"
    assert figure._repr_png_().startswith(b"\x89PNG")
    page = townlet.open_run(trained.name, trained.path.parent)._repr_html_()
    assert "town:ppo, seed 3" in page
    assert "<svg" in page


def test_notebook_shows_progress_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, content: Any) -> None:
            shown.append(content._repr_html_())

    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    vars(package)["get_ipython"] = lambda: SimpleNamespace(kernel=object())
    vars(module)["display"] = lambda content, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    townlet.train("town:ppo", overrides=WORDS, root=tmp_path)
    assert "town:ppo" in shown[-1]
    assert "256 steps" in shown[-1]
    assert "<circle" in shown[-1]  # the evaluation
    before = len(shown)
    townlet.train("town:ppo", overrides=WORDS, root=tmp_path, progress=False)
    assert len(shown) == before


@pytest.mark.parametrize(
    ("env", "settings", "observation"),
    [
        ("Townlet/Town-L0-v0", {}, None),
        ("CartPole-v1", {}, 4),
        ("CartPole-v1", {"wrappers": [{"name": "pixels"}], "grayscale": True, "resize": [10, 12]}, 120),
        ("CartPole-v1:ppo", {"gym": {"frame_stack": 2}}, 8),
        (Corridor, {"kwargs": {"reward": 2.0}}, 5),
    ],
)
def test_any_environment_is_made_as_a_batch(env: Any, settings: dict[str, Any], observation: int | None) -> None:
    made = townlet.make(env, rows=3, **settings)
    obs, mask = made.reset(0)
    assert obs.shape == (3, observation or townlet.load_world("town-l0").layout.size)
    step = made.step(torch.zeros(3, dtype=torch.int64))
    assert step.reward.shape == (3,)
    assert mask.shape == (3, made.actions.choices)
    made.close()


def test_unknown_setting_of_an_environment_is_named() -> None:
    with pytest.raises(TownletError, match="frame_stak"):
        townlet.make("CartPole-v1", frame_stak=2)
