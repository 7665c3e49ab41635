"""Random network distillation (RND, Burda et al. 2019): novelty is the error in predicting a fixed random network.

Deviation from the paper: rewards are divided by the root mean square of all prediction errors so far, not by the
standard deviation of discounted intrinsic returns, so the scale does not depend on rows, episodes or discounts.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from townlet.explore.spec import RndSpec
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import State, copy_tensor
from townlet.nets.layers import MLP, initialize, uninitialized
from townlet.nets.optimizers import FlatOptimizer, restore_weights, weights
from townlet.rng import Streams

CLIP: Final = 5.0  # bound of normalized observations (Burda et al. 2019, §2.4)


def make_embedding_network(inputs: int, spec: RndSpec, generator: torch.Generator) -> nn.Sequential:
    """An MLP from observations to `embedding_size` outputs, with weights drawn from the generator."""
    body = MLP(inputs, spec.hidden, "relu", layer_norm=False)
    network = nn.Sequential(*body, uninitialized(nn.Linear, body.features, spec.embedding_size))
    initialize(network, generator)
    return network


class RunningMoments:
    """Running mean [D] and variance [D], merged batch by batch (Chan et al. 1983)."""

    def __init__(self, size: int, device: str = "cpu") -> None:
        self.count = 0
        self.mean = torch.zeros(size, dtype=torch.float64, device=device)
        self.variance = torch.zeros(size, dtype=torch.float64, device=device)  # population variance

    def update(self, batch: Tensor) -> None:
        if (new := len(batch)) == 0:
            return
        variance, mean = torch.var_mean(batch, 0, correction=0)
        fraction = new / (self.count + new)
        delta = mean.double() - self.mean
        self.mean += delta * fraction
        self.variance += (variance.double() - self.variance) * fraction + delta.square() * (fraction * (1 - fraction))
        self.count += new

    def normalize(self, values: Tensor, limit: float, epsilon: float = 1e-8) -> Tensor:
        """(values − mean) / √(variance + epsilon) [B, D] float32, clipped to ±limit."""
        scale = (self.variance + epsilon).rsqrt().float()
        return (values - self.mean.float()).mul_(scale).clamp_(-limit, limit)

    def state(self) -> State:
        return {"count": self.count, "mean": self.mean, "variance": self.variance}

    def restore(self, state: State) -> None:
        copy_tensor(self.mean, state["mean"], "explore.bonus.mean")
        copy_tensor(self.variance, state["variance"], "explore.bonus.variance")
        self.count = int(state["count"])


class RandomNetworkDistillation:
    """Intrinsic reward that is high where the predictor has not yet learned the output of the target network."""

    def __init__(self, spec: RndSpec, layout: ObservationLayout, streams: Streams, device: str = "cpu") -> None:
        self.spec = spec
        target, predictor = (
            make_embedding_network(layout.size, spec, streams.torch(f"rnd.{name}")).to(device)
            for name in ("target", "predictor")
        )
        self.target, self.predictor = target.requires_grad_(False), predictor
        self._optimizer = FlatOptimizer("adam", self.predictor, spec.lr)
        self._obs_moments = RunningMoments(layout.size, device)
        self._mean_square = torch.zeros((), dtype=torch.float64, device=device)  # of all prediction errors so far
        self._reward_count = 0
        self._learn_calls = 0

    def _inputs(self, obs: Tensor) -> Tensor:
        return self._obs_moments.normalize(obs, CLIP) if self.spec.normalize_obs else obs

    def _error(self, inputs: Tensor) -> Tensor:
        """Mean squared prediction error [B]."""
        return torch.mean((self.predictor(inputs) - self.target(inputs)).square(), 1)

    def _normalized(self, error: Tensor) -> Tensor:
        if not self.spec.normalize_reward or self._reward_count == 0:
            return error
        return error / self._mean_square.sqrt().clamp(min=1e-8).float()

    @torch.no_grad()
    def reward(self, obs: Tensor) -> Tensor:
        """Novelty [N] of obs [N, D], after updating the observation statistics with them.

        With `normalize_reward` it is divided by the root mean square of all prediction errors so far, including these.
        Its root mean square over the whole run is therefore about 1, and it declines as observations become known.
        """
        if self.spec.normalize_obs:
            self._obs_moments.update(obs)
        error = self._error(self._inputs(obs))
        if len(error):
            self._reward_count += len(error)
            fraction = len(error) / self._reward_count
            self._mean_square += (error.double().square().mean() - self._mean_square) * fraction
        return self._normalized(error)

    @torch.no_grad()
    def novelty(self, obs: Tensor) -> Tensor:
        """Novelty [B] of obs [B, D], without updating any statistics."""
        return self._normalized(self._error(self._inputs(obs)))

    def learn(self, obs: Tensor) -> dict[str, float]:
        """On every `update_every`-th call, train the predictor on obs [B, D] in minibatches of `batch_size`.

        Other calls do nothing and return no metrics.
        """
        self._learn_calls += 1
        if self._learn_calls % self.spec.update_every or len(obs) == 0:
            return {}
        loss = torch.zeros((), device=obs.device)
        for minibatch in torch.split(obs, self.spec.batch_size):
            error = self._error(self._inputs(minibatch)).mean()
            self._optimizer.zero_grad()
            error.backward()
            self._optimizer.step()
            loss += error.detach() * (len(minibatch) / len(obs))
        return {"rnd_loss": loss.item()}

    def state(self) -> State:
        return {
            "target": weights(self.target),
            "predictor": weights(self.predictor),
            "optimizer": self._optimizer.state(),
            "obs_moments": self._obs_moments.state(),
            "mean_square": self._mean_square,
            "reward_count": self._reward_count,
            "learn_calls": self._learn_calls,
        }

    def restore(self, state: State) -> None:
        restore_weights(self.target, state["target"], "explore.bonus.target")
        restore_weights(self.predictor, state["predictor"], "explore.bonus.predictor")
        self._optimizer.restore(state["optimizer"])
        self._obs_moments.restore(state["obs_moments"])
        copy_tensor(self._mean_square, state["mean_square"], "explore.bonus.mean_square")
        self._reward_count, self._learn_calls = int(state["reward_count"]), int(state["learn_calls"])
