"""PPO on a device: the steps of a round and its update without a look from the host on the way.

Whoever launches one small kernel after another leaves a GPU idle most of the time, and whoever asks it for a number
stops it. So what happens in each step is compiled into few kernels, a whole round and a whole epoch are each recorded
and launched at once, and figures are added up where they arise. The mathematics is that of `ppo`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from townlet.agents.losses import divergence, explained_variance, surrogate, surrogate_slope, value_error, value_slope
from townlet.agents.passes import FIGURES
from townlet.contract.graph import Recorded, compiled
from townlet.contract.vec_env import Seen, Step
from townlet.memory.rollout import Minibatch

if TYPE_CHECKING:
    from townlet.agents.ppo import Ppo

TINY: Final = 1e-8
KL: Final = FIGURES.index("approx_kl")


class Whole:
    """The device's part of a `ppo` whose policy remembers nothing and chooses one of K actions."""

    def __init__(self, agent: Ppo, device: str) -> None:
        self._agent, self._cuda = agent, device.startswith("cuda")
        made: Callable[[Callable[..., Any]], Callable[..., Any]] = (
            (lambda function: compiled(function, device)) if self._cuda else (lambda function: function)
        )
        self._choose, self._note, self._follow = made(self._choose_here), made(self._note_here), made(self._follow_here)
        self._aim = torch.zeros(3, device=device)  # clip, weight of the entropy, weight of the value
        self._sums = torch.zeros(len(FIGURES), device=device)
        self._epoch: Callable[[], None] | None = None
        self._value: Callable[[], None] | None = None
        self._explained = torch.zeros((), device=device)
        self.recorded = False  # whether the round that is to be learned from was made here

    @property
    def generator(self) -> torch.Generator:
        """What actions are drawn by."""
        return self._agent.generator

    def restart(self) -> None:
        """A round begins."""
        self._agent.rollout.clear()

    def played(self) -> None:
        """A round was made, perhaps by a recording, which counts nothing."""
        self._agent.rollout.fill()
        self.recorded = True

    @torch.no_grad()
    def act(self, seen: Seen) -> Tensor:
        """Actions [N] int64, drawn from the policy and written down."""
        agent = self._agent
        draws = torch.rand(len(seen.obs), generator=agent.generator, device=seen.obs.device)
        self._choose(seen.obs, seen.mask, draws, agent.rollout.slot)
        return agent.rollout.slot["actions"]

    def _choose_here(self, obs: Tensor, mask: Tensor, draws: Tensor, slot: Mapping[str, Tensor]) -> None:
        agent = self._agent
        outputs, value = agent.way.there(obs, agent.network.start(0))
        choice = agent.family.of(outputs, mask)
        actions = choice.at(draws)  # type: ignore[attr-defined]
        told = {"obs": obs, "mask": mask, "actions": actions, "log_prob": choice.log_prob(actions), "value": value}
        for name, values in told.items():
            slot[name].copy_(values.view_as(slot[name]))

    def witness(self, step: Step) -> None:
        """What came of it is written down."""
        rollout = self._agent.rollout
        self._note(step.reward, step.terminated, step.truncated, rollout.slot)
        rollout.advance()

    def _note_here(self, reward: Tensor, terminated: Tensor, truncated: Tensor, slot: Mapping[str, Tensor]) -> None:
        slot["reward"].copy_(reward * self._agent.settings.reward_scale)
        slot["terminated"].copy_(terminated)
        slot["truncated"].copy_(truncated)

    @torch.no_grad()
    def close(self, cut: Tensor, obs: Tensor) -> None:
        """The round is over: what rows saw last [N, D] before time cut them short, and what they see now [N, D].

        No row is cut short twice in a round, so one value of each row serves all of its steps.
        """
        agent, nothing = self._agent, self._agent.network.start(0)
        agent.rollout.bootstrap.copy_(agent.way.there(cut, nothing)[1].view(-1))
        agent.last_value.copy_(agent.way.there(obs, nothing)[1].view(-1))

    @torch.no_grad()
    def learn(self) -> dict[str, float]:
        """Epochs of gradient steps on the round: their mean figures, approx_kl of the last."""
        agent, s = self._agent, self._agent.settings
        aim = agent.aim()
        self._aim.copy_(torch.tensor([aim.clip, aim.entropy, aim.value]), non_blocking=True)
        self._record()
        assert self._value is not None
        assert self._epoch is not None
        self._value()
        total, done = torch.zeros_like(self._sums), 0
        while done < s.epochs:
            done += 1
            self._sums.zero_()
            self._epoch()
            total += self._sums
            if s.target_kl is not None and float(self._sums[KL]) > s.target_kl:
                break
        agent.counters.updates += done * self._parts
        told = torch.cat((total / done, self._sums[KL:], self._explained.view(1)))
        *means, last, explained = told.tolist()  # the only wait for the device
        found = dict(zip(FIGURES, means, strict=True)) | {"approx_kl": last, "explained_variance": explained}
        return found | {"epochs_done": float(done), "gradient_steps": float(done * self._parts)}

    @property
    def _parts(self) -> int:
        """Minibatches of an epoch."""
        agent = self._agent
        steps = agent.rollout.reward.numel()
        return max(1, round(steps / agent.settings.batch_steps(steps)))

    def _record(self) -> None:
        if self._epoch is not None:
            return
        self._epoch, self._value = self._epoch_here, self._value_here
        if self._cuda:
            changed = [*self._agent.optimizer.written(), self._sums]
            self._value = Recorded(self._value_here, [])
            self._epoch = Recorded(self._epoch_here, changed)

    def _value_here(self) -> None:
        """What the steps were worth."""
        agent, s = self._agent, self._agent.settings
        advantage, returns = agent.rollout.advantages(agent.last_value, s.gamma, s.gae_lambda)
        self._explained.copy_(explained_variance(advantage, returns))
        if s.normalize_advantage == "rollout":
            std, mean = torch.std_mean(advantage, correction=0)
            advantage.sub_(mean).div_(std + TINY)

    def _epoch_here(self) -> None:
        """A gradient step on each part of the rows."""
        agent = self._agent
        rows = agent.rollout.reward.shape[1]
        for k in range(self._parts):
            first, last = k * rows // self._parts, (k + 1) * rows // self._parts
            figures = self._follow(*agent.rollout.part(first, last), self._aim) * ((last - first) / rows)
            norm = agent.optimizer.step(agent.settings.max_grad_norm)
            self._sums += torch.cat((figures[: KL - 1], norm.view(1) / self._parts, figures[KL - 1 :]))

    def _follow_here(
        self, obs: Tensor, mask: Tensor, actions: Tensor, log_prob: Tensor, before: Tensor, advantage: Tensor,
        returns: Tensor, aim: Tensor,
    ) -> Tensor:  # fmt: skip
        """The gradient of a minibatch [T, B, …] for the optimizer; all figures but its norm [5]."""
        agent, s = self._agent, self._agent.settings
        clip, entropy_weight, value_weight = aim.unbind()
        batch = Minibatch(obs, mask, actions, log_prob, before, advantage, returns)
        obs, mask, actions, log_prob, before, advantage, returns = (column.flatten(0, 1) for column in batch)
        if s.normalize_advantage == "batch":
            advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + TINY)
        outputs, value = agent.way.there(obs, agent.network.start(0))
        value, each = value.view(-1), 1 / len(obs)
        choice = agent.family.of(outputs, mask)
        log_ratio = choice.log_prob(actions) - log_prob
        by_log_prob = surrogate_slope(log_ratio, advantage, clip) * each
        by_outputs = choice.slope(actions, by_log_prob, -entropy_weight * each)
        by_value = value_slope(value, before, returns, None) * (value_weight * each)
        agent.optimizer.forget()
        agent.way.back([by_outputs, by_value])
        moved = (log_ratio.expm1().abs() > clip).float()
        seen = (surrogate(log_ratio, advantage, clip), value_error(value, before, returns, None),
                choice.entropy(), moved, divergence(log_ratio))  # fmt: skip
        return torch.stack([column.mean() for column in seen])
