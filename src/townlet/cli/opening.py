"""From a word on the command line to a run."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from townlet.cli.console import err
from townlet.cli.options import ROOT
from townlet.errors import TownletError, did_you_mean

if TYPE_CHECKING:
    from townlet.runs.folder import Run
    from townlet.train.policies import TrainedPolicy

NAME: Final = "townlet"


def open_run(word: str, root: Path) -> Run:
    """A run by name, by how its name begins, by path, as latest; or the newest of the recipe ENV:VARIANT."""
    from townlet.runs.folder import Run

    if ":" not in word or Path(word).exists():
        return Run.open(word, root)
    runs = [run for run in reversed(Run.list(root)) if _recipe(run) == word]
    if not runs:
        raise TownletError(f"there is no run of {word} in {root}", f"train it: townlet train {word}")
    return runs[0]


def find_run(word: str, root: Path) -> Run | None:
    """The run behind a word that may also be a world: a name that is a world's stands for the world."""
    from townlet.town.world.catalogue import ENDINGS, shipped

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


def command(verb: str, run: Run, *words: str) -> str:
    """What to type to do something with a run, also where runs lie elsewhere."""
    elsewhere = [] if run.path.parent == ROOT else ["--root", shlex.quote(str(run.path.parent))]
    return " ".join([program(), verb, run.name, *words, *elsewhere])


def program() -> str:
    """How this program is called here: by its path, as `make run` does, where its name alone is not found."""
    called = sys.argv[0]
    return called if Path(called).name == NAME and shutil.which(NAME) is None else NAME


def resume_command(run: Run, *words: str) -> str:
    """What to type to go on with a run."""
    return command("train --resume", run, *words)


def _recipe(run: Run) -> str:
    """What a run trained; nothing when its meta.json is damaged."""
    try:
        return str(run.meta().get("recipe", ""))
    except TownletError:
        return ""
