"""What a domain brings along: how to read what a game sees, judge an action, act, and say how it went.

Observations are kept as columns: arrays with the observations of a batch in front, B of them. So gates, features and
networks work on one observation as on thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Generator, nn

from townlet.config.model import Model

Row = dict[str, NDArray[Any]]  # one observation: column → [...]
Scene = Mapping[str, NDArray[Any]]  # B of them: column → [B, ...]


class Column(NamedTuple):
    """What one observation keeps under a name."""

    shape: tuple[int, ...]
    dtype: str


class Sight(NamedTuple):
    """One observation of a game, as it was read from the wire."""

    territory: str  # whose decisions and outcomes belong together
    time: float  # seconds, by the game's clock
    row: Row


class Report(NamedTuple):
    """What a game tells of a decision."""

    id: str
    value: float | None = None  # what came of it; None where that shows later
    failed: bool = False  # it could not be carried out


class Verdicts(NamedTuple):
    """What the gate says of all K actions [B, K], or of one for each observation [B]."""

    send: NDArray[np.bool_]
    reason: NDArray[np.uint8]  # a place in the domain's `reasons`
    rated: NDArray[np.bool_]  # whether there is an estimate at all: what cannot be paid for has none
    expected: NDArray[np.float64]  # the estimated reward, 0 where there is none
    components: NDArray[np.float64]  # [..., C], the parts of the estimate by the domain's `components`

    def of(self, actions: NDArray[np.int64]) -> Verdicts:
        """From those of all actions those of one for each observation [B]."""
        lines = np.arange(len(actions))
        send, reason, rated, expected, components = (part[lines, actions] for part in self)
        return Verdicts(send, reason, rated, expected, components)  # type: ignore[arg-type]


class PolicyKind(NamedTuple):
    """A form of network that a domain offers."""

    about: str
    inputs: Callable[[Scene, NDArray[np.float64], Verdicts], tuple[NDArray[np.float32], ...]]  # scene, time [B], [B, K]
    make: Callable[[Generator], nn.Module]  # inputs as tensors → logarithms of probabilities [B, K], −∞ for never
    few: Callable[..., NDArray[np.float64]] | None = None  # network, inputs → probabilities, quicker for a few rows


class Choice(NamedTuple):
    """What is told to the game of a decision."""

    id: str
    action: int
    send: bool
    reason: str
    confidence: float
    version: int
    probabilities: NDArray[np.float32]  # [K], of which the action was drawn


Following = Callable[[Scene, Scene], NDArray[np.float64]]  # [B], in [−1, 1]
Baseline = Callable[[Scene, Verdicts, np.random.Generator], NDArray[np.int64]]  # actions [B] without learning


class Game(Protocol):
    """A simulated game, to try a service with."""

    def message(self) -> dict[str, Any]:
        """What is seen now, as it is sent."""

    def obey(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Carry out an answer; what can be reported of it at once."""

    def go_on(self) -> list[dict[str, Any]]:
        """Time passes until something is to be decided again; what can be reported now."""


class Domain(Protocol):
    """A game for the service. All functions are pure: the same arguments give the same answer, now and in a year."""

    name: str
    observation: str  # the type of messages that ask for a decision
    report: str  # the type of messages that tell of one
    actions: int  # K
    columns: Mapping[str, Column]
    reasons: tuple[str, ...]
    components: tuple[str, ...]
    gate_settings: type[Model]
    policies: Mapping[str, PolicyKind]  # the first is the usual one
    baselines: Mapping[str, Baseline]
    failed: float  # the outcome of what was decided and could not be carried out

    @property
    def following(self) -> Following | None:
        """What came of decisions, from what was seen then and is seen next; None where reports tell it."""

    @property
    def game(self) -> Callable[[int, str, int], Game]:
        """A simulated one: of a seed, a territory, and a stage from 0 on."""

    def fresh(self) -> Row:
        """What is known of a territory before anything happened there: columns that the service carries over."""

    def read(self, message: Mapping[str, Any]) -> Sight:
        """An observation from the wire, without what is carried over; raises `Malformed` for a wrong one."""

    def read_report(self, message: Mapping[str, Any]) -> Report:
        """What the game tells of a decision; raises `Malformed` for a wrong message."""

    def remember(self, known: Row, action: int, time: float) -> Row:
        """What is known of a territory after an action was carried out there; `known` itself stays as it is."""

    def forget(self, known: Row, before: Row, action: int, time: float) -> Row:
        """What is known after an action of that time turned out to have failed; `before` is what was known then."""

    def confidence(self, chances: NDArray[np.float64]) -> NDArray[np.float64]:
        """How sure a policy is [B] that gives actions these probabilities [B, K]."""

    def gate(
        self, scene: Scene, time: NDArray[np.float64], settings: Model, actions: NDArray[np.int64] | None = None
    ) -> Verdicts:
        """Estimate and approve all actions, or one for each observation."""

    def reply(self, choice: Choice) -> dict[str, Any]:
        """The answer to an observation, as the game reads it."""

    def schema(self) -> dict[str, Any]:
        """JSON Schema of every message, both ways."""

    def chart(self, actions: NDArray[np.int64]) -> dict[str, Any]:
        """How often each action was decided [K], as the dashboard draws it."""


class Malformed(Exception):
    """A message that the domain cannot read: `code` for programs, the text for people."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code
