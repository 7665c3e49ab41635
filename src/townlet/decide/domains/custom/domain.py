"""A custom domain as the service uses it: everything that its file does not define has a default."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, create_model

from townlet.config.models import StrictModel
from townlet.decide import domain
from townlet.decide.domain import ColumnSpec, ForeignLog, GateResult, InvalidMessage, ObservationBatch, RewardFromNext
from townlet.decide.domains.custom import messages
from townlet.decide.domains.custom.definition import Definition, UnusableValue
from townlet.decide.domains.custom.game import CustomGame
from townlet.decide.domains.custom.network import CustomOptions, policies
from townlet.errors import Diagnostic, TownletError
from townlet.web.repeated_messages import RepeatedMessages

ALLOWED, NOT_ALLOWED = range(2)
REASONS: Final = ("allowed", "no_action_allowed")

Floats = NDArray[np.float64]
NUMBERS: Final = re.compile(r"[-+]?\d[\d.e+-]*")  # failures that differ only in these are of one kind
logger = logging.getLogger(__name__)


class CustomGateSettings(StrictModel):
    """No settings: the gate sends every action that is allowed."""


class CustomDomain(domain.Stateless):
    """A domain that a file or a module defines in its simple form."""

    observation_type = "observation"
    reasons: tuple[str, ...] = REASONS
    components: tuple[str, ...] = ()
    gate_settings: type[StrictModel] = CustomGateSettings
    default_settings: Mapping[str, Any] = {
        "learning": {"reward": {"actual": 1.0, "gate": 0.0}, "interval": 0.25, "gradient_steps": 4, "lr": 0.003},
        # The exploration is set, not learned, and bounds what a bad version can cost.
        "promotion": {"entropy_floor": 0.0, "min_entropy_ratio": 0.0, "small_change": 1.0},
    }  # fmt: skip
    # To the gate all actions are equally good, so it sends the first one that is allowed.
    baselines: Mapping[str, domain.Baseline] = {
        "random": domain.uniform_random, "gate_greedy": domain.gate_greedy,
    }  # fmt: skip
    reference = "random"
    failed_outcome = 0.0

    def __init__(self, definition: Definition, argument: str) -> None:
        self._definition, self.argument = definition, argument
        self.name, self.n_actions = definition.name, len(definition.actions)
        self.report_types = tuple(str(model.model_fields["type"].default) for model in definition.messages.reports)
        self.columns = {
            "features": ColumnSpec((definition.n_features,), "float32"),
            "allowed": ColumnSpec((self.n_actions,), "bool"),
        }
        if definition.observed:
            self.columns["scalars"] = ColumnSpec((len(definition.scalars),), "float64")
        self.policies = policies(definition.n_features, self.n_actions)
        code: Any = (Literal[definition.source.hash], Field(definition.source.hash, description="Hash of the code."))
        self.options: type[StrictModel] = create_model("CustomOptions", __base__=CustomOptions, code=code)
        self._failures = RepeatedMessages()

    @property
    def reward_from_next(self) -> RewardFromNext | None:
        return self._rewards_from_next if self._definition.observed else None

    @property
    def make_game(self) -> Callable[[int, str, int], domain.SimulatedGame]:
        return lambda seed, territory, stage: CustomGame(self._definition, seed, territory)

    def example(self) -> Mapping[str, Any]:
        return {"type": "observation", "timestamp": 0.0, "territoryId": "example", **self._definition.example}

    def check_log(self, settings: Mapping[str, Any]) -> None:
        """Refuse a log that other code has made: its observations would get other features now."""
        if settings["options"].get("code") == self._definition.source.hash:
            return
        what = f"the code of {self.name} is not the one with which these decisions were made"
        raise ForeignLog(
            what, "undo the change, or choose another --folder or --storage", self._definition.source.line()
        )

    def parse_observation(self, message: Mapping[str, Any]) -> domain.Observation:
        definition = self._definition
        model = definition.messages.observation
        parsed = domain.parse_message(model, message, "INVALID_OBSERVATION")
        fields = messages.read_fields(parsed, messages.OBSERVATION_KEYS)
        row: domain.ObservationRow = {}
        if definition.observed:
            row["scalars"] = np.array(list(definition.scalar_fields(fields).values()), np.float64)
        try:
            row |= {"features": definition.features(fields), "allowed": definition.allowed(fields)}
        except TownletError as error:
            raise self._refusal(error, "INVALID_OBSERVATION") from None
        assert isinstance(parsed, messages.ObservationMessage)
        return domain.Observation(parsed.territory_id, parsed.timestamp, row)

    def parse_report(self, message: Mapping[str, Any]) -> domain.OutcomeReport:
        model = self._definition.messages.outcome
        if model is None or message.get("type") == "not_executed":
            failed = domain.parse_message(messages.NotExecuted, message, "INVALID_REPORT")
            return domain.OutcomeReport(failed.decision_id, failed=True)
        parsed = domain.parse_message(model, message, "INVALID_REPORT")
        assert isinstance(parsed, messages.OutcomeMessage)
        try:
            value = self._reward(messages.read_fields(parsed, messages.OUTCOME_KEYS))
        except TownletError as error:
            raise self._refusal(error, "INVALID_REPORT") from None
        return domain.OutcomeReport(parsed.decision_id, value)

    def confidence(self, probabilities: Floats) -> Floats:
        """Probability of the most likely action, clipped because rounding may push it slightly above 1."""
        highest: Floats = probabilities.max(-1).clip(max=1.0)
        return highest

    def gate(
        self, batch: ObservationBatch, time: Floats, settings: StrictModel, actions: NDArray[np.int64] | None = None
    ) -> GateResult:
        allowed = batch["allowed"]
        reason = np.where(allowed, ALLOWED, NOT_ALLOWED).astype(np.uint8)
        result = GateResult(allowed, reason, allowed, np.zeros(allowed.shape), np.zeros((*allowed.shape, 0)))
        return result if actions is None else result.select(actions)

    def reply(self, id: str, decision: domain.Decision, message: Mapping[str, Any]) -> dict[str, Any]:
        if not decision.send:
            return {"type": "wait", "decisionId": id, "reason": decision.reason}
        action = self._definition.actions[decision.action]
        choice = {"action": action, "confidence": decision.confidence, "modelVersion": decision.version}
        return {"type": "decision", "decisionId": id, **choice}

    def schema(self) -> dict[str, Any]:
        return domain.message_schemas(self._definition.messages.every)

    def action_chart(self, counts: NDArray[np.int64]) -> dict[str, Any]:
        labels = [str(action) for action in self._definition.actions]
        return {"kind": "bars", "values": counts.tolist(), "labels": labels, "noun": "action"}

    def _reward(self, *arguments: messages.Fields) -> float:
        value = self._definition.reward(*arguments)
        if abs(value) > 1:
            what = f"reward returned {value:g}, which counts as {np.sign(value):g}"
            self._log(Diagnostic(what, where=self._definition.source.line("reward")))
        return min(1.0, max(-1.0, value))

    def _rewards_from_next(self, before: ObservationBatch, after: ObservationBatch) -> Floats:
        """Rewards [B] in [−1, 1]; NaN where the user's function fails, so that these decisions expire."""
        rewards = np.full(len(before["scalars"]), np.nan)
        for index, pair in enumerate(zip(before["scalars"], after["scalars"], strict=True)):
            try:
                rewards[index] = self._reward(*map(self._observed, pair))
            except TownletError as error:
                self._log(error.diagnostics[0])
        return rewards

    def _observed(self, scalars: Floats) -> messages.Fields:
        """The numbers and truth values of an observation."""
        definition = self._definition
        return {
            key: bool(value) if isinstance(definition.example[key], bool) else value
            for key, value in zip(definition.scalars, scalars.tolist(), strict=True)
        }

    def _refusal(self, error: TownletError, code: str) -> InvalidMessage:
        """The answer to a message on which a function of the file failed; the service's output shows the line."""
        self._log(error.diagnostics[0])
        if isinstance(error, UnusableValue):
            return InvalidMessage(code, error.diagnostics[0].what)
        return InvalidMessage("INTERNAL", f"{self.name} failed on this message; see the output of the service")

    def _log(self, failure: Diagnostic) -> None:
        """Log a failure, unless it is one of many of its kind: a game may send thousands of messages per second."""
        times = self._failures.count(f"{failure.where} {NUMBERS.sub('', failure.what)}")
        if times is not None:
            logger.warning("%s%s", failure, times)
