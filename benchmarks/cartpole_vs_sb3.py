"""CartPole compared with Stable-Baselines3 at equal settings: `python benchmarks/cartpole_vs_sb3.py`.

Measures the speed of rollouts and updates, interleaved, and then for several seeds the number of steps until the mean
return of 100 greedy episodes first reaches 475. Both use the same rows, network, batch size, epochs, schedules and
threads; Stable-Baselines3 steps its environments one by one, as is usual there.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from sim import machine, short
from townlet.agents.agent import no_interrupt
from townlet.bench.simulation import Benchmark, BenchmarkResult, run_interleaved
from townlet.bench.training import AGENTS, SB3, TOWNLET, default_kernels
from townlet.config.merge import format_overrides
from townlet.tasks.experiment import load_experiment
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.training import build_training

ENV: Final = "CartPole-v1"
SOLVED, EPISODES = 475.0, 100
ROWS: Final = 8
BUDGET: Final = 100_000
EVERY: Final = 2048  # steps between two evaluations
LR, GAMMA = 1e-3, 0.98
STEPS, EPOCHS, GAE, CLIP, PPO_HIDDEN, PPO_NORM = 32, 20, 0.8, 0.2, (64, 64), 0.5
# DQN: WAIT vector steps, then UPDATES gradient steps, with one copy to the target network.
DQN_LR, DQN_GAMMA, DQN_HIDDEN = 2.3e-3, 0.99, (256, 256)
WAIT, UPDATES, BATCH, REPLAY, WARMUP = 32, 128, 64, 100_000, 1000
EPSILON: Final = {"start": 1.0, "end": 0.04, "to": 8000}
DQN_NORM: Final = 10.0


def overrides(agent: str, seed: int, threads: int) -> list[str]:
    """Every setting that affects the amount of work or the result."""
    common = {
        "rows": ROWS, "threads": threads, "seed": seed, "env_steps": BUDGET, "agent.reward_scale": 1.0,
        "evaluation.episodes": EPISODES,
    }  # fmt: skip
    ppo = {
        "network": {"hidden": PPO_HIDDEN, "activation": "tanh"}, "agent.lr": f"lin_{LR}", "agent.gamma": GAMMA,
        "agent.n_steps": STEPS, "agent.epochs": EPOCHS, "agent.batch_size": STEPS * ROWS, "agent.gae_lambda": GAE,
        "agent.clip": f"lin_{CLIP}", "agent.entropy_coef": 0.0, "agent.value_coef": 0.5,
        "agent.max_grad_norm": PPO_NORM, "agent.shared": False, "agent.normalize_advantage": "batch",
    }  # fmt: skip
    dqn = {
        "network": {"hidden": DQN_HIDDEN, "activation": "relu"}, "agent.lr": DQN_LR, "agent.gamma": DQN_GAMMA,
        "agent.batch_size": BATCH, "agent.replay": REPLAY, "agent.warmup": WARMUP, "agent.target_every": UPDATES,
        "agent.update_every": WAIT, "agent.gradient_steps": UPDATES, "agent.n_step": 1, "agent.loss": "huber",
        "agent.double": False, "agent.dueling": False, "agent.prioritized": None, "agent.max_grad_norm": DQN_NORM,
        "explore.action_selection.schedule": EPSILON,
    }  # fmt: skip
    return format_overrides(common | (ppo if agent == "ppo" else dqn))


def their_model(agent: str, seed: int) -> Any:
    """The agent of Stable-Baselines3 with the same settings."""
    from stable_baselines3 import DQN, PPO
    from stable_baselines3.common.env_util import make_vec_env
    from torch import nn

    def linear(start: float) -> Callable[[float], float]:
        return lambda remaining: start * remaining

    carts = make_vec_env(ENV, n_envs=ROWS, seed=seed)
    common: dict[str, Any] = {"seed": seed, "device": "cpu", "verbose": 0}
    if agent == "ppo":
        return PPO(
            "MlpPolicy", carts, n_steps=STEPS, n_epochs=EPOCHS, batch_size=STEPS * ROWS, gae_lambda=GAE, gamma=GAMMA,
            learning_rate=linear(LR), clip_range=linear(CLIP), ent_coef=0.0, vf_coef=0.5, max_grad_norm=PPO_NORM,
            policy_kwargs={"net_arch": list(PPO_HIDDEN), "activation_fn": nn.Tanh}, **common,
        )  # fmt: skip
    return DQN(
        "MlpPolicy", carts, learning_rate=DQN_LR, gamma=DQN_GAMMA, batch_size=BATCH, buffer_size=REPLAY,
        learning_starts=WARMUP, train_freq=WAIT, gradient_steps=UPDATES, target_update_interval=WAIT * ROWS,
        exploration_initial_eps=EPSILON["start"], exploration_final_eps=EPSILON["end"],
        exploration_fraction=EPSILON["to"] / BUDGET, max_grad_norm=DQN_NORM,
        policy_kwargs={"net_arch": list(DQN_HIDDEN), "activation_fn": nn.ReLU}, **common,
    )  # fmt: skip


def our_subject(agent: str, threads: int) -> Benchmark:
    """One pass is a rollout and its update."""
    training = build_training(load_experiment(f"{ENV}:{agent}", overrides(agent, 0, threads)))

    def run_pass() -> int:
        collect(training, training.agent.update_interval, NullListener())
        training.agent.learn()
        return training.agent.update_interval

    benchmark = Benchmark(run_pass, subject=agent, world=ENV, engine=TOWNLET, rows=ROWS, threads=threads)
    return _past_warmup(benchmark, run_pass)


def their_subject(agent: str, threads: int) -> Benchmark:
    """One pass is a rollout and its update, in the training loop of Stable-Baselines3."""
    model = their_model(agent, 0)

    def run_pass() -> int:
        with default_kernels():
            model.learn(STEPS * ROWS, reset_num_timesteps=False)
        return STEPS

    benchmark = Benchmark(run_pass, subject=agent, world=ENV, engine=SB3, rows=ROWS, threads=threads)
    return _past_warmup(benchmark, run_pass)


def _past_warmup(subject: Benchmark, run_pass: Callable[[], int]) -> Benchmark:
    """Run until updates begin: the warm-up is not measured."""
    for _ in range(WARMUP // (STEPS * ROWS) + 1):
        run_pass()
    return subject


def our_steps(agent: str, seed: int, threads: int) -> int | None:
    """Steps until the mean return of an evaluation reaches SOLVED; None if it never does."""
    loaded = load_experiment(f"{ENV}:{agent}", overrides(agent, seed, threads))
    training = build_training(loaded)

    def scores() -> Iterator[tuple[int, float]]:
        while training.counters.env_steps < BUDGET:
            due = training.counters.env_steps // EVERY
            while training.counters.env_steps // EVERY == due:
                collect(training, training.agent.update_interval, NullListener())
                training.agent.learn()
            evaluation = loaded.task.evaluate(training.agent.policy(), loaded.recipe, no_interrupt)
            yield training.counters.env_steps, evaluation.score("return")

    return _first(scores())


def their_steps(agent: str, seed: int, threads: int) -> int | None:
    """Like `our_steps`, for Stable-Baselines3 with its own evaluation."""
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    class Measure(BaseCallback):
        solved: int | None = None
        due = EVERY

        def _on_step(self) -> bool:
            if self.num_timesteps >= self.due:
                self.due += EVERY
                mean_return, _ = evaluate_policy(self.model, eval_env, EPISODES, deterministic=True, warn=False)
                if float(np.mean(mean_return)) >= SOLVED:
                    self.solved = self.num_timesteps
            return self.solved is None

    eval_env, callback = make_vec_env(ENV, n_envs=16, seed=10_000), Measure()
    their_model(agent, seed).learn(BUDGET, callback=callback)
    return callback.solved


def _first(scores: Iterator[tuple[int, float]]) -> int | None:
    return next((steps for steps, score in scores if score >= SOLVED), None)


def speeds(agents: Sequence[str], threads: int, seconds: float, rounds: int) -> dict[str, dict[str, BenchmarkResult]]:
    """Steps per second of both libraries, interleaved."""
    results = {}
    for agent in agents:
        subjects = [our_subject(agent, threads), their_subject(agent, threads)]
        results[agent] = dict(zip((TOWNLET, SB3), run_interleaved(subjects, seconds, rounds), strict=True))
    return results


def as_markdown(report: dict[str, Any]) -> str:
    """The report as a Markdown table."""
    about = ", ".join(f"{k} {v}" for k, v in report["machine"].items())
    lines = [
        f"Machine: {about}.",
        "",
        "| agent | library | steps/s, median | best | steps until 475 (each seed) | median |",
    ]
    lines.append("|---|---|---:|---:|---|---:|")
    for agent, by_side in report["speed"].items():
        for side, result in by_side.items():
            reached = report["steps"].get(agent, {}).get(side, [])
            steps = ", ".join("never" if n is None else f"{n:,}" for n in reached)
            middle = f"{statistics.median(BUDGET if n is None else n for n in reached):,.0f}" if reached else ""
            rates = [short(result[key]) for key in ("median_per_wall_s", "best_per_wall_s")]
            lines.append(f"| {agent} | {side} | {' | '.join(rates)} | {steps} | {middle} |")
    return "\n".join(
        [*lines, *(f"\n{agent}: {ratio:.2f} times as many steps/s." for agent, ratio in report["ratios"].items())]
    )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--agents", nargs="+", default=AGENTS, choices=AGENTS)
    parser.add_argument(
        "--threads", type=int, default=1, help="torch threads of both libraries; more do not help such small networks"
    )
    parser.add_argument("--seconds", type=float, default=40.0, help="per agent and library, over all rounds")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds trained until 475; 0 measures speed only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    return parser.parse_args(arguments)


def main() -> None:
    o = parse()
    torch.set_num_threads(o.threads)
    speed = speeds(o.agents, o.threads, o.seconds, o.rounds)
    steps = {
        agent: {
            side: [reach(agent, seed, o.threads) for seed in range(o.seeds)]
            for side, reach in ((TOWNLET, our_steps), (SB3, their_steps))
        }
        for agent in o.agents
    }
    speed_json, ratios = {}, {}
    for agent, by_side in speed.items():
        speed_json[agent] = {side: result.as_json() for side, result in by_side.items()}
        ratios[agent] = by_side[TOWNLET].median_per_wall_s / by_side[SB3].median_per_wall_s
    report = {"machine": machine(), "speed": speed_json, "ratios": ratios, "steps": steps}
    if o.json:
        o.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(as_markdown(report))


if __name__ == "__main__":
    main()
