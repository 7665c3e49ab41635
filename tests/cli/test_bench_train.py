"""`townlet bench train`: both libraries do the same work, and the results are consistent."""

from __future__ import annotations

import json

import pytest
import torch

from cli.program import Program
from townlet.agents.sb3_comparison import MINIBATCHES, PPO_STEPS, TARGET_EVERY
from townlet.bench.iterations import measure_iterations
from townlet.bench.training import comparison_overrides, sb3_model
from townlet.tasks.experiment import load_experiment
from townlet.town.world.load import load as load_world
from townlet.train.training import build_training

QUICK = ["--rows", "4", "--threads", "1", "--seconds", ".05"]


def test_json_has_both_sides_and_their_ratio(townlet: Program) -> None:
    done = townlet("bench", "train", *QUICK, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [(r["subject"], r["engine"], r["rows"]) for r in found["results"]] == [
        (agent, library, 4) for agent in ("ppo", "dqn") for library in ("townlet", "stable-baselines3")
    ]
    ours, theirs = (r["median_per_wall_s"] for r in found["results"][:2])
    assert found["ratios"]["ppo"] == pytest.approx(ours / theirs, abs=1e-3)


def test_both_sides_do_the_same_work() -> None:
    for agent in ("ppo", "dqn"):
        loaded = load_experiment(f"town:{agent}", comparison_overrides("town-l0", agent, 4, 1))
        assert loaded.worlds.training.content_hash == load_world("town-l0").content_hash
        ours, theirs = build_training(loaded).agent, sb3_model("town-l0", agent, 4)
        network = theirs.policy if agent == "ppo" else theirs.q_net
        assert sum(w.numel() for w in ours.parameters().values()) == sum(w.numel() for w in network.parameters())
        assert theirs.n_envs == loaded.recipe.row_count
        if agent == "ppo":
            assert ours.update_interval == theirs.n_steps == PPO_STEPS
            assert theirs.batch_size * MINIBATCHES == PPO_STEPS * 4
        else:
            assert ours.update_interval == theirs.train_freq.frequency == theirs.gradient_steps == 1
            assert theirs.target_update_interval // theirs.n_envs == TARGET_EVERY


def test_missing_sb3_skips_the_comparison(townlet: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.bench.training.find_spec", lambda name: None)
    done = townlet("bench", "train", "--agent", "ppo", *QUICK)
    assert done.code == 0
    assert "Not compared: stable-baselines3 is not installed" in done.out
    assert "× the steps" not in done.out


def test_world_without_gymnasium_id_is_rejected(townlet: Program) -> None:
    done = townlet("bench", "train", "town-l9")
    assert done.code == 2
    assert "town-l" in done.err


def test_training_iterations_are_measured_by_phase() -> None:
    found = measure_iterations(8, 2, "cpu", iterations=2, overrides=["agent.precision=float32", "agent.n_steps=4"])
    assert (found.rows, found.steps, found.epochs) == (8, 4, 2)
    assert found.first_s > 0
    results = found.as_json()
    assert results["steps_per_second"] == pytest.approx(32 / (found.rollout_s + found.update_s), abs=1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_one_message(townlet: Program) -> None:
    done = townlet("bench", "train", "--device", "cuda")
    assert done.code == 2
    assert done.err.startswith("torch has no device 'cuda' here")
    only = townlet("bench", "train", "--device", "cuda", "--agent", "dqn")
    assert only.code == 2
    assert "only ppo is measured" in only.err
