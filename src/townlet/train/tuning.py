"""Changes of the agent's settings during training: by the run's tune.yaml, or by a plateau of the evaluation score.

A setting has the value of its last change, or else that of the recipe, which may be a schedule. A checkpoint includes
the changes, so that a resumed run does not depend on the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from townlet.agents.agent import Agent
from townlet.agents.registry import entry
from townlet.agents.settings import AgentSettings
from townlet.config.models import StrictModel
from townlet.config.scalar import to_flow_yaml
from townlet.config.schedule import value_at
from townlet.config.validate import validate_model
from townlet.config.yaml import MAX_BYTES, Node, parse
from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError, did_you_mean
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import State
from townlet.recipes.schema import PlateauSpec
from townlet.runs import disk


class PlateauTracker:
    """One `plateau` rule, with the time of the last progress; times are in env_steps."""

    def __init__(self, spec: PlateauSpec, patience: int) -> None:
        self.spec, self.patience = spec, patience
        self._best: float | None = None
        self._since = 0  # when there was progress or the rule was applied, whichever is later
        self.before: list[Any] = []  # [the value to restore], or [] if the rule is not in effect

    def add_score(self, score: float, now: int) -> bool:
        """Record a score. Returns whether it is progress: better than the best so far by at least `min_delta`."""
        best = self._best
        if best is not None and (score <= best or score - best < self.spec.min_delta):
            return False
        self._best, self._since = score, now
        return True

    def check_patience(self, now: int) -> bool:
        """Whether `patience` has passed without progress; if so, the wait starts again."""
        if now - self._since < self.patience:
            return False
        self._since = now
        return True

    def state(self) -> State:
        return {"best": self._best, "since": self._since, "before": list(self.before)}

    def restore(self, state: State) -> None:
        self._best, self._since, self.before = state["best"], int(state["since"]), list(state["before"])


TUNE_HEADER: Final = """\
# Settings of the agent that may change during training, with the values of the recipe. Remove the # of a line, change
# the value and save: it applies at the next update. Without its line the recipe's value applies again.
"""


class SettingChange(NamedTuple):
    """A change of a setting; values are as in a recipe."""

    key: str
    old: Any
    new: Any
    why: str

    def __str__(self) -> str:
        return f"{self.key} changed from {to_flow_yaml(self.old)} to {to_flow_yaml(self.new)} ({self.why})"


class TuningListener(Protocol):
    """Receives changes of settings."""

    def on_setting_change(self, change: SettingChange) -> None:
        """Called when a setting has changed."""

    def message(self, text: str) -> None:
        """Show a message to the user."""


class Tuning:
    """Applies a run's tune.yaml, and the `plateau` rules of its recipe."""

    def __init__(self, agent: Agent, counters: Counters, plateaus: Sequence[PlateauTracker] = ()) -> None:
        self._agent, self._counters, self._plateaus = agent, counters, plateaus
        self._recipe = dump_settings(agent.settings)  # all settings as in the recipe
        self._changed: dict[str, Any] = {}  # changed settings and their values
        self._file_values: dict[str, Any] = {}  # settings in tune.yaml when it was last applied
        self.file: Path | None = None
        self._stamp: tuple[int, int] | None = None  # modification time and size of the file

    def apply_edits(self, listener: TuningListener) -> None:
        """Apply tune.yaml if it was edited."""
        if self.file is None or (stamp := _stamp(self.file)) == self._stamp:
            return
        self._stamp = stamp
        try:
            values, before = self._read(self.file), self._file_values
            removed = {key: self._recipe[key] for key in before.keys() - values.keys()}
            changed = {key: value for key, value in values.items() if key not in before or value != before[key]}
            self._apply(removed | changed, self.file.name, listener)
            self._file_values = values
        except TownletError as error:
            listener.message("\n".join(f"{diagnostic} (no setting was changed)" for diagnostic in error.diagnostics))

    def on_evaluation(self, score: float, listener: TuningListener) -> None:
        """Apply the plateau rules after an evaluation with this score."""
        now = self._counters.env_steps
        for plateau in self._plateaus:
            spec = plateau.spec
            if plateau.add_score(score, now):
                if spec.revert and plateau.before:
                    self._apply({spec.key: plateau.before.pop()}, "there is progress again", listener)
            elif plateau.check_patience(now):
                before = (self._recipe | self._changed)[spec.key]
                value = getattr(self._agent.settings, spec.key)
                new = spec.after(None if value is None else value_at(value, self._counters))
                try:
                    self._apply({spec.key: new}, f"no progress for {plateau.patience:,} env_steps", listener)
                except ConfigError as error:
                    what = f"{error.diagnostics[0].what}: {spec.key} stays {to_flow_yaml(before)}"
                    listener.message(f"{what}, see `plateau` in the recipe")
                else:
                    plateau.before = plateau.before or [before]

    def _read(self, file: Path) -> dict[str, Any]:
        """The settings in the file, validated together with all others."""
        try:
            text = disk.read_bounded(file, MAX_BYTES)
        except TownletError:
            if file.exists():
                raise
            return {}
        if all(line.strip()[:1] in (b"", b"#") for line in text.splitlines()):
            return {}
        node = parse(text, file.name)
        assert isinstance(node.value, dict)
        known = list(entry(self._agent.settings.name).changeable)
        if unknown := [key for key in node.value if key not in known]:
            what = "'{}' cannot be changed during training"
            raise ConfigError(
                Diagnostic(what.format(key[:40]), did_you_mean(key, known), node.location_of(key)) for key in unknown
            )
        return {key: value for key, value in dump_settings(self._settings({}, node)).items() if key in node.value}

    def _settings(self, values: Mapping[str, Any], node: Node | None = None) -> AgentSettings:
        """All settings with these values; raises ConfigError."""
        base = parse(json.dumps(self._recipe | self._changed | dict(values)), "the settings")
        assert isinstance(base.value, dict)
        overrides = node.value if node and isinstance(node.value, dict) else {}
        where = node.location if node else SourceLocation("the settings")
        return validate_model(type(self._agent.settings), Node({**base.value, **overrides}, where))

    def _apply(self, values: Mapping[str, Any], why: str, listener: TuningListener) -> None:
        """Apply these values; raises ConfigError without changing anything."""
        before = self._recipe | self._changed
        settings = self._settings(values)
        changed = self._changed | dict(values)
        self._changed = {key: value for key, value in changed.items() if value != self._recipe[key]}
        self._agent.tune(settings)
        for key, value in values.items():
            if value != before[key]:
                listener.on_setting_change(SettingChange(key, before[key], value, why))

    def state(self) -> State:
        """Changed values, the recipe's values that they replace, those of tune.yaml, and the plateau rules."""
        replaced, plateaus = {key: self._recipe[key] for key in self._changed}, [p.state() for p in self._plateaus]
        values = {"changed": dict(self._changed), "recipe": replaced, "file": dict(self._file_values)}
        return values | {"plateaus": plateaus}

    def restore(self, state: State) -> None:
        """Continue exactly where `state` was taken; a change is dropped if the recipe's value has changed since."""
        replaced = state["recipe"]
        self._changed = {key: value for key, value in state["changed"].items() if replaced[key] == self._recipe[key]}
        self._file_values, self._stamp = dict(state["file"]), None
        for plateau, saved in zip(self._plateaus, state["plateaus"], strict=True):
            plateau.restore(saved)
        self._agent.tune(self._settings({}))


def dump_settings(settings: StrictModel) -> dict[str, Any]:
    """Settings as in a recipe."""
    return settings.model_dump(mode="json")


def tune_text(settings: AgentSettings) -> str:
    """The initial tune.yaml: all changeable settings as comments."""
    fields, values = type(settings).model_fields, dump_settings(settings)
    changeable = entry(settings.name).changeable
    lines = (f"# {key}: {to_flow_yaml(values[key])}  # {fields[key].description}\n" for key in changeable)
    return TUNE_HEADER + "".join(lines)


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
