"""`townlet bench`: measure this machine."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from townlet.cli.console import err, examples, out
from townlet.errors import TownletError

if TYPE_CHECKING:
    from townlet.sim.bench import Result

app = typer.Typer(help="Measure this machine.", no_args_is_help=True, rich_markup_mode="rich")

ROUNDS = 5


class Engine(StrEnum):
    """Which engine steps the town."""

    NUMBA = "numba"
    TORCH = "torch"
    COMPILED = "compiled"


@app.callback()
def _group() -> None:
    """Keeps `sim` a word of its own while it is the only one."""


@app.command(
    epilog=examples(
        "townlet bench sim",
        "townlet bench sim town-l3 --rows 1 --rows 16384 --threads 1",
        "townlet bench sim town --engine torch --json",
        "townlet bench sim town observation=partial max_steps=1000",
    )
)
def sim(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="A shipped world or the path of a YAML file.")] = "town",
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to the world, as in max_steps=1000")
    ] = None,
    rows: Annotated[list[int] | None, typer.Option(min=1, help="Rows of the town; may be given again.")] = None,
    engine: Annotated[Engine, typer.Option(help="Which engine steps the town.")] = Engine.NUMBA,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; all cores by default.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda; cuda needs the torch or the compiled engine.")] = "cpu",
    seconds: Annotated[float, typer.Option(min=0.01, help="Time to measure for each number of rows.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure agent-steps per second, observation and mask written, random actions drawn beforehand."""
    from townlet.sim.bench import engine_subject, interleave
    from townlet.world.load import load

    if device != "cpu" and engine is Engine.NUMBA:
        raise TownletError(f"the numba engine runs on the CPU, not on '{device}'", "add --engine compiled")
    compiled = load(world, overrides or ())
    results: list[Result] = []
    for n in rows or [1, 64, 1024, 16384]:
        with err().status(f"{compiled.name}, {n} rows, {engine.value}"):
            results += interleave([engine_subject(compiled, n, engine.value, threads, device)], seconds, ROUNDS)
    if as_json:
        print(json.dumps([r.as_json() for r in results], indent=2))
    else:
        _print_table(results)


def _print_table(results: list[Result]) -> None:
    from rich.table import Table

    first = results[0]
    table = Table(title=f"{first.world} · {first.engine} engine on {first.device} · agent-steps/s")
    for heading in ("rows", "threads", "CPU time, best", "median", "wall time, best", "median", "ready after"):
        table.add_column(heading, justify="right")
    for r in results:
        rates = (r.best_per_cpu_s, r.median_per_cpu_s, r.best_per_wall_s, r.median_per_wall_s)
        table.add_row(f"{r.rows:,}", str(r.threads), *(f"{rate:,.0f}" for rate in rates), f"{r.ready_s:.1f} s")
    out().print(table)
