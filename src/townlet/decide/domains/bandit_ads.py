"""Domain `bandit-ads`: which of twelve ads to show to a visitor. Clicks are reported later, or never."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from townlet.config.models import StrictModel
from townlet.decide import domain
from townlet.decide.domain import ColumnSpec, DecisionId, GateResult, ObservationBatch, WireMessage
from townlet.nets.layers import MLP, make_head
from townlet.rng import Streams

ADS: Final = 12
TRAITS: Final = 8  # traits of a visitor, each in [−1, 1]
REASONS: Final = ("worth_showing", "not_worth_showing", "no_budget")
WORTH, NOT_WORTH, NO_BUDGET = range(3)
OUTPUT_GAIN: Final = 0.01  # small initial weights of the last layer make the initial policy nearly uniform

# Simulated visitors.
CLICK_WEIGHTS: Final = Streams(2020).numpy("tastes of visitors").normal(size=(ADS, TRAITS))  # the same for all sites
BASE_LOG_ODDS: Final = -2.0  # log-odds of a click if all traits are 0
VISIT_SECONDS: Final = 5.0  # seconds between two visitors
FUNDED_PROBABILITY, BUDGET = 0.9, 100.0  # an ad has this budget with this probability, else none
UNREPORTED: Final = 0.1  # fraction of impressions without a report
MAX_DELAY: Final = 5  # a report arrives 0 to 5 visitors later

Floats = NDArray[np.float64]


class AdsGateSettings(StrictModel):
    """Which ads may be shown."""

    prior: float = Field(0.1, ge=0, le=1, description="Estimated click rate of every ad. Higher: more ads are shown.")
    freshness: float = Field(0.05, ge=0, le=1, description="Bonus for ads not shown recently. Higher: more variety.")
    freshness_seconds: float = Field(60.0, gt=0, description="Time until the full bonus. Higher: repeats come later.")
    threshold: float = Field(0.0, ge=0, le=1, description="An ad whose estimate is higher may be shown. Higher: fewer.")


class AdRequest(WireMessage):
    """A visit to a site. Sent by the site."""

    type: Literal["ad_request"] = "ad_request"
    timestamp: domain.Time
    territory_id: domain.TerritoryId
    traits: list[Annotated[float, Field(ge=-1, le=1)]] = Field(min_length=TRAITS, max_length=TRAITS)
    budgets: list[Annotated[float, Field(ge=0, le=1e9)]] = Field(min_length=ADS, max_length=ADS)


class ClickReport(WireMessage):
    """Whether the visitor clicked. Sent by the site."""

    type: Literal["click_report"] = "click_report"
    decision_id: DecisionId
    clicked: bool
    shown: bool = True


class AdDecision(WireMessage):
    """Show this ad. Sent by the service."""

    type: Literal["ad_decision"] = "ad_decision"
    decision_id: DecisionId
    ad: int = Field(ge=0, lt=ADS)
    confidence: domain.UnitInterval
    model_version: domain.Version


class NoAd(WireMessage):
    """Show no ad, for this reason. Sent by the service."""

    type: Literal["no_ad"] = "no_ad"
    decision_id: DecisionId
    reason: domain.Reason


class ClickPolicy(nn.Module):
    """MLP from the traits of a visitor to log-probabilities of the ads."""

    def __init__(self) -> None:
        super().__init__()
        self.body = MLP(TRAITS, (32,), "relu", layer_norm=False)
        self.score = make_head(32, ADS, OUTPUT_GAIN)

    def forward(self, traits: Tensor) -> Tensor:
        """traits [B, TRAITS] → log-probabilities [B, ADS]."""
        return log_softmax(self.score(self.body(traits)), -1)


class AdSite:
    """Simulated site. Reports are up to five visitors late, and one in ten never arrives."""

    def __init__(self, seed: int, territory: str, stage: int = 0) -> None:  # there is only one stage
        self._rng = Streams(seed).numpy(f"visitors of {territory}")
        self._territory, self._time, self._visitors = territory, 0.0, 0
        self._traits = np.zeros(TRAITS)
        self._due_reports: dict[int, list[dict[str, Any]]] = {}  # by the number of the visitor after whom they are due
        self.clicks = self.shown = 0

    def observe(self) -> dict[str, Any]:
        self._traits = self._rng.uniform(-1, 1, TRAITS)
        budgets = np.where(self._rng.random(ADS) < FUNDED_PROBABILITY, BUDGET, 0.0)
        return {
            "type": "ad_request", "timestamp": self._time, "territoryId": self._territory,
            "traits": self._traits.tolist(), "budgets": budgets.tolist(),
        }  # fmt: skip

    def apply(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        if reply["type"] != "ad_decision":
            return []
        click_probabilities = 1 / (1 + np.exp(-(BASE_LOG_ODDS + self._traits @ CLICK_WEIGHTS.T)))  # [ADS]
        clicked = bool(self._rng.random() < click_probabilities[reply["ad"]])
        self.shown, self.clicks = self.shown + 1, self.clicks + clicked
        if self._rng.random() >= UNREPORTED:
            due = self._visitors + int(self._rng.integers(MAX_DELAY + 1))
            report = {"type": "click_report", "decisionId": reply["decisionId"], "clicked": clicked}
            self._due_reports.setdefault(due, []).append(report)
        return []

    def advance(self) -> list[dict[str, Any]]:
        reports = self._due_reports.pop(self._visitors, [])
        self._time, self._visitors = self._time + VISIT_SECONDS, self._visitors + 1
        return reports


class BanditAds(domain.LastTimes):
    """A domain whose outcomes arrive as reports, late or not at all."""

    name = "bandit-ads"
    observation_type = "ad_request"
    report_types: tuple[str, ...] = ("click_report",)
    n_actions = n_targets = ADS
    state_column = "shown"
    columns: Mapping[str, ColumnSpec] = {
        "traits": ColumnSpec((TRAITS,), "float64"),
        "budgets": ColumnSpec((ADS,), "float64"),
        "shown": ColumnSpec((ADS,), "float64"),
    }
    reasons: tuple[str, ...] = REASONS
    components: tuple[str, ...] = ("prior", "freshness")
    gate_settings: type[StrictModel] = AdsGateSettings
    policies: Mapping[str, domain.PolicySpec] = {
        "clicks": domain.PolicySpec(
            "a small network over traits",
            lambda batch, *_: (batch["traits"].astype(np.float32),),
            lambda _: ClickPolicy(),
        )
    }
    baselines: Mapping[str, domain.Baseline] = {
        "random": domain.uniform_random, "gate_greedy": domain.gate_greedy,
    }  # fmt: skip
    reward_from_next = None
    make_game = AdSite
    failed_outcome = 0.0

    def parse_observation(self, message: Mapping[str, Any]) -> domain.Observation:
        request = domain.parse_message(AdRequest, message, "INVALID_OBSERVATION")
        row = {"traits": np.array(request.traits, np.float64), "budgets": np.array(request.budgets, np.float64)}
        return domain.Observation(request.territory_id, request.timestamp, row)

    def parse_report(self, message: Mapping[str, Any]) -> domain.OutcomeReport:
        report = domain.parse_message(ClickReport, message, "INVALID_REPORT")
        value = float(report.clicked) if report.shown else None
        return domain.OutcomeReport(report.decision_id, value, failed=not report.shown)

    def confidence(self, probabilities: Floats) -> Floats:
        """Probability of the most likely ad."""
        highest: Floats = probabilities.max(-1)
        return highest

    def gate(
        self, batch: ObservationBatch, time: Floats, settings: StrictModel, actions: NDArray[np.int64] | None = None
    ) -> GateResult:
        """Rate the ads that have a budget: the prior click rate, plus a bonus if not shown recently."""
        assert isinstance(settings, AdsGateSettings)
        elapsed = time[:, None] - batch["shown"]
        freshness = settings.freshness * np.clip(elapsed / settings.freshness_seconds, 0.0, 1.0)
        prior = np.full_like(freshness, settings.prior)
        has_budget = batch["budgets"] > 0
        expected = np.where(has_budget, prior + freshness, 0.0)
        send = has_budget & (expected > settings.threshold)
        reason = np.select([send, has_budget], [WORTH, NOT_WORTH], NO_BUDGET).astype(np.uint8)
        result = GateResult(send, reason, has_budget, expected, np.stack((prior, freshness), -1))
        return result if actions is None else result.select(actions)

    def reply(self, id: str, decision: domain.Decision, message: Mapping[str, Any]) -> dict[str, Any]:
        if not decision.send:
            return {"type": "no_ad", "decisionId": id, "reason": decision.reason}
        choice = {"ad": decision.action, "confidence": min(1.0, decision.confidence)}  # rounding may exceed 1
        return {"type": "ad_decision", "decisionId": id, **choice, "modelVersion": decision.version}

    def schema(self) -> dict[str, Any]:
        return domain.message_schemas((AdRequest, ClickReport, AdDecision, NoAd))

    def action_chart(self, counts: NDArray[np.int64]) -> dict[str, Any]:
        return {"kind": "bars", "values": counts.tolist(), "noun": "ad"}


DOMAIN: Final[domain.Domain] = BanditAds()
