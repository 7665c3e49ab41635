"""PPO with rollouts and epochs that are captured as CUDA graphs.

Launching small kernels one by one leaves a GPU mostly idle, and the host waits whenever it reads a value back.
Here torch.compile fuses each environment step and each gradient step into a few kernels, a rollout and an epoch are
each one CUDA graph, and metrics are summed on the device. Minibatches are not shuffled: each holds all steps of a fixed
range of rows. `dead_units` is not reported. Otherwise the algorithm is that of `ppo`. A rollout must be no longer than
the time limit of an episode, so that each row is truncated at most once per rollout.
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
KL_INDEX: Final = METRICS.index("approx_kl")
STEP_COLUMNS: Final = len(Minibatch._fields) - 2  # all but `hidden` and `episode_start`, which recurrent networks need


class GraphedPpo:
    """Rollouts and updates of a `Ppo` agent, captured as CUDA graphs on a GPU and run directly on a CPU.

    The agent must have discrete actions, a plain MLP with a shared body, and no intrinsic reward.
    """

    def __init__(self, agent: Ppo, analytic: AnalyticPpo, device: str) -> None:
        self._agent, self._analytic, self._cuda = agent, analytic, device.startswith("cuda")

        def compiled(method: Callable[..., Any]) -> Callable[..., Any]:
            return compile_method(method, device) if self._cuda else method

        self._compiled_sample = compiled(self._sample_actions)
        self._compiled_store = compiled(self._store_outcome)
        self._compiled_backward = compiled(self._backward_minibatch)
        self._coefficients = torch.zeros(3, device=device)  # clip, entropy_coef and value_coef
        self._epoch_means = torch.zeros(len(METRICS), device=device)
        self._explained = torch.zeros((), device=device)
        self._graphs: tuple[Callable[[], None], Callable[[], None]] | None = None  # see `_capture`
        self.has_collected = False

    @property
    def generator(self) -> torch.Generator:
        return self._agent.generator

    def start_rollout(self) -> None:
        self._agent.rollout.clear()

    def mark_rollout_full(self) -> None:
        self._agent.rollout.mark_full()
        self.has_collected = True

    @torch.no_grad()
    def act(self, inputs: MaskedObs) -> Tensor:
        agent = self._agent
        draws = torch.rand(len(inputs.obs), generator=agent.generator, device=inputs.obs.device)
        self._compiled_sample(inputs.obs, inputs.mask, draws, agent.rollout.slot)
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
        self._compiled_store(step.reward, step.terminated, step.truncated, rollout.slot)
        rollout.advance()

    def _store_outcome(self, reward: Tensor, terminated: Tensor, truncated: Tensor, slot: Mapping[str, Tensor]) -> None:
        slot["reward"].copy_(reward * self._agent.settings.reward_scale)
        slot["terminated"].copy_(terminated)
        slot["truncated"].copy_(truncated)

    @torch.no_grad()
    def finish_rollout(self, truncated_obs: Tensor, next_obs: Tensor) -> None:
        """Store the bootstrap values V(truncated_obs) and V(next_obs); both arguments are [N, D]."""
        agent, forward = self._agent, self._analytic.mlp.forward
        # [N], broadcast over all steps: each row is truncated at most once per rollout.
        agent.rollout.bootstrap.copy_(forward(truncated_obs)[1].view(-1))
        agent.last_value.copy_(forward(next_obs)[1].view(-1))

    @torch.no_grad()
    def learn(self) -> dict[str, float]:
        """Make up to `epochs` passes over the rollout, and return the same metrics as `Ppo.learn`."""
        agent, s = self._agent, self._agent.settings
        c = agent.coefficients()
        self._coefficients.copy_(torch.tensor([c.clip, c.entropy_coef, c.value_coef]), non_blocking=True)
        if self._graphs is None:
            self._graphs = self._capture()
        compute_advantages, run_epoch = self._graphs
        compute_advantages()
        total, epochs_done = torch.zeros_like(self._epoch_means), 0
        for _ in range(s.epochs):
            self._epoch_means.zero_()
            run_epoch()
            total += self._epoch_means
            epochs_done += 1
            if s.target_kl is not None and float(self._epoch_means[KL_INDEX]) > s.target_kl:
                break
        gradient_steps = epochs_done * self._n_minibatches
        agent.counters.updates += gradient_steps
        values = torch.cat((total / epochs_done, self._epoch_means[KL_INDEX].view(1), self._explained.view(1)))
        *means, last_kl, explained = values.tolist()  # the only synchronization unless `target_kl` is set
        metrics = dict(zip(METRICS, means, strict=True))
        metrics |= {"approx_kl": last_kl, "explained_variance": explained}  # approx_kl of the last epoch, not the mean
        return metrics | {"epochs_done": float(epochs_done), "gradient_steps": float(gradient_steps)}

    @property
    def _n_minibatches(self) -> int:
        steps = self._agent.rollout.reward.numel()
        return max(1, round(steps / self._agent.settings.batch_steps(steps)))

    def _capture(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """`_compute_advantages` and `_run_epoch`, as CUDA graphs on a GPU."""
        if not self._cuda:
            return self._compute_advantages, self._run_epoch
        advantages = CudaGraph(self._compute_advantages, [])
        return advantages, CudaGraph(self._run_epoch, [*self._agent.optimizer.mutable_tensors(), self._epoch_means])

    def _compute_advantages(self) -> None:
        agent, s = self._agent, self._agent.settings
        advantage, returns = agent.rollout.advantages(agent.last_value, s.gamma, s.gae_lambda)
        self._explained.copy_(explained_variance(advantage, returns))  # the error R − V is the GAE advantage
        if s.normalize_advantage == "rollout":
            std, mean = torch.std_mean(advantage, correction=0)
            advantage.sub_(mean).div_(std + EPSILON)

    def _run_epoch(self) -> None:
        """Make a gradient step on every minibatch, and add the means of the metrics to `_epoch_means`."""
        agent, n = self._agent, self._n_minibatches
        rows = agent.rollout.reward.shape[1]
        for k in range(n):
            start, stop = k * rows // n, (k + 1) * rows // n
            agent.optimizer.zero_grad()
            batch = agent.rollout.row_slice(start, stop)
            # Weighted by size: ranges may differ by one row.
            means = self._compiled_backward(*batch[:STEP_COLUMNS], self._coefficients) * ((stop - start) / rows)
            norm = agent.optimizer.step(agent.settings.max_grad_norm)
            self._epoch_means += torch.cat((means, norm.view(1) / n))

    def _backward_minibatch(
        self, obs: Tensor, mask: Tensor, actions: Tensor, log_prob: Tensor, value: Tensor, advantage: Tensor,
        returns: Tensor, coefficients: Tensor,
    ) -> Tensor:  # fmt: skip
        """Accumulate the gradient of a minibatch [T, B, …]; returns the mean of each of `STEP_METRICS`."""
        columns = [part.flatten(0, 1) for part in (obs, mask, actions, log_prob, value, advantage, returns)]
        batch = Minibatch._make((*columns, obs.new_zeros(0), None))  # without the fields of recurrent networks
        if self._agent.settings.normalize_advantage == "batch":
            std, mean = batch.advantage.std(correction=0), batch.advantage.mean()
            batch = batch._replace(advantage=(batch.advantage - mean) / (std + EPSILON))
        # Tensors [], so that a replayed graph reads the current values. `Ppo.learn` ensures that value_clip is None.
        clip, entropy_coef, value_coef = coefficients.unbind()
        c = Coefficients(clip, None, entropy_coef, value_coef)  # type: ignore[arg-type]
        metrics = ppo_metrics(self._analytic.backward(batch, c), c)
        return torch.stack([metrics[name].mean() for name in STEP_METRICS])
