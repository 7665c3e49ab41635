"""Advertisements as the service sees them: who visits, what may be shown to him, and the clicks that are reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.nn.functional import log_softmax
from townlet.decide.domains.bandit_ads.visitors import ADS, TRAITS, Visitors

from townlet.config.models import StrictModel
from townlet.decide.domain import (
    Baseline,
    ColumnSpec,
    Decision,
    DecisionId,
    Domain,
    GateResult,
    Observation,
    ObservationBatch,
    ObservationRow,
    OutcomeReport,
    PolicySpec,
    Reason,
    TerritoryId,
    Time,
    UnitInterval,
    Version,
    WireMessage,
    message_schemas,
    parse_message,
)
from townlet.nets.layers import MLP, initialize, make_head

NEVER: Final = -1e18
REASONS: Final = ("worth_showing", "not_worth_showing", "no_budget")
WORTH, NOT_WORTH, NO_BUDGET = range(3)
COMPONENTS: Final = ("prior", "freshness")
NEARLY_ALIKE: Final = 0.01  # the gain of the last layer, so that the first policy chooses nearly uniformly

Numbers = NDArray[np.float64]


class GateSettings(StrictModel):
    """What may be shown."""

    prior: float = Field(0.1, ge=0, le=1, description="Clicks expected of anybody. Raised, more is shown.")
    freshness: float = Field(0.05, ge=0, le=1, description="Added for what was not shown lately. Raised, more change.")
    rest: float = Field(60.0, gt=0, description="Seconds until something is wholly fresh. Raised, repeats wait longer.")
    threshold: float = Field(0.0, ge=0, le=1, description="Shown when more is expected. Raised, less is shown.")


class AdRequest(WireMessage):
    """Somebody visits a site. The game says this."""

    type: Literal["ad_request"] = "ad_request"
    timestamp: Time
    territory_id: TerritoryId
    traits: list[Annotated[float, Field(ge=-1, le=1)]] = Field(min_length=TRAITS, max_length=TRAITS)
    budgets: list[Annotated[float, Field(ge=0, le=1e9)]] = Field(min_length=ADS, max_length=ADS)


class ClickReport(WireMessage):
    """Whether he clicked. The game says this."""

    type: Literal["click_report"] = "click_report"
    decision_id: DecisionId
    clicked: bool
    shown: bool = True


class AdDecision(WireMessage):
    """Show this. The service says this."""

    type: Literal["ad_decision"] = "ad_decision"
    decision_id: DecisionId
    ad: int = Field(ge=0, lt=ADS)
    confidence: UnitInterval
    model_version: Version


class NoAd(WireMessage):
    """Show nothing, and why. The service says this."""

    type: Literal["no_ad"] = "no_ad"
    decision_id: DecisionId
    reason: Reason


class Clicks(nn.Module):
    """8 → 32 → 12."""

    def __init__(self) -> None:
        super().__init__()
        self.body = MLP(TRAITS, (32,), "relu", layer_norm=False)
        self.score = make_head(32, ADS, NEARLY_ALIKE)

    def forward(self, traits: Tensor) -> Tensor:
        """traits [B, 8] → logarithms of probabilities [B, 12]."""
        return log_softmax(self.score(self.body(traits)), -1)


def _inputs(scene: ObservationBatch, time: Numbers, verdicts: GateResult) -> tuple[NDArray[np.float32], ...]:
    return (scene["traits"].astype(np.float32),)


def _network(generator: Generator) -> nn.Module:
    network = Clicks()
    initialize(network, generator)
    return network


def _random(scene: ObservationBatch, verdicts: GateResult, rng: np.random.Generator) -> NDArray[np.int64]:
    return _first(np.where(verdicts.rated, rng.random(verdicts.rated.shape), -1.0))


def _gate_greedy(scene: ObservationBatch, verdicts: GateResult, rng: np.random.Generator) -> NDArray[np.int64]:
    return _first(np.where(verdicts.rated, verdicts.expected, -np.inf))


def _first(score: Numbers) -> NDArray[np.int64]:
    best: NDArray[np.int64] = score.argmax(1)
    return best


class BanditAds:
    """A domain whose outcomes are reported, or never."""

    name = "bandit-ads"
    observation_type, report_type = "ad_request", "click_report"
    n_actions = ADS
    columns: Mapping[str, ColumnSpec] = {
        "traits": ColumnSpec((TRAITS,), "float64"),
        "budgets": ColumnSpec((ADS,), "float64"),
        "shown": ColumnSpec((ADS,), "float64"),
    }
    reasons: tuple[str, ...] = REASONS
    components: tuple[str, ...] = COMPONENTS
    gate_settings: type[StrictModel] = GateSettings
    policies: Mapping[str, PolicySpec] = {"clicks": PolicySpec("a small network over traits", _inputs, _network)}
    baselines: Mapping[str, Baseline] = {"random": _random, "gate_greedy": _gate_greedy}
    reward_from_next = None
    make_game = Visitors
    failed_outcome = 0.0

    def initial_memory(self) -> ObservationRow:
        """Nothing was ever shown."""
        return {"shown": np.full(ADS, NEVER)}

    def parse_observation(self, message: Mapping[str, Any]) -> Observation:
        """An `ad_request`."""
        seen = parse_message(AdRequest, message, "INVALID_OBSERVATION")
        row = {"traits": np.array(seen.traits, np.float64), "budgets": np.array(seen.budgets, np.float64)}
        return Observation(seen.territory_id, seen.timestamp, row)

    def parse_report(self, message: Mapping[str, Any]) -> OutcomeReport:
        """A `click_report`."""
        told = parse_message(ClickReport, message, "INVALID_REPORT")
        return OutcomeReport(told.decision_id, float(told.clicked) if told.shown else None, failed=not told.shown)

    def memory_after(self, memory: ObservationRow, action: int, time: float) -> ObservationRow:
        """The same, with something shown at this time."""
        shown = memory["shown"].copy()
        shown[action] = time
        return {"shown": shown}

    def memory_without(
        self, memory: ObservationRow, before: ObservationRow, action: int, time: float
    ) -> ObservationRow:
        """It was last shown when it was before, unless it was shown again since."""
        shown = memory["shown"].copy()
        if shown[action] == time:
            shown[action] = before["shown"][action]
        return {"shown": shown}

    def confidence(self, probabilities: Numbers) -> Numbers:
        """The highest probability of an advertisement."""
        highest: Numbers = probabilities.max(-1)
        return highest

    def gate(
        self, batch: ObservationBatch, time: Numbers, settings: StrictModel, actions: NDArray[np.int64] | None = None
    ) -> GateResult:
        """What has a budget is worth what anybody clicks, and more where it was not shown lately."""
        assert isinstance(settings, GateSettings)
        fresh = settings.freshness * np.clip((time[:, None] - batch["shown"]) / settings.rest, 0.0, 1.0)
        prior = np.full_like(fresh, settings.prior)
        rated = batch["budgets"] > 0
        expected = np.where(rated, prior + fresh, 0.0)
        send = rated & (expected > settings.threshold)
        reason = np.where(send, WORTH, np.where(rated, NOT_WORTH, NO_BUDGET)).astype(np.uint8)
        whole = GateResult(send, reason, rated, expected, np.stack((prior, fresh), -1))
        return whole if actions is None else whole.select(actions)

    def reply(self, decision: Decision) -> dict[str, Any]:
        """An `ad_decision`, or a `no_ad` that says why not."""
        if not decision.send:
            return {"type": "no_ad", "decisionId": decision.id, "reason": decision.reason}
        told = {"ad": decision.action, "confidence": min(1.0, decision.confidence), "modelVersion": decision.version}
        return {"type": "ad_decision", "decisionId": decision.id, **told}

    def schema(self) -> dict[str, Any]:
        """JSON Schema of every message."""
        return message_schemas((AdRequest, ClickReport, AdDecision, NoAd))

    def action_chart(self, counts: NDArray[np.int64]) -> dict[str, Any]:
        """How often each advertisement was shown."""
        return {"kind": "bars", "values": counts.tolist(), "noun": "ad"}


DOMAIN: Final[Domain] = BanditAds()
