"""PPO with rollouts and epochs that are captured as CUDA graphs.

Launching small kernels one by one leaves a GPU idle most of the time, and reading a number from it stalls it. Here
every step is compiled into a few kernels, a whole rollout and a whole epoch are each replayed as one graph, and
metrics are summed on the device. The algorithm is that of `ppo`, except that minibatches are ranges of rows in a fixed
order and `dead_units` is not reported. A rollout must be no longer than an episode, so that each row is truncated at
most once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from townlet.agents.accelerated.analytic_ppo import AnalyticPpo
from townlet.agents.distributions import Categorical
from townlet.agents.on_policy import explained_variance
from townlet.agents.ppo import STEP_METRICS, Coefficients, Ppo, ppo_metrics
from townlet.buffers.rollout import EPSILON, Minibatch
from townlet.cuda_graph import CudaGraph, compile_method
from townlet.interfaces.vec_env import MaskedObs, Step

METRICS: Final = (*STEP_METRICS, "grad_norm")
KL: Final = METRICS.index("approx_kl")


class GraphedPpo:
    """CUDA graphs of a `Ppo` agent with discrete actions, a feed-forward network and no intrinsic reward."""

    def __init__(self, agent: Ppo, analytic: AnalyticPpo, device: str) -> None:
        self._agent, self._analytic, self._cuda = agent, analytic, device.startswith("cuda")
        methods: list[Callable[..., Any]] = [self._sample_actions, self._store_outcome, self._backward_minibatch]
        compiled = [compile_method(method, device) for method in methods] if self._cuda else methods
        self._sample, self._store, self._backward = compiled
        self._coefficients = torch.zeros(3, device=device)  # clip, entropy and value coefficient
        self._sums = torch.zeros(len(METRICS), device=device)
        self._graphs: tuple[Callable[[], None], Callable[[], None]] | None = None  # of the advantages, and of an epoch
        self._explained = torch.zeros((), device=device)
        self.collects_rollouts = False

    @property
    def generator(self) -> torch.Generator:
        return self._agent.generator

    def start_rollout(self) -> None:
        self._agent.rollout.clear()

    def mark_rollout_full(self) -> None:
        self._agent.rollout.mark_full()
        self.collects_rollouts = True

    @torch.no_grad()
    def act(self, seen: MaskedObs) -> Tensor:
        agent = self._agent
        draws = torch.rand(len(seen.obs), generator=agent.generator, device=seen.obs.device)
        self._sample(seen.obs, seen.mask, draws, agent.rollout.slot)
        return agent.rollout.slot["actions"]

    def _sample_actions(self, obs: Tensor, mask: Tensor, draws: Tensor, slot: Mapping[str, Tensor]) -> None:
        outputs, value = self._analytic.mlp.forward(obs)
        policy = Categorical(outputs, mask)
        actions = policy.icdf(draws)
        columns = {"obs": obs, "mask": mask, "actions": actions, "log_prob": policy.log_prob(actions), "value": value}
        for name, values in columns.items():
            slot[name].copy_(values.view_as(slot[name]))

    def observe(self, step: Step) -> None:
        rollout = self._agent.rollout
        self._store(step.reward, step.terminated, step.truncated, rollout.slot)
        rollout.advance()

    def _store_outcome(self, reward: Tensor, terminated: Tensor, truncated: Tensor, slot: Mapping[str, Tensor]) -> None:
        slot["reward"].copy_(reward * self._agent.settings.reward_scale)
        slot["terminated"].copy_(terminated)
        slot["truncated"].copy_(truncated)

    @torch.no_grad()
    def finish_rollout(self, truncated_obs: Tensor, next_obs: Tensor) -> None:
        """Store V of the final observations of truncated episodes and of the next observations, each [N, D]."""
        agent, forward = self._agent, self._analytic.mlp.forward
        agent.rollout.bootstrap.copy_(forward(truncated_obs)[1].view(-1))  # one value serves all steps of a row
        agent.last_value.copy_(forward(next_obs)[1].view(-1))

    @torch.no_grad()
    def learn(self) -> dict[str, float]:
        """One update: `epochs` of gradient steps on the rollout. Metrics are means; approx_kl is of the last epoch."""
        agent, s = self._agent, self._agent.settings
        clip, _, entropy, value = agent.coefficients()
        self._coefficients.copy_(torch.tensor([clip, entropy, value]), non_blocking=True)
        if self._graphs is None:
            self._graphs = self._capture()
        compute_advantages, run_epoch = self._graphs
        compute_advantages()
        total, epochs = torch.zeros_like(self._sums), 0
        while epochs < s.epochs:
            epochs += 1
            self._sums.zero_()
            run_epoch()
            total += self._sums
            if s.target_kl is not None and float(self._sums[KL]) > s.target_kl:
                break
        agent.counters.updates += epochs * self._minibatches
        values = torch.cat((total / epochs, self._sums[KL : KL + 1], self._explained.view(1)))
        *means, last_kl, explained = values.tolist()  # the only wait for the device, unless `target_kl` is set
        metrics = dict(zip(METRICS, means, strict=True)) | {"approx_kl": last_kl, "explained_variance": explained}
        return metrics | {"epochs_done": float(epochs), "gradient_steps": float(epochs * self._minibatches)}

    @property
    def _minibatches(self) -> int:
        steps = self._agent.rollout.reward.numel()
        return max(1, round(steps / self._agent.settings.batch_steps(steps)))

    def _capture(self) -> tuple[Callable[[], None], Callable[[], None]]:
        if not self._cuda:
            return self._compute_advantages, self._run_epoch
        advantages = CudaGraph(self._compute_advantages, [])
        return advantages, CudaGraph(self._run_epoch, [*self._agent.optimizer.mutable_tensors(), self._sums])

    def _compute_advantages(self) -> None:
        agent, s = self._agent, self._agent.settings
        advantage, returns = agent.rollout.advantages(agent.last_value, s.gamma, s.gae_lambda)
        self._explained.copy_(explained_variance(advantage, returns))
        if s.normalize_advantage == "rollout":
            std, mean = torch.std_mean(advantage, correction=0)
            advantage.sub_(mean).div_(std + EPSILON)

    def _run_epoch(self) -> None:
        agent, parts = self._agent, self._minibatches
        rows = agent.rollout.reward.shape[1]
        for k in range(parts):
            first, last = k * rows // parts, (k + 1) * rows // parts
            agent.optimizer.zero_grad()
            batch = agent.rollout.row_slice(first, last)
            terms = self._backward(*batch[:7], self._coefficients) * ((last - first) / rows)
            norm = agent.optimizer.step(agent.settings.max_grad_norm)
            self._sums += torch.cat((terms, norm.view(1) / parts))

    def _backward_minibatch(
        self, obs: Tensor, mask: Tensor, actions: Tensor, log_prob: Tensor, value: Tensor, advantage: Tensor,
        returns: Tensor, coefficients: Tensor,
    ) -> Tensor:  # fmt: skip
        """Add the gradient of a minibatch [T, B, …]; the means of its terms [5]."""
        columns = (obs, mask, actions, log_prob, value, advantage, returns)
        batch = Minibatch._make((*(column.flatten(0, 1) for column in columns), obs.new_zeros(0), None))
        if self._agent.settings.normalize_advantage == "batch":
            std, mean = batch.advantage.std(correction=0), batch.advantage.mean()
            batch = batch._replace(advantage=(batch.advantage - mean) / (std + EPSILON))
        clip, entropy, value_coef = coefficients.unbind()
        now = Coefficients(clip, None, entropy, value_coef)  # type: ignore[arg-type]  # tensors [], read at each replay
        terms = ppo_metrics(self._analytic.backward(batch, now), now)
        return torch.stack([terms[name].mean() for name in STEP_METRICS])
