"""Ranking as a decision domain: the decision is which action comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import nn

from townlet.config.models import StrictModel
from townlet.decide import domain
from townlet.decide.domain import Baseline, ColumnSpec, GateResult, ObservationBatch, PolicySpec
from townlet.decide.domains.rank import messages
from townlet.decide.domains.rank.features import COLUMNS, MAX_ACTIONS
from townlet.decide.domains.rank.game import NewsSite
from townlet.decide.domains.rank.http import HTTP
from townlet.decide.domains.rank.influence import namespace_influence
from townlet.decide.domains.rank.networks import RewardNetwork
from townlet.decide.domains.rank.policies import FIXED, POLICIES, RankOptions

ALLOWED, EXCLUDED = range(2)

Floats = NDArray[np.float64]


class RankGateSettings(StrictModel):
    """No settings: the gate sends every action that is not excluded."""


class Rank(domain.Stateless):
    """Which of up to 50 actions first? Rewards are reported, or are a default after some time."""

    name = "rank"
    observation_type = "rank_request"
    report_types: tuple[str, ...] = ("reward", "activate")
    n_actions = MAX_ACTIONS  # an action is a position in the request
    columns: Mapping[str, ColumnSpec] = COLUMNS
    reasons: tuple[str, ...] = ("allowed", "excluded")
    components: tuple[str, ...] = ()
    gate_settings: type[StrictModel] = RankGateSettings
    options: type[StrictModel] = RankOptions
    policies: Mapping[str, PolicySpec] = POLICIES
    fixed_settings = FIXED
    default_settings: Mapping[str, Any] = {
        "learning": {"reward": {"actual": 1.0, "gate": 0.0}, "lr": 0.03, "max_grad_norm": 10.0},
        "memory": {
            "capacity": 1000, "held_out_capacity": 200, "expire_after": 600.0, "expired_outcome": 0.0,
            "territories": 200_000,
        },
        # The exploration is set, not learned, and bounds what a bad version can cost.
        "promotion": {"entropy_floor": 0.0, "min_entropy_ratio": 0.0, "small_change": 1.0},
    }  # fmt: skip
    # To the gate all actions are equally good, so its choice is the first that is not excluded.
    baselines: Mapping[str, Baseline] = {
        "random": domain.uniform_random, "gate_greedy": domain.gate_greedy, "always_the_first": domain.gate_greedy,
    }  # fmt: skip
    reference = "always_the_first"
    single_observations = True
    id_field = "eventId"
    reward_from_next = None
    failed_outcome = 0.0
    http = HTTP
    make_game = NewsSite
    parse_observation = staticmethod(messages.parse_observation)
    parse_report = staticmethod(messages.parse_report)
    reply = staticmethod(messages.reply)

    def confidence(self, probabilities: Floats) -> Floats:
        """Probability of the most likely action, clipped because rounding may push it slightly above 1."""
        highest: Floats = probabilities.max(-1).clip(max=1.0)
        return highest

    def gate(
        self, batch: ObservationBatch, time: Floats, settings: StrictModel, actions: NDArray[np.int64] | None = None
    ) -> GateResult:
        allowed = batch["allowed"]
        reason = np.where(allowed, ALLOWED, EXCLUDED).astype(np.uint8)
        result = GateResult(allowed, reason, allowed, np.zeros(allowed.shape), np.zeros((*allowed.shape, 0)))
        return result if actions is None else result.select(actions)

    def schema(self) -> dict[str, Any]:
        return domain.message_schemas(messages.MESSAGES)

    def action_chart(self, counts: NDArray[np.int64]) -> dict[str, Any]:
        """How often the action at each position of a request came first."""
        used = int(np.flatnonzero(counts).max(initial=0)) + 1
        labels = [f"position {place}" for place in range(1, used + 1)]
        return {"kind": "bars", "values": counts[:used].tolist(), "labels": labels, "noun": "position"}

    def evidence(self, network: nn.Module, requests: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Influence of each namespace of these requests."""
        assert isinstance(network, RewardNetwork)
        events = [messages.parse_request(message)[1] for message in requests]
        return namespace_influence(network, events) if events else {}


DOMAIN: Final[domain.Domain] = Rank()
