"""Training benchmark: rollouts and updates only, compared with Stable-Baselines3 at equal settings.

Both libraries use the same town, rows, network, batch size, updates and threads. Stable-Baselines3 steps the town
through Gymnasium, as its users do; Townlet steps all rows as one batch. Rates count the steps of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import torch

from townlet import IDS
from townlet.agents.sb3_comparison import GAMMA, HIDDEN, LR, SB3_COMPARISONS
from townlet.bench.simulation import Benchmark, BenchmarkResult, available_cores, run_interleaved
from townlet.config.merge import format_overrides
from townlet.errors import TownletError, did_you_mean
from townlet.tasks.experiment import load_experiment
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.training import build_training

AGENTS: Final = tuple(SB3_COMPARISONS)
TOWNLET, SB3 = "townlet", "stable-baselines3"


@dataclass(frozen=True)
class LibraryComparison:
    """Results of Townlet and Stable-Baselines3 for each agent, and why some are missing."""

    results: dict[str, dict[str, BenchmarkResult]]  # agent → library → result
    skipped: tuple[str, ...]

    @property
    def ratios(self) -> dict[str, float]:
        """Townlet's median rate divided by that of Stable-Baselines3, for each agent measured in both."""
        return {
            agent: by_library[TOWNLET].median_per_wall_s / by_library[SB3].median_per_wall_s
            for agent, by_library in self.results.items()
            if SB3 in by_library
        }

    def as_json(self) -> dict[str, Any]:
        """The settings that both libraries share, results, ratios, and what was skipped."""
        shared = {"hidden": HIDDEN, "lr": LR, "gamma": GAMMA}
        settings = {name: shared | dict(comparison.reported) for name, comparison in SB3_COMPARISONS.items()}
        results = [result.as_json() for by_library in self.results.values() for result in by_library.values()]
        ratios = {agent: round(ratio, 3) for agent, ratio in self.ratios.items()}
        return {"settings": settings, "results": results, "ratios": ratios, "skipped": list(self.skipped)}


def compare(
    world: str, agents: Sequence[str], rows: int, threads: int | None, seconds: float, rounds: int,
    *, with_sb3: bool = True,
) -> LibraryComparison:  # fmt: skip
    """Measure agents in Townlet and Stable-Baselines3 alternately: `seconds` in each, split into `rounds` rounds."""
    if world not in IDS.values():
        raise TownletError(f"there is no Gymnasium id for the world '{world}'", did_you_mean(world, list(IDS.values())))
    threads = threads or available_cores()
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    sb3_installed = find_spec("stable_baselines3") is not None
    results = {}
    try:
        for agent in agents:
            benchmarks = {TOWNLET: townlet_benchmark(world, agent, rows, threads)}
            if with_sb3 and sb3_installed:
                benchmarks[SB3] = sb3_benchmark(world, agent, rows, threads)
            measured = run_interleaved(list(benchmarks.values()), seconds, rounds)
            results[agent] = dict(zip(benchmarks, measured, strict=True))
    finally:
        torch.set_num_threads(threads_before)
    skipped: tuple[str, ...] = ()
    if with_sb3 and not sb3_installed:
        skipped = ("stable-baselines3 is not installed: pip install stable-baselines3",)
    return LibraryComparison(results, skipped)


def townlet_benchmark(world: str, agent: str, rows: int, threads: int) -> Benchmark:
    """Benchmark of Townlet's agent, built from a recipe as for training."""
    training = build_training(load_experiment(f"town:{agent}", comparison_overrides(world, agent, rows, threads)))
    updates = SB3_COMPARISONS[agent].updates

    def run_pass() -> int:
        for _ in range(updates):
            collect(training, training.agent.update_interval, NullListener())
            training.agent.learn()
        return updates * training.agent.update_interval

    return Benchmark(run_pass, subject=agent, world=world, engine=TOWNLET, rows=rows, threads=threads)


def comparison_overrides(world: str, agent: str, rows: int, threads: int) -> list[str]:
    """Overrides of every setting that determines the work, so that changes to recipes do not affect the benchmark."""
    shared = {
        "world": world, "potential": 0, "starts": None, "rows": rows, "threads": threads, "seed": 0,
        "network.hidden": HIDDEN, "agent.lr": LR, "agent.gamma": GAMMA, "agent.reward_scale": 1.0,
    }  # fmt: skip
    return format_overrides(shared | dict(SB3_COMPARISONS[agent].overrides))


def sb3_benchmark(world: str, agent: str, rows: int, threads: int) -> Benchmark:
    """Benchmark of the agent of Stable-Baselines3 with its own training loop, in one process."""
    model = sb3_model(world, agent, rows)
    steps = SB3_COMPARISONS[agent].steps

    def run_pass() -> int:
        with default_kernels():
            model.learn(steps * rows, reset_num_timesteps=False)
        return steps

    return Benchmark(run_pass, subject=agent, world=world, engine=SB3, rows=rows, threads=threads)


@contextmanager
def default_kernels() -> Iterator[None]:
    """Run with torch's default kernels, as users of Stable-Baselines3 do, not with those that Townlet selects."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = True  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def sb3_model(world: str, agent: str, rows: int) -> Any:
    """The agent of Stable-Baselines3, with the Gymnasium environment of the same world."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from torch import nn

    env_id = next(env_id for env_id, name in IDS.items() if name == world)
    env = make_vec_env(env_id, n_envs=rows, seed=0)
    common: dict[str, Any] = {"learning_rate": LR, "gamma": GAMMA, "seed": 0, "device": "cpu", "verbose": 0}
    comparison = SB3_COMPARISONS[agent]
    network = {"net_arch": list(HIDDEN), "activation_fn": {"tanh": nn.Tanh, "relu": nn.ReLU}[comparison.activation]}
    scaled = {key: int(value * rows) for key, value in comparison.sb3_arguments_per_row.items()}
    sb3_class = getattr(stable_baselines3, comparison.sb3_class)
    return sb3_class("MlpPolicy", env, policy_kwargs=network, **common, **comparison.sb3_arguments, **scaled)
