"""REINFORCE (Williams 1992): Monte-Carlo policy gradient over whole episodes, with a choice of baselines.

A baseline lowers the variance of the gradient and leaves its expectation unchanged (Sutton & Barto 2018, §13.4). One
gradient step is made on each batch of episodes. An episode in progress at a gradient step began under an older policy;
it is still used in full.
"""

from __future__ import annotations

from typing import Final, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from townlet.agents.agent import AgentContext, Interrupt, no_interrupt
from townlet.agents.distributions import DistributionFamily
from townlet.agents.learning_agent import PolicyAgent, microbatch_size
from townlet.agents.networks import ActorCritic, make_actor_critic
from townlet.agents.on_policy import explained_variance
from townlet.agents.registry import ANY_ACTIONS, GAMMA_CHOICES, AgentEntry, register
from townlet.agents.settings import AdvantageEstimate, AgentSettings, MaxGradNorm, RewardScale
from townlet.agents.update_stats import UpdateStats
from townlet.buffers.episode_buffer import EpisodeBuffer, EpisodeSteps
from townlet.config.models import SearchRange
from townlet.config.schedule import FloatOrSchedule, validate_non_negative, value_at
from townlet.errors import TownletError
from townlet.interfaces.state import State, Stateful
from townlet.interfaces.vec_env import FinalObs, MaskedObs, Step
from townlet.nets.optimizers import OptimizerName
from townlet.nets.spec import MlpSpec, NetworkSpec

EPSILON: Final = 1e-8
SAMPLE: Final = 256  # approximate number of steps from which the KL divergence is estimated
STEP_METRICS: Final = ("policy_loss", "value_loss", "entropy")
# Coefficients that may be scheduled; their current values are logged under the same names.
COEFFICIENTS: Final = ("entropy_coef", "value_coef")


class ReinforceSettings(AgentSettings):
    """Settings of `reinforce`."""

    name: Literal["reinforce"] = "reinforce"
    lr: FloatOrSchedule = Field(1e-3, description="Learning rate. Higher learns faster, but may collapse the policy.")
    episodes: int = Field(
        8, ge=1, description="Episodes per update, over all rows. Higher: fewer, more stable updates."
    )
    returns: Literal["to_go", "episode"] = Field(
        "to_go", description="Weight of log π(a|s): the return from that step on, or of the whole episode (noisier)."
    )
    baseline: Literal["none", "mean", "value"] = Field(
        "value",
        description="none, mean (a moving average of returns) or value (learned; the lowest gradient variance).",
    )
    baseline_decay: float = Field(
        0.9, ge=0, lt=1, description="Decay of the moving average per update. Higher adapts more slowly."
    )
    normalize: bool = Field(True, description="Normalize advantages. If off, lr must suit the scale of rewards.")
    entropy_coef: FloatOrSchedule = Field(0.0, description="Entropy coefficient. Higher explores more and longer.")
    value_coef: FloatOrSchedule = Field(
        0.5,
        description="Weight of the value loss. Higher favors the value over the policy in a shared body.",
    )
    max_grad_norm: MaxGradNorm = 0.5
    log_std: float = Field(
        0.0, ge=-10, le=10, description="Initial log standard deviation of continuous actions. Higher explores more."
    )
    shared: bool = Field(
        False, description="One body for policy and value, at half the cost; large returns let the value loss dominate."
    )
    optimizer: OptimizerName = Field("adam", description="Optimizer. sgd needs a much higher lr.")
    reward_scale: RewardScale = 1.0

    _non_negative = field_validator("lr", *COEFFICIENTS)(validate_non_negative)

    def threads(self, network: NetworkSpec) -> int | None:
        """1 for feed-forward networks: updates are rare, and their size is not known before training."""
        return 1 if isinstance(network, MlpSpec) else None

    def displayed_advantage(self) -> AdvantageEstimate:
        if self.baseline != "value":
            unavailable = "Not available: this agent has no learned value."
            return AdvantageEstimate(self.gamma, None, self.reward_scale, unavailable)
        return self._estimate(1.0, "Return from this step minus the value.")


def reinforce_loss(
    network: ActorCritic, family: DistributionFamily, steps: EpisodeSteps, advantage: Tensor, returns: Tensor, *,
    entropy_coef: float, value_coef: float,
) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
    """The loss to minimize (policy gradient theorem, Sutton & Barto 2018, eq. 13.8), and values of every step.

    The values are `STEP_METRICS`, and `log_prob`: log π(a|s).

    L = −E[(G − b) log π(a|s)] + c_v E[(V − G)²] − c_e E[H(π)],  with c_v = 0 unless the baseline b is V
    """
    outputs, value, _ = network(steps.obs, network.initial_hidden(len(steps.obs)))
    policy = family.distribution(outputs, steps.mask)
    log_prob = policy.log_prob(steps.actions)
    terms = {
        "policy_loss": -log_prob * advantage,
        "value_loss": (value - returns).square(),
        "entropy": policy.entropy(),
        "log_prob": log_prob,
    }
    loss = terms["policy_loss"].mean() - entropy_coef * terms["entropy"].mean()
    if value_coef:  # otherwise skip the gradient of the critic
        loss = loss + value_coef * terms["value_loss"].mean()
    return loss, terms


class Reinforce(PolicyAgent):
    """REINFORCE agent: stores episodes of all rows, and makes a gradient step when `episodes` of them have ended."""

    name = "reinforce"
    update_interval = 1
    settings: ReinforceSettings

    def __init__(self, settings: ReinforceSettings, context: AgentContext) -> None:
        super().__init__(settings, context)
        if self.network.hidden_size:
            fix = "use ppo, or leave `recurrent` out of the network"
            raise TownletError("reinforce cannot train a recurrent network", fix)
        env = context.env
        action = self.family.shape, self.family.dtype
        self.buffer = EpisodeBuffer(env.rows, env.layout.size, env.actions.choices, action=action, device=env.device)
        self._hidden = self.network.initial_hidden(env.rows)
        self._mask = torch.ones(env.rows, env.actions.choices, dtype=torch.bool, device=env.device)
        self._bootstrap = torch.zeros(env.rows, device=env.device)
        self._average = torch.zeros(2, device=env.device)  # decayed sums of mean returns and of their weights

    @torch.inference_mode()
    def act(self, inputs: MaskedObs) -> Tensor:
        """Sample actions from the policy: [N] int64, binary [N, A] int64, or continuous [N, A]."""
        outputs, value, _ = self.network(inputs.obs, self._hidden)
        actions = self._sample(outputs, self._mask.copy_(inputs.mask))
        self.buffer.add_action(inputs.obs, inputs.mask, actions, value)
        return actions

    @torch.inference_mode()
    def observe(self, step: Step, ended: FinalObs) -> None:
        """Store rewards and ends of episodes. With a learned value, truncated episodes bootstrap from their final V."""
        self._bootstrap.zero_()
        truncated = step.truncated.index_select(0, ended.rows).nonzero().squeeze(1)
        if self.settings.baseline == "value" and len(truncated):
            _, value, _ = self.network(ended.obs.index_select(0, truncated), self._hidden[: len(truncated)])
            self._bootstrap.index_copy_(0, ended.rows.index_select(0, truncated), value)
        if self.bonus:
            self._compute_intrinsic(step.obs.index_copy(0, ended.rows, ended.obs), step)
        reward = step.reward * self.settings.reward_scale
        self.buffer.add_outcome(
            reward, self.intrinsic, step.terminated | step.truncated, self._bootstrap, step.autoreset_step
        )

    def on_env_reset(self) -> None:
        self.buffer.discard_unfinished_episodes()

    def learn(self, check_interrupt: Interrupt = no_interrupt) -> dict[str, float] | None:
        """Make one gradient step if `episodes` episodes have ended, and return its metrics; otherwise None."""
        s = self.settings
        if self.buffer.episodes < s.episodes:
            return None
        self.optimizer.lr = self._lr
        index = self.buffer.indices()
        returns = self.buffer.returns(s.gamma, self.intrinsic_weight.value, s.returns == "episode")
        returns = returns.view(-1).take(index)
        steps = self.buffer.gather(index)
        advantage = returns - self._baseline(returns, steps.value)
        if s.normalize:
            std, mean = torch.std_mean(advantage, correction=0)
            advantage = (advantage - mean) / (std + EPSILON)
        stats = UpdateStats(STEP_METRICS, self.group, index.device)
        log_probs: list[Tensor] = []
        self.optimizer.zero_grad()
        for part in torch.split(torch.arange(len(index), device=index.device), microbatch_size(str(index.device))):
            check_interrupt()
            batch = self.buffer.gather(index.index_select(0, part))
            loss, terms = reinforce_loss(
                self.network, self.family, batch, advantage.index_select(0, part), returns.index_select(0, part),
                **self._coefficients(),
            )  # fmt: skip
            (loss * (len(part) / len(index))).backward()
            log_probs.append(terms.pop("log_prob").detach())
            stats.add(terms)
        stats.add_grad_norm(self.optimizer.step(s.max_grad_norm))
        self.counters.updates += 1
        metrics = self._summary(stats.means(), steps.mask) | self._approx_kl(steps, torch.cat(log_probs))
        if s.baseline == "value":
            metrics["explained_variance"] = float(explained_variance(returns - steps.value, returns))
        metrics |= {"gradient_steps": 1.0} | self._part_grad_norms(self.optimizer)
        if self.bonus:
            metrics |= self.bonus.learn(steps.obs)
        metrics |= self._dead_units(steps.obs)
        self.buffer.discard_finished_episodes()
        return metrics | self.metrics()

    @torch.no_grad()
    def _approx_kl(self, steps: EpisodeSteps, log_prob: Tensor) -> dict[str, float]:
        """KL(π_old ‖ π) after the gradient step, in a sample of the batch; `log_prob` [B] is that of π_old.

        Estimator k3 of Schulman (2020): mean (ρ − 1) − log ρ.
        """
        sampled = slice(None, None, max(1, len(log_prob) // SAMPLE))
        obs, mask, actions = steps.obs[sampled], steps.mask[sampled], steps.actions[sampled]
        outputs, _ = self.network.actor(obs, self.network.actor.initial_hidden(len(obs)))
        log_ratio = self.family.distribution(outputs, mask).log_prob(actions) - log_prob[sampled]
        return {"approx_kl": float((log_ratio.expm1() - log_ratio).mean())}

    @torch.no_grad()
    def _baseline(self, returns: Tensor, value: Tensor) -> Tensor:
        """The baseline b, [B] or a scalar, that is subtracted from returns [B]."""
        if self.settings.baseline == "value":
            return value
        if self.settings.baseline == "none":
            return torch.zeros_like(returns)
        decay = self.settings.baseline_decay
        self._average.mul_(decay).add_(torch.stack((returns.mean(), returns.new_ones(()))), alpha=1 - decay)
        return self._average[0] / self._average[1]

    def _coefficients(self) -> dict[str, float]:
        s = self.settings
        value_coef = value_at(s.value_coef, self.counters) if s.baseline == "value" else 0.0
        return {"entropy_coef": value_at(s.entropy_coef, self.counters), "value_coef": value_coef}

    def _summary(self, metrics: dict[str, float], mask: Tensor) -> dict[str, float]:
        """Add the total loss and the normalized entropy; drop the value loss where no value is learned."""
        entropy, value_loss, c = metrics.pop("entropy"), metrics.pop("value_loss"), self._coefficients()
        loss = metrics["policy_loss"] - c["entropy_coef"] * entropy + c["value_coef"] * value_loss
        learned = {"value_loss": value_loss} if self.settings.baseline == "value" else {}
        return {"loss": loss} | metrics | self._entropy_metrics(entropy, mask) | learned

    def metrics(self) -> dict[str, float]:
        return self._scheduled(COEFFICIENTS) | super().metrics()

    def _parts(self) -> dict[str, Stateful]:
        return {"episodes": self.buffer, **super()._parts()}

    def _tensors(self) -> State:
        return {"average": self._average}


register(
    AgentEntry(
        settings=ReinforceSettings,
        agent=Reinforce,
        network=make_actor_critic,
        kind="policy",
        on_policy=True,
        actions=ANY_ACTIONS,
        rows=16,
        sweep={
            "lr": SearchRange(low=1e-4, high=1e-1),
            "gamma": GAMMA_CHOICES,
            "entropy_coef": SearchRange(low=1e-5, high=0.1),
        },
        smoke={"episodes": 1},
        changeable=("lr", "entropy_coef", "value_coef"),
    )
)
