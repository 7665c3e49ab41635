"""`townlet export`: the part of a run that acts, as one file for other programs."""

from __future__ import annotations

import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from townlet.cli.console import err, out
from townlet.cli.options import ROOT, AllowCode, Checkpoint, CheckpointChoice, Root, RunName, open_run, trained_policy
from townlet.errors import TownletError


class ExportFormat(StrEnum):
    """Kinds of files."""

    SAFETENSORS = "safetensors"
    ONNX = "onnx"


def export(
    run: RunName,
    form: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            metavar="safetensors|onnx",
            help="safetensors: weights to rebuild; onnx: a graph that runs anywhere.",
        ),
    ] = ExportFormat.SAFETENSORS,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it; by default policy.* in the run's folder.")
    ] = None,
    which: Checkpoint = CheckpointChoice.BEST,
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


HUB: Final = "hub:"


def publish(
    run: RunName,
    to: Annotated[
        str, typer.Option(metavar="FOLDER|hub:USER/NAME", help="A folder, or a model on the Hugging Face Hub.")
    ],
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="Episodes behind the results of the card.")] = 100,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Which episodes; by default others than the run was evaluated on.")
    ] = None,
    which: Checkpoint = CheckpointChoice.BEST,
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Give a trained agent to others.

    Writes a card with results and curve, the weights, the recipe and a film; whoever gets it can play it.
    """
    from townlet.sharing.publish import publish as write
    from townlet.sharing.publish import require_hub, upload

    name = to.removeprefix(HUB) if to.startswith(HUB) else ""
    if to.startswith(HUB):
        if name.count("/") != 1:
            raise TownletError(f"'{to}' is no place on the Hub", "write hub:user/name")
        require_hub()
    opened, console = open_run(run, root), out()
    with tempfile.TemporaryDirectory() as passing, err().status("measuring and filming"):
        folder = Path(passing) / "model" if name else Path(to)
        trained = trained_policy(opened, which.value)
        seeds = trained.loaded.recipe.evaluation.seed + 1 if seed is None else seed
        card = write(trained, folder, episodes=episodes, seed=seeds)
        place = upload(folder, name) if name else str(folder)
    console.print(f"Published {opened.name}: {place}", markup=False, soft_wrap=True)
    console.print(f"With {', '.join(['README.md', *card.files])}.", markup=False, soft_wrap=True)
    if card.unfilmed:
        console.print(f"There is no video: {card.unfilmed}.", markup=False, soft_wrap=True)
    for sentence in card.found.sentences():
        console.print(sentence, markup=False)
    if not name:
        console.print(f"Play it: townlet play {place}{card.permission}", markup=False, soft_wrap=True)
