"""A training session: files on disk, resume, evaluations and warm starts."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import pytest
import torch

from crash.training_process import differing_leaves
from metrics_digest import content_digest
from small import REPORT
from townlet.errors import TownletError
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import IRREPRODUCIBLE_METRICS, MetricsReader, write_csv
from townlet.runs.serialization import flatten
from townlet.tasks.experiment import load_experiment
from townlet.tasks.town_evaluation import evaluate_town
from townlet.train.checkpointer import warm_start
from townlet.train.policies import load_policy
from townlet.train.session import TrainingOutcome, resume, start
from townlet.train.stop_conditions import END_REASONS
from townlet.train.training import build_training
from train.tiny import RecordingSink, tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingOutcome, RecordingSink]:
    """A finished run and its sink; read-only."""
    sink = RecordingSink()
    root = tmp_path_factory.mktemp("trained") / "runs"
    return start(tiny("town:dqn", "metrics.tensorboard=true", REPORT), root, sinks=[sink]), sink


def test_run_leaves_all_its_files(trained: tuple[TrainingOutcome, RecordingSink]) -> None:
    run = trained[0].run
    names = {path.name for path in run.path.iterdir()}
    assert {
        "recipe.yaml", "resolved.yaml", "meta.json", "metrics.db", "tensorboard", "checkpoints", "log.txt",
        "report.md", "report.html",
    } <= names  # fmt: skip
    assert not {name for name in names if name.startswith(".")}
    assert Run.open("latest", run.path.parent).path == run.path
    assert list(run.tensorboard.iterdir())
    assert " survive, " in run.log_file.read_text()


def test_csv_has_every_metric_also_after_a_resume(tmp_path: Path) -> None:
    """Metrics of speed and memory depend on the machine."""

    def reproducible(run: Run) -> list[dict[str, str]]:
        with run.csv_file.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert all("steps_per_second" in row for row in rows)
        return [{name: row[name] for name in row if name not in IRREPRODUCIBLE_METRICS} for row in rows]

    whole = start(tiny(), tmp_path / "whole").run
    run = start(tiny(), tmp_path / "parts", pause_at=500).run
    run.csv_file.write_text("a row that was written after the last checkpoint\n")
    resume(run)
    assert reproducible(run) == reproducible(whole)
    assert [row["env_steps"] for row in reproducible(whole)] == [str(steps) for steps in range(100, 1300, 100)]
    with MetricsReader(whole.metrics_file) as store:
        write_csv(store, tmp_path / "export.csv")
    assert (tmp_path / "export.csv").read_text() == whole.csv_file.read_text()


def test_meta_describes_the_run_and_its_end(trained: tuple[TrainingOutcome, RecordingSink]) -> None:
    outcome = trained[0]
    meta = outcome.run.meta()
    assert (meta["recipe"], meta["seed"], meta["rows"], meta["agent"]) == ("town:dqn", 0, 4, "dqn")
    assert meta["world"] == load_experiment("town:dqn", ["change.max_steps=40"]).worlds.training.content_hash
    assert {"townlet", "torch", "numpy", "numba"} <= set(meta["versions"])
    assert (meta["ended"], meta["finished"]) == ("all steps of the budget are spent", True)
    assert outcome.summary is not None
    assert meta["summary"] == outcome.summary.sentences()


def test_baseline_and_every_evaluation_are_reported_and_stored(trained: tuple[TrainingOutcome, RecordingSink]) -> None:
    outcome, sink = trained
    with MetricsReader(outcome.run.metrics_file) as metrics:
        rows = metrics.read("evaluations", ["env_steps", "policy", "length"])
    assert rows["env_steps"] == [0, 400, 800, 1200]
    assert rows["policy"] == ["random", "greedy", "greedy", "greedy"]
    assert rows["length"] == [row["length"] for row in sink.evaluations]
    assert sink.closed


def test_last_and_best_checkpoint_are_kept(trained: tuple[TrainingOutcome, RecordingSink]) -> None:
    folder = trained[0].run.checkpoints
    last, best = checkpoint.latest(folder), checkpoint.best(folder)
    assert last is not None
    assert best is not None
    assert last.env_steps == 1200
    scores = [row["score"] for row in trained[1].evaluations if row["policy"] == "greedy"]
    assert best.info["score"] == max(scores)
    assert len(checkpoint.paths(folder)) <= 2


def test_warm_start_loads_the_weights_of_the_best_checkpoint(trained: tuple[TrainingOutcome, RecordingSink]) -> None:
    source = trained[0].run
    best = checkpoint.best(source.checkpoints)
    assert best is not None
    wanted = checkpoint.load(best.path)[0]["training"]["agent"]["network"]
    fresh = build_training(tiny("town:dqn", "seed=9"))
    before = {name: value.clone() for name, value in fresh.agent.parameters().items()}
    warm_start(fresh, source)
    state = fresh.agent.state()
    for part in ("network", "target"):
        assert all(torch.equal(state[part][name], wanted[name]) for name in wanted)
    assert any(not torch.equal(before[name], value) for name, value in fresh.agent.parameters().items())


def test_init_from_is_a_key_of_the_recipe(trained: tuple[TrainingOutcome, RecordingSink]) -> None:
    root, name = trained[0].run.path.parent, trained[0].run.name
    outcome = start(tiny("town:dqn", f"init_from={name}", "agent.warmup=400", "seed=3"), root, pause_at=100)
    here, there = (checkpoint.load(checkpoint.paths(run.checkpoints)[-1])[0] for run in (outcome.run, trained[0].run))
    found, wanted = (state["training"]["agent"]["network"] for state in (here, there))
    best = checkpoint.best(trained[0].run.checkpoints)
    assert best is not None
    wanted = checkpoint.load(best.path)[0]["training"]["agent"]["network"]
    assert all(torch.equal(found[leaf], wanted[leaf]) for leaf in wanted)  # before the first update
    reported = outcome.run.meta()["init_from"]
    assert (reported["run"], reported["checkpoint"], reported["env_steps"]) == (name, best.name, best.env_steps)
    assert reported["sha256"] == hashlib.sha256((best.path / "state.safetensors").read_bytes()).hexdigest()


def test_warm_start_has_no_best_checkpoint_before_an_evaluation(
    trained: tuple[TrainingOutcome, RecordingSink],
) -> None:
    """A run that is killed at once has a checkpoint to resume from, and none with a score."""
    source = trained[0].run
    words = (f"init_from={source.name}", "agent.update_every=1")
    run = start(tiny("town:dqn", *words), source.path.parent, pause_at=4).run
    assert checkpoint.best(run.checkpoints) is None
    last = checkpoint.latest(run.checkpoints)
    assert last is not None
    assert (last.env_steps, last.info["updates"], "score" in last.info) == (4, 0, False)


@pytest.mark.parametrize(
    ("recipe", "words", "said"),
    [
        ("town:dqn", ("world=town-l2",), "has another observation or other actions than town-l2"),
        ("town:dqn", ("change.affordances.Bar.name=Pub",), "has another observation or other actions than town"),
        ("town:dqn", ("network.hidden=[8]",), r"\[16, 88\], .*\[8, 88\]"),
        ("town:ppo", (), "the saved .*network"),
    ],
)
def test_warm_start_from_another_interface_network_or_agent_is_refused(
    recipe: str, words: tuple[str, ...], said: str, trained: tuple[TrainingOutcome, RecordingSink]
) -> None:
    with pytest.raises(TownletError, match=said):
        warm_start(build_training(tiny(recipe, *words)), trained[0].run)


def test_wrong_init_from_leaves_no_run_behind(tmp_path: Path) -> None:
    with pytest.raises(TownletError, match="there is no run 'nothing'"):
        start(tiny("town:dqn", "init_from=nothing"), tmp_path)
    assert Run.list(tmp_path) == []


# --- resuming


def digest(run: Run) -> str:
    with MetricsReader(run.metrics_file) as metrics:
        return content_digest(metrics)


@pytest.mark.parametrize(
    "words",
    [
        (), ("budget.env_steps=500",), pytest.param(("budget.env_steps=1200",), marks=pytest.mark.long),
        pytest.param(("budget.minutes=9",), marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_resuming_a_finished_run_only_evaluates_it(
    words: tuple[str, ...], trained: tuple[TrainingOutcome, RecordingSink]
) -> None:
    before = trained[0]
    run = before.run
    figures, meta, names = digest(run), run.meta(), checkpoint.paths(run.checkpoints)
    sink = RecordingSink()
    again = resume(run, [*words, "metrics.report=false"], sinks=[sink])
    assert (again.trained, again.ending.why, again.ending.finished) == (False, END_REASONS["env_steps"], True)
    assert again.summary is not None
    assert before.summary is not None
    assert again.summary.sentences() == before.summary.sentences()
    assert (digest(run), checkpoint.paths(run.checkpoints), sink.rollouts) == (figures, names, 0)
    assert run.meta() == meta


def test_paused_run_beyond_a_smaller_budget_ends(tmp_path: Path) -> None:
    run = start(tiny(), tmp_path, pause_at=640).run
    sink = RecordingSink()
    ended = resume(run, ["budget.env_steps=600"], sinks=[sink])
    assert (ended.ending.why, ended.ending.finished) == (END_REASONS["env_steps"], True)
    assert [row["env_steps"] for row in sink.evaluations] == [640]
    assert sink.rollouts == 0
    assert resume(run).trained is False


def test_run_with_the_interface_hash_of_an_older_release_resumes(tmp_path: Path) -> None:
    """The hash has covered more over time; a town is that of the run's own copy anyway."""
    run = start(tiny(), tmp_path, pause_at=320).run
    last = checkpoint.latest(run.checkpoints)
    assert last is not None
    state, info = checkpoint.load(last.path)
    older = checkpoint.save(run.checkpoints, last.name, state, {**info, "interface": "0" * 64})
    assert load_policy(run, "last").checkpoint.name == older.name
    warm_start(build_training(tiny()), run)
    assert resume(run).ending.finished


def test_resumed_run_counts_the_time_before(tmp_path: Path) -> None:
    first = start(tiny("town:dqn", "budget={env_steps: 1e6, minutes: 60}"), tmp_path, pause_at=400)
    sink, saved = RecordingSink(), checkpoint.latest(first.run.checkpoints)
    assert saved is not None
    before = saved.info["seconds"]
    ended = resume(first.run, [f"budget.minutes={before / 120}"], sinks=[sink])
    assert ended.ending.why == END_REASONS["minutes"]
    assert sink.rollouts == 0  # its time is over already
    assert ended.seconds > before
    last = checkpoint.latest(first.run.checkpoints)
    assert last is not None
    assert last.info["seconds"] > before


def test_resumed_run_saves_at_the_same_steps_as_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An equal score is not a new best, and episodes counted for earlier checkpoints do not count again."""
    passed: list[str] = []
    monkeypatch.setattr(checkpoint, "on_point", passed.append)
    # No agent dies in 5 steps: every score is 5, and 4 rows end 4 episodes in 20 steps.
    words = ("change.max_steps=5", "evaluation.every=100", "checkpoints.every_episodes=50")
    run = start(tiny("town:dqn", *words), tmp_path, pause_at=320).run
    best = checkpoint.best(run.checkpoints)
    assert best is not None
    passed.clear()
    sink = RecordingSink()
    resume(run, sinks=[sink], pause_at=448)
    assert [row["score"] for row in sink.evaluations] == [5.0]
    assert passed.count("committed") == 1  # at the pause
    assert checkpoint.best(run.checkpoints) == best


def test_time_limit_does_not_change_what_is_learned(tmp_path: Path) -> None:
    """Schedules depend on env_steps: minutes only determine when a run ends."""
    timed = start(tiny("town:dqn", "budget={env_steps: 1e5, minutes: .005}"), tmp_path / "timed")
    assert timed.ending.why == END_REASONS["minutes"]
    states = [checkpoint.load(checkpoint.paths(timed.run.checkpoints)[-1])[0]["training"]]
    env_steps = int(states[0]["counters"]["env_steps"])
    free = start(tiny("town:dqn", "budget={env_steps: 1e5}"), tmp_path / "free", pause_at=env_steps).run
    states.append(checkpoint.load(checkpoint.paths(free.checkpoints)[-1])[0]["training"])
    assert differing_leaves(*(flatten(state) for state in states)) == []


# --- evaluating


def test_evaluations_use_the_evaluation_world(tmp_path: Path) -> None:
    """Without the exploring starts, the shaping reward and the limit of training."""
    words = ("potential=50", "evaluation.change={max_steps: 70}", "starts={fraction: 1, meters: [.02, .1]}")
    loaded, sink = tiny("town:dqn", *words, "budget={env_steps: 400}"), RecordingSink()
    run = start(loaded, tmp_path, sinks=[sink]).run
    random, last = sink.evaluations[0], sink.evaluations[-1]
    assert {row["limit"] for row in sink.evaluations} == {70}
    assert random["length"] > 60  # with the low meters of training it would die within a few steps
    policy = load_policy(run, "last").policy()
    again = evaluate_town(policy, loaded.worlds.evaluation, 3, loaded.recipe.evaluation.seed)
    assert (last["length"], last["return"]) == (again.mean_length, pytest.approx(again.returns.mean()))
    guided = evaluate_town(policy, loaded.worlds.training, 3, loaded.recipe.evaluation.seed)
    assert guided.returns.mean() != pytest.approx(again.returns.mean())


def test_tiny_budget_is_evaluated_only_at_its_end(tmp_path: Path) -> None:
    sink = RecordingSink()
    start(tiny("town:dqn", "evaluation.every=.1", "budget.env_steps=900"), tmp_path, sinks=[sink])
    assert [row["env_steps"] for row in sink.evaluations] == [0, 900]
    recipe = load_experiment("town:dqn", ["budget.env_steps=900"]).recipe
    assert (recipe.evaluation_interval, load_experiment("town:dqn").recipe.evaluation_interval) == (1000, 100_000)
    assert load_experiment("town:dqn", ["evaluation.every=50"]).recipe.evaluation_interval == 50
