"""A training from its recipe to what it leaves on disk, and a warm start from another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from townlet.errors import TownletError
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.reader import Reader
from townlet.train.build import build
from townlet.train.launch import Outcome, start, warm_start
from townlet.train.load import load
from train.tiny import Heard, tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Heard]:
    """A finished run, only to be read."""
    heard = Heard()
    root = tmp_path_factory.mktemp("trained") / "runs"
    return start(tiny("town:dqn", "metrics.tensorboard=true"), root, sinks=[heard]), heard


def test_a_run_leaves_all_its_files(trained: tuple[Outcome, Heard]) -> None:
    run = trained[0].run
    names = {path.name for path in run.path.iterdir()}
    assert {
        "recipe.yaml", "resolved.yaml", "meta.json", "metrics.db", "tensorboard", "checkpoints", "log.txt",
        "report.md", "report.html",
    } <= names  # fmt: skip
    assert not {name for name in names if name.startswith(".")}
    assert Run.open("latest", run.path.parent).path == run.path
    assert list(run.tensorboard.iterdir())
    assert "evaluation: lives" in run.log_file.read_text()


def test_meta_tells_what_was_run_and_how_it_ended(trained: tuple[Outcome, Heard]) -> None:
    outcome = trained[0]
    meta = outcome.run.meta()
    assert (meta["recipe"], meta["seed"], meta["rows"], meta["agent"]) == ("town:dqn", 0, 4, "dqn")
    assert meta["world"] == load("town:dqn", ["change.max_steps=40"]).worlds.training.content_hash
    assert {"townlet", "torch", "numpy", "numba"} <= set(meta["versions"])
    assert (meta["ended"], meta["finished"]) == ("all steps of the budget are spent", True)
    assert outcome.summary is not None
    assert meta["summary"] == outcome.summary.sentences()


def test_the_yardstick_and_every_evaluation_are_told_and_stored(trained: tuple[Outcome, Heard]) -> None:
    outcome, heard = trained
    with Reader(outcome.run.metrics_file) as metrics:
        rows = metrics.read("evaluations", ["env_steps", "policy", "length"])
    assert rows["env_steps"] == [0, 400, 800, 1200]
    assert rows["policy"] == ["random", "greedy", "greedy", "greedy"]
    assert rows["length"] == [row["length"] for row in heard.evaluations]
    assert heard.closed


def test_the_last_and_the_best_checkpoint_are_kept(trained: tuple[Outcome, Heard]) -> None:
    folder = trained[0].run.checkpoints
    last, best = checkpoint.newest(folder), checkpoint.best(folder)
    assert last is not None
    assert best is not None
    assert last.env_steps == 1200
    scores = [row["score"] for row in trained[1].evaluations if row["policy"] == "greedy"]
    assert best.info["score"] == max(scores)
    assert len(checkpoint.listing(folder)) <= 2


def test_a_warm_start_begins_with_the_weights_of_the_best_checkpoint(trained: tuple[Outcome, Heard]) -> None:
    source = trained[0].run
    best = checkpoint.best(source.checkpoints)
    assert best is not None
    wanted = checkpoint.read(best.path)[0]["training"]["agent"]["network"]
    fresh = build(tiny("town:dqn", "seed=9"))
    before = {name: value.clone() for name, value in fresh.agent.parameters().items()}
    warm_start(fresh, source)
    state = fresh.agent.state()
    for part in ("network", "target"):
        assert all(torch.equal(state[part][name], wanted[name]) for name in wanted)
    assert any(not torch.equal(before[name], value) for name, value in fresh.agent.parameters().items())


def test_init_from_is_a_key_of_the_recipe(trained: tuple[Outcome, Heard]) -> None:
    root, name = trained[0].run.path.parent, trained[0].run.name
    outcome = start(tiny("town:dqn", f"init_from={name}", "agent.warmup=400", "seed=3"), root, pause_at=100)
    here, there = (checkpoint.read(checkpoint.listing(run.checkpoints)[-1])[0] for run in (outcome.run, trained[0].run))
    found, wanted = (state["training"]["agent"]["network"] for state in (here, there))
    best = checkpoint.best(trained[0].run.checkpoints)
    assert best is not None
    wanted = checkpoint.read(best.path)[0]["training"]["agent"]["network"]
    assert all(torch.equal(found[leaf], wanted[leaf]) for leaf in wanted)  # it has not learned yet


@pytest.mark.parametrize(
    ("recipe", "words", "said"),
    [
        ("town:dqn", ("world=town-l2",), "sees or does other things"),
        ("town:dqn", ("network.hidden=[8]",), r"\[16, 88\], .*\[8, 88\]"),
        ("town:ppo", (), "the saved .*network"),
    ],
)
def test_a_warm_start_from_another_interface_network_or_agent_is_refused(
    recipe: str, words: tuple[str, ...], said: str, trained: tuple[Outcome, Heard]
) -> None:
    with pytest.raises(TownletError, match=said):
        warm_start(build(tiny(recipe, *words)), trained[0].run)


def test_a_mistake_in_init_from_leaves_no_run_behind(tmp_path: Path) -> None:
    with pytest.raises(TownletError, match="there is no run 'nothing'"):
        start(tiny("town:dqn", "init_from=nothing"), tmp_path)
    assert Run.list(tmp_path) == []
