"""Learning results over seeds: `python benchmarks/learning.py recipes`, `gyms`, `life` or `memory`.

`life` are ablations of `town:life`, `memory` compares `town-dark:ppo` with the same agent without memory.

Every training is one process on one thread, `--jobs` of them at a time. One line of JSON is stored per training, so an
interrupted run can be resumed; `--table` only prints the stored results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

from townlet.runs.metrics_reader import MetricsReader
from townlet.runs.statistics import bootstrap_interval, iqm
from townlet.tasks.comparison import GymSummary
from townlet.tasks.experiment import load_experiment
from townlet.tasks.town_evaluation import TownEvaluation, TownSummary
from townlet.train.session import TrainingOutcome, start

Row = dict[str, Any]


class Trial(NamedTuple):
    """One line of a table: its name, the recipe, and overrides."""

    name: str
    recipe: str
    overrides: tuple[str, ...] = ()


RECIPES: Final = (
    "town-l0:dqn", "town-l0-dual:dqn", "town:dqn", "town:ppo", "town:pqn", "town:life", "town:ppo-gpu",
    "town:dqn-curriculum", "town:dqn-rnd", "town:dqn-reference", "town:dqn-vitality", "town-l2:drqn", "town-l2:ppo",
    "town-l3:ppo", "town-shuffled:ppo", "town-foggy:drqn", "town-dark:ppo",
)  # fmt: skip
GYMS: Final = (
    "CartPole-v1:ppo", "CartPole-v1:dqn", "CartPole-v1:reinforce", "Acrobot-v1:ppo", "MountainCar-v0:ppo",
    "LunarLander-v3:ppo", "FrozenLake-v1:qlearning", "Taxi-v4:qlearning", "Bandit-v0:ppo", "Bandit-v0:reinforce",
    "Pendulum-v1:ppo",
)  # fmt: skip
# Mean episode length that a recipe must reach; environments of Gymnasium have the goal of their recipe.
MARKS: Final = {
    "town-l0:dqn": 285, "town-l0-dual:dqn": 480, "town:dqn": 480, "town:ppo": 480, "town:pqn": 480, "town:life": 1900,
    "town:ppo-gpu": 1900, "town:dqn-curriculum": 480, "town:dqn-rnd": 480, "town:dqn-reference": 400,
    "town-l2:drqn": 450, "town-l2:ppo": 450, "town-l3:ppo": 1500, "town-shuffled:ppo": 300, "town-foggy:drqn": 1000,
    "town-dark:ppo": 142,
}  # fmt: skip
MEMORY_OFF: Final = ("agent.carry=false",)

# Ablations of `town:life`: each part removed alone.
PARTS: Final = {
    "entropy .01 from the start": ("agent.entropy_coef=0.01",),
    "entropy fades from the start": ("agent.entropy_coef={start: 0.05, end: 0.01}",),
    "entropy never fades": ("agent.entropy_coef=0.05",),
    "no guidance": ("potential=0",),
    "no exploring starts": ("starts=null",),
    "training episodes of 500": ("change.max_steps=500",),
    "discount .99": ("agent.gamma=0.99",),
    "rollouts of 128 steps": ("agent.n_steps=128",),
    "128 rows": ("rows=128", "agent.batch_size=512"),
}
PLAIN: Final = ("agent.entropy_coef=0.01", "potential=0", "starts=null", "change.max_steps=500", "agent.gamma=0.99")


def trials(table: str, only: Sequence[str]) -> list[Trial]:
    """All lines of a table, or those with the given names."""
    if table == "life":
        all_trials = [Trial("town:life as it is", "town:life")]
        all_trials += [Trial(name, "town:life", overrides) for name, overrides in PARTS.items()]
        all_trials.append(Trial("none of it: plain PPO", "town:life", PLAIN))
    elif table == "gyms":
        all_trials = [Trial(recipe, recipe) for recipe in GYMS]
    elif table == "memory":
        all_trials = [Trial("town-dark:ppo", "town-dark:ppo"), Trial("memory off", "town-dark:ppo", MEMORY_OFF)]
    else:
        all_trials = [Trial(recipe, recipe) for recipe in RECIPES]
        all_trials.append(Trial("town-foggy:drqn, memory off", "town-foggy:drqn", MEMORY_OFF))
    return [t for t in all_trials if not only or t.name in only]


def train(trial: Trial, seed: int) -> Row:
    """Train to the end; the results of the last evaluation, and the time."""
    # Without the recipe's time limit, which would end trainings early on a busy machine.
    overrides = [*trial.overrides, f"seed={seed}", "threads=1", "metrics.tensorboard=false", "metrics.report=false"]
    overrides += ["budget.minutes=600"]
    with tempfile.TemporaryDirectory() as root:
        outcome = start(load_experiment(trial.recipe, overrides), Path(root))
        with MetricsReader(outcome.run.metrics_file) as metrics:
            evaluations = metrics.read("evaluations", ["env_steps", "score", "policy"])
    curve = [list(at) for *at, policy in zip(*evaluations.values(), strict=True) if policy != "random"]
    took = {"seconds": outcome.seconds, "why": outcome.ending.why, "curve": curve}
    return {"name": trial.name, "seed": seed, **_of_town(outcome), **_of_gym(outcome), **took}


def _of_town(outcome: TrainingOutcome) -> Row:
    """Results of a town."""
    last, summary = outcome.ending.evaluation, outcome.summary
    if not isinstance(last, TownEvaluation) or not isinstance(summary, TownSummary):
        return {}
    return {
        "mean": last.mean_length,
        "limit": last.world.spec.max_steps,
        "survived": last.survived,
        "earns_money": last.earns_money,
        "longer": summary.with_raised_limit.mean_length,
        "random": summary.random.mean_length,
    }


def _of_gym(outcome: TrainingOutcome) -> Row:
    """Results of a Gymnasium environment."""
    summary = outcome.summary
    if not isinstance(summary, GymSummary):
        return {}
    return {
        "mean": summary.trained.score("return"),
        "episodes": len(summary.trained.returns),
        "goal": summary.goal,
        "random": summary.random.score("return"),
    }


def by_name(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Results by name, ordered by seed."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["seed"]):
        groups[row["name"]].append(row)
    return groups


def gyms_as_markdown(rows: Iterable[Row]) -> str:
    """One line per environment: final return, and steps until the first evaluation that reaches its goal."""
    lines = [
        "| recipe | final return by seed | episodes | goal | first reached after steps | random | seconds |",
        "|---|---|---:|---:|---|---:|---:|",
    ]
    for name, results in by_name(rows).items():
        goal = results[0]["goal"]
        reached = [next((steps for steps, score in row["curve"] if score >= goal), None) for row in results]
        each = ", ".join(f"{row['mean']:.2f}" for row in results)
        first = ", ".join("never" if steps is None else f"{steps:,}" for steps in reached)
        seconds = ", ".join(f"{row['seconds']:.0f}" for row in results)
        columns = f"{results[0]['episodes']} | {goal:g} | {first} | {results[0]['random']:.1f}"
        lines.append(f"| {name} | {each} | {columns} | {seconds} |")
    return "\n".join(lines)


def as_markdown(rows: Iterable[Row]) -> str:
    """One line per town."""
    lines = [
        "| variant | steps survived, by seed | limit | mean | IQM (95% interval) | reach the limit | work "
        "| mean with raised limit | random agent | seconds |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, results in by_name(rows).items():

        def over(key: str, of: list[Row] = results) -> float:
            return statistics.fmean(row[key] for row in of)

        work = "–" if results[0]["earns_money"] is None else f"{over('earns_money'):.0%}"
        each = ", ".join(f"{row['mean']:.0f}" for row in results)
        seconds = ", ".join(f"{row['seconds']:.0f}" for row in results)
        means = [row["mean"] for row in results]
        low, high = bootstrap_interval(means)
        lines.append(
            f"| {name} | {each} | {results[0]['limit']} | {over('mean'):.0f} "
            f"| {iqm(means):.0f} ({low:.0f} to {high:.0f}) | {over('survived'):.0%} "
            f"| {work} | {over('longer'):.0f} | {over('random'):.0f} | {seconds} |"
        )
    return "\n".join(lines)


def summary_as_markdown(rows: Iterable[Row]) -> str:
    """One line per recipe: median and worst result of the last policy, and how many seeds meet the mark."""
    lines = [
        "| recipe | mark | seeds | median | worst | meet the mark | work | seconds, median |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, results in by_name(rows).items():
        mark = results[0].get("goal", MARKS.get(name))
        means = [row["mean"] for row in results]
        met = "–" if mark is None else f"{sum(mean >= mark for mean in means)} of {len(means)}"
        works = [row["earns_money"] for row in results if row.get("earns_money")]
        work = f"{sum(works) / len(results):.0%}" if works else "–"
        median, seconds = statistics.median(means), statistics.median(row["seconds"] for row in results)
        shown = "–" if mark is None else f"{mark:g}"
        lines.append(
            f"| {name} | {shown} | {len(means)} | {median:.1f} | {min(means):.1f} | {met} | {work} | {seconds:.0f} |"
        )
    return "\n".join(lines)


def stored(file: Path) -> list[Row]:
    """The stored results."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("table", choices=("recipes", "gyms", "life", "memory"))
    parser.add_argument("only", nargs="*", help="names of lines; all by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="concurrent trainings, each on one thread")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="file of results; TABLE.jsonl by default")
    parser.add_argument("--summary", action="store_true", help="print median, worst, and how many seeds meet the mark")
    parser.add_argument("--table", dest="print_only", action="store_true", help="train nothing, print stored results")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    file = options.keep or Path(f"{options.table}.jsonl")
    done = {(row["name"], row["seed"]) for row in stored(file)}
    wanted = [(t, s) for s in options.seeds for t in trials(options.table, options.only) if (t.name, s) not in done]
    if not options.print_only:
        with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
            for future in as_completed([pool.submit(train, *each) for each in wanted]):
                row = future.result()
                with file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
                print(f"{row['name']}, seed {row['seed']}: {row['mean']:.2f} in {row['seconds']:.0f} s", flush=True)
    order = {t.name: k for k, t in enumerate(trials(options.table, ()))}
    by_seed = gyms_as_markdown if options.table == "gyms" else as_markdown
    table = summary_as_markdown if options.summary else by_seed
    print(table(sorted(stored(file), key=lambda row: order[row["name"]])))


if __name__ == "__main__":
    main()
