"""`townlet bench`: measure this machine."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from townlet.cli.console import err, examples, out
from townlet.cli.help import CommandGroup
from townlet.cli.options import AsJson, WorldChanges, WorldName
from townlet.errors import TownletError, did_you_mean

if TYPE_CHECKING:
    from townlet.bench.simulation import BenchmarkResult
    from townlet.bench.training import PeerComparison

app = CommandGroup("Measure how fast this machine is.")

ROUNDS = 5
ROWS, GPU_ROWS = 128, 262144
TRAINING_ROUNDS = 3  # fewer and longer: one pass of a peer takes seconds


class EngineChoice(StrEnum):
    """Which engine steps the town."""

    NUMBA = "numba"
    TORCH = "torch"
    COMPILED = "compiled"


@app.command(
    epilog=examples(
        "townlet bench sim",
        "townlet bench sim town-l3 --rows 1 --rows 16384 --threads 1",
        "townlet bench sim town --engine torch --json",
        "townlet bench sim town observation=partial max_steps=1000",
    )
)
def sim(
    world: WorldName = "town",
    overrides: WorldChanges = None,
    rows: Annotated[list[int] | None, typer.Option(min=1, help="Rows of the town; may be given again.")] = None,
    engine: Annotated[
        EngineChoice, typer.Option(metavar="numba|torch|compiled", help="Which engine steps the town.")
    ] = EngineChoice.NUMBA,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; all cores by default.")] = None,
    device: Annotated[
        str, typer.Option(metavar="cpu|cuda", help="cuda needs the torch or the compiled engine.")
    ] = "cpu",
    seconds: Annotated[float, typer.Option(min=0.01, help="Time to measure for each number of rows.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Measure how many steps of agents the simulation makes in a second.

    Observations and masks are written; the random actions were drawn beforehand.
    """
    from townlet.bench.simulation import engine_benchmark, run_interleaved
    from townlet.town.world.load import load

    if device != "cpu" and engine is EngineChoice.NUMBA:
        raise TownletError(f"the numba engine runs on the CPU, not on '{device}'", "add --engine compiled")
    compiled = load(world, overrides or ())
    results: list[BenchmarkResult] = []
    for n in rows or [1, 64, 1024, 16384]:
        with err().status(f"{compiled.name}, {n} rows, {engine.value}"):
            results += run_interleaved([engine_benchmark(compiled, n, engine.value, threads, device)], seconds, ROUNDS)
    if as_json:
        print(json.dumps([r.as_json() for r in results], indent=2))
    else:
        _print_table(results)


def _print_table(results: list[BenchmarkResult]) -> None:
    from rich.table import Table

    first = results[0]
    table = Table(title=f"{first.world} · {first.engine} engine on {first.device} · agent-steps/s")
    for heading in ("rows", "threads", "CPU time, best", "median", "wall time, best", "median", "ready after"):
        table.add_column(heading, justify="right")
    for r in results:
        rates = (r.best_per_cpu_s, r.median_per_cpu_s, r.best_per_wall_s, r.median_per_wall_s)
        table.add_row(f"{r.rows:,}", str(r.threads), *(f"{rate:,.0f}" for rate in rates), f"{r.ready_s:.1f} s")
    out().print(table)


@app.command(
    epilog=examples(
        "townlet bench train",
        "townlet bench train town-l2 --agent ppo --rows 256 --threads 1",
        "townlet bench train --seconds 60 --json",
        "townlet bench train --no-peers",
        "townlet bench train --device cuda --rows 65536 --json",
    )
)
def train(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="A shipped world with a Gymnasium id.")] = "town",
    agent: Annotated[
        list[str] | None,
        typer.Option(metavar="AGENT", help="Which agent learns; may be given again. By default all with a peer."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(min=2, help=f"Towns side by side, for ours and theirs alike; {ROWS}, on a GPU {GPU_ROWS}."),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="cpu|cuda", help="cuda measures whole training rounds, which have no peer.")
    ] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of both; all cores by default.")] = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="Time to measure for each agent of each library.")] = 12.0,
    peers: Annotated[bool, typer.Option(help="Measure Stable-Baselines3 as well, where it is installed.")] = True,
    as_json: AsJson = False,
) -> None:
    """Measure how fast training is, beside Stable-Baselines3.

    Both have the same town and equal settings and are measured in turns; it takes about a minute.
    """
    if device != "cpu":
        _rounds(world, agent, rows or GPU_ROWS, device, as_json)
        return
    from townlet.bench.training import AGENTS, compare

    rows = rows or ROWS
    agents = list(dict.fromkeys(agent)) if agent else list(AGENTS)
    if unknown := [name for name in agents if name not in AGENTS]:
        raise TownletError(f"'{unknown[0][:60]}' has no peer to compare with", did_you_mean(unknown[0], AGENTS))
    with err().status(f"{world}, {rows} rows, {', '.join(agents)}"):
        found = compare(world, agents, rows, threads, seconds, TRAINING_ROUNDS, peers)
    if as_json:
        print(json.dumps(found.as_json(), indent=2))
    else:
        _print_training(found)


def _rounds(world: str, agent: list[str] | None, rows: int, device: str, as_json: bool) -> None:
    """Whole rounds on a device, with one epoch and with several."""
    from rich.table import Table

    from townlet.agents.sb3_comparison import GPU_RECIPE
    from townlet.bench.rollouts import EPOCHS, measure_iterations
    from townlet.tasks.experiment import load_experiment

    measured = load_experiment(GPU_RECIPE).recipe.agent.name
    if agent and agent != [measured]:
        raise TownletError(f"on '{device}' only whole rounds of {measured} are measured", "leave out --agent")
    found = []
    for epochs in EPOCHS:
        with err().status(f"{GPU_RECIPE}, {rows} rows, {epochs} epochs"):
            found.append(measure_iterations(rows, epochs, device, words=[f"world={world}"]))
    if as_json:
        print(json.dumps([times.as_json() for times in found], indent=2))
        return
    table = Table(title=f"{GPU_RECIPE} in {world} · {rows:,} rows · steps of all rows/s", title_justify="left")
    for heading in ("epochs", "playing", "learning", "steps/s, median", "ready after"):
        table.add_column(heading, justify="right")
    for one in found:
        times = (f"{one.played_s * 1000:.1f} ms", f"{one.learned_s * 1000:.1f} ms", f"{one.per_second:,.0f}")
        table.add_row(str(one.epochs), *times, f"{one.first_s:.1f} s")
    out().print(table)


def _print_training(found: PeerComparison) -> None:
    from rich.table import Table

    first = next(r for both in found.results.values() for r in both.values())
    about = f"{first.world} · {first.rows} rows · {first.threads} threads · steps of all rows/s"
    table = Table(title=about, title_justify="left")
    table.add_column("agent")
    table.add_column("library")
    for heading in ("best", "median", "median, CPU time"):
        table.add_column(heading, justify="right")
    for both in found.results.values():
        for r in both.values():
            rates = (r.best_per_wall_s, r.median_per_wall_s, r.median_per_cpu_s)
            table.add_row(r.subject, r.engine, *(f"{rate:,.0f}" for rate in rates))
    console = out()
    console.print(table)
    for name, ratio in found.ratios.items():
        console.print(f"{name}: {ratio:.2f} times as many steps a second as Stable-Baselines3, by the median.")
    for reason in found.skipped:
        console.print(f"Only ours was measured: {reason}", markup=False)
