"""What a sweep found, as a recipe's file that extends the one it began with."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from townlet.config.scalar import quote, to_flow_yaml
from townlet.recipes.catalogue import FOLDER, Choice, choose
from townlet.recipes.load import command_line
from townlet.recipes.schema import Recipe
from townlet.runs.disk import replace_file
from townlet.sweep.trial import Experiment

ENDING: Final = "-best.yaml"
LONGEST: Final = 400  # letters of a command that a result may have; the file's first line has it whole
NAMELESS: Final = "best"  # the variant, where the file swept has none


def default_file(experiment: Experiment) -> Path:
    """Where the recipe is written unless somebody says otherwise."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", experiment.study).strip("-.") or "sweep"
    return experiment.root / f"{name}{ENDING}"


def write(path: Path, experiment: Experiment, words: list[str], what: str, command: str) -> None:
    """A recipe with the values `words`; `what` tells the result and `command` how it was found."""
    replace_file(path, text(experiment, words, what, command).encode())


def text(experiment: Experiment, words: list[str], what: str, command: str) -> str:
    """The file's text: one variant that extends what was swept, so that it trains by the file's name alone."""
    choice, recipe = choose(experiment.asked), experiment.recipe
    known = {
        "description": f"{recipe.title} with what a sweep found.",
        "tuned": True,
        "result": [{"what": what, "command": command if len(command) <= LONGEST else ""}],
    }
    values: dict[str, Any] = {}
    for layer in command_line([*experiment.words, *words]):
        values |= layer.to_python()
    lines = [f"# Found by: {command}", f"env: {quote(recipe.env)}"]
    lines += [f"world: {quote(recipe.world)}"] if recipe.world else []
    if choice.variant is None:
        lines.insert(1, f"extends: {to_flow_yaml(_source(choice))}")
    lines += ["variants:", f"  {quote(choice.variant or NAMELESS)}:"]
    if choice.variant is not None:
        lines.append(f"    extends: {to_flow_yaml(f'{_source(choice)}:{choice.variant}')}")
    lines += [f"    {quote(key)}: {to_flow_yaml(value)}" for key, value in {**known, **values}.items()]
    return "\n".join(lines) + "\n"


def _source(choice: Choice) -> str:
    """The file that was swept, as it is found from anywhere."""
    path = choice.file.path
    return path.stem if path.parent == FOLDER else os.path.abspath(path)


def in_words(recipe: Recipe, score: float, start: float | None, *, as_it_was: bool) -> str:
    """The result in one line."""
    before = "" if start is None else f", {start:.1f} before the search"
    return f"{recipe.metric} {score:.1f} in one trial" + ("; nothing better was found" if as_it_was else before)
