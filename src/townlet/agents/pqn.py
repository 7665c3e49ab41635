"""PQN (Gallici et al. 2024): Q-learning of many rows at once, without replay and without a network that lags behind.

What keeps it steady instead are λ-returns (Peng & Williams 1996), and layers that are normalised
(`network.layer_norm`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from townlet.agents.agent import Materials, unasked
from townlet.agents.batches import Batched, BatchSettings
from townlet.agents.choosing import Choosing
from townlet.agents.learner import LOOKED_AT, at_once
from townlet.agents.policy import Policy
from townlet.agents.q_agent import FIGURES
from townlet.agents.q_network import QNetwork, make_q_network, value_network
from townlet.agents.registry import GAMMA_CHOICES, LR_RANGE, AgentEntry, register
from townlet.agents.settings import AdvantageEstimate
from townlet.agents.values import Loss, best_valid, pointwise_loss, pointwise_slope, require_discrete
from townlet.config.schedule import Scheduled
from townlet.config.search import Searched
from townlet.contract.restore import copy_tensor, restore_generator
from townlet.contract.state import State, Stateful
from townlet.contract.vec_env import Ended, Seen, Step
from townlet.errors import TownletError
from townlet.explore.make import make_chooser
from townlet.explore.spec import not_negative
from townlet.memory.packing import Packing
from townlet.memory.rollout import Rollout, Share
from townlet.nets.spec import NetworkSpec
from townlet.nets.ways import way


class PqnSettings(BatchSettings):
    """Settings of `pqn`."""

    name: Literal["pqn"] = "pqn"
    lr: Scheduled = Field(5e-4, description="Learning rate. Raised, it learns faster until values diverge.")
    gamma: float = Field(0.99, ge=0, le=1, description="Discount. Raised, it looks further ahead and learns slower.")
    trace: float = Field(
        0.65, ge=0, le=1, description="λ: how far rewards are trusted over values. Raised, less bias and more noise."
    )
    n_steps: int = Field(32, ge=1, description=BatchSettings.model_fields["n_steps"].description)
    epochs: int = Field(2, ge=1, description=BatchSettings.model_fields["epochs"].description)
    dueling: bool = Field(False, description="One head for the state's value and one for advantages. Off, one for all.")
    loss: Loss = Field("huber", description="mse follows large errors fully, huber limits the pull of each to 1.")
    max_grad_norm: float | None = Field(
        10.0,
        gt=0,
        description="Longer gradients are scaled to this. Lowered, steadier and slower; null leaves them.",
    )

    _from_0_on = field_validator("lr")(not_negative)

    def hints(self, network: NetworkSpec) -> Iterator[str]:
        """Layer normalisation takes the place of a target network (Gallici et al. 2024, §3)."""
        if not network.layer_norm:
            yield "pqn is steady by normalised layers, and network.layer_norm is false."

    def advantage(self) -> AdvantageEstimate:
        """The λ-return less the value, as in the update."""
        text = f"The λ-return from here on with λ = {self.trace:g}, less the value."
        return self._estimate(self.trace, text)


class Pqn(Choosing, Batched):
    """Acts in N rows by the values of a network, and learns them from the last `n_steps` steps of all of them."""

    name = "pqn"
    on_policy = True
    settings: PqnSettings
    network: QNetwork

    def __init__(self, settings: PqnSettings, given: Materials) -> None:
        env, streams = given.env, given.streams
        require_discrete(self.name, env)
        rows, device, actions, size = env.rows, env.device, env.actions.n, env.layout.size
        draws = streams.torch("network")
        network = make_q_network(
            given.network, env.layout, actions, dueling=settings.dueling, generator=draws, device=device
        )
        if network.hidden:
            raise TownletError("pqn cannot train a recurrent network", "take drqn, or leave `recurrent` out of it")
        super().__init__(settings, network, given)
        self.round, self._at_once = settings.n_steps, at_once(device)
        chance = streams.torch("choice", device)
        self.chooser = make_chooser(given.explore.choose, rows, given.counters, chance, device, given.crew)
        self._generator = streams.torch("minibatches", device)
        self._way = way(network, network.chains(), self.optimizer)
        packing = Packing(env.layout, device)
        self.rollout = Rollout(
            settings.n_steps, rows, size, actions, voids=env.voids, packing=packing, device=device, crew=given.crew
        )
        self._nothing = network.start(0)  # handed through by a network without memory
        self.behind = torch.zeros(rows, actions, device=device)
        self._unsaid = torch.zeros(rows, device=device)  # probabilities, which nobody asks for
        self._first = torch.zeros(rows, dtype=torch.bool, device=device)  # likewise
        self._make_room(env)

    def _value(self, obs: Tensor, mask: Tensor) -> Tensor:
        """The value [B] of the best valid action."""
        values = self._evaluate(obs)
        return best_valid(values, values, mask)

    def _evaluate(self, obs: Tensor) -> Tensor:
        values: Tensor = self.network(obs, self._nothing)[0]
        return values

    @torch.inference_mode()
    def act(self, seen: Seen) -> Tensor:
        """Exploring actions [N] int64."""
        self.behind = self._evaluate(seen.obs)
        actions, self._mask = self.chooser.choose(self.behind, seen.mask), self.rollout.mask[self.rollout.steps]
        best = best_valid(self.behind, self.behind, seen.mask)
        self.rollout.acted(seen.obs, seen.mask, actions, self._unsaid, best, self._first)
        return actions

    @torch.inference_mode()
    def observe(self, step: Step, ended: Ended) -> None:
        """Store what came of it. Episodes that time cut short go on in the value of what they saw last."""

        def worth(cut: Tensor) -> Tensor:
            return self._value(ended.obs.index_select(0, cut), ended.mask.index_select(0, cut))

        self._keep(step, ended, worth)
        if self.rollout.full:
            self.last_value.copy_(self._value(step.obs, step.mask))

    def learn(self, ask: Callable[[], None] = unasked) -> dict[str, float] | None:
        """Epochs of gradient steps on the steps since the last call: their mean figures."""
        rollout, s = self.rollout, self.settings
        if not rollout.full:
            return None
        if not len(rollout.lived(rollout.reward)):  # every step of a short one may be void
            rollout.clear()
            return None
        self._follow_lr()
        # With the value of the best action beside it, what GAE adds to that value is the λ-return.
        rollout.advantages(self.last_value, s.gamma, s.trace, self.weight.value)
        size = s.batch_steps(len(rollout) * self.crew.size)
        figures = [
            self._descend(share, ask)
            for _ in range(s.epochs)
            for share in list(rollout.minibatches(size, self._generator))
        ]
        means = self.crew.add_up(torch.stack(figures).mean(0)).tolist()
        novelty = self.bonus.learn(rollout.draw_obs(s.bonus_share, self._generator)) if self.bonus else {}
        dead = self._dead(rollout.some_obs(LOOKED_AT))
        rollout.clear()
        return dict(zip(FIGURES, means, strict=True)) | dead | novelty | self.figures()

    @torch.no_grad()
    def _descend(self, share: Share, ask: Callable[[], None]) -> Tensor:
        """One gradient step on a minibatch: this process's share of FIGURES."""
        s, told = self.settings, torch.zeros(len(FIGURES), device=self.last_value.device)
        self.optimizer.forget()
        for part in torch.split(share.places, self._at_once) if len(share.places) else ():
            ask()
            batch = self.rollout.gather(part)
            (values,) = self._way.there(batch.obs, self._nothing)
            actions = batch.actions.unsqueeze(1)
            chosen = values.gather(1, actions).squeeze(1)
            error = chosen - batch.returns
            slope = pointwise_slope(error, s.loss) / share.of
            self._way.back([torch.zeros_like(values).scatter_(1, actions, slope.unsqueeze(1))])
            told[:3] += torch.stack([p.sum() for p in (pointwise_loss(error, s.loss), error.abs(), chosen)]) / share.of
        told[3] = self.optimizer.step(s.max_grad_norm) / self.crew.size
        self.counters.updates += 1
        return told

    def policy(self) -> Policy:
        """The greedy policy; it shares the network."""
        return Policy(self.network, "values")

    def _parts(self) -> dict[str, Stateful]:
        return {"rollout": self.rollout, **super()._parts()}

    def state(self) -> State:
        """Network, optimizer, the rollout so far, exploration and the random streams."""
        rows = {"last_value": self.last_value}
        return super().state() | {"rows": rows, "generator": self._generator.get_state()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        super().restore(state)
        copy_tensor(self.last_value, state["rows"]["last_value"], "pqn: last_value")
        restore_generator(self._generator, state["generator"], "pqn")


register(
    AgentEntry(
        settings=PqnSettings,
        agent=Pqn,
        network=value_network,
        kind="value",
        on_policy=True,
        rows=128,
        sweep={
            "lr": LR_RANGE,
            "gamma": GAMMA_CHOICES,
            "trace": Searched(choices=(0.3, 0.65, 0.9, 0.95)),
            "epochs": Searched(choices=(1, 2, 4)),
        },
        smoke={"n_steps": 32, "batch_size": 32, "epochs": 1},
        tunable=("lr", "epochs"),
        shard_axes=("rows",),
        exported=("dueling",),
    )
)
