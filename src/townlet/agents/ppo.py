"""Proximal policy optimization (Schulman et al. 2017) with generalized advantage estimation (Schulman et al. 2016).

Every `n_steps` steps of all N parallel environments (*rows*) form a rollout. One *update* makes several passes over it
in minibatches (*epochs*), which maximize a clipped surrogate objective. The action space determines the policy:
categorical for discrete actions (invalid actions are masked: their probability is exactly 0, when sampling and in the
loss), Bernoulli for binary actions, Gaussian for continuous ones (with a learned standard deviation that does not
depend on the state; the environment clips actions to their bounds). The network may be recurrent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Tensor

from townlet.agents.agent import AgentContext, Interrupt, no_interrupt
from townlet.agents.distributions import DistributionFamily
from townlet.agents.learning_agent import DEAD_UNIT_SAMPLE, PolicyAgent, microbatch_size, refuse_autoreset_steps
from townlet.agents.networks import ActorCritic, make_actor_critic
from townlet.agents.on_policy import OnPolicySettings, explained_variance
from townlet.agents.registry import ANY_ACTIONS, GAMMA_CHOICES, LR_RANGE, AgentEntry, register
from townlet.agents.settings import AdvantageEstimate, Carry, MaxGradNorm, SettingProblem
from townlet.agents.update_stats import UpdateStats
from townlet.buffers.rollout import EPSILON, Microbatch, Minibatch, RolloutBuffer
from townlet.config.models import SearchRange
from townlet.config.schedule import FloatOrSchedule, validate_non_negative, validate_positive, value_at
from townlet.interfaces.state import State, Stateful
from townlet.interfaces.vec_env import FinalObs, MaskedObs, Step
from townlet.nets.spec import NetworkSpec

STEP_METRICS: Final = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


class Coefficients(NamedTuple):
    """Current clip ranges and coefficients of the loss, each of which may be scheduled."""

    clip: float  # ε
    value_clip: float | None  # ε_v
    entropy_coef: float  # c_e
    value_coef: float  # c_v


class PpoSettings(OnPolicySettings):
    """Settings of `ppo`."""

    name: Literal["ppo"] = "ppo"
    lr: FloatOrSchedule = Field(2.5e-4, description="Learning rate. Higher learns faster until the policy collapses.")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="λ of GAE. Higher means less bias and more variance.")
    clip: FloatOrSchedule = Field(
        0.2, description="Clip range ε of the probability ratio. Higher allows larger updates."
    )
    value_clip: FloatOrSchedule | None = Field(
        None, description="Clip range of value changes in an update. Lower is more stable but slower; null: unclipped."
    )
    entropy_coef: FloatOrSchedule = Field(0.01, description="Entropy coefficient. Higher explores more and longer.")
    value_coef: FloatOrSchedule = Field(
        0.5, description="Value coefficient. Higher fits a shared body to values more than to the policy."
    )
    normalize_advantage: Literal["batch", "rollout", "none"] = Field(
        "batch", description="Normalize advantages in every minibatch, once per rollout, or not at all."
    )
    max_grad_norm: MaxGradNorm = 0.5
    target_kl: float | None = Field(
        None, gt=0, description="Stop an update after the epoch whose approx_kl exceeds this. null: never."
    )
    log_std: float = Field(
        0.0, ge=-10, le=10, description="Initial log standard deviation of continuous actions. Higher explores more."
    )
    shared: bool = Field(True, description="One body for policy and value. Off: one each, at twice the cost.")
    carry: Carry = True
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Precision of matrix products in accelerated plain MLPs. bfloat16 is much faster on a GPU.",
    )
    accelerate: bool = Field(
        True,
        description="Use faster implementations where available. Results agree within rounding, except that CUDA "
        "graphs take minibatches of whole rows.",
    )
    _non_negative = field_validator("lr", "entropy_coef", "value_coef")(validate_non_negative)
    _positive = field_validator("clip", "value_clip")(validate_positive)

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        yield from super().problems(rows)
        steps = 0 if rows is None else rows * self.n_steps
        if self.normalize_advantage == "batch" and self.batch_steps(steps) < 2 <= steps:
            what = f"agent.batch_size gives minibatches of one step (a rollout has {steps} steps)"
            fix = "raise it: the normalized advantage of a single step is always 0"
            yield SettingProblem("batch_size", what, fix)

    def hints(self, network: NetworkSpec) -> Iterator[str]:
        if not self.carry and not network.is_recurrent:
            yield "agent.carry=false changes nothing: the network has no hidden state."

    def displayed_advantage(self) -> AdvantageEstimate:
        text = f"Generalized advantage estimation (GAE) with λ = {self.gae_lambda:g}, from the values shown next to it."
        return self._estimate(self.gae_lambda, text)


class EvaluatedSteps(NamedTuple):
    """Outputs of the current network for the steps of a minibatch, and data of the rollout; each [B] or [T, B]."""

    log_ratio: Tensor  # log ρ = log π(a|s) − log π_old(a|s)
    entropy: Tensor
    value: Tensor
    old_value: Tensor
    advantage: Tensor
    returns: Tensor


def ppo_loss(
    network: ActorCritic, family: DistributionFamily, batch: Minibatch, c: Coefficients
) -> tuple[Tensor, EvaluatedSteps]:
    """The loss to minimize (Schulman et al. 2017, eq. 9, negated), and the values per step that it was computed from.

    L = E[ −min(ρA, clip(ρ, 1−ε, 1+ε)A) ] + c_v E[(V − R)²] − c_e E[H(π)],   ρ = π(a|s) / π_old(a|s)

    A recurrent network gets whole rows [T, B, …]: hidden states are recomputed from the one at the start of the
    rollout, with gradients through all T steps, and reset where an episode begins (`episode_start`).
    """
    outputs, value, _ = network(batch.obs, batch.hidden, batch.episode_start)
    policy = family.distribution(outputs, batch.mask)  # categorical, Bernoulli or Gaussian; masked: probability 0
    log_ratio = policy.log_prob(batch.actions) - batch.log_prob
    e = EvaluatedSteps(log_ratio, policy.entropy(), value, batch.value, batch.advantage, batch.returns)
    loss = policy_loss(e, c).mean() + c.value_coef * value_loss(e, c).mean() - c.entropy_coef * e.entropy.mean()
    return loss, e._replace(value=value.detach().clone())  # a view would keep all outputs of the network in memory


def policy_loss(e: EvaluatedSteps, c: Coefficients) -> Tensor:
    """−min(ρA, clip(ρ, 1−ε, 1+ε)A) of every step."""
    ratio = e.log_ratio.exp()
    return -torch.minimum(ratio * e.advantage, ratio.clamp(1 - c.clip, 1 + c.clip) * e.advantage)


def value_loss(e: EvaluatedSteps, c: Coefficients) -> Tensor:
    """(V − R)² of every step, without a factor ½.

    If values are clipped by ε_v: max((V − R)², (V_old + clip(V − V_old, −ε_v, ε_v) − R)²).
    """
    error = (e.value - e.returns).square()
    if c.value_clip is None:
        return error
    clipped = e.old_value + (e.value - e.old_value).clamp(-c.value_clip, c.value_clip)
    return torch.maximum(error, (clipped - e.returns).square())


@torch.no_grad()
def ppo_metrics(e: EvaluatedSteps, c: Coefficients) -> dict[str, Tensor]:
    """Metrics of every step: the terms of the loss, and how far the policy has moved since the rollout."""
    change = torch.expm1(e.log_ratio)  # ρ − 1
    approx_kl = change - e.log_ratio  # KL(π_old ‖ π), estimator k3 of Schulman (2020)
    clip_fraction = (change.abs() > c.clip).to(change.dtype)
    values = (policy_loss(e, c), value_loss(e, c), e.entropy, approx_kl, clip_fraction)
    return dict(zip(STEP_METRICS, values, strict=True))


class Ppo(PolicyAgent):
    """PPO agent: `act` and `observe` fill a rollout, `learn` makes up to `epochs` passes over it."""

    name = "ppo"
    interruptible = True
    settings: PpoSettings
    accelerated: Callable[[Minibatch, Coefficients, float], EvaluatedSteps] | None = None  # faster form of `_backward`

    def __init__(self, settings: PpoSettings, context: AgentContext) -> None:
        super().__init__(settings, context)
        env = context.env
        if self.network.hidden_size:
            refuse_autoreset_steps("ppo", env)
        self.update_interval = settings.n_steps
        self._context = context
        self.rollout = self.make_rollout(torch.float32)
        self.last_value = torch.zeros(env.rows, device=env.device)  # V of the observations after the rollout
        self._hidden = self.network.initial_hidden(env.rows)  # [N, H] before the next step
        self._episode_start = torch.ones(env.rows, dtype=torch.bool, device=env.device)  # rows that begin an episode
        self._no_value = torch.zeros(env.rows, device=env.device)  # stored if the critic is not evaluated while acting

    def make_rollout(self, dtype: torch.dtype) -> RolloutBuffer:
        """An empty rollout buffer that stores observations as `dtype`."""
        env = self._context.env
        return RolloutBuffer(
            self.settings.n_steps, env.rows, env.layout, env.actions.choices,
            action=(self.family.shape, self.family.dtype), hidden=self.network.hidden_size,
            autoreset_steps=env.autoreset_steps, device=env.device, dtype=dtype, group=self.group,
        )  # fmt: skip

    @torch.inference_mode()
    def act(self, inputs: MaskedObs) -> Tensor:
        """Sample actions from the policy: [N] int64, binary [N, A] int64, or continuous [N, A]."""
        if self.network.separate_feedforward_critic:  # evaluated once per rollout, in large batches
            outputs, value = self.network.actor(inputs.obs, self._hidden)[0], self._no_value
        else:
            outputs, value, hidden = self.network(inputs.obs, self._hidden)
            self._hidden.copy_(hidden)
        actions = self._sample(outputs, inputs.mask)  # also sets `_distribution`
        log_prob = self._distribution.log_prob(actions)
        self._mask = self.rollout.mask[self.rollout.steps]  # a view of what the next line stores, for `entropy`
        self.rollout.add_action(inputs.obs, inputs.mask, actions, log_prob, value, self._episode_start)
        return actions

    @torch.inference_mode()
    def observe(self, step: Step, ended: FinalObs) -> None:
        """Store rewards and ends of episodes.

        A truncated episode bootstraps from V of its final observation, a terminated one from 0, one that continues
        beyond the rollout from V of its next observation. Where an episode ended, `step.obs` is the first observation
        of the next one and `ended.obs` the final one. Autoreset steps are not learned from.
        """

        def final_value(index: Tensor) -> Tensor:
            """V of the final observations at these indices of `ended`."""
            hidden = self._hidden.index_select(0, ended.rows.index_select(0, index))
            value: Tensor = self.network(ended.obs.index_select(0, index), hidden)[1]
            return value

        if self.bonus:
            self._compute_intrinsic(step.obs.index_copy(0, ended.rows, ended.obs), step)
        scale = self.settings.reward_scale
        self.rollout.add_outcome(step, ended, final_value, intrinsic=self.intrinsic, reward_scale=scale)
        self._episode_start.copy_(step.episode_starts)
        self._hidden.masked_fill_(self._episode_start.unsqueeze(1), 0.0)
        if self.rollout.full:
            self.last_value.copy_(self.network(step.obs, self._hidden)[1])  # unused where an episode just ended

    def on_env_reset(self) -> None:
        """Every row begins an episode: reset the hidden state."""
        self._episode_start.fill_(True)
        self._hidden.zero_()

    def learn(self, check_interrupt: Interrupt = no_interrupt) -> dict[str, float] | None:
        """Make up to `epochs` passes over a full rollout. Metrics are means; approx_kl is that of the last epoch."""
        s, rollout = self.settings, self.rollout
        if not rollout.full:
            return None
        if not len(rollout.without_autoreset_steps(rollout.reward)):  # a short rollout may have only autoreset steps
            rollout.clear(self._hidden)
            return None
        self.optimizer.lr, coefficients = self._lr, self.coefficients()
        if self.graphed and self.graphed.has_collected and coefficients.value_clip is None:  # graphs cannot clip values
            metrics = self._summary(self.graphed.learn(), coefficients)
            rollout.clear()
            return metrics | self.metrics()
        explained = self._compute_advantages()
        stats = UpdateStats(
            EvaluatedSteps._fields, self.group, self.intrinsic.device,
            lambda steps: ppo_metrics(EvaluatedSteps(**steps), coefficients),
        )  # fmt: skip
        for minibatches in self._epochs():
            stats.start_epoch()
            for minibatch in minibatches:
                self.optimizer.zero_grad()
                # The gradient is accumulated over microbatches that fit caches and memory. The mean loss of each is
                # scaled by its fraction of the minibatch, so the gradients add up to that of the whole minibatch.
                for batch, fraction in minibatch:
                    check_interrupt()
                    stats.add(self._backward(batch, coefficients, fraction)._asdict())
                stats.add_grad_norm(self.optimizer.step(s.max_grad_norm))  # clips the global norm first
                self.counters.updates += 1  # gradient steps so far
            if s.target_kl is not None and stats.epoch_mean("approx_kl") > s.target_kl:
                break
        metrics = stats.means() | {"approx_kl": float(stats.epoch_mean("approx_kl"))}  # of the last epoch
        metrics |= {"epochs_done": float(stats.epochs), "gradient_steps": float(stats.gradient_steps)}
        metrics["explained_variance"] = float(explained)
        metrics |= self._part_grad_norms(self.optimizer)
        if self.bonus:
            metrics |= self.bonus.learn(rollout.sample_obs(s.bonus_fraction, self.generator))
        metrics = self._summary(metrics, coefficients) | self._dead_units(rollout.evenly_spaced_obs(DEAD_UNIT_SAMPLE))
        rollout.clear(self._hidden)  # the hidden state in which the next rollout begins
        return metrics | self.metrics()

    def _compute_advantages(self) -> Tensor:
        """Compute advantages and returns in the rollout (GAE). Returns the explained variance of the values, a scalar.

        δ_t = r_t + γ V(s_{t+1}) − V(s_t);  A_t = δ_t + γλ A_{t+1}, without the second term at ends of episodes;
        R_t = A_t + V(s_t). The reward is r_t = `reward_scale` · r_extrinsic + β r_intrinsic, β = `intrinsic_weight`.
        V(s_{t+1}) is 0 after termination, that of the final observation after truncation, and `last_value` at the end
        of the rollout. Normalized advantages have mean 0 and (population) standard deviation 1.
        """
        s, rollout = self.settings, self.rollout
        if self.network.separate_feedforward_critic:
            with torch.inference_mode():
                rollout.compute_values(self.network.values, microbatch_size(str(self.intrinsic.device)))
        advantage, returns = rollout.advantages(self.last_value, s.gamma, s.gae_lambda, self.intrinsic_weight.value)
        real_steps = rollout.without_autoreset_steps
        explained = explained_variance(real_steps(advantage), real_steps(returns), self.group)  # A = R − V
        if s.normalize_advantage == "rollout":
            ((std, mean),) = self.group.std_mean([real_steps(advantage)])
            advantage.sub_(mean).div_(std + EPSILON)  # in place: the tensors belong to the rollout
        return explained

    def _epochs(self) -> Iterator[Iterable[Iterable[Microbatch]]]:
        """Yield the reshuffled minibatches of each epoch: single steps, or whole rows for a recurrent network.

        All have nearly the same size: at most `batch_size` steps (or that fraction of the rollout), or the number of
        rows that comes closest to it. If one minibatch is the whole rollout, it is gathered only once.
        """
        s, max_microbatch = self.settings, microbatch_size(str(self.intrinsic.device))
        steps = len(self.rollout) * self.group.size
        size, gathered = s.batch_steps(steps), None
        for _ in range(s.epochs):
            if gathered is None:
                epoch = self.rollout.minibatches(
                    size, self.generator, microbatch_size=max_microbatch,
                    normalize=s.normalize_advantage == "batch",  # by mean and deviation of the whole minibatch
                )  # fmt: skip
                if size >= steps and steps <= max_microbatch and not self.network.hidden_size:
                    gathered = [list(minibatch) for minibatch in epoch]
            yield epoch if gathered is None else gathered

    def _backward(self, batch: Minibatch, coefficients: Coefficients, scale: float) -> EvaluatedSteps:
        """Accumulate `scale` times the gradient of the loss; returns the values that the loss was computed from."""
        if self.accelerated:
            return self.accelerated(batch, coefficients, scale)
        loss, evaluated = ppo_loss(self.network, self.family, batch, coefficients)
        (scale * loss).backward()
        return evaluated

    def coefficients(self) -> Coefficients:
        """The clip ranges and coefficients at this point of the run."""
        s, counters = self.settings, self.counters
        value_clip = None if s.value_clip is None else value_at(s.value_clip, counters)
        entropy_coef, value_coef = value_at(s.entropy_coef, counters), value_at(s.value_coef, counters)
        return Coefficients(value_at(s.clip, counters), value_clip, entropy_coef, value_coef)

    def metrics(self) -> dict[str, float]:
        return self._scheduled(Coefficients._fields) | super().metrics()

    def _summary(self, metrics: dict[str, float], c: Coefficients) -> dict[str, float]:
        """Add the total loss and the normalized entropy to the metrics of an update."""
        entropy = metrics.pop("entropy")
        loss = metrics["policy_loss"] + c.value_coef * metrics["value_loss"] - c.entropy_coef * entropy
        mask = self.rollout.without_autoreset_steps(self.rollout.mask)
        return metrics | {"loss": loss} | self._entropy_metrics(entropy, mask)

    def _parts(self) -> dict[str, Stateful]:
        return {"rollout": self.rollout, **super()._parts()}

    def _tensors(self) -> State:
        rows = {"hidden": self._hidden, "episode_start": self._episode_start, "last_value": self.last_value}
        return {"rows": rows}


register(
    AgentEntry(
        settings=PpoSettings,
        agent=Ppo,
        network=make_actor_critic,
        kind="policy",
        on_policy=True,
        recurrent="optional",
        actions=ANY_ACTIONS,
        rows=1024,
        sweep={
            "lr": LR_RANGE,
            "gamma": GAMMA_CHOICES,
            "gae_lambda": SearchRange(choices=(0.8, 0.9, 0.95, 0.98)),
            "entropy_coef": SearchRange(low=1e-5, high=0.1),
            "epochs": SearchRange(choices=(2, 4, 10, 20)),
            "clip": SearchRange(choices=(0.1, 0.2, 0.3)),
        },
        smoke={"n_steps": 32, "batch_size": 32, "epochs": 1},
        changeable=("lr", "clip", "value_clip", "entropy_coef", "value_coef", "epochs"),
        export_metadata=("carry",),
        shard_axes={"rows": 0, "rollout/hidden": 0, "rollout/storage/columns": 1},
    )
)
