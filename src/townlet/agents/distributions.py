"""What a network's outputs say about actions: sample, mode, log-probability and entropy.

Every kind of action is one class with the same methods, so that an algorithm need not know which it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from townlet.contract.crew import SOLO, Crew
from townlet.contract.vec_env import Actions, Continuous, Discrete
from townlet.explore.choose import normalized_entropy

Kind = Literal["logits", "switches", "numbers"]  # what the outputs of a network are

# Added to a logit it leaves an exponential of exactly 0. Not −inf nor the lowest float: the way back multiplies it by
# the gradient first and by that 0 afterwards.
INVALID: Final = -1e30
LOG_2PI: Final = math.log(2 * math.pi)


class Distribution(Protocol):
    """Actions [...] or [..., A] by the outputs [..., O] of a network."""

    behind: Tensor  # the part that `shown` needs, as it lies in memory

    def sample(self, generator: torch.Generator, crew: Crew = SOLO) -> Tensor:
        """Random actions; with a crew, of its rows here [N, …]."""

    def mode(self) -> Tensor:
        """The most likely actions; the first of equals."""

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability [...] of these actions."""

    def entropy(self) -> Tensor:
        """Entropy [...] in nats."""

    def slope(self, actions: Tensor, by_log_prob: Tensor, by_entropy: float | Tensor) -> Tensor:
        """Of a sum, by the outputs [..., O]: of log-probabilities weighted [...], and of entropies by one number."""

    def openness(self, mask: Tensor) -> Tensor:
        """How undecided it is [N], in [0, 1]; mask [N, K] is that of its making."""

    def outputs(self) -> dict[str, Tensor]:
        """What it says of each action, by name, each [..., A]."""

    @staticmethod
    def shown(behind: Sequence[Tensor], rows: int) -> Tensor:
        """Probabilities or means [T, rows, A] of the first rows, from what stood `behind` T distributions."""


class Categorical:
    """One of K actions by logits [..., K]; those that the mask [..., K] excludes have probability 0.

    Inside, actions come first, [K, ...]: with a handful of actions torch's sums over the last dimension take five to
    fifteen times as long. Logits that lie in memory like this already, see `ActorCritic`, are not copied.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        self._logits = logits
        if mask is not None:  # a sum, because filling by a mask takes twice as long, and again on the way back
            logits = torch.add(logits, mask.logical_not().to(logits.dtype), alpha=INVALID)
        self.behind = self.log_probs = torch.log_softmax(logits.movedim(-1, 0).contiguous(), 0)  # [K, ...]
        self._chances_known: Tensor | None = None  # not a cached_property: torch cannot compile its lock
        self._entropy_known: Tensor | None = None

    @property
    def _chances(self) -> Tensor:
        """Probabilities [K, ...], calculated once."""
        if self._chances_known is None:
            self._chances_known = self.log_probs.exp()
        return self._chances_known

    @property
    def _entropy(self) -> Tensor:
        if self._entropy_known is None:
            self._entropy_known = -(self._chances * self.log_probs).sum(0)
        return self._entropy_known

    @property
    def probs(self) -> Tensor:
        """Probabilities [..., K]."""
        return self._chances.movedim(0, -1)

    def sample(self, generator: torch.Generator, crew: Crew = SOLO) -> Tensor:
        """Actions [...] int64, one draw for each."""
        one = self.log_probs[0]
        return self.at(crew.mine(torch.rand(crew.all(one.shape), generator=generator, device=one.device)))

    def at(self, draws: Tensor) -> Tensor:
        """Actions [...] int64 at these points [...] of the cumulative distribution, each in [0, 1).

        One of probability 0 is never taken: the first sum above a point is above the sum before it, and no point
        reaches the last sum, because the highest float32 below 1 takes at least half a bit off.
        """
        sums = self._chances.cumsum(0)
        return (sums <= draws * sums[-1]).sum(0)

    def mode(self) -> Tensor:
        """The most likely actions [...] int64; the first of equals."""
        return self.log_probs.argmax(0)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability [...] of actions [...]."""
        return self.log_probs.gather(0, actions.unsqueeze(0)).squeeze(0)

    def entropy(self) -> Tensor:
        """Entropy [...] in nats; an excluded action adds exactly 0."""
        return self._entropy

    def slope(self, actions: Tensor, by_log_prob: Tensor, by_entropy: float | Tensor) -> Tensor:
        """∂ log p_a / ∂ l_k = [k = a] − p_k, and ∂ H / ∂ l_k = −p_k (log p_k + H): 0 for an excluded action."""
        weight = by_log_prob
        if isinstance(by_entropy, Tensor):
            weight = by_log_prob + by_entropy * (self.log_probs + self._entropy)
        elif by_entropy:
            weight = torch.add(by_log_prob, self.log_probs + self._entropy, alpha=by_entropy)
        slope = (self._chances * weight).neg_()
        return slope.scatter_add_(0, actions.unsqueeze(0), by_log_prob.unsqueeze(0)).movedim(0, -1)

    def openness(self, mask: Tensor) -> Tensor:
        """Entropy [N] as a share of that of a blind choice among valid actions."""
        return normalized_entropy(self.probs, mask)

    def outputs(self) -> dict[str, Tensor]:
        """`logits` as the network gave them, and `probabilities`, each [..., K]."""
        return {"logits": self._logits, "probabilities": self.probs}

    @staticmethod
    def shown(behind: Sequence[Tensor], rows: int) -> Tensor:
        """Probabilities [T, rows, K]."""
        return torch.stack([log_probs[:, :rows] for log_probs in behind]).exp().transpose(1, 2)


class Bernoulli:
    """A switches, each on or off by itself: logits [..., A] of being on."""

    def __init__(self, logits: Tensor) -> None:
        self.behind = self._logits = logits

    def sample(self, generator: torch.Generator, crew: Crew = SOLO) -> Tensor:
        """Switches [..., A] int64, 0 or 1, one draw for each."""
        draws = torch.rand(crew.all(self._logits.shape), generator=generator, device=self._logits.device)
        return (crew.mine(draws) < self._logits.sigmoid()).long()

    def mode(self) -> Tensor:
        """On [..., A] int64 what is more likely on than off."""
        return (self._logits > 0).long()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability [...] of switches [..., A]: log σ(l) where on, log σ(−l) where off."""
        return -softplus(self._logits * (1 - 2 * actions)).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy [...] in nats: −p log p − (1 − p) log (1 − p) = log (1 + eˡ) − p l, for each."""
        return (softplus(self._logits) - self._logits.sigmoid() * self._logits).sum(-1)

    def slope(self, actions: Tensor, by_log_prob: Tensor, by_entropy: float | Tensor) -> Tensor:
        """∂ log p / ∂ l = a − p, and ∂ H / ∂ l = −l p (1 − p), for each."""
        on = self._logits.sigmoid()
        slope = by_log_prob.unsqueeze(-1) * (actions - on)
        return slope - by_entropy * self._logits * on * (1 - on)

    def openness(self, mask: Tensor) -> Tensor:
        """Entropy [N] as a share of that of fair coins."""
        return (self.entropy() / (self._logits.shape[-1] * math.log(2))).clamp_(0.0, 1.0)

    def outputs(self) -> dict[str, Tensor]:
        """`logits`, and `probabilities` of being on, each [..., A]."""
        return {"logits": self._logits, "probabilities": self._logits.sigmoid()}

    @staticmethod
    def shown(behind: Sequence[Tensor], rows: int) -> Tensor:
        """Probabilities of being on [T, rows, A]."""
        return torch.stack([logits[:rows] for logits in behind]).sigmoid_()


class Gaussian:
    """A numbers, each normally distributed by itself: outputs [..., 2 A] are means, then logarithms of deviations."""

    def __init__(self, outputs: Tensor) -> None:
        self._mean, self._log_std = outputs.chunk(2, -1)
        self.behind = self._mean

    def sample(self, generator: torch.Generator, crew: Crew = SOLO) -> Tensor:
        """Numbers [..., A], one draw for each."""
        draws = torch.randn(crew.all(self._mean.shape), generator=generator, device=self._mean.device)
        return torch.addcmul(self._mean, crew.mine(draws), self._log_std.exp())

    def mode(self) -> Tensor:
        """The means [..., A]."""
        return self._mean.clone()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Logarithm of the density [...] at numbers [..., A], as drawn: nothing is cut off."""
        away = (actions - self._mean) * (-self._log_std).exp()
        return -(0.5 * away.square() + self._log_std + 0.5 * LOG_2PI).sum(-1)

    def entropy(self) -> Tensor:
        """Differential entropy [...] in nats: log σ + ½ log 2πe for each. It may be below 0."""
        return (self._log_std + 0.5 * (LOG_2PI + 1)).sum(-1)

    def slope(self, actions: Tensor, by_log_prob: Tensor, by_entropy: float | Tensor) -> Tensor:
        """With z = (a − μ) / σ: ∂ log p / ∂ μ = z / σ and ∂ log p / ∂ log σ = z² − 1; ∂ H / ∂ log σ = 1."""
        narrow, weight = (-self._log_std).exp(), by_log_prob.unsqueeze(-1)
        away = (actions - self._mean) * narrow
        return torch.cat((weight * away * narrow, weight * (away.square() - 1) + by_entropy), -1)

    def openness(self, mask: Tensor) -> Tensor:
        """The geometric mean [N] of the deviations, at most 1: numbers have no blind choice to compare with."""
        return self._log_std.mean(-1).exp().clamp_(max=1.0)

    def outputs(self) -> dict[str, Tensor]:
        """`means` and `deviations`, each [..., A]."""
        return {"means": self._mean, "deviations": self._log_std.exp()}

    @staticmethod
    def shown(behind: Sequence[Tensor], rows: int) -> Tensor:
        """The means [T, rows, A]."""
        return torch.stack([means[:rows] for means in behind])


KINDS: Final[dict[str, type[Categorical | Bernoulli | Gaussian]]] = {
    "logits": Categorical,
    "switches": Bernoulli,
    "numbers": Gaussian,
}


def distribution(kind: Kind, outputs: Tensor, mask: Tensor | None) -> Distribution:
    """What these outputs [..., O] say; only one of K actions can be masked."""
    if kind == "logits":
        return Categorical(outputs, mask)
    return Bernoulli(outputs) if kind == "switches" else Gaussian(outputs)


@dataclass(frozen=True)
class Family:
    """How actions of one kind are drawn and kept."""

    kind: Kind
    shape: tuple[int, ...]  # of one row's action
    dtype: torch.dtype

    @property
    def outputs_are(self) -> Literal["probabilities", "means"]:
        """What `shown` gives."""
        return "means" if self.kind == "numbers" else "probabilities"

    def of(self, outputs: Tensor, mask: Tensor) -> Distribution:
        """What these outputs [..., O] of a network say, with mask [..., K]."""
        return distribution(self.kind, outputs, mask)

    def shown(self, behind: Sequence[Tensor], rows: int) -> Tensor:
        """What stood behind T acts of the first rows [T, rows, A]."""
        return KINDS[self.kind].shown(behind, rows)


def family(actions: Actions) -> Family:
    """The family of what can be done."""
    if isinstance(actions, Discrete):
        return Family("logits", (), torch.int64)
    if isinstance(actions, Continuous):
        return Family("numbers", (actions.n,), torch.float32)
    return Family("switches", (actions.n,), torch.int64)
