"""`townlet export` and `townlet publish`: share a trained agent with other programs and other people."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from townlet.cli.console import echo, err
from townlet.cli.options import ROOT, AllowCode, Checkpoint, EvaluationSeed, Root, RunName, load_policy, open_run
from townlet.errors import TownletError

HUB: Final = "hub:"


def export(
    run: RunName,
    form: Annotated[
        Literal["safetensors", "onnx"],
        typer.Option(
            "--format",
            metavar="safetensors|onnx",
            help="safetensors: the weights of the network; onnx: a graph for any ONNX runtime.",
        ),
    ] = "safetensors",
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output file; by default policy.* in the folder of the run.")
    ] = None,
    which: Checkpoint = "best",
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Write the policy of a run to one file for other programs.

    The file's metadata describes the observation, the actions and how to use the network.
    """
    from townlet.sharing.export import OUTPUTS
    from townlet.sharing.export import export as write

    opened = open_run(run, root, for_policy=True)
    with err().status("exporting"):
        trained = load_policy(opened, which)
        path = write(trained, form, to)
    echo(f"Wrote {path} ({path.stat().st_size / 1024:.0f} kB).")
    if form == "onnx":
        inputs = ["obs", *(["mask"] if trained.actions.choices else []), *(["hidden"] if trained.hidden_size else [])]
        outputs = ["action", *OUTPUTS[trained.kind], *(["next_hidden"] if trained.hidden_size else [])]
        echo(f"Inputs: {', '.join(inputs)}. Outputs: {', '.join(outputs)}.")
    echo("The file's metadata describes the observation, the actions and how to use the network (key `readme`).")


def publish(
    run: RunName,
    to: Annotated[
        str, typer.Option(metavar="FOLDER|hub:USER/NAME", help="A folder, or a model on the Hugging Face Hub.")
    ],
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="Episodes for the results on the card.")] = 100,
    seed: EvaluationSeed = None,
    license: Annotated[
        str, typer.Option(metavar="NAME", help="License of the weights on the model card, as the Hub names it.")
    ] = "mit",
    which: Checkpoint = "best",
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Share a trained agent in a folder or on the Hugging Face Hub.

    Writes a model card with results and learning curve, the weights, the recipe and a video. Others can watch the agent
    with `townlet play`.
    """
    from townlet.sharing.publish import publish as write
    from townlet.sharing.publish import require_hub, upload

    name = to.removeprefix(HUB) if to.startswith(HUB) else ""
    if to.startswith(HUB):
        if name.count("/") != 1:
            raise TownletError(f"'{to}' is not a model on the Hub", "write hub:USER/NAME")
        require_hub()
    opened = open_run(run, root, for_policy=True)
    with tempfile.TemporaryDirectory() as temporary, err().status("evaluating and recording"):
        folder = Path(temporary) / "model" if name else Path(to)
        trained = load_policy(opened, which)
        eval_seed = trained.loaded.recipe.evaluation.seed + 1 if seed is None else seed
        card = write(trained, folder, episodes=episodes, seed=eval_seed, license=license)
        place = upload(folder, name) if name else str(folder)
    echo(f"Published {opened.name}: {place}", f"Files: {', '.join(['README.md', *card.files])}.")
    if card.video_error:
        echo(f"No video: {card.video_error}.")
    echo(*card.comparison.sentences())
    if not name:
        echo(f"Play it: townlet play {place}{card.code_option}")
