"""A small training run on disk, and the results of resuming, evaluating and showing a copy of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from attack.damage import Command, Effect, command
from crash.training_process import DQN, checkpoint_leaves, metrics_digest
from small import SMALL_GYM
from townlet.errors import TownletError
from townlet.interfaces.counters import Sink
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.train.session import resume, start

TUNED, PAUSED, RESUMED = 160, 320, 360  # env_steps
TUNE = "lr: 0.00051  # a value that differs from the recipe's\n"
BUDGET = "budget.env_steps=1200"  # to resume a finished run
# A town has copies of its worlds, an older checkpoint, videos and TensorBoard's file; a gym environment has a table of
# values. A finished run has a report.
EDITABLE = ("tune.yaml",)
RECIPES = {
    "town": ("town:dqn", (*DQN, "video.episodes=1", "video.steps=5", "metrics.tensorboard=true")),
    "gym": SMALL_GYM["qlearning"],
    "finished": ("town:dqn", (*DQN, f"budget={{env_steps: {PAUSED}}}", "metrics.report=true")),
}


class Result(NamedTuple):
    """Result of a command: a value to compare, or the message of a refusal."""

    value: Any
    messages: frozenset[str] = frozenset()


class Shown(NamedTuple):
    """Results of all commands that use a run."""

    figures: Result  # `runs show` and `runs export`
    evaluation: Result  # `eval`
    resumed: Result  # leaves of the next checkpoint, and the digest of the metrics


class Messages(Sink):
    """Collects messages of a training to its user."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        """Collect a message."""
        self.texts.append(text)


def build(root: Path, kind: str) -> Path:
    """Train a run, change a setting in tune.yaml, and pause it as Ctrl-C does; returns its folder."""
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
    """Run all commands, which changes the folder."""
    return Shown(_figures(folder), _evaluation(folder), _resumed(folder))


def _figures(folder: Path) -> Result:
    shown, exported = command("runs", "show", str(folder), "--json"), command("runs", "export", str(folder))
    if shown.code or exported.code:
        return Result(None, frozenset([shown.text if shown.code else exported.text]))
    if problem := json.loads(shown.text)["problem"]:
        return Result(None, frozenset([problem]))
    table = Run(folder).csv_file
    value = shown.text.replace(str(folder), ""), table.read_bytes()
    table.unlink()
    return Result(value)


def _evaluation(folder: Path) -> Result:
    done = command("eval", str(folder), "--episodes", "2", "--json")
    return Result(None, frozenset([done.text])) if done.code else Result(done.text.replace(str(folder), ""))


def _resumed(folder: Path) -> Result:
    """Resume training for a while and collect its messages."""
    messages, finished = Messages(), (folder / "report.md").exists()
    try:
        resume(Run(folder), [BUDGET] if finished else [], pause_at=RESUMED, sinks=[messages])
        leaves = {name: _bits(leaf) for name, leaf in checkpoint_leaves(folder).items()}
        return Result((leaves, metrics_digest(folder)), frozenset(messages.texts))
    except TownletError as error:
        return Result(None, frozenset([str(error)]))


def _bits(leaf: Any) -> Any:
    return leaf.numpy().tobytes() if hasattr(leaf, "numpy") else leaf


def effect(before: Shown, folder: Path, file: str) -> tuple[Effect, str]:
    """Verify a damaged run, use it, and compare with the undamaged one; returns the effect and the output.

    `verify` must name the damage as well, unless `file` may be edited by its owner at any time.
    """
    verified = verify(folder)
    output = [f"verify: {verified.code} {verified.text[:300]}"]
    effects = []
    for name, intact, damaged in zip(Shown._fields, before, show(folder), strict=True):
        news = damaged.messages - intact.messages
        same = Effect.HARMLESS if intact.value == damaged.value else Effect.SILENT
        effects.append(Effect.REPORTED if news else same)
        output.append(f"{name}: {effects[-1]} {'; '.join(news)[:300]}")
    text = "; ".join(output)
    if Effect.SILENT in effects:
        return Effect.SILENT, text
    if Effect.REPORTED in effects:
        named = verified.code or file in EDITABLE
        return Effect.REPORTED if named else Effect.SILENT, text
    return Effect.REPORTED if verified.code else Effect.HARMLESS, text


def copy(folder: Path, to: Path) -> Path:
    """Copy below `to` under the same name, since the name is part of the output."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to / folder.name, symlinks=True)
    return to / folder.name
