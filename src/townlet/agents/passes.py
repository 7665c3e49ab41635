"""What an update of `ppo` went through: kept as it comes and added up at its end, with a fraction of the calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from townlet.agents.losses import divergence, surrogate, value_error
from townlet.contract.crew import SOLO, Crew
from townlet.memory.rollout import Minibatch

FIGURES: Final = ("policy_loss", "value_loss", "entropy", "clip_fraction", "grad_norm", "approx_kl")


class Passes:
    """Steps that gradients were taken on, epoch after epoch; the clips are those of the update.

    Figures are those of all who train together.
    """

    def __init__(self, clip: float, value_clip: float | None, crew: Crew = SOLO) -> None:
        self.epochs = 0
        self._mean = crew.mean
        self._clip, self._value_clip = clip, value_clip
        self._first = 0  # the place of the first piece of this epoch
        self._beside: list[tuple[Tensor, ...]] = []  # advantage, value before and return of the steps
        self._log_ratio: list[Tensor] = []
        self._value: list[Tensor] = []
        self._entropy: list[Tensor] = []
        self._norms: list[Tensor] = []

    def begin(self) -> None:
        """Another epoch begins."""
        self.epochs, self._first = self.epochs + 1, len(self._beside)

    def saw(self, piece: Minibatch, log_ratio: Tensor, value: Tensor, entropy: Tensor) -> None:
        """Steps [...], how likely their actions have become, and what is said of them now."""
        self._beside.append((piece.advantage, piece.value, piece.returns))
        self._log_ratio.append(log_ratio)
        self._value.append(value)
        self._entropy.append(entropy)

    def stepped(self, norm: Tensor) -> None:
        """A gradient of this norm was followed."""
        self._norms.append(norm)

    @property
    def steps(self) -> int:
        """Gradient steps made."""
        return len(self._norms)

    def moved(self) -> Tensor:
        """The mean divergence of this epoch's policies from the one that acted, a scalar."""
        return self._mean(divergence(_joined(self._log_ratio[self._first :])))

    def figures(self) -> Tensor:
        """FIGURES [6]: means over all epochs; the divergence is that of the last."""
        log_ratio = _joined(self._log_ratio)
        advantage, before, returns = (_joined(parts) for parts in zip(*self._beside, strict=True))
        return torch.stack(
            (
                self._mean(surrogate(log_ratio, advantage, self._clip)),
                self._mean(value_error(_joined(self._value), before, returns, self._value_clip)),
                self._mean(_joined(self._entropy)),
                self._mean((log_ratio.expm1().abs_() > self._clip).float()),
                torch.stack(self._norms).mean(),
                self.moved(),
            )
        )


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])
