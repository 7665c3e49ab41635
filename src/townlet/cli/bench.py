"""`townlet bench`: benchmark simulation and training on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from townlet.cli.console import echo, err, out
from townlet.cli.help import CommandGroup
from townlet.cli.options import AsJson, WorldName, WorldOverrides
from townlet.errors import TownletError, did_you_mean

if TYPE_CHECKING:
    from townlet.bench.simulation import BenchmarkResult
    from townlet.bench.training import LibraryComparison

app = CommandGroup("Benchmark simulation and training on this machine.")

ROUNDS: Final = 5
DEFAULT_ROWS: Final = 128
DEFAULT_GPU_ROWS: Final = 262_144
TRAINING_ROUNDS: Final = 3  # fewer but longer rounds: an iteration of Stable-Baselines3 takes seconds


@app.with_examples(
    "townlet bench sim",
    "townlet bench sim town-l3 --rows 1 --rows 16384 --threads 1",
    "townlet bench sim town --engine torch --json",
    "townlet bench sim town observation=partial max_steps=1000",
)
def sim(
    name: WorldName = "town",
    overrides: WorldOverrides = None,
    rows: Annotated[list[int] | None, typer.Option(min=1, help="Number of parallel towns; repeatable.")] = None,
    engine: Annotated[
        Literal["numba", "torch", "compiled"],
        typer.Option(metavar="numba|torch|compiled", help="Engine; compiled: torch with torch.compile."),
    ] = "numba",
    threads: Annotated[int | None, typer.Option(min=1, help="Number of threads; all cores by default.")] = None,
    device: Annotated[
        str, typer.Option(metavar="cpu|cuda", help="Device; cuda needs the torch or compiled engine.")
    ] = "cpu",
    seconds: Annotated[float, typer.Option(min=0.01, help="Seconds to measure each number of rows.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Measure simulation speed in environment steps per second.

    Writing observations and masks is included; drawing the random actions is not.
    """
    from townlet.bench.simulation import engine_benchmark, run_interleaved
    from townlet.town.world.load import load

    if device != "cpu" and engine == "numba":
        raise TownletError(f"the numba engine runs on the CPU, not on '{device}'", "add --engine compiled")
    world = load(name, overrides or ())
    results: list[BenchmarkResult] = []
    for n in rows or [1, 64, 1024, 16384]:
        with err().status(f"{world.name}, {n} rows, {engine}"):
            results += run_interleaved([engine_benchmark(world, n, engine, threads, device)], seconds, ROUNDS)
    if as_json:
        print(json.dumps([r.as_json() for r in results], indent=2))
        return
    title = f"{world.name} · {engine} engine on {device} · environment steps/s"
    rate_headings = ("best per CPU second", "median per CPU second", "best per second", "median per second")
    table = _table(title, (), ("rows", "threads", *rate_headings, "startup"))
    for r in results:
        rates = (r.best_per_cpu_s, r.median_per_cpu_s, r.best_per_wall_s, r.median_per_wall_s)
        table.add_row(f"{r.rows:,}", str(r.threads), *(f"{rate:,.0f}" for rate in rates), f"{r.ready_s:.1f} s")
    out().print(table)


def _table(title: str, text_headings: tuple[str, ...], number_headings: tuple[str, ...]) -> Any:
    """An empty table with left-aligned columns of text, then right-aligned columns of numbers."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for heading in (*text_headings, *number_headings):
        table.add_column(heading, justify="left" if heading in text_headings else "right")
    return table


@app.with_examples(
    "townlet bench train",
    "townlet bench train town-l2 --agent ppo --rows 256 --threads 1",
    "townlet bench train --seconds 60 --json",
    "townlet bench train --no-sb3",
    "townlet bench train --device cuda --rows 65536 --json",
)
def train(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="A shipped world with a Gymnasium id.")] = "town",
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AGENT", help="Agent to train; repeatable. By default all that Stable-Baselines3 also implements."
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=2, help=f"Parallel towns; {DEFAULT_ROWS} by default, {DEFAULT_GPU_ROWS} on a GPU.")
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="cpu|cuda", help="Device; cuda ignores --threads, --seconds and --sb3.")
    ] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="Number of threads; all cores by default.")] = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="Seconds of measurement per agent and library.")] = 12.0,
    sb3: Annotated[bool, typer.Option(help="Also measure Stable-Baselines3, if installed.")] = True,
    as_json: AsJson = False,
) -> None:
    """Measure training speed and compare it with Stable-Baselines3.

    Both libraries train alternately, in the same world with equal settings. The defaults take about a minute.
    """
    if device != "cpu":
        _measure_iterations(world, agent, rows or DEFAULT_GPU_ROWS, device, as_json)
        return
    from townlet.bench.training import AGENTS, compare

    rows = rows or DEFAULT_ROWS
    agents = list(dict.fromkeys(agent)) if agent else list(AGENTS)
    if unknown := [name for name in agents if name not in AGENTS]:
        raise TownletError(f"'{unknown[0][:60]}' has no training benchmark", did_you_mean(unknown[0], AGENTS))
    with err().status(f"{world}, {rows} rows, {', '.join(agents)}"):
        comparison = compare(world, agents, rows, threads, seconds, TRAINING_ROUNDS, with_sb3=sb3)
    if as_json:
        print(json.dumps(comparison.as_json(), indent=2))
    else:
        _print_comparison(comparison)


def _measure_iterations(world: str, agent: list[str] | None, rows: int, device: str, as_json: bool) -> None:
    """Time the rollout and the update of training iterations on a device, with one epoch and with several."""
    from townlet.agents.sb3_comparison import GPU_RECIPE
    from townlet.bench.iterations import EPOCHS, measure_iterations
    from townlet.tasks.experiment import load_experiment

    available = load_experiment(GPU_RECIPE).recipe.agent.name
    if agent and agent != [available]:
        raise TownletError(f"on '{device}' only {available} is measured", "drop --agent")
    results = []
    for epochs in EPOCHS:
        with err().status(f"{GPU_RECIPE}, {rows} rows, {epochs} epochs"):
            results.append(measure_iterations(rows, epochs, device, overrides=[f"world={world}"]))
    if as_json:
        print(json.dumps([r.as_json() for r in results], indent=2))
        return
    title = f"{GPU_RECIPE} in {world} · {rows:,} rows"
    table = _table(title, (), ("epochs", "rollout", "update", "environment steps/s", "first iteration"))
    for r in results:
        times = (f"{r.rollout_s * 1000:.1f} ms", f"{r.update_s * 1000:.1f} ms", f"{r.steps_per_second:,.0f}")
        table.add_row(str(r.epochs), *times, f"{r.first_s:.1f} s")
    out().print(table)


def _print_comparison(comparison: LibraryComparison) -> None:
    first = next(r for libraries in comparison.results.values() for r in libraries.values())
    title = f"{first.world} · {first.rows} rows · {first.threads} threads · environment steps/s"
    table = _table(title, ("agent", "library"), ("best", "median", "median per CPU second"))
    for agent, libraries in comparison.results.items():
        for library, r in libraries.items():
            rates = (r.best_per_wall_s, r.median_per_wall_s, r.median_per_cpu_s)
            table.add_row(agent, library, *(f"{rate:,.0f}" for rate in rates))
    out().print(table)
    ratios = comparison.ratios.items()
    echo(*(f"{name}: {ratio:.2f} × the steps per second of Stable-Baselines3 (median)." for name, ratio in ratios))
    echo(*(f"Not compared: {reason}" for reason in comparison.skipped))
