"""Arguments and options shared by several commands, and lookup of runs by name."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from townlet.cli.console import echo_err
from townlet.config import user_code
from townlet.errors import TownletError, did_you_mean

if TYPE_CHECKING:
    from townlet.runs.folder import Run
    from townlet.train.policies import TrainedPolicy, Which

ROOT: Final = Path("runs")  # default of --root
PROGRAM: Final = "townlet"
NO_TOKEN: Final = "--no-token: every user of this machine can operate this server."


def permit_code(given: bool) -> None:
    """Permit Python files of users to run."""
    if given:
        user_code.permit()


RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="A run: name, prefix, path or latest; or ENV:VARIANT for its newest run.")
]
Root = Annotated[Path, typer.Option("--root", metavar="FOLDER", help="Folder that contains the runs.")]


def parse_steps(text: str, least: int = 1) -> int:
    """Parse a number of steps such as 100000 or 1e5."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not least <= number < 1e18 or number % 1:
        raise typer.BadParameter(f"'{text[:40]}' is not a number of steps; write it like 100000 or 1e5")
    return int(number)


def _parse_which(text: str) -> str | int:
    """Parse the name or the step of a saved policy."""
    return text if text in ("best", "last") else parse_steps(text, least=0)


Checkpoint = Annotated[
    Any,
    typer.Option(
        "--which",
        parser=_parse_which,
        metavar="best|last|STEP",
        help="Use the best or the last checkpoint, or the policy saved nearest to a step, such as 0 or 1e5.",
    ),
]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        callback=permit_code,
        help="Allow recipes to run the Python files they name, and to name files to environments. Review them first.",
    ),
]
Sample = Annotated[
    bool | None,
    typer.Option("--sample/--greedy", help="Sample actions, or act greedily; by default as in the run's evaluations."),
]
EvaluationSeed = Annotated[
    int | None, typer.Option(min=0, help="Seed of the episodes; by default one that the run's evaluations did not use.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
WorldName = Annotated[str, typer.Argument(metavar="WORLD", help="A shipped world or the path of a YAML file.")]
WorldOverrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Overrides of the world, such as max_steps=1000.")
]
RecipeOverrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Overrides of the recipe, such as agent.lr=1e-3.")
]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help="Read tokens from a YAML or JSON file with the keys operator and viewer."
    ),
]
NoToken = Annotated[
    bool, typer.Option("--no-token", help="Require no token: every user of this machine can then operate the server.")
]


def port_option(default: int) -> Any:
    """The option --port of a server that listens on `default` or a later port."""
    return typer.Option(min=0, max=65535, help=f"Port to listen on. By default {default}, or the next free one.")


def open_run(word: str, root: Path, *, for_policy: bool = False) -> Run:
    """The run with this name, prefix or path; for `latest` or ENV:VARIANT, the newest run (of that recipe)."""
    from townlet.runs.folder import Run

    return Run.open(word, root, for_policy=for_policy)


def find_run(word: str, root: Path) -> Run | None:
    """The run that a word names, or None if it names a world; raises TownletError if it names neither."""
    from townlet.town.world.load import SUFFIXES, shipped

    if word in shipped() or word.endswith(SUFFIXES) or Path(word).is_file():
        return None
    from townlet.runs.folder import LATEST, SHIPPED, Run

    names = [run.name for folder in (root, SHIPPED) for run in Run.list(folder)]
    if ":" in word or word == LATEST or (root / word).is_dir() or Path(word).is_dir():
        return open_run(word, root, for_policy=True)
    if any(name.startswith(word) for name in names):
        return Run.open(word, root)
    files = sorted(path.name for path in Path().glob("*.yaml"))
    file = f"{word}.yaml"
    hint = f"did you mean '{file}'?" if file in files else did_you_mean(word, [*shipped(), *files, *names])
    raise TownletError(f"there is no world and no run '{word[:60]}'", hint)


def load_policy(run: Run, which: Which) -> TrainedPolicy:
    """The trained policy of a run; notes on loading it are printed on stderr."""
    from townlet.train import policies

    trained = policies.load_policy(run, which)
    echo_err(*trained.loaded.notes)
    return trained


def run_command(command: str, run: Run, *words: str) -> str:
    """A command line for a run, with --root if needed, and with --allow-code if this command has it."""
    root = [] if run.path.parent == ROOT else ["--root", shlex.quote(str(run.path.parent))]
    code = ["--allow-code"] if user_code.permitted() else []
    return " ".join([program_name(), command, run.name, *words, *root, *code])


def program_name() -> str:
    """The name of this program in commands shown to users; its path if it is not on PATH."""
    called = sys.argv[0]
    return called if Path(called).name == PROGRAM and shutil.which(PROGRAM) is None else PROGRAM
