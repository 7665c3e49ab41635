"""Random network distillation (Burda et al. 2018): novelty is what a predictor cannot yet say of a random network.

Where it departs from the paper: reward is scaled by the root mean square of the novelty itself, not by the
deviation of its discounted return, so that the scale knows nothing of rows, episodes and discounts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from townlet.contract.layout import Layout
from townlet.contract.restore import copy_tensor
from townlet.contract.state import State
from townlet.explore.moments import Moments
from townlet.explore.spec import RndSpec
from townlet.nets.heads import initialize
from townlet.nets.layers import MLP, uninitialized
from townlet.nets.optimizers import FlatOptimizer, restore_weights, weights
from townlet.rng import Streams

CLIP = 5.0  # of normalised observations, section 2.4 of the paper


def embedding(inputs: int, spec: RndSpec, generator: torch.Generator) -> nn.Sequential:
    """A plain network from observations to `embed` numbers, every weight drawn from the generator."""
    body = MLP(inputs, spec.hidden, "relu", layer_norm=False)
    network = nn.Sequential(*body, uninitialized(nn.Linear, body.features, spec.embed))
    initialize(network, generator)
    return network


class Rnd:
    """The bonus of what is hard to predict. It fades where the predictor has learned, and only there."""

    def __init__(self, spec: RndSpec, layout: Layout, streams: Streams, device: str = "cpu") -> None:
        self.spec = spec
        self.target = embedding(layout.size, spec, streams.torch("rnd.target")).to(device).requires_grad_(False)
        self.predictor = embedding(layout.size, spec, streams.torch("rnd.predictor")).to(device)
        self._optimizer = FlatOptimizer("adam", self.predictor, spec.lr)
        self._seen = Moments(layout.size, device)  # of observations
        self._square = torch.zeros((), dtype=torch.float64, device=device)  # mean of novelty² over all rewards
        self._rewarded = 0
        self._calls = 0

    def _inputs(self, obs: Tensor) -> Tensor:
        return self._seen.normalize(obs, CLIP) if self.spec.normalize_obs else obs

    def _error(self, inputs: Tensor) -> Tensor:
        """Mean squared error of the prediction [B]."""
        return torch.mean((self.predictor(inputs) - self.target(inputs)).square(), 1)

    def _scaled(self, error: Tensor) -> Tensor:
        if not self.spec.normalize_reward or self._rewarded == 0:
            return error
        return error / self._square.sqrt().clamp(min=1e-8).float()

    @torch.no_grad()
    def reward(self, obs: Tensor) -> Tensor:
        """Novelty [N] of obs [N, D], which are counted among what was seen before they are judged.

        Normalised: divided by √(mean of novelty² over every reward so far, these included), so that its root mean
        square over the whole run is near 1, and what is old earns less and less.
        """
        if self.spec.normalize_obs:
            self._seen.add(obs)
        error = self._error(self._inputs(obs))
        if len(error):
            self._rewarded += len(error)
            self._square += (error.double().square().mean() - self._square) * (len(error) / self._rewarded)
        return self._scaled(error)

    @torch.no_grad()
    def novelty(self, obs: Tensor) -> Tensor:
        """What reaching obs [B, D] would be worth [B]; nothing is counted or learned."""
        return self._scaled(self._error(self._inputs(obs)))

    def learn(self, obs: Tensor) -> dict[str, float]:
        """Teach the predictor obs [B, D], in steps of `batch`; at every `every`-th call only, else no figures."""
        self._calls += 1
        if self._calls % self.spec.every or len(obs) == 0:
            return {}
        loss = torch.zeros((), device=obs.device)
        for part in torch.split(obs, self.spec.batch):
            error = self._error(self._inputs(part)).mean()
            self._optimizer.zero_grad()
            error.backward()
            self._optimizer.step()
            loss += error.detach() * (len(part) / len(obs))
        return {"rnd_loss": loss.item()}

    def state(self) -> State:
        """Both networks, the optimizer's past, and what normalises."""
        return {
            "target": weights(self.target),
            "predictor": weights(self.predictor),
            "optimizer": self._optimizer.state(),
            "seen": self._seen.state(),
            "square": self._square,
            "rewarded": self._rewarded,
            "calls": self._calls,
        }

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        restore_weights(self.target, state["target"], "explore.bonus.target")
        restore_weights(self.predictor, state["predictor"], "explore.bonus.predictor")
        self._optimizer.restore(state["optimizer"])
        self._seen.restore(state["seen"])
        copy_tensor(self._square, state["square"], "explore.bonus.square")
        self._rewarded, self._calls = int(state["rewarded"]), int(state["calls"])
