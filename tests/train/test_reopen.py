"""A run keeps copies of its worlds, and resumes only as the same experiment."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from narrow import instance, latest_checkpoint
from townlet.agents.dqn import DqnSettings
from townlet.errors import TownletError
from townlet.recipes.render import resolved_text
from townlet.runs.folder import Run
from townlet.tasks.comparison import compare_town
from townlet.tasks.experiment import RESUMABLE_KEYS, evaluation_world, load_experiment, reopen, world_file
from townlet.tasks.town import TownTask, Worlds, with_overrides
from townlet.town.world.load import from_text, shipped
from townlet.town.world.load import load as load_world
from townlet.train import session
from townlet.train.policies import load_policy
from townlet.train.session import resume, start
from train.processes import load_latest
from train.tiny import DQN, RecordingSink, tiny

WORLD = "extends: town\nmax_steps: 30\n"


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A paused run in a custom world, and that world's file; read-only."""
    path = tmp_path_factory.mktemp("custom") / "my-town.yaml"
    path.write_text(WORLD, encoding="utf-8")
    words = [word for word in DQN if not word.startswith("change")]
    return path, start(load_experiment(f"{path}:dqn", words), path.parent / "runs", pause_at=100).run


@pytest.fixture
def custom_run(trained_run: tuple[Path, Run], tmp_path: Path) -> tuple[Path, Run]:
    """A copy of the paused run, and the file of its world, which is the same in all tests."""
    path, run = trained_run
    path.write_text(WORLD, encoding="utf-8")
    return path, Run(shutil.copytree(run.path, tmp_path / "runs" / run.name))


@pytest.mark.parametrize("name", shipped())
def test_copy_of_a_world_is_the_same_world(name: str) -> None:
    world = load_world(name)
    for text in TownTask(Worlds(world, world)).files().values():
        again = from_text(text)
        assert (again.content_hash, again.interface_hash) == (world.content_hash, world.interface_hash)
        assert again.spec == world.spec
    assert with_overrides(world, ["max_steps=77"]).spec == world.spec.model_copy(update={"max_steps": 77})


def test_run_keeps_both_worlds_with_all_overrides(tmp_path: Path) -> None:
    words = ("potential=7", "change.affordances.Bed.price=.03", "evaluation.change={max_steps: 90}")
    loaded = tiny("town:dqn", *words)
    run = start(loaded, tmp_path, pause_at=4).run
    for role, wanted in loaded.worlds._asdict().items():
        found = load_world(world_file(run, role))
        assert found.content_hash == wanted.content_hash
    assert (run.meta()["world"], run.meta()["evaluation_world"]) == tuple(w.content_hash for w in loaded.worlds)
    again = reopen(run)
    assert [world.name for world in again.worlds] == ["town", "town"]
    assert again.worlds.training.rewards == ("milestone", "potential")
    assert again.worlds.evaluation.rewards == ("milestone",)
    assert again.notes == ()


def removed(path: Path) -> None:
    path.rename(path.with_name("elsewhere.yaml"))


def edited(path: Path) -> None:
    path.write_text(WORLD.replace("30", "31"), encoding="utf-8")


def broken(path: Path) -> None:
    path.write_text("extends: nothing\n", encoding="utf-8")


def with_other_obs(path: Path) -> None:
    path.write_text("extends: town-l2\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (removed, "is missing"),
        (edited, "has changed since"),
        (broken, "cannot be read"),
        (with_other_obs, "has changed"),
    ],
)
def test_run_keeps_its_world_if_the_file_changes(
    change: Callable[[Path], None], reported: str, custom_run: tuple[Path, Run]
) -> None:
    path, run = custom_run
    change(path)
    trained = load_policy(run)
    (note,) = trained.loaded.notes
    assert str(path) in note
    assert reported in note
    found = compare_town(trained.policy, evaluation_world(trained.loaded, ["affordances.Bed.price=0"]), 3, 0)
    assert found.trained.world.spec.max_steps == 30
    assert found.trained.world.spec.affordances[0].price == 0
    sink = RecordingSink()
    resume(run, sinks=[sink], pause_at=200)
    assert sink.messages == [note]
    assert latest_checkpoint(run).env_steps == 200
    assert note in run.log_file.read_text(encoding="utf-8")


@pytest.mark.parametrize("role", Worlds._fields)
def test_edited_copy_of_a_world_is_named_and_refused(role: str, custom_run: tuple[Path, Run]) -> None:
    copy = world_file(custom_run[1], role)
    copy.write_text(copy.read_text().replace("max_steps: 30", "max_steps: 31"), encoding="utf-8")
    with pytest.raises(TownletError, match=f"the {role} world of the run") as caught:
        resume(custom_run[1])
    assert str(copy) in str(caught.value)


def test_run_without_copies_needs_the_unchanged_world_file(custom_run: tuple[Path, Run]) -> None:
    path, run = custom_run
    run.update_meta(files={})
    for copy in run.worlds.iterdir():
        copy.unlink()
    run.worlds.rmdir()
    resume(run, pause_at=150)
    edited(path)
    with pytest.raises(TownletError, match="the training world of the run") as caught:
        resume(run)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "word",
    ["rows=8", "seed=1", "change.max_steps=41", "agent=ppo", "agent.gamma=.9", "evaluation.seed=3", "potential=1",
     "evaluation.change={max_steps: 9}", "world=town-l2", "explore.action_selection.schedule.end=.5",
     "network.hidden=[8]", "starts={fraction: 1, meters: [.5, 1]}", "evaluation.metric=return", "init_from=latest"],
)  # fmt: skip
def test_overrides_that_change_the_experiment_are_rejected(word: str, custom_run: tuple[Path, Run]) -> None:
    run = custom_run[1]
    before = run.meta()
    with pytest.raises(TownletError) as caught:
        resume(run, [word, "budget.env_steps=5000"])
    (mistake,) = caught.value.diagnostics
    assert mistake.what == f"these settings cannot change when a run is resumed: {word}"
    assert all(key in mistake.fix for key in (*RESUMABLE_KEYS, f"init_from={run.name}"))
    assert run.meta() == before  # a rejected override is not recorded


def test_overrides_that_keep_the_experiment_are_accepted(custom_run: tuple[Path, Run]) -> None:
    run = custom_run[1]
    words = [
        "budget.env_steps=5000", "budget.minutes=9", "agent.lr={start: 1e-4, end: 1e-5}", "checkpoints.minutes=1",
        "metrics.every=50", "evaluation.every=100", "evaluation.episodes=2", "threads=1", "device=cpu",
        "rows=4",  # unchanged
    ]  # fmt: skip
    sink = RecordingSink()
    resume(run, words, sinks=[sink], pause_at=200)
    assert run.meta()["resumed_with"] == words
    assert [row["episodes"] for row in sink.evaluations] == [2]
    assert [interval.env_steps for interval in sink.intervals] == [160, 200]  # a rollout is 5 steps of 4 rows
    assert all(interval.metrics["lr"] < 1e-4 for interval in sink.intervals)


def test_automatic_thread_count_is_stored_as_a_number(tmp_path: Path) -> None:
    run = start(tiny("town:dqn", "threads=auto"), tmp_path, pause_at=4).run
    threads = reopen(run).recipe.threads
    assert isinstance(threads, int)
    assert run.meta()["threads"] == threads


def test_run_older_than_a_setting_resumes_with_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As written by an earlier release: without `agent.accelerate` in resolved.yaml and in its hash."""
    short = "budget={env_steps: 400}"
    whole = start(tiny("town:dqn", short), tmp_path / "whole").run
    lines = whole.resolved_file.read_text().splitlines(keepends=True)
    (new,) = [line for line in lines if line.startswith("  accelerate: true")]
    assert not any(line.startswith("  file:") for line in lines), "of an agent that is registered without one"
    monkeypatch.setattr(session, "resolved_text", lambda loaded: resolved_text(loaded).replace(new, ""))
    run = start(tiny("town:dqn", short), tmp_path / "earlier", pause_at=100).run
    monkeypatch.undo()
    assert "accelerate" not in run.resolved_file.read_text()
    assert "accelerate" not in latest_checkpoint(run).info["recipe"]["agent"]
    resume(run)
    assert run.meta()["finished"]
    assert instance(load_policy(run).loaded.recipe.agent, DqnSettings).accelerate is True
    (found, _), (wanted, _) = load_latest(run), load_latest(whole)
    weights = [name for name in wanted if name.startswith("training/agent/network")]
    assert weights
    assert all(torch.equal(*(instance(of[name], torch.Tensor) for of in (found, wanted))) for name in weights)
