"""The program `townlet`: its verbs, and the one place where a mistake becomes a message and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from townlet.cli import bench, doctor, play, world
from townlet.cli.console import examples, print_mistakes
from townlet.errors import TownletError

MISTAKE = 2
INTERRUPTED = 130

app = typer.Typer(
    name="townlet",
    help="A reinforcement-learning laboratory that you can watch.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    "play",
    epilog=examples("townlet play", "townlet play town-l3 --mode human", "townlet play my-town.yaml max_steps=1000"),
)(play.play)
app.add_typer(world.app, name="world")
app.add_typer(bench.app, name="bench")
app.command("doctor", epilog=examples("townlet doctor"))(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"townlet {installed_version('townlet')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Options of the program itself."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `townlet` and leave with 0 (done), 2 (the user's mistake) or 130 (interrupted)."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (lives as long as we do)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these letters still gets the rest
    try:
        app(arguments, prog_name="townlet")
    except TownletError as error:
        print_mistakes(error)
        sys.exit(MISTAKE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:  # a full disk, a device that is gone
        print_mistakes(TownletError(f"cannot go on: {error}", "see that there is room and that it may be written"))
        sys.exit(MISTAKE)
