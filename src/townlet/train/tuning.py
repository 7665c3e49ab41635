"""Settings of the agent that change while it trains: by hand in the run's tune.yaml, or where progress ends.

The value of a setting is that of the recipe, which may be a schedule, unless it was changed; then it is the last
change. What counts now is part of a checkpoint, so that a run goes on with it whatever became of the file.
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
from townlet.runs import disk
from townlet.train.plateau import Plateau

HEAD: Final = """\
# Settings of the agent that may change while it trains, as they are in the recipe. Take the # from a line, write
# another value and save: it counts from the next update on. Without its line the recipe's value counts again.
"""


class Change(NamedTuple):
    """A setting that has another value from now on; values are as in a recipe."""

    key: str
    old: Any
    new: Any
    why: str

    def __str__(self) -> str:
        return f"{self.key} is {to_flow_yaml(self.new)} from now on, it was {to_flow_yaml(self.old)} ({self.why})"


class Told(Protocol):
    """Who is told of changes."""

    def changed(self, change: Change) -> None:
        """A setting has another value from now on."""

    def note(self, text: str) -> None:
        """A sentence for people."""


class Tuning:
    """Follows a run's tune.yaml, and changes settings where evaluations make no progress."""

    def __init__(self, agent: Agent, counters: Counters, plateaus: Sequence[Plateau] = ()) -> None:
        self._agent, self._counters, self._plateaus = agent, counters, plateaus
        self._own = dumped(agent.settings)  # of the recipe
        self._changed: dict[str, Any] = {}  # what counts instead
        self._asked: dict[str, Any] = {}  # what tune.yaml said when it was last followed
        self.file: Path | None = None
        self._seen: tuple[int, int] | None = None  # the file as it was last looked at

    def follow(self, told: Told) -> None:
        """What the file asks for counts from now on. Unless it was edited, one look at its date is all."""
        if self.file is None or (seen := _stamp(self.file)) == self._seen:
            return
        self._seen = seen
        try:
            asked = self._read(self.file)
            gone = {key: self._own[key] for key in self._asked.keys() - asked.keys()}
            news = {key: value for key, value in asked.items() if key not in self._asked or value != self._asked[key]}
            self._apply(gone | news, self.file.name, told)
            self._asked = asked
        except TownletError as error:
            told.note("\n".join(f"{mistake} (all settings stay as they are)" for mistake in error.diagnostics))

    def evaluated(self, score: float, told: Told) -> None:
        """An evaluation had this score: where there was no progress for long, a setting is changed."""
        now = self._counters.env_steps
        for plateau in self._plateaus:
            spec = plateau.spec
            if plateau.progress(score, now):
                if spec.revert and plateau.before:
                    self._apply({spec.key: plateau.before.pop()}, "there is progress again", told)
            elif plateau.due(now):
                before = (self._own | self._changed)[spec.key]
                value = getattr(self._agent.settings, spec.key)
                new = spec.after(None if value is None else value_at(value, self._counters))
                try:
                    self._apply({spec.key: new}, f"no progress for {plateau.patience:,} env_steps", told)
                except ConfigError as error:
                    what = f"{error.diagnostics[0].what}: {spec.key} stays {to_flow_yaml(before)}"
                    told.note(f"{what}, see `plateau` in the recipe")
                else:
                    plateau.before = plateau.before or [before]

    def _read(self, file: Path) -> dict[str, Any]:
        """The settings that stand in the file, checked together with all others."""
        try:
            text = disk.read_bounded(file, MAX_BYTES)
        except TownletError:
            if file.exists():
                raise
            return {}  # as if nothing stood in it
        if all(line.strip()[:1] in (b"", b"#") for line in text.splitlines()):
            return {}
        said = parse(text, file.name)
        assert isinstance(said.value, dict)
        known = tunable(self._agent.settings)
        wrong = [key for key in said.value if key not in known]
        if wrong:
            what = "'{}' cannot be changed while it trains"
            raise ConfigError(
                Diagnostic(what.format(key[:40]), did_you_mean(key, known), said.location_of(key)) for key in wrong
            )
        return {key: value for key, value in dumped(self._built({}, said)).items() if key in said.value}

    def _built(self, values: Mapping[str, Any], said: Node | None = None) -> AgentSettings:
        """All settings as they are with these values; raises ConfigError."""
        whole = parse(json.dumps(self._own | self._changed | dict(values)), "the settings")
        assert isinstance(whole.value, dict)
        above = said.value if said and isinstance(said.value, dict) else {}
        where = said.location if said else SourceLocation("the settings")
        return validate_model(type(self._agent.settings), Node({**whole.value, **above}, where))

    def _apply(self, values: Mapping[str, Any], why: str, told: Told) -> None:
        """These values count from now on; raises ConfigError, and nothing has changed then."""
        before = self._own | self._changed
        settings = self._built(values)
        self._changed = {key: value for key, value in (self._changed | dict(values)).items() if value != self._own[key]}
        self._agent.tune(settings)
        for key, value in values.items():
            if value != before[key]:
                told.changed(Change(key, before[key], value, why))

    def state(self) -> State:
        """What counts instead of which values of the recipe, what was asked for, and how long progress is awaited."""
        own = {key: self._own[key] for key in self._changed}
        plateaus = [plateau.state() for plateau in self._plateaus]
        return {"changed": dict(self._changed), "own": own, "asked": dict(self._asked), "plateaus": plateaus}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken; what the recipe has another value of since then is the recipe's."""
        own = state["own"]
        self._changed = {key: value for key, value in state["changed"].items() if own[key] == self._own[key]}
        self._asked, self._seen = dict(state["asked"]), None
        for plateau, saved in zip(self._plateaus, state["plateaus"], strict=True):
            plateau.restore(saved)
        self._agent.tune(self._built({}))


def dumped(settings: StrictModel) -> dict[str, Any]:
    """Settings as a recipe has them."""
    return settings.model_dump(mode="json")


def tunable(settings: AgentSettings) -> list[str]:
    """What may change while an agent with these settings trains."""
    return list(entry(settings.name).tunable)


def tune_text(settings: AgentSettings) -> str:
    """tune.yaml at the beginning: what could be changed, and nothing that is."""
    about, values = type(settings).model_fields, dumped(settings)
    lines = (f"# {key}: {to_flow_yaml(values[key])}  # {about[key].description}\n" for key in tunable(settings))
    return HEAD + "".join(lines)


def _stamp(file: Path) -> tuple[int, int]:
    """What differs after an edit."""
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
