"""Settings that change during training: by tune.yaml, or by plateau rules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from crash.training_process import differences
from townlet.config.scalar import to_flow_yaml
from townlet.errors import TownletError
from townlet.interfaces.counters import Counters
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader, as_rows
from townlet.tasks.experiment import LoadedExperiment, load_experiment
from townlet.train.session import create_session, resume, start
from townlet.train.stop_conditions import END_REASONS
from townlet.train.training import build_training
from train.tiny import RecordingSink, tiny

SMALL = (
    "threads=1", "rows=4", "network.hidden=[16]", "evaluation={episodes: 4, every: 256}",
    "metrics={every: 128, tensorboard: false, report: false}", "env_steps=1024",
)  # fmt: skip
AGENTS = {
    "CartPole-v1:ppo": ("agent.n_steps=32", "agent.epochs=2", "agent.lr=1e-3"),
    "CartPole-v1:dqn": ("agent.warmup=100", "agent.batch_size=16", "agent.gradient_steps=1"),
    "CartPole-v1:reinforce": ("agent={name: reinforce, episodes: 4}",),
    "FrozenLake-v1:qlearning": ("evaluation.episodes=8",),
}
ALIKE = [pytest.param(name, marks=pytest.mark.long if "reinf" in name or "Frozen" in name else ()) for name in AGENTS]


def small(recipe: str = "CartPole-v1:ppo", *words: str) -> LoadedExperiment:
    """A small version of a recipe; agents without one use that of ppo."""
    name = recipe.replace(":reinforce", ":ppo")
    return load_experiment(name, [*SMALL, *AGENTS[recipe], *words])


CHANGE = ("env_steps", "key", "old", "new", "why")


class Editor(RecordingSink):
    """Edits tune.yaml at given numbers of env_steps."""

    def __init__(self, root: Path, edits: Mapping[int, str]) -> None:
        super().__init__()
        self._root, self._edits = root, dict(edits)

    def on_rollout(self, counters: Counters) -> None:
        for at in [at for at in self._edits if counters.env_steps >= at]:
            file = Run.open("latest", self._root).tune_file
            file.write_text(self._edits.pop(at))
            os.utime(file, ns=(at, at))  # otherwise two edits within the resolution of the clock may look the same


def changes(run: Run) -> list[tuple[int, str, Any, Any, str]]:
    with MetricsReader(run.metrics_file) as store:
        return [tuple(row.values()) for row in as_rows(store.read("setting_changes", CHANGE))]


def series(run: Run, name: str) -> dict[int, float]:
    with MetricsReader(run.metrics_file) as store:
        return dict(zip(*store.series(name), strict=True))


def test_tune_file_explains_all_settings_and_changes_nothing(tmp_path: Path) -> None:
    session = create_session(small("CartPole-v1:ppo", "agent.clip=.2"), tmp_path)
    text = session.run.tune_file.read_text()
    assert all(line.startswith("# ") for line in text.splitlines())
    for key in ("lr: 0.001", "clip: 0.2", "value_clip: null", "entropy_coef: 0.0", "value_coef: 0.5", "epochs: 2"):
        assert f"\n# {key}  # " in text


@pytest.mark.parametrize("recipe", ALIKE)
def test_edit_takes_effect_at_the_next_update_and_is_recorded(recipe: str, tmp_path: Path) -> None:
    editor = Editor(tmp_path, {512: "lr: 2e-5\n", 768: "# lr: 2e-5\n"})
    run = start(small(recipe, "agent.lr=1e-3", "env_steps=2048"), tmp_path, sinks=[editor], pause_at=1024).run
    (first, *one), (second, *two) = changes(run)
    assert one == ["lr", 0.001, 2e-5, "tune.yaml"]
    assert two == ["lr", 2e-5, 0.001, "tune.yaml"]
    assert 512 < first <= 640
    assert 768 < second <= 896
    lr = series(run, "lr")
    assert lr[512] == pytest.approx(1e-3)
    assert lr[768] == pytest.approx(2e-5)
    assert lr[1024] == pytest.approx(1e-3)
    assert "lr changed from 0.001 to 2e-05 (tune.yaml)" in editor.messages


def test_all_tunable_settings_of_ppo_change(tmp_path: Path) -> None:
    wanted = {"lr": 0.01, "clip": 0.1, "value_clip": 0.3, "entropy_coef": 0.02, "value_coef": 0.25, "epochs": 5}
    text = "".join(f"{key}: {value}\n" for key, value in wanted.items())
    run = start(small(), tmp_path, sinks=[Editor(tmp_path, {512: text})], pause_at=900).run
    assert {key: new for _, key, _, new, _ in changes(run)} == wanted
    assert (series(run, "epochs_done")[512], series(run, "epochs_done")[768]) == (2, 5)


def test_tune_file_accepts_schedules(tmp_path: Path) -> None:
    editor = Editor(tmp_path, {256: "clip: {start: 0.4, end: 0.1, from: 512, to: 1024}\nlr: lin_0.1\n"})
    run = start(small(), tmp_path, sinks=[editor]).run
    assert (series(run, "clip")[512], series(run, "clip")[1024]) == pytest.approx((0.4, 0.1))
    assert series(run, "lr")[1024] == 0


def test_town_can_be_tuned(tmp_path: Path) -> None:
    editor = Editor(tmp_path, {400: "lr: 1e-4\n"})
    run = start(tiny("town:dqn", "agent.lr=1e-3"), tmp_path, sinks=[editor], pause_at=800).run
    assert [change[1:] for change in changes(run)] == [("lr", 0.001, 1e-4, "tune.yaml")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lr: fast\n", "tune.yaml:1:1: lr cannot be the string 'fast'"),
        ("epochs: 3\nlr: -1\n", "tune.yaml:2:1: lr: it must not be negative"),
        ("entropy_coef: {start: 0.1, end: -1}\n", "tune.yaml:1:1: entropy_coef: it must not be negative"),
        ("gamma: 0.5\n", "tune.yaml:1:1: 'gamma' cannot be changed during training"),
        ("entropi_coef: 0.5\n", "did you mean 'entropy_coef'?"),
        ("lr: [1\n", "tune.yaml"),
    ],
)
def test_wrong_tune_file_is_reported_once_and_changes_nothing(text: str, says: str, tmp_path: Path) -> None:
    editor = Editor(tmp_path, {256: text})
    outcome = start(small(), tmp_path, sinks=[editor], pause_at=512)
    (note,) = (note for note in editor.messages if "no setting was changed" in note)
    assert says in note
    assert changes(outcome.run) == []
    assert outcome.ending.why == "paused"  # it continued
    assert series(outcome.run, "lr").keys() >= {384, 512}


def test_unchanged_tune_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = create_session(small(), tmp_path)
    tuning, listener = session.training.tuning, _Listener()
    tuning.file = session.run.tune_file
    read = Mock(return_value=b"lr: 1e-2\n")
    monkeypatch.setattr("townlet.runs.disk.read_bounded", read)
    for _ in range(5):
        tuning.apply_edits(listener)
    assert read.call_count == 1
    assert [change.new for change in listener.changes] == [1e-2]


class _Listener:
    def __init__(self) -> None:
        self.changes: list[Any] = []
        self.messages: list[str] = []

    def on_setting_change(self, change: Any) -> None:
        self.changes.append(change)

    def message(self, text: str) -> None:
        self.messages.append(text)


def after_evaluations(words: str, scores: list[float], every: int = 100) -> tuple[Any, _Listener]:
    """Settings of an agent, and its listener, after evaluations with these scores, one per `every` env_steps."""
    training = build_training(small("CartPole-v1:ppo", f"plateau={words}"))
    listener = _Listener()
    for score in scores:
        training.counters.env_steps += every
        training.tuning.on_evaluation(score, listener)
    return training.agent.settings, listener


@pytest.mark.parametrize(
    ("how", "values"),
    [
        ("multiply: 0.5", [5e-4, 2.5e-4, 1.25e-4]),
        ("multiply: 0.5, low: 3e-4", [5e-4, 3e-4]),
        ("add: 1e-3, high: 2.5e-3", [2e-3, 2.5e-3]),
        ("set: 1e-5", [1e-5]),
    ],
)
def test_without_progress_a_setting_is_changed_within_its_limits(how: str, values: list[float]) -> None:
    settings, listener = after_evaluations(f"{{key: lr, patience: 200, {how}}}", [10, *[10, 9] * 3])
    assert [change.new for change in listener.changes] == pytest.approx(values)
    assert settings.lr == pytest.approx(values[-1])
    assert listener.changes[0].why == "no progress for 200 env_steps"


def test_integer_settings_stay_integers() -> None:
    settings, _ = after_evaluations("{key: epochs, patience: 200, multiply: 1.4}", [10, 10, 10])
    assert settings.epochs == 3
    assert isinstance(settings.epochs, int)


def test_progress_must_exceed_the_best_by_the_minimum() -> None:
    assert after_evaluations("{key: lr, patience: 200, min_delta: 5, set: 0}", [10, 12, 15, 17, 20])[1].changes == []
    assert after_evaluations("{key: lr, patience: 200, min_delta: 5, set: 0}", [10, 12, 14])[1].changes != []


def test_progress_restores_the_previous_value() -> None:
    settings, listener = after_evaluations("{key: lr, patience: 200, multiply: .5, revert: true}", [10, 9, 9, 9, 9, 11])
    assert [to_flow_yaml(change.new) for change in listener.changes] == ["0.0005", "0.00025", "0.001"]
    assert listener.changes[-1].why == "there is progress again"
    assert settings.lr == 1e-3


def test_every_plateau_rule_has_a_separate_patience() -> None:
    both = "[{key: lr, patience: 200, multiply: .5}, {key: entropy_coef, patience: 300, set: .01}]"
    _, listener = after_evaluations(both, [10, 9, 9, 9])
    assert [(change.key, change.new) for change in listener.changes] == [("lr", 5e-4), ("entropy_coef", 0.01)]


def test_refused_value_is_reported_and_not_applied() -> None:
    settings, listener = after_evaluations("{key: epochs, patience: 200, multiply: 0}", [10, 9, 9])
    assert settings.epochs == 2
    assert "epochs stays 2" in listener.messages[0]


@pytest.mark.parametrize(
    ("recipe", "words", "says"),
    [
        ("CartPole-v1:dqn", "plateau={key: clip, multiply: .5}", "dqn has no setting 'clip'"),
        ("CartPole-v1:ppo", "plateau={key: value_clip, multiply: .5}", "agent.value_clip is null"),
        ("CartPole-v1:ppo", "plateau={key: lr, multiply: .5, set: 1}", "give exactly one of multiply, add and set"),
        ("CartPole-v1:ppo", "plateau={key: lr, set: 1, low: 2, high: 1}", "`low` (2) is above `high` (1)"),
        ("CartPole-v1:ppo", "plateau={key: gamma, set: 1}", "plateau"),
    ],
)
def test_invalid_plateau_rule_is_refused(recipe: str, words: str, says: str) -> None:
    with pytest.raises(TownletError) as caught:
        small(recipe, words)
    assert says in str(caught.value)


PLATEAU = "plateau={key: lr, patience: 256, min_delta: 1e6, multiply: .5, revert: true}"


@pytest.mark.parametrize("recipe", ALIKE)
def test_resumed_run_equals_an_uninterrupted_one_with_changed_settings(recipe: str, tmp_path: Path) -> None:
    """The same edit at the same step, in an uninterrupted run and in one that is paused after it."""
    loaded = small(recipe, PLATEAU)
    whole, part = (
        start(loaded, root, sinks=[Editor(root, {512: "lr: 3e-3\n"})], pause_at=stop).run
        for root, stop in ((tmp_path / "whole", 1000), (tmp_path / "part", 640))
    )
    resume(part, pause_at=900)
    resume(part, pause_at=1000)
    assert {why for *_, why in changes(whole)} == {"tune.yaml", "no progress for 256 env_steps"}
    assert differences(whole.path, part.path) == []


def test_edit_after_the_last_checkpoint_takes_effect_on_resume(tmp_path: Path) -> None:
    run = start(small(), tmp_path, pause_at=512).run
    run.tune_file.write_text("epochs: 4\n")
    resume(run, pause_at=900)
    assert [(key, new) for _, key, _, new, _ in changes(run)] == [("epochs", 4)]
    assert series(run, "epochs_done")[768] == 4


def test_override_of_resume_wins_over_an_older_edit(tmp_path: Path) -> None:
    run = start(small(), tmp_path, sinks=[Editor(tmp_path, {256: "lr: 3e-3\n"})], pause_at=512).run
    resume(run, ["agent.lr=7e-3"])
    assert series(run, "lr")[1024] == pytest.approx(7e-3)


def test_run_ends_at_its_training_threshold(tmp_path: Path) -> None:
    words = ("rows=8", "env_steps=2e4", "evaluation.every=2e4", "budget.train_threshold=15")
    outcome = start(small("CartPole-v1:ppo", *words), tmp_path)
    assert outcome.ending.why == END_REASONS["train_threshold"]
    with MetricsReader(outcome.run.metrics_file) as store:
        counts = store.read("episode_intervals", ("count",))["count"]
    assert 100 <= sum(counts) < 400
    assert resume(outcome.run).trained is False


def test_training_threshold_true_is_that_of_the_environment() -> None:
    assert small("CartPole-v1:ppo", "budget.train_threshold=true").recipe.budget.train_threshold == 475
    with pytest.raises(TownletError, match="town has no threshold"):
        tiny("town:dqn", "budget.train_threshold=true")


def test_resolved_recipe_shows_the_source_of_plateau_rules(tmp_path: Path) -> None:
    for words in (PLATEAU, PLATEAU.replace("={", "=[{") + "]"):
        text = create_session(small("CartPole-v1:ppo", words), tmp_path).run.resolved_file.read_text()
        (line,) = (line for line in text.splitlines() if "key: lr" in line)
        assert "# command line: plateau=" in line
