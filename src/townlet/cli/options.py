"""Arguments and options that several commands share."""

from __future__ import annotations

import shlex
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from townlet.cli.console import err
from townlet.errors import TownletError, did_you_mean

if TYPE_CHECKING:
    from townlet.runs.folder import Run
    from townlet.train.policies import TrainedPolicy

ROOT: Final = Path("runs")  # where runs lie unless somebody says otherwise


class CheckpointChoice(StrEnum):
    """Which checkpoint of a run."""

    BEST = "best"
    LAST = "last"


RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="A run: (the beginning of) its name, a path, latest, or ENV:VARIANT.")
]
Root = Annotated[Path, typer.Option("--root", metavar="FOLDER", help="Where runs lie.")]
Checkpoint = Annotated[
    CheckpointChoice, typer.Option("--which", metavar="best|last", help="The best checkpoint of the run, or its last.")
]


def _permit(given: bool) -> None:
    """Recipes may run code from now on: only then is the part loaded that can."""
    if given:
        from townlet.config import user_code

        user_code.permit()


AllowCode = Annotated[
    bool,
    typer.Option("--allow-code", callback=_permit, help="Let recipes run the Python files they name. Read them first."),
]
Sample = Annotated[
    bool | None,
    typer.Option("--sample/--greedy", help="Draw actions, or take the likeliest; by default as the recipe measures."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

WorldName = Annotated[str, typer.Argument(metavar="WORLD", help="A shipped world or the path of a YAML file.")]
WorldChanges = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to the world, as in max_steps=1000")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="Read tokens from a YAML or JSON file: operator: …, viewer: …"),
]
NoToken = Annotated[
    bool, typer.Option("--no-token", help="Require no token: every user of this machine can then operate the server.")
]
NO_TOKEN: Final = "--no-token: every user of this machine can operate this server."


PROGRAM: Final = "townlet"


def open_run(word: str, root: Path) -> Run:
    """A run by name, by how its name begins, by path, as latest; or the newest of the recipe ENV:VARIANT."""
    from townlet.runs.folder import Run

    if ":" not in word or Path(word).exists():
        return Run.open(word, root)
    runs = [run for run in reversed(Run.list(root)) if _recipe_of(run) == word]
    if not runs:
        raise TownletError(f"there is no run of {word} in {root}", f"train it: townlet train {word}")
    return runs[0]


def find_run(word: str, root: Path) -> Run | None:
    """The run behind a word that may also be a world: a name that is a world's stands for the world."""
    from townlet.town.world.load import ENDINGS, shipped

    if word in shipped() or word.endswith(ENDINGS) or Path(word).is_file():
        return None
    from townlet.runs.folder import LATEST, SHIPPED, Run

    names = [run.name for place in (root, SHIPPED) for run in Run.list(place)]
    if ":" in word or word == LATEST or (root / word).is_dir() or Path(word).is_dir():
        return open_run(word, root)
    if any(name.startswith(word) for name in names):
        return Run.open(word, root)
    beside = sorted(path.name for path in Path().glob("*.yaml"))
    own = f"{word}.yaml"
    hint = f"did you mean '{own}'?" if own in beside else did_you_mean(word, [*shipped(), *beside, *names])
    raise TownletError(f"there is no world and no run '{word[:60]}'", hint)


def trained_policy(run: Run, which: Literal["best", "last"]) -> TrainedPolicy:
    """What a run learned; a sentence on stderr where it should be taken with care."""
    from townlet.train.policies import load_policy

    trained = load_policy(run, which)
    for note in trained.loaded.notes:
        err().print(note, markup=False, soft_wrap=True)
    return trained


def run_command(verb: str, run: Run, *words: str) -> str:
    """What to type to do something with a run, also where runs lie elsewhere."""
    elsewhere = [] if run.path.parent == ROOT else ["--root", shlex.quote(str(run.path.parent))]
    return " ".join([program_name(), verb, run.name, *words, *elsewhere])


def program_name() -> str:
    """How this program is called here: by its path, as `make run` does, where its name alone is not found."""
    called = sys.argv[0]
    return called if Path(called).name == PROGRAM and shutil.which(PROGRAM) is None else PROGRAM


def resume_command(run: Run, *words: str) -> str:
    """What to type to go on with a run."""
    return run_command("train --resume", run, *words)


def _recipe_of(run: Run) -> str:
    """What a run trained; nothing when its meta.json is damaged."""
    try:
        return str(run.meta().get("recipe", ""))
    except TownletError:
        return ""
