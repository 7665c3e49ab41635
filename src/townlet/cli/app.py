"""The program `townlet`: its commands, and the conversion of errors to messages and exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import townlet.cli.decide
import townlet.cli.decide_stored  # noqa: F401  both register their commands
from townlet._version import __version__
from townlet.allocation import memory_error
from townlet.cli import (
    bench,
    decide_options,
    doctor,
    evaluate,
    lesson,
    live,
    play,
    recipes,
    runs,
    sharing,
    sweep,
    train,
    world,
)
from townlet.cli.console import print_error
from townlet.cli.help import CommandGroup
from townlet.errors import EXIT_INTERRUPTED, SourceLocation, TownletError

app = CommandGroup("Train reinforcement-learning agents and watch them learn.")
app.with_examples(
    "townlet train",
    "townlet train town:dqn --open",
    "townlet train town:ppo agent.lr=1e-3 rows=256 --minutes 2",
    "townlet train town-l0:dqn --seeds 3",
    "townlet train --resume latest budget.env_steps=4e7",
)(train.train)
app.with_examples(
    "townlet sweep CartPole-v1:ppo --trials 20",
    "townlet sweep CartPole-v1:dqn agent.lr=1e-5..1e-2 --steps 3e4",
    "townlet sweep CartPole-v1:dqn agent.batch_size=32,64,128 --name sizes",
    "townlet train runs/CartPole-v1-ppo-best.yaml",
)(sweep.sweep)
app.with_examples(
    "townlet eval latest",
    "townlet eval town:ppo max_steps=2000 --episodes 500",
    "townlet eval latest --layout shuffled",
    "townlet eval town-ppo-2026 --world cascades-strong --json",
    name="eval",
)(evaluate.evaluate)
app.with_examples(
    "townlet play",
    "townlet play latest",
    "townlet play my-town.yaml max_steps=1000",
    "townlet play town-l3 --mode human --mode planner",
    "townlet play town:ppo --mode trained --mode planner --speed 10",
    "townlet play CartPole-v1 --mode human --window",
    "townlet play CartPole-v1:ppo --video episode.mp4 --episodes 1",
)(play.play)
app.with_examples("townlet lesson", "townlet lesson hoverer", "townlet lesson hoverer --quick")(lesson.lesson)
app.with_examples(
    "townlet live",
    "townlet live town-dqn",
    "townlet live town-dqn town-ppo",
    "townlet live --port 9000 --root other/runs",
)(live.live)
app.add_typer(runs.app, name="runs")
app.with_examples("townlet export latest", "townlet export town:ppo --format onnx --to agent.onnx")(sharing.export)
app.with_examples("townlet publish latest --to my-agent", "townlet publish CartPole-v1:ppo --to hub:me/cartpole")(
    sharing.publish
)
app.add_typer(world.app, name="world")
app.add_typer(decide_options.app, name="decide")
app.add_typer(bench.app, name="bench")
app.with_examples(
    "townlet recipes",
    "townlet recipes memory",
    "townlet recipes town:ppo agent.lr=1e-3",
    "townlet recipes --schema > recipe.schema.json",
)(recipes.recipes)
app.with_examples("townlet doctor")(doctor.doctor)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"townlet {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `townlet`. Exit codes: 0 success, 1 failure, 2 user error, 3 training diverged, 130 interrupted."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (open until exit)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # for terminals that cannot encode every character
    try:
        code = app(arguments, prog_name="townlet", standalone_mode=False)
    except TownletError as error:
        code = _report(error)
    except typer.TyperException as error:  # invalid arguments
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "townlet"
        # Remove or reword pydantic's fixed phrases.
        what = error.format_message().replace("Value error, ", "").replace("Input should be", "it should be")
        code = _report(TownletError(what, f"see `{command} --help`", SourceLocation(command)))
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except (MemoryError, RuntimeError) as error:
        allocation_error = memory_error(error)
        if allocation_error is None:
            raise
        code = _report(allocation_error)
    except OSError as error:  # such as a full disk
        code = _report(TownletError(f"cannot continue: {error}", "check free space and write permissions"))
    sys.exit(code)


def _report(error: TownletError) -> int:
    print_error(error)
    return error.exit_code
