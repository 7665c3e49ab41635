"""Speed of PPO on Atari images, compared with Stable-Baselines3: `python benchmarks/atari_vs_sb3.py`.

Both use the same game, rows, network, settings and threads, and alternate in one process. Townlet uses the game's
native vectorization, as in the recipe; Stable-Baselines3 uses `make_atari_env` and `VecFrameStack`, as is usual there.
A turn is a whole number of rollouts with their updates. Rates count steps of all rows, of four frames each.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from sim import machine, short
from townlet.bench.simulation import Benchmark, BenchmarkResult, available_cores
from townlet.bench.training import SB3, TOWNLET
from townlet.config.merge import format_overrides
from townlet.tasks.experiment import load_experiment
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.training import build_training

LR, GAMMA, GAE, CLIP, ENTROPY, VALUE, NORM = 2.5e-4, 0.99, 0.95, 0.1, 0.01, 0.5, 0.5
STACK: Final = 4


def our_subject(o: argparse.Namespace) -> Benchmark:
    """Townlet's agent, built from a recipe as for training."""
    keys = {
        "rows": o.rows, "threads": o.threads, "seed": 0, "agent.n_steps": o.n_steps, "agent.batch_size": o.batch,
        "agent.epochs": o.epochs, "agent.lr": LR, "agent.gamma": GAMMA, "agent.gae_lambda": GAE, "agent.clip": CLIP,
        "agent.entropy_coef": ENTROPY, "agent.value_coef": VALUE, "agent.max_grad_norm": NORM, "agent.shared": True,
        "network.name": "nature", "gym.frame_stack": STACK,
    }  # fmt: skip
    training, steps = build_training(load_experiment(f"{o.game}:rgb", format_overrides(keys))), int(o.n_steps)

    def run_pass() -> int:
        collect(training, steps, NullListener())
        training.agent.learn()
        return steps

    return Benchmark(run_pass, subject="ppo", world=o.game, engine=TOWNLET, rows=o.rows, threads=o.threads)


def their_subject(o: argparse.Namespace) -> Benchmark:
    """The agent of Stable-Baselines3, with its training loop and wrappers."""
    import ale_py  # noqa: F401  registers the games
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    rows = VecFrameStack(make_atari_env(o.game, n_envs=o.rows, seed=0, env_kwargs={"frameskip": 1}), n_stack=STACK)
    model = PPO(
        "CnnPolicy", rows, n_steps=o.n_steps, n_epochs=o.epochs, batch_size=o.batch, learning_rate=LR, gamma=GAMMA,
        gae_lambda=GAE, clip_range=CLIP, ent_coef=ENTROPY, vf_coef=VALUE, max_grad_norm=NORM, seed=0, device="cpu",
    )  # fmt: skip

    steps = int(o.n_steps)

    def run_pass() -> int:
        model.learn(steps * o.rows, reset_num_timesteps=False)
        return steps

    return Benchmark(run_pass, subject="ppo", world=o.game, engine=SB3, rows=o.rows, threads=o.threads)


def measure(o: argparse.Namespace) -> tuple[list[BenchmarkResult], dict[str, list[float]]]:
    """Rates of both, measured in alternating order, and the ratio of each turn in CPU time and in wall time.

    The speed of the machine varies from one second to the next, so only adjacent turns are compared. CPU time is
    robust against other load on the machine; wall time also shows the gain of rows that run in threads.
    """
    torch.set_num_threads(o.threads)
    ours, theirs = our_subject(o), their_subject(o)
    ratios: dict[str, list[float]] = {"CPU": [], "wall": []}
    for turn in range(o.turns):
        order = (ours, theirs) if turn % 2 else (theirs, ours)
        done = {subject: subject.run(o.seconds / o.turns) for subject in order}
        for index, clock in enumerate(("wall", "CPU")):
            ratios[clock].append(done[ours][index] / done[theirs][index])
    return [ours.result(), theirs.result()], ratios


def as_markdown(report: dict[str, Any]) -> str:
    """The report as text to paste into RESULTS.md."""
    about = ", ".join(f"{k} {v}" for k, v in report["machine"].items())
    lines = [f"Machine: {about}.", "", "| game | library | rows | threads | wall best | wall median | CPU median |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for r in report["results"]:
        rates = " | ".join(short(r[k]) for k in ("best_per_wall_s", "median_per_wall_s", "median_per_cpu_s"))
        lines.append(f"| {r['world']} | {r['engine']} | {r['rows']} | {r['threads']} | {rates} |")
    lines.append(f"\nSteps/s, Townlet over Stable-Baselines3, median of {report['turns']} turns (quartiles):")
    for clock, (low, middle, high) in report["ratios"].items():
        lines.append(f"{clock} {middle:.2f} ({low:.2f} … {high:.2f})")
    return "\n".join(lines)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--game", default="ALE/Pong-v5")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--n-steps", type=int, default=128)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=available_cores(), help="torch threads; all cores by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="per library, over all turns")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    return parser.parse_args(arguments)


def main() -> None:
    o = parse()
    results, ratios = measure(o)
    report: dict[str, Any] = {"machine": machine(), "turns": o.turns}
    report["ratios"] = {clock: statistics.quantiles(values, n=4) for clock, values in ratios.items()}
    report["results"] = [result.as_json() for result in results]
    if o.json:
        o.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(as_markdown(report))


if __name__ == "__main__":
    main()
