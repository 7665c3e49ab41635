"""The folder of a small training run, and what resuming, evaluating and showing a copy of it gives."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from attack.damage import Command, Effect, command
from crash.smith import DQN, digest, kept
from small import SMALL_GYM
from townlet.errors import TownletError
from townlet.interfaces.counters import Counters
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.train.session import resume, start
from townlet.train.sinks import Mark

TUNED, PAUSED, RESUMED = 400, 800, 1000  # env_steps
TUNE = "lr: 0.00051  # a value that differs from the recipe's\n"
BUDGET = "budget.env_steps=1200"  # of a finished run that goes on
# A town has copies of its worlds, an older checkpoint, videos and TensorBoard's file; a gym environment has a table of
# values. A finished run has a report.
EDITABLE = ("tune.yaml",)
RECIPES = {
    "town": ("town:dqn", (*DQN, "video.episodes=1", "video.steps=5", "metrics.tensorboard=true")),
    "gym": SMALL_GYM["qlearning"],
    "finished": ("town:dqn", (*DQN, "budget={env_steps: 800}", "metrics.report=true")),
}


class Given(NamedTuple):
    """What a command gave: a value to compare, or the message of a refusal."""

    value: Any
    messages: frozenset[str] = frozenset()


class Shown(NamedTuple):
    """What the ways to use a run give."""

    figures: Given  # `runs show` and `runs export`
    evaluation: Given  # `eval`
    resumed: Given  # leaves of the next checkpoint, and the digest of the metrics


class Messages:
    """Collects what a training says to its user."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def tick(self, counters: Counters) -> None:
        """Progress is no message."""

    def mark(self, mark: Mark) -> None:
        """Figures are no message."""

    def evaluated(self, counters: Counters, columns: Mapping[str, Any]) -> None:
        """An evaluation is no message."""

    def note(self, text: str) -> None:
        """A message."""
        self.texts.append(text)

    def close(self) -> None:
        """Nothing is open."""


def build(root: Path, kind: str) -> Path:
    """Train a run, change a setting by its tune.yaml, and pause it as after a Ctrl-C; its folder."""
    recipe, words = RECIPES[kind]
    run = start(load_experiment(recipe, words), root, pause_at=TUNED).run
    with run.tune_file.open("a", encoding="utf-8") as file:
        file.write(TUNE)
    resume(run, pause_at=PAUSED)
    return run.path


def verify(folder: Path) -> Command:
    """`townlet runs verify RUN`."""
    return command("runs", "verify", str(folder))


def show(folder: Path) -> Shown:
    """Use a run in every way. The folder is changed by it."""
    return Shown(_figures(folder), _evaluation(folder), _resumed(folder))


def _figures(folder: Path) -> Given:
    told, exported = command("runs", "show", str(folder), "--json"), command("runs", "export", str(folder))
    if told.code or exported.code:
        return Given(None, frozenset([told.text if told.code else exported.text]))
    if problem := json.loads(told.text)["problem"]:
        return Given(None, frozenset([problem]))
    table = Run(folder).csv_file
    value = told.text.replace(str(folder), ""), table.read_bytes()
    table.unlink()
    return Given(value)


def _evaluation(folder: Path) -> Given:
    done = command("eval", str(folder), "--episodes", "2", "--json")
    return Given(None, frozenset([done.text])) if done.code else Given(done.text.replace(str(folder), ""))


def _resumed(folder: Path) -> Given:
    """Train on for a while; everything that it says is a message."""
    messages, finished = Messages(), (folder / "report.md").exists()
    try:
        resume(Run(folder), [BUDGET] if finished else [], pause_at=RESUMED, sinks=[messages])
        leaves = {name: _bits(leaf) for name, leaf in kept(folder).items()}
        return Given((leaves, digest(folder)), frozenset(messages.texts))
    except TownletError as error:
        return Given(None, frozenset([str(error)]))


def _bits(leaf: Any) -> Any:
    return leaf.numpy().tobytes() if hasattr(leaf, "numpy") else leaf


def effect(before: Shown, folder: Path, file: str) -> tuple[Effect, str]:
    """Verify a damaged run, use it, and compare with the undamaged one; the effect and what was printed.

    `verify` must name the damage as well, unless `file` may be edited by its owner at any time.
    """
    verified = verify(folder)
    told = [f"verify: {verified.code} {verified.text[:300]}"]
    effects = []
    for name, one, other in zip(Shown._fields, before, show(folder), strict=True):
        news = other.messages - one.messages
        same = Effect.HARMLESS if one.value == other.value else Effect.SILENT
        effects.append(Effect.REPORTED if news else same)
        told.append(f"{name}: {effects[-1]} {'; '.join(news)[:300]}")
    text = "; ".join(told)
    if Effect.SILENT in effects:
        return Effect.SILENT, text
    if Effect.REPORTED in effects:
        named = verified.code or file in EDITABLE
        return Effect.REPORTED if named else Effect.SILENT, text
    return Effect.REPORTED if verified.code else Effect.HARMLESS, text


def copy(folder: Path, to: Path) -> Path:
    """A copy below `to` under the same name: the name is part of what is shown."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to / folder.name, symlinks=True)
    return to / folder.name
