"""A NaN or infinity stops the run at that update: the tensor is named, and the last checkpoint is intact."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from crash.training_process import DQN, TINY, ForkServer, checkpoint_leaves, only_run
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader

PPO = (*TINY, "agent.n_steps=16", "agent.batch_size=.5")
# Dying costs 100 times this, which exceeds float32, and many rows die soon. Other rewards stay finite, their sum does
# not.
DEADLY = (
    "curriculum={name: fixed, stages: [{active: [energy, satiation], reward: {milestone: 3e38}}]}",
    "starts={fraction: 1, meters: [.01, .1]}",
)
# Recipes that a typing error may produce: recipe, overrides, part of the message.
CASES = {
    "reward": ("town:dqn", (*DQN, *DEADLY), "reward of row "),
    "reward of ppo": ("town:ppo", (*PPO, *DEADLY), "reward of row "),
    "loss": ("town:dqn", (*DQN, "agent.lr=1e25"), "loss is nan"),
    "loss of ppo": ("town:ppo", (*PPO, "agent.lr=1e39"), "policy_loss is nan"),
    "gradient": ("town:dqn", (*DQN, "agent.reward_scale=1e18", "agent.loss=mse"), "grad_norm is inf"),
    "weights": ("town:dqn", (*DQN, "agent.lr=1e39"), "weight body."),
}


@pytest.mark.parametrize("tensor", CASES)
def test_divergence_stops_the_run_names_the_tensor_and_keeps_the_last_checkpoint(
    tensor: str, server: ForkServer, tmp_path: Path
) -> None:
    recipe, words, named = CASES[tensor]
    process = server.start(recipe, words, tmp_path)
    assert process.wait() == 3, process.output()
    assert f"training diverged: {named}" in process.output()
    assert "the last checkpoint is from before this" in process.output()
    run = only_run(tmp_path)
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    checkpoint.verify(last.path)
    assert all(
        v.isfinite().all()
        for v in checkpoint_leaves(run).values()
        if isinstance(v, torch.Tensor) and v.is_floating_point()
    )
    assert named in Run(run).meta()["diverged"]
    assert named in Run(run).log_file.read_text()
    with MetricsReader(run / "metrics.db") as metrics:
        assert named in metrics.read("alerts", ["message"])["message"][-1]


def test_diverged_run_resumes_with_better_settings(server: ForkServer, tmp_path: Path) -> None:
    words = (*DQN, "agent.lr={start: 1e-3, end: 1e39, from: 300, to: 301}", "checkpoints.every_episodes=1")
    process = server.start("town:dqn", words, tmp_path)
    assert process.wait() == 3, process.output()
    run = only_run(tmp_path)
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    server.resume_to_end(run, ("agent.lr=1e-3",), pause_at=last.env_steps + 200)
    with MetricsReader(run / "metrics.db") as metrics:
        assert metrics.read("alerts", ["message"])["message"] == []  # the alert was removed by the rewind
    assert Run(run).meta()["diverged"] is None
