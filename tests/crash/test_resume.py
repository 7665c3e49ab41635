"""The same recipe and seed give bit-identical runs, whether or not they are paused and resumed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

import warm
from crash.training_process import (
    DQN,
    TINY,
    ForkServer,
    checkpoint_leaves,
    differences,
    differing_leaves,
    metrics_digest,
)
from small import REPORT
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader
from townlet.tasks.experiment import load_experiment
from townlet.train.session import start

RND = ("explore.bonus={name: rnd, hidden: [8], embedding_size: 4, batch_size: 16}",)
ADAPTIVE = ("explore.weight={name: adaptive, start: .5, minimum: .01, episodes: 4, variance: 1e4, mean: 5}",)
BY_EPISODE = ("explore.action_selection={name: epsilon, decay: .9, schedule: null}",)
QUICK_STAGES = ("curriculum={name: adaptive, episodes: 2, steps: 20, entropy: 1.0}",)
GRU = ("network={name: mlp, hidden: [16], recurrent: {kind: gru, size: 8, post_widths: [8]}}",)
LSTM = ("network={name: mlp, hidden: [16], recurrent: {kind: lstm, size: 8, post_widths: [8]}}",)
DRQN = (*DQN, "agent.sequence_length=6", "agent.burn_in=2")
PPO = (*TINY, "agent.n_steps=16", "agent.batch_size=.5")

ALL = {
    "dqn": (
        "town:dqn",
        (*DQN, *RND, *ADAPTIVE, *QUICK_STAGES, *BY_EPISODE, "agent.prioritized={}"),
    ),
    "dqn, other switches": (
        "town:dqn",
        (*DQN, "world=town-l3", "agent.polyak=.01", "agent.double=false", "agent.optimizer=adamw", "agent.n_step=1",
         "explore={action_selection: boltzmann, bonus: counts, weight: {name: scheduled, value: .1}}"),
    ),
    "drqn": ("town-l2:drqn", (*DRQN, *GRU, *RND, *ADAPTIVE, *QUICK_STAGES)),
    "ppo": ("town:ppo", (*PPO, *RND, *ADAPTIVE, *QUICK_STAGES, "change.rewards=[milestone, potential]",
                         "starts={fraction: .5, meters: [.2, 1], money: [0, .3]}")),
    "reinforce": ("town:ppo", ("agent={name: reinforce, episodes: 3}", *TINY, *RND, *ADAPTIVE, *QUICK_STAGES)),
    "recurrent ppo": (
        "town-l3:ppo",
        (*PPO, *LSTM, *RND, *ADAPTIVE, "curriculum={name: fixed, stage: 2}", "evaluation.deterministic=false"),
    ),
    "ppo in new towns": ("town-shuffled:ppo", (*PPO, "network={name: keypoints, hidden: [16]}")),
}  # fmt: skip

SIMILAR = ("dqn, other switches", "reinforce", "ppo in new towns")  # to the others


BUDGET = "budget={env_steps: 2000}"  # schedules depend on the whole budget, however often the run is paused
OFTEN = "evaluation.every=100"  # two evaluations before the end
PAUSE = 252  # neither here nor at the other pauses are metrics written


@pytest.fixture(scope="module")
def uninterrupted_dqn(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dqn run without interruption."""
    recipe, words = ALL["dqn"]
    return server.train(recipe, (*words, BUDGET, OFTEN), tmp_path_factory.mktemp("whole"), pause_at=PAUSE)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n in SIMILAR else ()) for n in ALL])
def test_paused_and_resumed_run_is_bit_identical(
    name: str, server: ForkServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recipe, words = ALL[name][0], (*ALL[name][1], BUDGET, OFTEN)
    if name == "dqn":
        whole: Path = request.getfixturevalue("uninterrupted_dqn")
    else:
        whole = server.train(recipe, words, tmp_path / "whole", pause_at=PAUSE)
    parts = server.train(recipe, words, tmp_path / "parts", pause_at=132)
    halfway = checkpoint_leaves(parts)
    server.resume_to_end(parts, pause_at=208)
    server.resume_to_end(parts, pause_at=PAUSE)
    assert differences(whole, parts) == []
    weights = {leaf: value for leaf, value in checkpoint_leaves(whole).items() if "/network/" in leaf}
    assert any(not torch.equal(value, halfway[leaf]) for leaf, value in weights.items())


def test_compared_run_has_stage_changes_bonus_and_evaluations(uninterrupted_dqn: Path) -> None:
    """Otherwise the comparison above would prove little."""
    with MetricsReader(uninterrupted_dqn / "metrics.db") as metrics:
        assert metrics.read("stage_changes", ["row"])["row"]
        weight = metrics.series("intrinsic_weight")[1]
        assert weight[-1] < weight[0]
        assert min(metrics.series("intrinsic_reward")[1]) > 0
        assert len(metrics.read("evaluations", ["policy"])["policy"]) == 1 + 2


def test_same_seed_is_bit_identical_in_another_process(
    uninterrupted_dqn: Path, server: ForkServer, tmp_path: Path
) -> None:
    """The processes share nothing, not even the order of sets; another seed gives another run."""
    recipe, words = ALL["dqn"][0], (*ALL["dqn"][1], BUDGET, OFTEN)
    assert os.environ.get("PYTHONHASHSEED") != warm.HASH_SEED
    here = start(load_experiment(recipe, words), tmp_path / "here", pause_at=PAUSE).run
    assert differences(here.path, uninterrupted_dqn) == []
    other = server.train(recipe, (*words, "seed=1"), tmp_path / "other", pause_at=PAUSE)
    changed = differences(uninterrupted_dqn, other)
    assert "metrics" in changed
    assert any("/network/" in leaf for leaf in changed)


def test_resuming_a_finished_run_changes_nothing(server: ForkServer, tmp_path: Path) -> None:
    run = server.train("town:dqn", (*DQN, "budget={env_steps: 200}"), tmp_path)
    state, metrics, summary = checkpoint_leaves(run), metrics_digest(run), Run(run).meta()["summary"]
    for words in (("budget.env_steps=100",), (REPORT,)):
        assert "all steps of the budget are spent" in server.resume_to_end(run, words).output()
        assert differing_leaves(state, checkpoint_leaves(run)) == []
        assert metrics_digest(run) == metrics
    assert Run(run).meta()["finished"]
    assert Run(run).meta()["summary"] == summary
    assert (run / "report.html").exists()


def test_larger_budget_is_remembered_by_later_resumes(server: ForkServer, tmp_path: Path) -> None:
    run = server.train("town:dqn", (*DQN, "budget={env_steps: 300}"), tmp_path, pause_at=100)
    assert server.resume_to_end(run, ("budget.env_steps=400",), pause_at=200)
    assert "paused" in server.resume_to_end(run, pause_at=380).output()  # the budget of the recipe was 300
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    assert last.env_steps == 380


def test_resume_rejects_another_world_rows_or_agent(server: ForkServer, tmp_path: Path) -> None:
    run = server.train("town:dqn", DQN, tmp_path, pause_at=100)
    for change in ("rows=8", "change.max_steps=21", "agent=ppo"):
        process = server.resume(run, (change,))
        assert process.wait() == 2
        assert f"these settings cannot change when a run is resumed: {change}" in process.output()
    assert "resumed_with" not in json.loads((run / "meta.json").read_text())  # a rejected resume is not recorded
    server.resume_to_end(run, pause_at=140)


def test_run_resumes_with_its_own_copy_of_an_edited_world(server: ForkServer, tmp_path: Path) -> None:
    world = tmp_path / "my-town.yaml"
    world.write_text("extends: town\nmax_steps: 20\n", encoding="utf-8")
    words = tuple(word for word in DQN if not word.startswith("change"))
    whole = server.train(f"{world}:dqn", words, tmp_path / "whole", pause_at=312)
    parts = server.train(f"{world}:dqn", words, tmp_path / "parts", pause_at=152)
    world.write_text("extends: town\nmax_steps: 12\n", encoding="utf-8")
    server.resume_to_end(parts, pause_at=312)
    assert differences(whole, parts) == []
