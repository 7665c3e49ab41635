"""`townlet export`: the part of a run that acts, as one file for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from townlet.cli.console import err, out
from townlet.cli.opening import open_run
from townlet.cli.options import ROOT, AllowCode, Root, RunName, Which, WhichOne


class Format(StrEnum):
    """Kinds of files."""

    SAFETENSORS = "safetensors"
    ONNX = "onnx"


def export(
    run: RunName,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            metavar="safetensors|onnx",
            help="safetensors: weights to rebuild; onnx: a graph that runs anywhere.",
        ),
    ] = Format.SAFETENSORS,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it; by default policy.* in the run's folder.")
    ] = None,
    which: WhichOne = Which.BEST,
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Write a trained agent as one file for other programs.

    The file holds the network that acts, and says all that another program must know of it.
    """
    from townlet.sharing.export import export as write
    from townlet.train.policies import load_policy

    opened = open_run(run, root)
    with err().status("exporting"):
        trained = load_policy(opened, which.value)
        path = write(trained, form.value, to)
    console = out()
    console.print(f"Wrote {path} ({path.stat().st_size / 1024:.0f} kB).", markup=False, soft_wrap=True)
    needs = ["obs", *(["mask"] if trained.actions.choices else []), *(["hidden"] if trained.hidden else [])]
    console.print(f"It takes {' and '.join(needs)} and gives {trained.kind} of {trained.actions.n} actions.")
    console.print("Its metadata says the rest: blocks of the observation, names of actions, network, readme.")
