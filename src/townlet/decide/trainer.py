"""Training on logged decisions, with a private copy of the network and the loss of its policy.

The batch of a step depends only on the step number and on the experience up to its record in the log, so replaying the
log gives the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.decide.buffer import ExperienceBatch
from townlet.decide.domain import Domain, GateResult, Observation
from townlet.decide.events import stored_values
from townlet.decide.losses import LossBatch
from townlet.decide.settings import LearningSettings, RewardSettings
from townlet.decide.state import ServiceState
from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.nets.kernels import select_matmul_backend
from townlet.nets.optimizers import FlatOptimizer, restore_weights, weights
from townlet.rng import Streams

BASELINE_RATE: Final = 0.05  # update rate of the moving average of rewards
# More threads do not speed up networks this small, take cores from games, and change the rounding of sums.
THREADS: Final = 1


class TrainingReward(NamedTuple):
    """Training rewards of a batch."""

    reward: NDArray[np.float64]  # [B]
    used: NDArray[np.bool_]  # [B]: whether the decision contributes to the loss
    agrees: NDArray[np.bool_] | None  # [B]: whether the current gate decides as the gate did then; None: not asked


@dataclass(frozen=True)
class StepMetrics:
    """Metrics of one training step."""

    step: int
    loss: float
    batch: int  # number of experiences
    reward: float  # mean training reward
    entropy: float  # mean, normalized
    agreed: int | None  # number of decisions on which the current gate agrees; None: it was not asked
    grad_norm: float
    seconds: float = 0.0  # duration

    @property
    def agreement(self) -> float | None:
        """Share of decisions on which the current gate agrees."""
        return None if self.agreed is None else self.agreed / self.batch


def training_rewards(batch: ExperienceBatch, gate_now: GateResult | None, settings: RewardSettings) -> TrainingReward:
    """Training rewards; `gate_now` [B] evaluates the same actions at the same times with the current gate.

    Without it, every decision counts as the gate rated it when the decision was made.
    """
    if gate_now is None:
        sent = settings.actual * batch.outcome + settings.gate * batch.expected
        reward = np.where(batch.send, sent, settings.wait * batch.expected)
        return TrainingReward(reward, np.ones(len(reward), bool), None)
    agrees = gate_now.send == batch.send
    estimate = np.where(gate_now.rated, gate_now.expected, 0.0)
    sent = np.where(
        gate_now.send, settings.actual * batch.outcome + settings.gate * estimate, settings.disagreement * estimate
    )
    reward = np.where(batch.send, sent, settings.wait * batch.expected)
    used = ~(batch.send & ~gate_now.send) if settings.skip_disagreement else np.ones(len(reward), bool)
    return TrainingReward(reward, used, agrees)


class Trainer:
    """Trains a network that is separate from the serving one."""

    def __init__(self, domain: Domain, state: ServiceState) -> None:
        self.domain, self.service_state, settings = domain, state, state.settings
        select_matmul_backend(has_convolutions=False)
        torch.set_num_threads(THREADS)  # set here, so that a replay sums in the same order
        self._policy = domain.policies[settings.policy]
        self._streams = Streams(settings.seed).child("trainer")
        self.network = self._policy.build(self._streams.torch("network"), settings.options)
        self.optimizer = FlatOptimizer("adam", self.network, settings.learning.lr)
        self.step, self.sampled, self.mean_reward = 0, 0, 0.0  # `sampled`: experiences in all batches so far
        self._before: State | None = None  # the state before the last step
        self._errors: dict[str, NDArray[Any]] = {  # rewards minus their mean in the last step, for priorities
            "slots": np.zeros(0, np.int64), "number": np.zeros(0, np.int64), "error": np.zeros(0),
        }  # fmt: skip

    @property
    def _learning(self) -> LearningSettings:
        """Current settings: a restart may change them."""
        return self.service_state.settings.learning

    @property
    def allowed(self) -> bool:
        """Whether learning is on, and `samples_per_insert` allows another step."""
        learning = self._learning
        limit = learning.samples_per_insert * self.service_state.inserted
        return learning.enabled and self.sampled + learning.batch_size <= limit

    def sample(self) -> ExperienceBatch | None:
        """Start the next step and sample its batch, under the service's lock; None without enough experience."""
        learning = self._learning
        if learning.prioritized:  # updated here, so that a replay does it at the same record of the log
            self.service_state.buffer.update_priorities(**self._errors)
        batch = self.service_state.buffer.sample(
            learning.batch_size,
            self._streams.numpy(f"step {self.step + 1}"),
            min_batch_size=learning.min_batch_size,
            train_on_wait=learning.train_on_wait,
            stratified=learning.stratified,
            prioritized=learning.prioritized,
        )
        if batch is not None:
            self.step, self.sampled = self.step + 1, self.sampled + len(batch)
        return batch

    def cancel(self, batch: ExperienceBatch) -> None:
        """Cancel the step that `sample` started."""
        self.step, self.sampled = self.step - 1, self.sampled - len(batch)

    def learn(self, batch: ExperienceBatch, yield_cpu: Callable[[], object] = no_interrupt) -> StepMetrics:
        """One gradient step with the current gate; raises if a result is not finite, then call `undo`.

        `yield_cpu` is called between its parts.
        """
        self._before = self.copy()
        self.optimizer.lr = self._learning.lr
        gate_result = self.domain.gate(batch.rows, batch.time, self.service_state.settings.gate)
        gate_now = gate_result.select(batch.action) if self._learning.validate_ else None
        rewards = training_rewards(batch, gate_now, self._learning.reward)
        inputs = self._policy.inputs(batch.rows, batch.time, gate_result)
        yield_cpu()
        sample = LossBatch(
            inputs=tuple(map(torch.from_numpy, inputs)),
            action=torch.from_numpy(batch.action),
            propensity=torch.from_numpy(batch.propensity),
            reward=torch.from_numpy(rewards.reward),
            weight=torch.from_numpy(batch.weight),
            used=torch.from_numpy(rewards.used),
            mean_reward=self.mean_reward,
            newest=int(batch.number.max()),
        )
        loss, entropy = self._policy.loss(self.network, sample, self._learning, self.service_state.settings.options)
        yield_cpu()
        self.optimizer.zero_grad()
        loss.backward()
        yield_cpu()
        norm = self.optimizer.step(self._learning.max_grad_norm)
        metrics = [float(x) for x in (loss.detach(), entropy.detach(), norm, self.optimizer.vector.sum())]
        if not np.isfinite(metrics).all():  # the sum is not finite if a weight is not
            raise TownletError(f"training step {self.step} gave NaN or infinity", "lower learning.lr")
        reward, agrees = float(rewards.reward.mean()), rewards.agrees
        agreed = None if agrees is None else int(agrees.sum())
        self._errors = {"slots": batch.slots, "number": batch.number, "error": rewards.reward - self.mean_reward}
        self.mean_reward += BASELINE_RATE * (reward - self.mean_reward)
        return StepMetrics(self.step, metrics[0], len(batch), reward, metrics[1], agreed, metrics[2])

    def warm_up(self, observation: Observation) -> None:
        """Compute the loss and its gradient for one observation with a network that is then discarded."""
        settings, one = self.service_state.settings, torch.ones(1)
        rows, time = {name: column[None] for name, column in observation.row.items()}, np.array([observation.time])
        inputs = self._policy.inputs(rows, time, self.domain.gate(rows, time, settings.gate))
        network = self._policy.build(Streams(0).torch("warm-up"), settings.options)
        sample = LossBatch(tuple(map(torch.from_numpy, inputs)), one.long() - 1, one, one, one, one.bool(), 0.0, 1)
        self._policy.loss(network, sample, settings.learning, settings.options)[0].backward()

    def undo(self) -> None:
        """Undo the last step; its number is kept, so that its batch is not sampled again."""
        if self._before is not None:
            self.rewind(self._before)
            self._before = None

    def rewind(self, state: State) -> None:
        """Restore an earlier state, except for the step count, so that no batch is sampled again."""
        step, sampled = self.step, self.sampled
        self.restore(state)
        self.step, self.sampled = step, sampled

    def weights(self) -> Mapping[str, Tensor]:
        """Weights of the network, not copied."""
        return weights(self.network)

    def copy(self) -> State:
        """A copy of the state."""
        return deepcopy(self.state())

    def state(self) -> State:
        """Everything that the next step depends on, besides the service state."""
        return {
            "network": weights(self.network),
            "optimizer": self.optimizer.state(),
            "counts": {"step": self.step, "sampled": self.sampled, "mean_reward": self.mean_reward},
            "errors": {name: torch.from_numpy(column) for name, column in self._errors.items()},
        }

    def restore(self, state: State) -> None:
        with stored_values("the saved trainer"):
            restore_weights(self.network, state["network"])
            self.optimizer.restore(state["optimizer"])
            counts = state["counts"]
            self.step, self.sampled = int(counts["step"]), int(counts["sampled"])
            self.mean_reward = float(counts["mean_reward"])
            self._errors = {name: column.clone().numpy() for name, column in state["errors"].items()}
