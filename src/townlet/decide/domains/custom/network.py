"""The policy of a custom domain: an MLP that predicts the reward of every action, and SquareCB exploration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from townlet.config.models import StrictModel
from townlet.decide.domain import ObservationBatch, PolicySpec
from townlet.decide.exploration import ExplorationSettings, explore
from townlet.decide.losses import LossBatch, LossSettings, normalized_entropy, squared_errors
from townlet.nets.layers import MLP, make_head

HIDDEN: Final = (64, 64)
OUTPUT_GAIN: Final = 0.01  # small initial weights of the last layer make initial policies nearly uniform
MEMORY: Final = 5000.0  # observations over which means and deviations are averaged
LIMIT: Final = 4.0  # largest standardized feature
MIN_VARIANCE: Final = 1e-8  # a feature with a smaller variance counts as constant


class CustomOptions(StrictModel):
    """Exploration, and the code that the folder belongs to."""

    exploration: ExplorationSettings = Field(ExplorationSettings(), description="How other actions are tried.")


class RewardMLP(nn.Module):
    """Features → predicted rewards. The features are standardized with their running mean and variance."""

    count: Tensor
    mean: Tensor
    variance: Tensor
    events: Tensor

    def __init__(self, n_features: int, n_actions: int, exploration: ExplorationSettings) -> None:
        super().__init__()
        self.exploration = exploration
        for name, size in (("count", ()), ("mean", (n_features,)), ("variance", (n_features,)), ("events", ())):
            self.register_buffer(name, torch.zeros(size))  # `events`: decisions that it may have learned from
        self.body = MLP(n_features, HIDDEN, "relu", layer_norm=False)
        self.out = make_head(HIDDEN[-1], n_actions, OUTPUT_GAIN)

    def observe(self, features: Tensor, events: int) -> None:
        """Update the statistics with a batch of features [B, F], before learning from it."""
        self.events.clamp_(min=events)
        self.count += len(features)
        rate = len(features) / self.count.clamp(max=MEMORY)
        deviation = features - self.mean
        self.mean += rate * deviation.mean(0)
        self.variance += rate * ((deviation * (features - self.mean)).mean(0) - self.variance)

    def predict(self, features: Tensor) -> Tensor:
        """Features [B, F] → predicted rewards [B, K]."""
        scale = torch.where(self.variance > MIN_VARIANCE, self.variance.clamp(min=MIN_VARIANCE).rsqrt(), 0.0)
        predicted: Tensor = self.out(self.body(((features - self.mean) * scale).clamp(-LIMIT, LIMIT)))
        return predicted

    def forward(self, features: Tensor, allowed: Tensor) -> Tensor:
        """Log-probabilities [B, K], −∞ for actions that are not allowed."""
        return explore(self.predict(features), allowed, self.events, self.exploration).log()


def reward_loss(
    network: nn.Module, batch: LossBatch, learning: LossSettings, options: CustomOptions
) -> tuple[Tensor, Tensor]:
    """Squared error of the predicted rewards of the chosen actions."""
    assert isinstance(network, RewardMLP)
    features, allowed = batch.inputs
    network.observe(features, batch.newest)
    predicted = network.predict(features)
    losses = squared_errors(predicted, batch.action, batch.reward.float())
    probabilities = explore(predicted.detach(), allowed, network.events, options.exploration)
    return (losses * batch.weight * batch.used).mean(), normalized_entropy(probabilities.log())


def predict_rewards(network: nn.Module, features: Tensor, allowed: Tensor) -> Tensor:
    """Predicted rewards [B, K], for estimates of what another policy would have earned."""
    assert isinstance(network, RewardMLP)
    return network.predict(features)


def policies(n_features: int, n_actions: int) -> Mapping[str, PolicySpec]:
    """The policies of a domain with this many features and actions."""

    def network(options: CustomOptions) -> nn.Module:
        return RewardMLP(n_features, n_actions, options.exploration)

    spec = PolicySpec("predicts rewards of actions", _inputs, network, loss=reward_loss, predict=predict_rewards)
    return {"rewards": spec}


def _inputs(batch: ObservationBatch, *_: Any) -> tuple[NDArray[Any], ...]:
    """Where no action is allowed, the gate sends none, whatever the network chooses among all."""
    allowed = batch["allowed"]
    return np.asarray(batch["features"]), allowed | ~allowed.any(1, keepdims=True)
