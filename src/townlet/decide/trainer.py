"""Learning from what came of decisions: a private copy of the network, one gradient step after another.

A step draws its batch by its own number from what the log says up to then. So the log alone gives the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.decide.buffer import ExperienceBatch
from townlet.decide.domain import Domain, GateResult
from townlet.decide.settings import LearningSettings, RewardSettings
from townlet.decide.state import ServiceState
from townlet.errors import TownletError
from townlet.interfaces.state import State, get_part
from townlet.nets.kernels import select_matmul_backend
from townlet.nets.optimizers import FlatOptimizer, restore_weights, weights
from townlet.rng import Streams

FADING: Final = 0.05  # of the mean reward, in each step
# Networks this small gain nothing by more, games wait for the cores, and sums in parts are others to the last bit.
THREADS: Final = 1


class TrainingReward(NamedTuple):
    """What the decisions of a batch are worth now."""

    reward: NDArray[np.float64]  # [B]
    used: NDArray[np.bool_]  # [B]
    agrees: NDArray[np.bool_]  # [B]: the gate decides now as it did then


@dataclass(frozen=True)
class StepMetrics:
    """One step, for the log and the dashboard."""

    step: int
    loss: float
    batch: int
    reward: float
    entropy: float
    agreement: float
    grad_norm: float


def training_rewards(sample: ExperienceBatch, now: GateResult, settings: RewardSettings) -> TrainingReward:
    """Rewards for training; `now` [B] is what the gate says today of the same actions at the same times."""
    agrees = now.send == sample.send
    estimate = np.where(now.rated, now.expected, 0.0)
    carried_out = np.where(
        now.send, settings.actual * sample.outcome + settings.gate * estimate, settings.disagreement * estimate
    )
    reward = np.where(sample.send, carried_out, settings.wait * sample.expected)
    used = ~(sample.send & ~now.send) if settings.skip_disagreement else np.ones(len(reward), bool)
    return TrainingReward(reward, used, agrees)


class Trainer:
    """The network that learns, apart from every one that serves."""

    def __init__(self, domain: Domain, ledger: ServiceState) -> None:
        self.domain, self.service_state, settings = domain, ledger, ledger.settings
        select_matmul_backend(has_convolutions=False)
        torch.set_num_threads(THREADS)  # here, so that whoever learns it again adds up in the same order
        self._kind = domain.policies[settings.policy]
        self._streams = Streams(settings.seed).child("trainer")
        self.network = self._kind.build(self._streams.torch("network"))
        self.optimizer = FlatOptimizer("adam", self.network, settings.learning.lr)
        self.step, self.sampled, self.mean = 0, 0, 0.0
        self._before: State | None = None
        self._surprise = _nothing()  # of the last step, for priorities

    @property
    def _learning(self) -> LearningSettings:
        """As it is set now: a restart may change it."""
        return self.service_state.settings.learning

    @property
    def allowed(self) -> bool:
        """Whether enough new experience has come for another step."""
        learning = self._learning
        return self.sampled + learning.batch <= learning.samples_per_insert * self.service_state.inserted

    def draw(self) -> ExperienceBatch | None:
        """The batch of the next step, which begins with it; None while there is too little. The ledger is locked."""
        learning = self._learning
        if learning.prioritized:  # here, so that a replay does it at the same place of the log
            self.service_state.buffer.reprioritize(**self._surprise)
        sample = self.service_state.buffer.sample(
            learning.batch,
            self._streams.numpy(f"step {self.step + 1}"),
            least=learning.least,
            train_on_wait=learning.train_on_wait,
            stratified=learning.stratified,
            prioritized=learning.prioritized,
        )
        if sample is not None:
            self.step, self.sampled = self.step + 1, self.sampled + len(sample)
        return sample

    def put_back(self, sample: ExperienceBatch) -> None:
        """The batch that was drawn last was never drawn."""
        self.step, self.sampled = self.step - 1, self.sampled - len(sample)

    def learn(self, sample: ExperienceBatch, rest: Callable[[], object] = no_interrupt) -> StepMetrics:
        """One gradient step, with the gate as it is configured now; raises where something is not finite: undo it.

        `rest` is called between its parts.
        """
        self._before = self.copy()
        self.optimizer.lr = self._learning.lr
        verdicts = self.domain.gate(sample.rows, sample.time, self.service_state.settings.gate)
        earned = training_rewards(sample, verdicts.select(sample.action), self._learning.reward)
        inputs = self._kind.inputs(sample.rows, sample.time, verdicts)
        rest()
        log_prob: Tensor = self.network(*map(torch.from_numpy, inputs))
        loss, entropy = self._loss(log_prob, sample, earned)
        rest()
        self.optimizer.zero_grad()
        loss.backward()
        rest()
        norm = self.optimizer.step(self._learning.max_grad_norm)
        figures = [float(x) for x in (loss.detach(), entropy.detach(), norm)]
        if not np.isfinite(figures).all() or not bool(self.optimizer.vector.isfinite().all()):
            raise TownletError(f"step {self.step} of the trainer is not finite", "lower learning.lr")
        reward = float(earned.reward.mean())
        self._surprise = {"places": sample.places, "number": sample.number, "error": earned.reward - self.mean}
        self.mean += FADING * (reward - self.mean)
        return StepMetrics(
            self.step, figures[0], len(sample), reward, figures[1], float(earned.agrees.mean()), figures[2]
        )

    def _loss(self, log_prob: Tensor, sample: ExperienceBatch, earned: TrainingReward) -> tuple[Tensor, Tensor]:
        """Policy gradient with weights of importance, and the entropy as a share of the largest."""
        learning = self._learning
        chosen = log_prob.gather(1, torch.from_numpy(sample.action).unsqueeze(1)).squeeze(1)
        possible = chosen.isfinite()  # the gate may no longer offer what was done then
        chosen = torch.where(possible, chosen, 0.0)
        weight = (chosen.detach().exp() / torch.from_numpy(sample.propensity).float()).clamp_(max=learning.importance)
        weight *= torch.from_numpy(sample.weight)
        counts = possible & torch.from_numpy(earned.used)
        advantage = torch.from_numpy(earned.reward - self.mean).float()
        gain = (weight * advantage * chosen * counts).sum() / counts.sum().clamp(min=1)
        safe = torch.where(log_prob.isfinite(), log_prob, 0.0)
        largest = log_prob.isfinite().sum(1).clamp(min=2).log()  # where there is no choice it is 0 of something
        entropy = (-(log_prob.exp() * safe).sum(1) / largest).mean()
        return -gain - learning.entropy * entropy, entropy

    def undo(self) -> None:
        """The last step never was, except for its number: its batch is not drawn again."""
        if self._before is not None:
            self.go_back(self._before)
            self._before = None

    def go_back(self, state: State) -> None:
        """Go on from what was learned earlier. Steps count on: their batches are not drawn again."""
        step, sampled = self.step, self.sampled
        self.restore(state)
        self.step, self.sampled = step, sampled

    def weights(self) -> Mapping[str, Tensor]:
        """Of the network, live."""
        return weights(self.network)

    def copy(self) -> State:
        """The state as it is now, whatever is learned later."""
        return _copied(self.state())

    def state(self) -> State:
        """Everything that decides what the next step does, beside the ledger."""
        counts: dict[str, Any] = {"step": self.step, "sampled": self.sampled, "mean": self.mean}
        own = {"network": weights(self.network), "optimizer": self.optimizer.state(), "counts": counts}
        return own | {"surprise": {name: torch.from_numpy(column) for name, column in self._surprise.items()}}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        restore_weights(self.network, state["network"])
        self.optimizer.restore(state["optimizer"])
        counts = state["counts"]
        self.step, self.sampled, self.mean = int(counts["step"]), int(counts["sampled"]), float(counts["mean"])
        self._surprise = {
            name: column.clone().numpy() for name, column in get_part(state, "surprise", "trainer").items()
        }


def _nothing() -> dict[str, NDArray[Any]]:
    whole = np.zeros(0, np.int64)
    return {"places": whole, "number": whole, "error": np.zeros(0)}


def _copied(state: State) -> State:
    return {
        name: _copied(get_part)
        if isinstance(get_part, dict)
        else get_part.clone()
        if isinstance(get_part, Tensor)
        else get_part
        for name, get_part in state.items()
    }
