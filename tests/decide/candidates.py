"""Contextual bandits with a serving policy, its log, and candidate versions known to be good or bad."""

from __future__ import annotations

import copy
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from townlet.decide.estimate import diff_policies, fit_rewards, predict_rewards
from townlet.decide.offline_eval import Evidence, VersionSteps, collect_evidence
from townlet.decide.settings import PromotionSettings

ACTIONS: Final = 60
SIZE: Final = 8
SERVING: Final = 5000  # its step
BAD: Final = ("nan", "flipped", "collapsed", "stale")
GOOD: Final = ("improved", "copy")


class Candidate(NamedTuple):
    network: nn.Module
    steps: VersionSteps


class World:
    """A bandit with known mean rewards, and the log of its serving policy."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.chance = torch.Generator().manual_seed(seed)
        self.taste = torch.randn(SIZE, ACTIONS, generator=self.chance) / SIZE**0.5
        self.network = nn.Sequential(nn.Linear(SIZE, 32), nn.Tanh(), nn.Linear(32, ACTIONS), nn.LogSoftmax(1))
        for weight in self.network.parameters():
            weight.data = torch.randn(weight.shape, generator=self.chance) * 0.3
        self.improve(self.network, int(self.rng.integers(2, 10)), 0.02)
        self.older = copy.deepcopy(self.network)
        self.improve(self.network, int(self.rng.integers(5, 40)), 0.02)
        self.act(int(self.rng.choice([40, 150, 600, 1500])))
        self.gated, self.modeled = bool(self.rng.random() < 0.5), bool(self.rng.random() < 0.5)

    def means(self, seen: Tensor) -> Tensor:
        """Mean rewards of all actions [N, K]."""
        return torch.tanh(seen @ self.taste)

    def improve(self, network: nn.Module, steps: int, rate: float) -> None:
        """Train on the true reward, with a small entropy bonus."""
        optimizer = torch.optim.Adam(network.parameters(), rate)
        for _ in range(steps):
            seen = torch.randn(64, SIZE, generator=self.chance)
            logs = network(seen)
            loss = -(logs.exp() * (self.means(seen) - 0.02 * logs)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def act(self, count: int) -> None:
        """Log decisions and rewards for new observations."""
        self.seen = torch.randn(count, SIZE, generator=self.chance)
        chances = self.chances(self.network)
        upto = chances.cumsum(1)
        self.action = (upto <= self.rng.random((count, 1)) * upto[:, -1:]).sum(1).clip(max=ACTIONS - 1)
        truth = self.means(self.seen).double().numpy()
        noise = self.rng.normal(scale=0.3, size=count)
        self.reward = (truth[np.arange(count), self.action] + noise).clip(-1, 1)
        self.propensity = chances[np.arange(count), self.action]
        self.estimate = truth + self.rng.normal(scale=0.3, size=truth.shape)  # a rough estimate

    @torch.no_grad()
    def chances(self, network: nn.Module) -> NDArray[np.float64]:
        found: NDArray[np.float64] = network(self.seen).double().exp().numpy()
        return found

    def value(self, network: nn.Module) -> float:
        """True mean reward of a policy."""
        with torch.no_grad():
            seen = torch.randn(4000, SIZE, generator=torch.Generator().manual_seed(0))
            return float((network(seen).exp() * self.means(seen)).sum(1).mean())

    def make(self, kind: str) -> Candidate:
        """A candidate of a kind in GOOD or BAD."""
        network, newer = copy.deepcopy(self.network), VersionSteps(SERVING + 1, SERVING, SERVING)
        layers: Any = network
        inner, last = layers[0], layers[2]
        with torch.no_grad():
            match kind:
                case "nan":
                    weight = (inner.weight, last.weight, last.bias)[self.rng.integers(3)]
                    weight.view(-1)[self.rng.integers(weight.numel())] = float(self.rng.choice([np.nan, np.inf]))
                case "flipped" if self.rng.random() < 0.5:
                    last.weight.neg_(), last.bias.neg_()  # the likeliest becomes the least likely
                case "flipped":
                    inner.weight.neg_(), inner.bias.neg_()
                case "collapsed" if self.rng.random() < 0.5:
                    last.bias[self.rng.integers(ACTIONS)] += float(self.rng.uniform(8, 60))
                case "collapsed":  # regardless of the observation
                    last.weight.mul_(0.0)
                    last.bias.mul_(0.0)[self.rng.integers(ACTIONS)] = float(self.rng.uniform(8, 60))
                case "stale" if self.rng.random() < 0.5:
                    back = int(self.rng.integers(0, 2000))
                    return Candidate(self.older, VersionSteps(SERVING - back, SERVING - back - 1, SERVING))
                case "stale":  # trained from a version abandoned long ago
                    parent = SERVING - int(self.rng.integers(1001, 4000))
                    return Candidate(self.older, VersionSteps(SERVING + 1, parent, SERVING))
                case "old weights":  # with a new step
                    return Candidate(self.older, newer)
        if kind == "improved":
            self.improve(network, int(self.rng.integers(1, 6)), 0.003)
        return Candidate(network, newer)

    def evidence(self, candidate: Candidate, settings: PromotionSettings) -> Evidence:
        """The evidence that the service would collect."""
        approved = self.estimate > 0.2 if self.gated else np.ones(self.estimate.shape, bool)
        features = np.stack([self.estimate, np.abs(self.estimate)], 2)
        lines = np.arange(len(self.action))
        model = predict_rewards(features, fit_rewards(features[lines, self.action], self.reward))
        chances = self.chances(candidate.network), self.chances(self.network)
        return collect_evidence(
            diff_policies(*chances, self.action, approved, predictions=model if self.modeled else None), self.reward,
            self.propensity, candidate.steps, settings, self.rng,
            weights_finite=all(bool(weight.isfinite().all()) for weight in candidate.network.parameters()),
        )  # fmt: skip
