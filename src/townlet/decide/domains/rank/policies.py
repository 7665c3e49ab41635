"""Policies of ranking: their settings, inputs, networks and losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field
from torch import Tensor, nn

from townlet.config.models import StrictModel
from townlet.decide.domain import PolicySpec
from townlet.decide.domains.rank.features import COLUMNS
from townlet.decide.domains.rank.losses import doubly_robust_loss, importance_weights
from townlet.decide.domains.rank.networks import LinearRewards, MlpRewards, RewardNetwork
from townlet.decide.exploration import ExplorationSettings, explore
from townlet.decide.losses import LossBatch, LossSettings, normalized_entropy, squared_errors

FIXED: Final = ("options.bits", "options.update", "options.use_ids")  # they determine the network


class RankOptions(StrictModel):
    """Features, learning and exploration."""

    exploration: ExplorationSettings = Field(ExplorationSettings(), description="How other actions are tried.")
    update: Literal["regression", "importance_weighted", "doubly_robust"] = Field(
        "regression", description="Form of learning; `doubly_robust` learns a reward model beside the policy."
    )
    bits: int = Field(18, ge=8, le=22, description="`linear`: 2^bits weights. Higher: fewer features share a weight.")
    use_ids: bool = Field(True, description="Use the ids of actions as features; off if every id is seen once.")

    @property
    def heads(self) -> int:
        """Predictions of the network: of the reward model, then of the policy; both are one without such a model."""
        return 2 if self.update == "doubly_robust" else 1


def reward_loss(
    network: nn.Module, batch: LossBatch, learning: LossSettings, options: RankOptions
) -> tuple[Tensor, Tensor]:
    """The loss of `options.update`, averaged over the batch."""
    assert isinstance(network, RewardNetwork)
    index, value, bounds, allowed = batch.inputs
    network.observe(index, value, bounds, batch.newest)
    predicted = network.predict(index, value, bounds)
    model, policy = predicted[..., 0], predicted[..., -1]
    weight = importance_weights(batch.propensity.float(), learning.max_importance)
    reward = batch.reward.float()
    if options.update == "doubly_robust":
        losses = doubly_robust_loss(policy, model, allowed, batch.action, reward, weight)
    elif options.update == "importance_weighted":
        losses = weight / weight.mean() * squared_errors(policy, batch.action, reward)
    else:
        losses = squared_errors(policy, batch.action, reward)
    probabilities = explore(policy.detach(), allowed, network.events, options.exploration)
    return (losses * batch.weight * batch.used).mean(), normalized_entropy(probabilities.log())


def predict_rewards(network: nn.Module, index: Tensor, value: Tensor, bounds: Tensor, allowed: Tensor) -> Tensor:
    """Predicted rewards [B, K], for estimates of what another policy would have earned."""
    assert isinstance(network, RewardNetwork)
    return network.predict(index, value, bounds)[..., 0]


def _spec(description: str, network: Any) -> PolicySpec:
    def inputs(batch: Any, *_: Any) -> tuple[Any, ...]:
        return tuple(batch[name] for name in COLUMNS)

    return PolicySpec(description, inputs, network, loss=reward_loss, predict=predict_rewards)


POLICIES: Final[Mapping[str, PolicySpec]] = {
    "linear": _spec(
        "linear in pairs of features of context and action",
        lambda options: LinearRewards(options.bits, options.heads, options.use_ids, options.exploration),
    ),
    "mlp": _spec(
        "a small network over the features of context and action",
        lambda options: MlpRewards(options.heads, options.use_ids, options.exploration),
    ),
}
