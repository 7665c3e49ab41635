"""Interface of a decision domain, and the message models that domains share.

Observations are stored as columns: arrays with a leading batch dimension B, so that gates, features and networks handle
one observation and thousands alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from torch import Generator, Tensor, nn

from townlet.config.models import StrictModel, first_error
from townlet.decide.losses import Loss, policy_gradient
from townlet.errors import TownletError
from townlet.nets.layers import initialize

MAX_TIME: Final = 1e11  # seconds; a larger timestamp is probably in milliseconds
NEVER: Final = -1e18  # game time of something that has not happened yet
MAX_KEYS: Final = 32  # keys in a message; a message with more is refused unparsed

NO_OPTIONS: Final = StrictModel()

ObservationRow = dict[str, NDArray[Any]]  # one observation: column → [...]
ObservationBatch = Mapping[str, NDArray[Any]]  # B observations: column → [B, ...]


class ColumnSpec(NamedTuple):
    """Shape and dtype of one column of an observation."""

    shape: tuple[int, ...]
    dtype: str


class Observation(NamedTuple):
    """One parsed observation of a game."""

    territory: str  # decisions and outcomes of one territory belong together
    time: float  # seconds, by the game's clock
    row: ObservationRow
    deferred: bool = False  # the decision counts only once a report activates it


class OutcomeReport(NamedTuple):
    """A game's report about a decision."""

    id: str  # of the decision
    value: float | None = None  # the outcome; None if a later observation shows it
    failed: bool = False  # the decision could not be carried out
    by_territory: bool = False  # `id` is the name of a territory: its last decision is meant
    activates: bool = False  # a deferred decision was carried out after all


class GateResult(NamedTuple):
    """The gate's evaluation of all K actions [B, K], or of one action per observation [B]."""

    send: NDArray[np.bool_]  # whether the action may be carried out
    reason: NDArray[np.uint8]  # index into the domain's `reasons`
    rated: NDArray[np.bool_]  # whether there is an estimate; an unaffordable action has none
    expected: NDArray[np.float64]  # estimated reward, 0 without an estimate
    components: NDArray[np.float64]  # [..., C], the terms of the estimate, in the order of the domain's `components`

    def select(self, actions: NDArray[np.int64]) -> GateResult:
        """The result of one action per observation [B], from the results of all actions."""
        rows = np.arange(len(actions))
        send, reason, rated, expected, components = (part[rows, actions] for part in self)
        return GateResult(send, reason, rated, expected, components)  # type: ignore[arg-type]


class PolicySpec(NamedTuple):
    """A network architecture that a domain offers."""

    description: str
    # (observations, time [B], gate result [B, K]) → network inputs
    inputs: Callable[[ObservationBatch, NDArray[np.float64], GateResult], tuple[NDArray[Any], ...]]
    # the domain's options → network; its inputs → log-probabilities [B, K], −∞ for impossible actions
    network: Callable[[Any], nn.Module]
    # (network, *inputs) → probabilities [B, K]; faster than torch if B is small
    small_batch: Callable[..., NDArray[np.float64]] | None = None
    loss: Loss = policy_gradient
    # (network, *inputs) → predicted rewards [B, K], for doubly robust estimates; None: fitted to the gate's components
    predict: Callable[..., Tensor] | None = None

    def build(self, generator: Generator, options: StrictModel = NO_OPTIONS) -> nn.Module:
        """A network with random initial weights."""
        network = self.network(options)
        initialize(network, generator)
        return network


class Decision(NamedTuple):
    """The decision for one observation, before it is numbered and logged."""

    version: int  # version of the policy; 0 if no network was used
    action: int
    propensity: float  # probability with which the action was sampled
    confidence: float
    send: bool  # False: a decision to wait
    reason: str
    expected: float | None  # the gate's estimate; None if it rated nothing
    components: NDArray[np.float64]  # [C], terms of the estimate
    probabilities: NDArray[np.float32]  # [K], from which the action was sampled
    entropy: float  # entropy of the probabilities, divided by its maximum


# Rewards [B] in [−1, 1]; NaN: unknown, so that the decision expires.
RewardFromNext = Callable[[ObservationBatch, ObservationBatch], NDArray[np.float64]]
Baseline = Callable[[ObservationBatch, GateResult, np.random.Generator], NDArray[np.int64]]  # actions [B], not learned


def uniform_random(batch: ObservationBatch, gated: GateResult, rng: np.random.Generator) -> NDArray[np.int64]:
    """Baseline: a uniformly random affordable action; any action if none is affordable."""
    candidates = np.where(gated.rated.any(1, keepdims=True), gated.rated, True)
    chosen: NDArray[np.int64] = np.where(candidates, rng.random(candidates.shape), -1.0).argmax(1)
    return chosen


def gate_greedy(batch: ObservationBatch, gated: GateResult, rng: np.random.Generator) -> NDArray[np.int64]:
    """Baseline: the action with the gate's highest estimate."""
    best: NDArray[np.int64] = np.where(gated.rated, gated.expected, -np.inf).argmax(1)
    return best


class DecisionPort(Protocol):
    """What the routes of a domain can ask of the service."""

    async def send(self, message: Mapping[str, Any], size: int, token_name: str, key: str) -> dict[str, Any]:
        """The reply to a message of `/ws`, of this size as JSON, from the client with this token name and key."""


class HttpApi(NamedTuple):
    """HTTP routes of a domain, for games that do not use `/ws`."""

    prefix: str  # of all paths; they need the token of a game
    token_headers: tuple[str, ...]  # headers that may carry it instead of Authorization
    router: Callable[[DecisionPort], APIRouter]
    error: Callable[[int, str], dict[str, Any]]  # (status, text) → body of a response that refuses a request


class SimulatedGame(Protocol):
    """A simulated game that plays against the service."""

    def observe(self) -> dict[str, Any]:
        """The current observation, as a message."""

    def apply(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Carry out a reply; returns the reports that are already due."""

    def advance(self) -> list[dict[str, Any]]:
        """Advance the game to its next decision; returns the reports that are due."""


class Domain(Protocol):
    """A kind of game that the service decides for. All methods are pure functions of their arguments."""

    name: str
    argument: str = ""  # what names it on a command line, if not `name`
    observation_type: str  # type of the messages that request a decision
    report_types: tuple[str, ...]  # types of the messages that report about one
    n_actions: int  # K
    columns: Mapping[str, ColumnSpec]
    reasons: tuple[str, ...]
    components: tuple[str, ...]
    gate_settings: type[StrictModel]
    policies: Mapping[str, PolicySpec]  # the first one is the default
    baselines: Mapping[str, Baseline]
    failed_outcome: float  # outcome of a decision that could not be carried out
    options: type[StrictModel] = StrictModel  # settings of the policies
    default_settings: Mapping[str, Any] = {}  # defaults that differ from those of `DecideSettings`
    fixed_settings: tuple[str, ...] = ()  # settings of the domain that a folder keeps forever
    reference: str = ""  # the baseline that serving versions are compared with
    single_observations: bool = False  # every territory has one observation
    id_field: str = "decisionId"  # field of a reply: the id of its decision, or the only decision's territory
    http: HttpApi | None = None

    @property
    def reward_from_next(self) -> RewardFromNext | None:
        """Function from the observation of a decision and the next one to rewards; None if outcomes are reported."""

    @property
    def make_game(self) -> Callable[[int, str, int], SimulatedGame]:
        """Factory of simulated games: seed, territory, stage (from 0)."""

    def example(self) -> Mapping[str, Any]:
        """An observation, as a message, for the calculations before the first game connects."""
        return self.make_game(0, "warm-up", 0).observe()

    def check_log(self, settings: Mapping[str, Any]) -> None:
        """Raise `ForeignLog` if decisions made with these settings cannot be continued or repeated."""
        return None

    def initial_territory_state(self) -> ObservationRow:
        """State of a new territory: columns that the service carries from one observation to the next."""

    def parse_observation(self, message: Mapping[str, Any]) -> Observation:
        """Parse an observation, without the columns of the territory state; raises `InvalidMessage`."""

    def parse_report(self, message: Mapping[str, Any]) -> OutcomeReport:
        """Parse a report; raises `InvalidMessage`."""

    def territory_state_after(self, state: ObservationRow, action: int, time: float) -> ObservationRow:
        """The state after an action is sent at this time; `state` is not changed."""

    def territory_state_after_failure(
        self, state: ObservationRow, before: ObservationRow, action: int, time: float
    ) -> ObservationRow:
        """The state as if an action that failed had not been sent; `before` is the observation that it answered."""

    def confidence(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """Confidence [B] of a policy with these action probabilities [B, K]."""

    def gate(
        self, batch: ObservationBatch, time: NDArray[np.float64], settings: StrictModel,
        actions: NDArray[np.int64] | None = None,
    ) -> GateResult:  # fmt: skip
        """Rate all actions, or one action per observation, and decide which may be carried out."""

    def reply(self, id: str, decision: Decision, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message that answers an observation, `message`, with a decision of this id."""

    def schema(self) -> dict[str, Any]:
        """JSON Schema of every message in both directions."""

    def action_chart(self, counts: NDArray[np.int64]) -> dict[str, Any]:
        """Dashboard chart of how often each action [K] was chosen."""

    def evidence(self, network: nn.Module, messages: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """How much parts of the observations matter to a network, by their name; empty if not known."""
        return {}


class LastTimes(Domain):
    """Territory state in one column: the time at which each target of actions (an ad, a chunk) was last chosen."""

    state_column: str
    n_targets: int  # the target of an action is action % n_targets

    def initial_territory_state(self) -> ObservationRow:
        return {self.state_column: np.full(self.n_targets, NEVER)}

    def territory_state_after(self, state: ObservationRow, action: int, time: float) -> ObservationRow:
        times = state[self.state_column].copy()
        times[action % self.n_targets] = time
        return {self.state_column: times}

    def territory_state_after_failure(
        self, state: ObservationRow, before: ObservationRow, action: int, time: float
    ) -> ObservationRow:
        """The time of the target is reset, unless a later action had the same target."""
        times, target = state[self.state_column].copy(), action % self.n_targets
        if times[target] == time:
            times[target] = before[self.state_column][target]
        return {self.state_column: times}


class Stateless(Domain):
    """No territory state: every observation contains all that a decision depends on."""

    def initial_territory_state(self) -> ObservationRow:
        return {}

    def territory_state_after(self, state: ObservationRow, action: int, time: float) -> ObservationRow:
        return state

    def territory_state_after_failure(
        self, state: ObservationRow, before: ObservationRow, action: int, time: float
    ) -> ObservationRow:
        return state


class ForeignLog(TownletError):
    """A log cannot be continued or repeated here: its domain is unknown, or its code has changed."""


class InvalidMessage(Exception):
    """A message that the domain cannot parse: `code` for programs, the text for people."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code


DecisionId = Annotated[str, Field(min_length=1, max_length=100, description="Identifies a decision.")]
Time = Annotated[float, Field(ge=0, le=MAX_TIME, description="Seconds by the game's clock.")]
TerritoryId = Annotated[
    str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$", description="Groups observations.")
]
UnitInterval = Annotated[float, Field(ge=0, le=1)]
Version = Annotated[int, Field(ge=0, lt=2**53)]
Reason = Annotated[str, Field(max_length=200)]


class WireMessage(BaseModel):
    """Base of all messages: camel-case keys, no unknown fields, no coercion, no NaN or infinity."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        alias_generator=to_camel,
        serialize_by_alias=True,
        hide_input_in_errors=True,
    )


class Ping(WireMessage):
    """Checks the connection; answered by a pong. Sent by the game."""

    type: Literal["ping"] = "ping"


class OutcomeAck(WireMessage):
    """A report has been stored durably, or counts no more. Sent by the service."""

    type: Literal["outcome_ack"] = "outcome_ack"
    decision_id: DecisionId
    status: Literal["expired"] | None = Field(
        None, description="Only if the report does not count, because the decision had expired."
    )


class ErrorMessage(WireMessage):
    """A message was refused; `code` is for programs, `message` for people. Sent by the service."""

    type: Literal["error"] = "error"
    code: str = Field(pattern="^[A-Z_]{1,40}$")
    message: str = Field(max_length=1000)


COMMON_MESSAGES: Final[tuple[type[WireMessage], ...]] = (Ping, OutcomeAck, ErrorMessage)
MessageT = TypeVar("MessageT", bound=WireMessage)


def parse_message(model: type[MessageT], message: Mapping[str, Any], code: str) -> MessageT:
    """Validate a message; raises `InvalidMessage` with this code and the first invalid field."""
    if len(message) > MAX_KEYS:
        raise InvalidMessage(code, f"{len(message)} keys are too many; the maximum is {MAX_KEYS}")
    try:
        return model.model_validate(message if isinstance(message, dict) else dict(message))
    except ValidationError as error:
        raise InvalidMessage(code, first_error(error.errors(), "message")) from None


def message_schemas(messages: Sequence[type[WireMessage]]) -> dict[str, dict[str, Any]]:
    """JSON Schemas of these messages and the common ones, by `type`."""
    models = (*messages, *COMMON_MESSAGES)
    return {str(model.model_fields["type"].default): model.model_json_schema() for model in models}
