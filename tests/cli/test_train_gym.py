"""`townlet train` with Gymnasium environments: user code runs only if allowed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import warm
from cli.program import Program
from townlet.runs.folder import Run

WRAPPER = """\
import gymnasium
from townlet.gym import wrapper

print("the file ran")

@wrapper("half")
class Half(gymnasium.RewardWrapper):
    def __init__(self, env, share=0.5):
        super().__init__(env)
        self._share = share

    def reward(self, reward):
        return reward * self._share
"""
RECIPE = """\
env: CartPole-v1
gym: {wrappers: [{name: custom, wrapper: half, file: mine.py, settings: {share: 0.25}}]}
variants:
  ppo:
    extends: CartPole-v1:ppo
    evaluation: {episodes: 2}
    metrics: {tensorboard: false}
"""


def elsewhere(*words: str) -> subprocess.CompletedProcess[str]:
    """Run in a separate process: permissions hold for one process."""
    return warm.run([sys.executable, "-m", "townlet", *words], capture_output=True, text=True, check=False)


def test_custom_wrapper_needs_allow_code(townlet: Program, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WRAPPER)
    (tmp_path / "my.yaml").write_text(RECIPE)
    root = ["--root", str(tmp_path / "runs")]
    words = ["train", str(tmp_path / "my.yaml:ppo"), "env_steps=512", "threads=1", *root]
    refused = townlet(*words)
    assert refused.code == 2
    assert "runs the Python file" in refused.err
    assert "--allow-code" in refused.err
    assert "the file ran" not in refused.out
    assert not (tmp_path / "runs").exists()
    done = elsewhere(*words, "--allow-code")
    assert done.returncode == 0
    assert "the file ran" in done.stdout
    refused = townlet("eval", Run.open("latest", tmp_path / "runs").name, *root)
    assert refused.code == 2
    assert "the file ran" not in refused.out
