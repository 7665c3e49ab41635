"""Learning of the decision service in the simulated hive: `python benchmarks/hive.py`.

Every seed plays several territories with a service that trains once after each observation of all territories.
Halfway through, the kill range of protectors doubles. Baselines that do not learn play the same games. The report is
the mean reward of executed decisions, with an interval over seeds. The service is the real one, with write-ahead log,
versions and off-policy evaluation, but runs in one thread with the trainer, on the game's clock and without a socket,
so results are reproducible.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.decide.clock import ManualClock
from townlet.decide.domain import Baseline
from townlet.decide.domains import DOMAINS
from townlet.decide.domains.hive.domain import FAILED_OUTCOME, reward_from_next
from townlet.decide.domains.hive.game import KILL_RANGE, OBSERVATION_TICKS, HiveGame
from townlet.decide.domains.hive.gate import HiveGateSettings
from townlet.decide.domains.hive.grid import CHUNKS, TYPES
from townlet.decide.service import Service
from townlet.decide.settings import load_settings
from townlet.decide.state import Experience
from townlet.decide.storage.file import FileStorage
from townlet.decide.training_thread import TrainingThread
from townlet.runs.statistics import bootstrap_interval, iqm

DOMAIN: Final = DOMAINS["hive"]
LEARNERS: Final = tuple(DOMAIN.policies)
DOUBLED_RANGE: Final = 2 * KILL_RANGE  # in the second half
FIRST_SEED: Final = 100  # the rules of the game were tuned with lower seeds
PUBLISH_EVERY: Final = 5  # observations between two versions
COLUMNS: Final = 10  # windows of the curve


class Trial(NamedTuple):
    """A policy or baseline (`who`), and the games it plays."""

    who: str
    seed: int
    territories: int
    observations: int
    overrides: tuple[str, ...] = ()


class Played(NamedTuple):
    """Executed decisions: time, action and reward."""

    time: NDArray[np.float64]
    action: NDArray[np.int64]
    reward: NDArray[np.float64]


def games(trial: Trial) -> list[HiveGame]:
    """The territories of a seed, the same for all policies and baselines."""
    return [HiveGame(trial.seed, f"territory {place}") for place in range(trial.territories)]


def played(trial: Trial) -> dict[str, Any]:
    """The results of a trial, as one line of JSON."""
    torch.set_num_threads(1)
    begun = time.perf_counter()
    decisions, more = _learning(trial) if trial.who in LEARNERS else (_baseline(trial), {})
    half = trial.observations * OBSERVATION_TICKS / 2
    parts = np.minimum(decisions.time / (2 * half) * COLUMNS, COLUMNS - 1).astype(int)
    return {
        "who": trial.who, "seed": trial.seed, "curve": [_mean(decisions.reward[parts == n]) for n in range(COLUMNS)],
        "sent": len(decisions.time), "chunks": _chunks(decisions.action[parts >= COLUMNS - 2]),
        "seconds": time.perf_counter() - begun, **more,
    }  # fmt: skip


def _baseline(trial: Trial) -> Played:
    """Baselines play each territory separately."""
    parts = [
        _territory(game, DOMAIN.baselines[trial.who], np.random.default_rng([trial.seed, place]), trial.observations)
        for place, game in enumerate(games(trial))
    ]
    return Played(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _territory(game: HiveGame, baseline: Baseline, rng: np.random.Generator, observations: int) -> Played:
    """Play without a service; gate and rewards are those of the service. The outcome of the last action is unknown."""
    settings, state, previous = HiveGateSettings(), DOMAIN.initial_territory_state(), None
    played: list[list[float]] = []  # time, action and reward
    for turn in range(observations):
        if turn >= observations / 2:
            game.kill_range = DOUBLED_RANGE
        observation = DOMAIN.parse_observation(game.observe())
        batch = {name: value[None] for name, value in (observation.row | state).items()}
        if previous is not None:
            played[-1][2] = float(reward_from_next(previous, batch)[0])
        previous, gated = None, DOMAIN.gate(batch, np.array([observation.time]), settings)
        action = int(baseline(batch, gated, rng)[0])
        if gated.send[0, action]:
            played.append([observation.time, action, FAILED_OUTCOME])
            if game.spawn(action % CHUNKS, TYPES[action // CHUNKS]):
                state, previous = DOMAIN.territory_state_after(state, action, observation.time), batch
                played[-1][2] = np.nan
        game.advance()
    times, actions, rewards = np.array(played).reshape(-1, 3).T
    known = np.isfinite(rewards)
    return Played(times[known], actions[known].astype(np.int64), rewards[known])


def _learning(trial: Trial) -> tuple[Played, dict[str, Any]]:
    """The service decides for all territories together, and learns between observations."""
    decisions: list[tuple[float, int, float]] = []

    def on_outcome(experience: Experience, outcome: float, how: str) -> None:
        decisions.append((experience.decision.game_time, experience.decision.action, outcome))

    clock = ManualClock(0.0)
    overrides = [f"policy={trial.who}", f"seed={trial.seed}", *trial.overrides]
    with tempfile.TemporaryDirectory() as folder:
        storage = FileStorage(Path(folder), DOMAIN, load_settings("hive", overrides, DOMAINS), clock)
        service, rounds, entropy = Service(storage), TrainingThread(storage), []
        storage.state.outcome_listeners.append(on_outcome)
        rounds.publish()
        playing = games(trial)
        for turn in range(trial.observations):
            if turn == trial.observations // 2:
                for game in playing:
                    game.kill_range = DOUBLED_RANGE
            answers = service.answer([game.observe() for game in playing])
            for game, answer in zip(playing, answers, strict=True):
                for report in [*game.apply(answer.reply), *game.advance()]:
                    service.report(report)
            clock.now += OBSERVATION_TICKS
            stepped = [rounds.step() for _ in range(service.settings.learning.gradient_steps)]
            if any(stepped) and turn % PUBLISH_EVERY == 0:
                rounds.publish()
            if rounds.progress.last and turn % (trial.observations // COLUMNS) == 0:
                entropy.append(rounds.progress.last.entropy)
        more = {"steps": rounds.progress.steps, "verdicts": rounds.progress.verdicts, "entropy": entropy}
        storage.close()
    times, actions, rewards = (np.array(column) for column in zip(*decisions, strict=True))
    return Played(times, actions, rewards), more


def _chunks(actions: NDArray[np.int64]) -> dict[str, float]:
    """Number of different chunks chosen, and the fraction of the most frequent one."""
    counts = np.bincount(actions % CHUNKS, minlength=CHUNKS)
    return {"different": int((counts > 0).sum()), "favorite": float(counts.max() / max(1, counts.sum()))}


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def as_markdown(lines: Sequence[dict[str, Any]]) -> str:
    """A table of mean rewards by window, then differences between policies, paired by seed."""
    text = [f"| who | {' | '.join(f'{n + 1}' for n in range(COLUMNS))} | chunks, favorite |"]
    text.append("|---" * (COLUMNS + 2) + "|")
    curves = {
        who: np.array([line["curve"] for line in sorted(lines, key=lambda line: line["seed"]) if line["who"] == who])
        for who in dict.fromkeys(line["who"] for line in lines)
    }
    for who, curve in curves.items():
        chunks = [line["chunks"] for line in lines if line["who"] == who]
        cells = f"{np.mean([c['different'] for c in chunks]):.0f}, {np.mean([c['favorite'] for c in chunks]):.0%}"
        text.append(f"| {who} | {' | '.join(over_seeds(curve[:, n]) for n in range(COLUMNS))} | {cells} |")
    text += ["", "Differences in the last fifth before the change, just after it, and in the last fifth:", ""]
    spans = {"before": (3, 5), "just after": (5, 6), "at the end": (8, 10)}
    for who in (who for who in curves if who in LEARNERS):
        for other in (other for other in curves if other != who):
            if len(curves[other]) == len(curves[who]):
                apart = (curves[who] - curves[other]).T
                cells = ", ".join(f"{name} {over_seeds(apart[a:b].mean(0))}" for name, (a, b) in spans.items())
                text.append(f"- {who} above {other}: {cells}")
    return "\n".join(text)


def over_seeds(values: NDArray[np.float64]) -> str:
    """Interquartile mean over seeds, with its bootstrap interval."""
    low, high = bootstrap_interval(values.tolist())
    return f"{iqm(values.tolist()):.3f} ({low:.3f} to {high:.3f})"


def run(trials: Iterable[Trial], jobs: int) -> list[dict[str, Any]]:
    """Run all trials, `jobs` at a time, each in a separate process."""
    results = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in as_completed([pool.submit(played, trial) for trial in trials]):
            results.append(done.result())
            print(json.dumps(results[-1]), flush=True)
    return results


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings of the service")
    parser.add_argument("--who", nargs="+", default=[*LEARNERS, *DOMAIN.baselines])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--territories", type=int, default=32)
    parser.add_argument("--observations", type=int, default=2000, help="per territory, one every 5 seconds of the game")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    return parser.parse_args()


def main() -> None:
    o = parse()
    seeds = range(FIRST_SEED, FIRST_SEED + o.seeds)
    common = (o.territories, o.observations, tuple(o.overrides))
    results = run((Trial(who, seed, *common) for seed in seeds for who in o.who), o.jobs)
    if o.json:
        o.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print("\n" + as_markdown(results))


if __name__ == "__main__":
    main()
