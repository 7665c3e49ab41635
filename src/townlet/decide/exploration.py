"""Exploration: probabilities of actions from their predicted rewards."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from townlet.config.models import StrictModel


class ExplorationSettings(StrictModel):
    """How often an action is chosen whose predicted reward is not the highest."""

    kind: Literal["epsilon", "softmax", "squarecb"] = Field("squarecb", description="Form of the exploration.")
    epsilon: float = Field(0.05, ge=0, le=1, description="`epsilon`: share of random choices. Higher: more of them.")
    temperature: float = Field(0.1, gt=0, le=100, description="`softmax`: higher: closer to a random choice.")
    gamma: float = Field(20.0, ge=0, description="`squarecb`: higher: better actions are preferred more.")
    gamma_exponent: float = Field(0.5, ge=0, le=1, description="`squarecb`: growth of gamma with the number of events.")


def explore(rewards: Tensor, allowed: Tensor, events: Tensor, settings: ExplorationSettings) -> Tensor:
    """Probabilities [B, K] from predicted rewards [B, K]; `allowed` [B, K] marks actions that may be chosen."""
    if settings.kind == "softmax":
        return softmax(rewards, allowed, settings.temperature)
    if settings.kind == "squarecb":
        return square_cb(rewards, allowed, settings.gamma * events.clamp(min=1) ** settings.gamma_exponent)
    return epsilon_greedy(rewards, allowed, settings.epsilon)


def epsilon_greedy(rewards: Tensor, allowed: Tensor, epsilon: float) -> Tensor:
    """p(a) = ε/n + (1 − ε)/m if f(a) is one of the m highest, else ε/n, for n allowed actions."""
    best = _best(rewards, allowed)
    return epsilon * _share(allowed) + (1 - epsilon) * _share(best)


def softmax(rewards: Tensor, allowed: Tensor, temperature: float) -> Tensor:
    """p(a) ∝ exp(f(a) / τ)."""
    return torch.softmax((rewards / temperature).masked_fill(~allowed, -torch.inf), -1)


def square_cb(rewards: Tensor, allowed: Tensor, gamma: Tensor | float) -> Tensor:
    """SquareCB (Foster and Rakhlin 2020, algorithm 1): p(a) = 1 / (n + γ (f(b) − f(a))), the rest for the best b.

    Equally good actions share the rest, so that a network without experience chooses uniformly.
    """
    best = _best(rewards, allowed)
    gap = rewards.masked_fill(~allowed, -torch.inf).amax(-1, keepdim=True) - rewards
    others = torch.where(allowed & ~best, 1 / (allowed.sum(-1, keepdim=True) + gamma * gap), 0.0)
    return others + (1 - others.sum(-1, keepdim=True)) * _share(best)


def _best(rewards: Tensor, allowed: Tensor) -> Tensor:
    """Allowed actions with the highest predicted reward."""
    masked = rewards.masked_fill(~allowed, -torch.inf)
    return (masked == masked.amax(-1, keepdim=True)) & allowed


def _share(chosen: Tensor) -> Tensor:
    """A uniform choice among these actions."""
    return chosen / chosen.sum(-1, keepdim=True).clamp(min=1)
