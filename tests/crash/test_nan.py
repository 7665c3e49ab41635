"""What is not a number stops the run at that update: the tensor is named, the last good checkpoint is intact."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from crash.smith import DQN, TINY, Forge, kept, only_run
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader

PPO = (*TINY, "agent.n_steps=16", "agent.batch_size=.5")
# Dying costs −100 of this, which no float32 holds; many die soon. All other pay stays finite, its sum over rows not.
DEADLY = (
    "curriculum={name: fixed, stages: [{active: [energy, satiation], reward: {milestone: 3e38}}]}",
    "starts={share: 1, meters: [.01, .1]}",
)
# Recipes that nobody would write, but that a wrong keystroke may: what, how, what is named.
WAYS = {
    "reward": ("town:dqn", (*DQN, *DEADLY), "reward of row "),
    "reward of ppo": ("town:ppo", (*PPO, *DEADLY), "reward of row "),
    "loss": ("town:dqn", (*DQN, "agent.lr=1e25"), "loss is nan"),
    "loss of ppo": ("town:ppo", (*PPO, "agent.lr=1e39"), "policy_loss is nan"),
    "gradient": ("town:dqn", (*DQN, "agent.reward_scale=1e18", "agent.loss=mse"), "grad_norm is inf"),
    "weights": ("town:dqn", (*DQN, "agent.lr=1e39"), "weight body."),
}


@pytest.mark.parametrize("tensor", WAYS)
def test_it_stops_names_the_tensor_and_keeps_the_last_checkpoint(tensor: str, forge: Forge, tmp_path: Path) -> None:
    recipe, words, named = WAYS[tensor]
    child = forge.begin(recipe, words, tmp_path)
    assert child.wait() == 3, child.words()
    assert f"training diverged: {named}" in child.words()
    assert "the last checkpoint is from before this" in child.words()
    run = only_run(tmp_path)
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    checkpoint.verify(last.path)
    assert all(v.isfinite().all() for v in kept(run).values() if isinstance(v, torch.Tensor) and v.is_floating_point())
    assert named in Run(run).meta()["diverged"]
    assert named in Run(run).log_file.read_text()
    with MetricsReader(run / "metrics.db") as metrics:
        assert named in metrics.read("alerts", ["message"])["message"][-1]


def test_a_run_that_diverged_goes_on_with_better_settings(forge: Forge, tmp_path: Path) -> None:
    words = (*DQN, "agent.lr={start: 1e-3, end: 1e39, from: 600, to: 601}", "checkpoints.every_episodes=1")
    child = forge.begin("town:dqn", words, tmp_path)
    assert child.wait() == 3, child.words()
    run = only_run(tmp_path)
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    forge.go_on(run, ("agent.lr=1e-3",), pause_at=last.env_steps + 400)
    with MetricsReader(run / "metrics.db") as metrics:
        assert metrics.read("alerts", ["message"])["message"] == []  # it never happened
    assert Run(run).meta()["diverged"] is None
