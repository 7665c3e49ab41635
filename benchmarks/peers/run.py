"""Other libraries on the town's Gymnasium ids, each for a minute, as a table.

Ray pins an older Gymnasium than Townlet requires, so the libraries need an environment of their own, in which Townlet
is not installed but found by its path:

    python -m venv peers && peers/bin/pip install -r benchmarks/peers/requirements.txt
    PYTHONPATH=src peers/bin/python benchmarks/peers/run.py

Prints a row per library: its version and that of Gymnasium, the rows of the environment, steps, seconds with imports,
and what was checked.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import time
import traceback
from collections.abc import Callable

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # HumanRendering without a screen
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
import gymnasium
import libraries
import torch
from outcome import Outcome
from wrappers import vector_wrappers

import townlet

LIBRARIES: dict[str, tuple[str, Callable[[float], Outcome]]] = {
    "Gymnasium, vector wrappers": ("gymnasium", vector_wrappers),
    "sb3-contrib, MaskablePPO": ("sb3-contrib", libraries.maskable_ppo),
    "sb3-contrib, RecurrentPPO": ("sb3-contrib", libraries.recurrent_ppo),
    "TorchRL, masked": ("torchrl", libraries.torchrl),
    "TorchRL, GymEnv": ("torchrl", libraries.torchrl_processes),
    "Tianshou, DQN": ("tianshou", libraries.tianshou),
    "Minari, record_infos": ("minari", libraries.minari),
    "RLlib, PPO": ("ray", libraries.rllib),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Run other libraries on the town's Gymnasium ids.")
    parser.add_argument("--seconds", type=float, default=60.0, help="per library, without its imports")
    parser.add_argument("--only", default="", help="libraries whose name contains this")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"townlet {townlet.__version__}\n")
    print("| library | version | Gymnasium | rows | steps | seconds | result |\n|---|---|---|---:|---:|---:|---|")
    failures = []
    for name, (package, run) in LIBRARIES.items():
        if given.only not in name:
            continue
        started = time.perf_counter()
        try:
            version, outcome = importlib.metadata.version(package), run(given.seconds)
        except Exception as error:
            failures.append(f"{name}\n{traceback.format_exc()}")
            print(f"| {name} | | | | | | {type(error).__name__}: {str(error)[:80]} |", flush=True)
            continue
        cells = (name, version, gymnasium.__version__, outcome.rows, f"{outcome.steps:,}")
        seconds = time.perf_counter() - started
        print(f"| {' | '.join(map(str, cells))} | {seconds:.1f} | {outcome.checked} |", flush=True)
    if failures:
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()
