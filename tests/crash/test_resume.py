"""The same recipe and seed give the same bits, and a run that is stopped and resumed is the run that never stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from crash.smith import DQN, HASHING, TINY, Forge, differences, digest, kept, odd_leaves, only_run
from small import REPORT
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader

RND = ("explore.bonus={name: rnd, hidden: [8], embedding_size: 4, batch_size: 16}",)
ADAPTIVE = ("explore.weight={name: adaptive, start: .5, minimum: .01, episodes: 4, variance: 1e4, mean: 5}",)
BY_EPISODE = ("explore.action_selection={name: epsilon, decay: .9, schedule: null}",)
QUICK_STAGES = ("curriculum={name: adversarial, episodes: 2, steps: 40, entropy: 1.0}",)
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
                         "starts={share: .5, meters: [.2, 1], money: [0, .3]}")),
    "reinforce": ("town:ppo", ("agent={name: reinforce, episodes: 3}", *TINY, *RND, *ADAPTIVE, *QUICK_STAGES)),
    "recurrent ppo": (
        "town-l3:ppo",
        (*PPO, *LSTM, *RND, *ADAPTIVE, "curriculum={name: fixed, stage: 2}", "evaluation.deterministic=false"),
    ),
    "ppo in new towns": ("town-shuffled:ppo", (*PPO, "network={name: keypoints, hidden: [16]}")),
}  # fmt: skip

ALIKE = ("dqn, other switches", "reinforce", "ppo in new towns")  # of what others do as well


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n in ALIKE else ()) for n in ALL])
def test_stopped_and_resumed_is_the_same_as_never_stopped(name: str, forge: Forge, tmp_path: Path) -> None:
    recipe, words = ALL[name]
    words = (*words, "budget={env_steps: 4000}")  # schedules go by the whole budget, however often it is stopped
    # None of these moments is one at which metrics are marked.
    whole = forge.train(recipe, words, tmp_path / "whole", pause_at=820)
    parts = forge.train(recipe, words, tmp_path / "parts", pause_at=420)
    halfway = kept(parts)
    forge.go_on(parts, pause_at=648)
    forge.go_on(parts, pause_at=820)
    assert differences(whole, parts) == []
    assert any(not torch.equal(value, halfway[leaf]) for leaf, value in kept(whole).items() if "/network/" in leaf)


def test_all_that_can_be_stopped_was_under_way(forge: Forge, tmp_path: Path) -> None:
    """Else the comparison above would prove little: stages change, novelty is paid and its weight falls."""
    recipe, words = ALL["dqn"]
    with MetricsReader(forge.train(recipe, words, tmp_path, pause_at=820) / "metrics.db") as metrics:
        assert metrics.read("stage_changes", ["row"])["row"]
        weight = metrics.series("intrinsic_weight")[1]
        assert weight[-1] < weight[0]
        assert min(metrics.series("novelty")[1]) > 0
        assert len(metrics.read("evaluations", ["policy"])["policy"]) == 1 + 2


def test_the_same_seed_gives_the_same_bits_in_another_process(forge: Forge, tmp_path: Path) -> None:
    """Processes that share nothing, not even the order of a set; another seed gives another run."""
    recipe, words = ALL["dqn"]
    place = ["--pause-at", "600", "--root", str(tmp_path / "process")]
    assert HASHING != "1"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "townlet", "train", recipe, *words, *place]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    one = only_run(tmp_path / "process")
    assert differences(one, forge.train(recipe, words, tmp_path / "forge", pause_at=600)) == []
    other = forge.train(recipe, (*words, "seed=1"), tmp_path / "other", pause_at=600)
    odd = differences(one, other)
    assert "metrics" in odd
    assert any("/network/" in leaf for leaf in odd)


def test_a_finished_run_is_left_as_it_is(forge: Forge, tmp_path: Path) -> None:
    run = forge.train("town:dqn", (*DQN, "budget={env_steps: 400}", REPORT), tmp_path)
    state, metrics, said = kept(run), digest(run), Run(run).meta()["summary"]
    (run / "report.html").unlink()
    for words in ((), ("budget.env_steps=200",)):
        assert "all steps of the budget are spent" in forge.go_on(run, words).words()
        assert odd_leaves(state, kept(run)) == []
        assert digest(run) == metrics
    assert Run(run).meta()["finished"]
    assert Run(run).meta()["summary"] == said
    assert (run / "report.html").exists()


def test_a_larger_budget_is_remembered_when_the_run_is_resumed_once_more(forge: Forge, tmp_path: Path) -> None:
    run = forge.train("town:dqn", DQN, tmp_path, pause_at=400)
    assert forge.go_on(run, ("budget.env_steps=2000",), pause_at=1000)
    assert "paused" in forge.go_on(run, pause_at=1800).words()  # the budget of the recipe was 1600
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    assert last.env_steps == 1800


def test_a_run_goes_on_only_with_its_own_world_rows_and_agent(forge: Forge, tmp_path: Path) -> None:
    run = forge.train("town:dqn", DQN, tmp_path, pause_at=200)
    for change in ("rows=8", "change.max_steps=41", "agent=ppo"):
        child = forge.resume(run, (change,))
        assert child.wait() == 2
        assert f"a run that goes on cannot be changed in {change}" in child.words()
    assert "resumed_with" not in json.loads((run / "meta.json").read_text())  # what is refused leaves no trace
    forge.go_on(run, pause_at=300)


def test_a_run_goes_on_to_the_bit_in_its_own_copy_of_a_world_that_was_edited(forge: Forge, tmp_path: Path) -> None:
    world = tmp_path / "my-town.yaml"
    world.write_text("extends: town\nmax_steps: 40\n", encoding="utf-8")
    words = tuple(word for word in DQN if not word.startswith("change"))
    whole = forge.train(f"{world}:dqn", words, tmp_path / "whole", pause_at=620)
    parts = forge.train(f"{world}:dqn", words, tmp_path / "parts", pause_at=300)
    world.write_text("extends: town\nmax_steps: 12\n", encoding="utf-8")
    forge.go_on(parts, pause_at=620)
    assert differences(whole, parts) == []
