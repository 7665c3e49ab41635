"""Console games: the adapter with a stand-in for stable-retro, and with the real one where it is installed."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

import warm

STAND_IN = Path(__file__).parent / "standin"


def run(script: str, folder: Path, *, real: bool = False) -> str:
    """Run in a separate process, which can hold only one emulator."""
    paths = [*([] if real else [str(STAND_IN)]), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", script]
    done = warm.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    output: str = done.stdout
    return output


def test_retro_games_work_as_rows(tmp_path: Path) -> None:
    said = run(
        """
import torch
from townlet.gym.make import make_vec
from townlet.gym.settings import GymSettings
from townlet.errors import TownletError

if __name__ == "__main__":
    env = make_vec("retro/Runner-Toy-v0", GymSettings(kwargs={"actions": "discrete"}), 2)
    assert env.actions.names == ("b", "left", "right"), env.actions
    assert env.layout.blocks[0].kind == "picture"
    env.reset(0)
    steps = [env.step(torch.tensor([2, 0])) for _ in range(8)]
    assert [int(step.reward[0]) for step in steps] == [1] * 8
    assert bool(steps[-1].terminated[0]) and not bool(steps[-1].terminated[1])
    env.close()
    switches = make_vec("retro/Runner-Toy-v0", GymSettings(), 1)
    assert type(switches.actions).__name__ == "Binary", switches.actions
    switches.close()
    memory = make_vec("retro/Runner-Toy-v0", GymSettings(kwargs={"obs_type": "ram"}), 1)
    assert memory.layout.size == 16, memory.layout
    memory.close()
    for id, keys in (("Runner-Toy-v0", {"vectorization": "sync"}), ("Secret-Toy-v0", {}), ("Runer-Toy-v0", {})):
        try:
            make_vec(f"retro/{id}", GymSettings(**keys), 2)
        except TownletError as error:
            print(error)
""",
        tmp_path,
    )
    assert "write vectorization: auto or async" in said
    assert "the ROM of Secret-Toy-v0 is missing" in said
    assert "did you mean 'retro/Runner-Toy-v0'" in said


TRAINED = """
import townlet
if __name__ == "__main__":
    run = townlet.train(RECIPE, overrides=[
        "rows=2", "threads=1", "agent.n_steps=32", "agent.batch_size=32", "agent.epochs=1", "budget.env_steps=128",
        "evaluation.episodes=2", "gym.max_episode_steps=12", "network=nature", "gym.resize=[36, 36]",
        "metrics.report=false", "metrics.tensorboard=false",
    ])
    print(run.meta()["ended"])
"""


def test_an_agent_trains_in_a_game(tmp_path: Path) -> None:
    assert "spent" in run(TRAINED.replace("RECIPE", '"retro/Runner-Toy-v0:ppo"'), tmp_path)


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("stable_retro") is None, reason="townlet[retro] is not installed")
def test_the_shipped_game_trains_with_the_real_emulator(tmp_path: Path) -> None:
    assert "spent" in run(TRAINED.replace("RECIPE", '"Airstriker-Genesis-v0:ppo"'), tmp_path, real=True)
