"""Wire messages of ranking, in the shapes of the Personalizer API, as pydantic models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from townlet.decide import domain
from townlet.decide.domain import WireMessage
from townlet.decide.domains.rank.features import MAX_ACTIONS, Encoded, encode

EventId = Annotated[domain.TerritoryId, Field(description="Identifies an event: a ranking and its reward.")]
ActionId = Annotated[str, Field(min_length=1, max_length=200)]
Features = Annotated[
    list[dict[str, Any]],
    Field(description="Objects of features (number, text or boolean), or of namespaces, which are such objects."),
]


class Action(WireMessage):
    """An action that may be ranked first."""

    id: ActionId
    features: Features = Field([])


class RankRequest(WireMessage):
    """Which of these actions first? Sent by the application."""

    type: Literal["rank_request"] = "rank_request"
    event_id: EventId
    context_features: Features = Field([])
    actions: list[Action] = Field(min_length=1, max_length=MAX_ACTIONS)
    excluded_actions: list[ActionId] = Field([], max_length=MAX_ACTIONS)
    defer_activation: bool = False

    @model_validator(mode="after")
    def _check_actions(self) -> Self:
        ids = [action.id for action in self.actions]
        if len(set(ids)) < len(ids):
            raise ValueError("two actions have the same id")
        if not set(ids) - set(self.excluded_actions):
            raise ValueError("all actions are excluded")
        return self


class RankedAction(WireMessage):
    """An action and the probability with which it was to be ranked first."""

    id: ActionId
    probability: domain.UnitInterval


class RankResponse(WireMessage):
    """The ranking of the actions; the first one is to be used. Sent by the service."""

    type: Literal["rank_response"] = "rank_response"
    event_id: EventId
    reward_action_id: ActionId
    ranking: list[RankedAction]
    model_version: domain.Version


class Reward(WireMessage):
    """How good the first action of a ranking was. Sent by the application."""

    type: Literal["reward"] = "reward"
    event_id: EventId
    value: float = Field(ge=-1, le=1, description="Higher is better.")


class Activate(WireMessage):
    """The first action of a deferred ranking was used. Sent by the application."""

    type: Literal["activate"] = "activate"
    event_id: EventId


MESSAGES: Final = (RankRequest, Reward, Activate, RankResponse)


def parse_request(message: Mapping[str, Any]) -> tuple[RankRequest, Encoded]:
    """A request and its columns; raises `InvalidMessage`."""
    request = domain.parse_message(RankRequest, message, "INVALID_OBSERVATION")
    actions = [(action.id, action.features) for action in request.actions]
    return request, encode(request.context_features, actions, request.excluded_actions)


def parse_observation(message: Mapping[str, Any]) -> domain.Observation:
    """An event is a territory with one observation, so a repeated request gets the same answer."""
    request, encoded = parse_request(message)
    return domain.Observation(request.event_id, 0.0, encoded.row, request.defer_activation)


def parse_report(message: Mapping[str, Any]) -> domain.OutcomeReport:
    if message.get("type") == "activate":
        activate = domain.parse_message(Activate, message, "INVALID_REPORT")
        return domain.OutcomeReport(activate.event_id, by_territory=True, activates=True)
    reward = domain.parse_message(Reward, message, "INVALID_REPORT")
    return domain.OutcomeReport(reward.event_id, reward.value, by_territory=True)


def reply(id: str, decision: domain.Decision, message: Mapping[str, Any]) -> dict[str, Any]:
    """The chosen action first, then the others from the most to the least probable."""
    ids = [action["id"] for action in message["actions"]]
    probabilities = [min(1.0, p) for p in decision.probabilities[: len(ids)].tolist()]  # rounding may exceed 1
    order = sorted(range(len(ids)), key=lambda k: (k != decision.action, -probabilities[k], k))
    return {
        "type": "rank_response",
        "eventId": message["eventId"],
        "rewardActionId": ids[decision.action],
        "ranking": [{"id": ids[k], "probability": probabilities[k]} for k in order],
        "modelVersion": decision.version,
    }
