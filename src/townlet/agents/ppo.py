"""PPO (Schulman et al. 2017): many steps of all rows, then a few epochs that keep near the policy that made them.

Advantages are GAE(λ) (Schulman et al. 2016). The policy is recurrent where the network has a memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, Literal, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Tensor

from townlet.agents.actor import Actor
from townlet.agents.actor_critic import policy_network
from townlet.agents.agent import Materials, unasked
from townlet.agents.batches import TINY, Batched, BatchSettings
from townlet.agents.learner import LOOKED_AT, at_once, refuse_voids
from townlet.agents.losses import explained_variance, surrogate_slope, value_slope
from townlet.agents.passes import FIGURES, Passes
from townlet.agents.registry import ANY_ACTIONS, GAMMA_CHOICES, LR_RANGE, AgentEntry, register
from townlet.agents.settings import AdvantageEstimate, SettingProblem
from townlet.agents.whole import Whole
from townlet.config.schedule import Schedule, Scheduled, value_at
from townlet.config.search import Searched
from townlet.contract.restore import copy_into, restore_generator
from townlet.contract.state import State, Stateful
from townlet.contract.vec_env import Ended, Seen, Step
from townlet.explore.spec import not_negative
from townlet.memory.packing import Packing
from townlet.memory.rollout import Minibatch, Rollout, Share
from townlet.nets.ways import Plain, way

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ROWS_AT_ONCE: Final = 64  # at least, of a recurrent network: fewer make its small products inefficient
Scale = tuple[Tensor, Tensor]  # deviation and mean
# What an update aims at and may be scheduled, and the figure that tells its value: `entropy` tells of the policy.
AIMS: Final = {"clip": "clip", "value_clip": "value_clip", "entropy": "entropy_weight", "value": "value_weight"}


class PpoSettings(BatchSettings):
    """Settings of `ppo`."""

    name: Literal["ppo"] = "ppo"
    lr: Scheduled = Field(2.5e-4, description="Learning rate. Raised, it learns faster until the policy breaks.")
    gamma: float = Field(0.99, ge=0, le=1, description="Discount. Raised, it looks further ahead and learns slower.")
    gae_lambda: float = Field(
        0.95, ge=0, le=1, description="How far rewards are trusted over values. Raised, less bias and more noise."
    )
    clip: Scheduled = Field(
        0.2, description="How far probabilities may move from those that acted. Raised, faster and less safe."
    )
    value_clip: Scheduled | None = Field(
        None, description="How far values may move in an update. Lowered, slower and steadier; null leaves them free."
    )
    entropy: Scheduled = Field(0.01, description="Bonus for undecided policies. Raised, it explores more and longer.")
    value: Scheduled = Field(
        0.5, description="Weight of the value's loss. Raised, a shared body serves values more than the policy."
    )
    normalize_advantage: Literal["batch", "rollout", "none"] = Field(
        "batch", description="Bring advantages to mean 0 and deviation 1 in each batch, once for all steps, or never."
    )
    max_grad_norm: float | None = Field(
        0.5,
        gt=0,
        description="Longer gradients are scaled to this. Lowered, steadier and slower; null leaves them.",
    )
    target_kl: float | None = Field(
        None,
        gt=0,
        description="No further epoch once the policy moved so far. Lowered, smaller updates; null: never.",
    )
    log_std: float = Field(
        0.0,
        ge=-10,
        le=10,
        description="Logarithm of the first deviation of actions that are numbers. Raised, it tries more at first.",
    )
    shared: bool = Field(True, description="One body for policy and value. Off, one each, at twice the cost.")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Numbers that products of plain layers are made of. bfloat16 is several times as quick on a GPU.",
    )
    _from_0_on = field_validator("lr", *AIMS)(not_negative)

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        """A minibatch larger than a rollout, or of one step where advantages are normalised per minibatch."""
        yield from super().problems(rows)
        steps = 0 if rows is None else rows * self.n_steps
        if self.normalize_advantage == "batch" and self.batch_steps(steps) < 2 <= steps:
            what = f"agent.batch_size gives minibatches of one step ({rows} rows × {self.n_steps})"
            fix = "raise it: an advantage that is normalised by itself alone is always 0"
            yield SettingProblem("batch_size", what, fix)

    def advantage(self) -> AdvantageEstimate:
        """GAE(λ), as in the update."""
        text = f"Generalized advantage estimation (GAE) with λ = {self.gae_lambda:g}, from the values beside it."
        return self._estimate(self.gae_lambda, text)


class Aim(NamedTuple):
    """The scheduled settings as they are in one update."""

    clip: float
    value_clip: float | None
    entropy: float
    value: float


class Piece(NamedTuple):
    """Steps of a minibatch that go through the network at once; `fresh` only where it remembers."""

    steps: Minibatch
    fresh: Tensor | None
    hidden: Tensor
    each: float  # the share of one step in the minibatch


class Ppo(Actor, Batched):
    """Acts in N rows by drawing from its policy; learns from the last `n_steps` steps of all of them."""

    name = "ppo"
    on_policy = True
    settings: PpoSettings

    def __init__(self, settings: PpoSettings, given: Materials) -> None:
        super().__init__(settings, given)
        env, network = given.env, self.network
        rows, device, size = env.rows, env.device, env.layout.size
        if network.hidden:
            refuse_voids("ppo", env)
        self.round, self._at_once = settings.n_steps, at_once(device)
        dtype = DTYPES[settings.precision]
        self.way = way(network, network.chains(), self.optimizer, dtype)
        self.rollout = Rollout(
            settings.n_steps,
            rows,
            size,
            env.actions.choices,
            action=(self.family.shape, self.family.dtype),
            hidden=network.hidden,
            voids=env.voids,
            packing=Packing(env.layout, device),
            device=device,
            dtype=dtype if isinstance(self.way, Plain) else torch.float32,
            crew=given.crew,
        )
        self._hidden = network.start(rows)  # before the next step; zero for rows that begin
        self._fresh = torch.ones(rows, dtype=torch.bool, device=device)
        self._make_room(env)
        self._unvalued = torch.zeros(rows, device=device)
        alone = self.family.kind == "logits" and not network.hidden and not network.apart and self.bonus is None
        simple = settings.value_clip is None and isinstance(self.way, Plain)
        self.whole = Whole(self, device) if alone and simple else None

    @torch.inference_mode()
    def act(self, seen: Seen) -> Tensor:
        """Actions, drawn from the policy: [N] int64, switches [N, A] int64, or numbers [N, A]."""
        if self.network.apart:
            outputs, value = self.network.actor(seen.obs, self._hidden)[0], self._unvalued
        else:
            outputs, value, hidden = self.network(seen.obs, self._hidden)
            self._hidden.copy_(hidden)
        actions, self._mask = self._draw(outputs, seen.mask), self.rollout.mask[self.rollout.steps]
        self.rollout.acted(seen.obs, seen.mask, actions, self._choice.log_prob(actions), value, self._fresh)
        return actions

    @torch.inference_mode()
    def observe(self, step: Step, ended: Ended) -> None:
        """Store what came of it. Episodes that time cut short go on in the value of what they saw last."""

        def worth(cut: Tensor) -> Tensor:
            hidden = self._hidden.index_select(0, ended.rows.index_select(0, cut))
            value: Tensor = self.network(ended.obs.index_select(0, cut), hidden)[1]
            return value

        self._keep(step, ended, worth)
        self._fresh.copy_(step.begins)
        self._hidden.masked_fill_(self._fresh.unsqueeze(1), 0.0)
        if self.rollout.full:
            self.last_value.copy_(self.network(step.obs, self._hidden)[1])

    def cut(self) -> None:
        """All rows begin: there is nothing to remember."""
        self._fresh.fill_(True)
        self._hidden.zero_()

    def learn(self, ask: Callable[[], None] = unasked) -> dict[str, float] | None:
        """Epochs of gradient steps on the steps since the last call: their mean figures, approx_kl of the last."""
        if not self.rollout.full:
            return None
        if not len(self.rollout.lived(self.rollout.reward)):  # every step of a short one may be void
            self.rollout.clear(self._hidden)
            return None
        s, aim = self.settings, self.aim()
        self._follow_lr()
        if self.whole and self.whole.recorded:
            figures = self._told(self.whole.learn(), aim)
            self.rollout.clear()
            return figures | self.figures()
        if self.network.apart:  # all at once takes a fraction of the time that they take step by step
            with torch.inference_mode():
                self.rollout.revalue(self.network.values, self._at_once)
        advantage, returns = self.rollout.advantages(self.last_value, s.gamma, s.gae_lambda, self.weight.value)
        explained = explained_variance(self.rollout.lived(advantage), self.rollout.lived(returns), self.crew)
        if s.normalize_advantage == "rollout":
            ((std, mean),) = self.crew.std_means([self.rollout.lived(advantage)])
            advantage.sub_(mean).div_(std + TINY)
        passes = Passes(aim.clip, aim.value_clip, self.crew)
        for minibatches in self._epochs(advantage):
            passes.begin()
            for pieces in minibatches:
                self._descend(pieces, aim, passes, ask)
            if s.target_kl is not None and float(passes.moved()) > s.target_kl:
                break
        novelty = self.bonus.learn(self.rollout.draw_obs(s.bonus_share, self.generator)) if self.bonus else {}
        figures = self._summary(passes, explained, aim) | self._dead(self.rollout.some_obs(LOOKED_AT))
        self.rollout.clear(self._hidden)
        return figures | novelty | self.figures()

    def aim(self) -> Aim:
        """The scheduled settings as they are now."""
        s, now = self.settings, self.counters
        value_clip = None if s.value_clip is None else value_at(s.value_clip, now)
        return Aim(value_at(s.clip, now), value_clip, value_at(s.entropy, now), value_at(s.value, now))

    def figures(self) -> dict[str, float]:
        """What is scheduled or annealed, at this moment."""
        now = self.aim()._asdict()
        scheduled = {AIMS[key]: now[key] for key in AIMS if isinstance(getattr(self.settings, key), Schedule)}
        return scheduled | super().figures()

    def _minibatches(self) -> Iterator[Share]:
        """Indices of steps, or of whole rows for a recurrent policy: each once, shuffled."""
        size = self.settings.batch_steps(len(self.rollout) * self.crew.size)
        if self.network.hidden:
            return self.rollout.row_batches(max(1, round(size / self.settings.n_steps)), self.generator)
        return self.rollout.minibatches(size, self.generator)

    def _epochs(self, advantage: Tensor) -> Iterator[Iterable[Iterable[Piece]]]:
        """For every epoch its minibatches, each in pieces; one that is everything is gathered only once."""
        shares = list(self._minibatches())
        if len(shares) == 1 and shares[0].of <= self._most:
            (scale,) = self._scales(shares, advantage)
            yield from repeat([list(self._pieces(shares[0], scale))], self.settings.epochs)
            return
        for _ in range(self.settings.epochs):
            yield map(self._pieces, shares, self._scales(shares, advantage))
            shares = list(self._minibatches())

    def _scales(self, shares: Sequence[Share], advantage: Tensor) -> Sequence[Scale | None]:
        """By what the advantages of each minibatch are brought to mean 0 and deviation 1, where they are."""
        if self.settings.normalize_advantage != "batch":
            return [None] * len(shares)
        steps, axis = (advantage, 1) if self.network.hidden else (advantage.view(-1), 0)
        return self.crew.std_means([steps.index_select(axis, share.places) for share in shares])

    @property
    def _most(self) -> int:
        """How many steps, or rows of a recurrent policy, go through the network at once."""
        return max(ROWS_AT_ONCE, self._at_once // self.settings.n_steps) if self.network.hidden else self._at_once

    def _pieces(self, share: Share, scale: Scale | None) -> Iterator[Piece]:
        """What is here of a minibatch in pieces; advantages are normalised over all of it."""
        recurrent, index = self.network.hidden > 0, share.places
        each = 1 / (share.of * self.settings.n_steps if recurrent else share.of)
        for part in torch.split(index, self._most) if len(index) else ():
            if recurrent:
                batch, fresh, hidden = self.rollout.gather_rows(part)
            else:
                batch, fresh, hidden = self.rollout.gather(part), None, self.network.start(len(part))
            if scale:
                std, mean = scale
                batch = batch._replace(advantage=(batch.advantage - mean) / (std + TINY))
            yield Piece(batch, fresh, hidden, each)

    @torch.no_grad()
    def _descend(self, pieces: Iterable[Piece], aim: Aim, passes: Passes, ask: Callable[[], None]) -> None:
        """One gradient step on a minibatch; its pieces add up to the gradient of the whole."""
        self.optimizer.forget()
        for batch, fresh, hidden, each in pieces:
            ask()
            outputs, value = self.way.there(batch.obs, hidden, fresh)
            value = value.view_as(batch.value)
            choice = self.family.of(outputs, batch.mask)
            log_ratio = choice.log_prob(batch.actions) - batch.log_prob
            by_log_prob = surrogate_slope(log_ratio, batch.advantage, aim.clip).mul_(each)
            by_outputs = choice.slope(batch.actions, by_log_prob, -aim.entropy * each)
            by_value = value_slope(value, batch.value, batch.returns, aim.value_clip).mul_(aim.value * each)
            passes.saw(batch, log_ratio, value, choice.entropy())
            self.way.back([by_outputs, by_value])
        passes.stepped(self.optimizer.step(self.settings.max_grad_norm))
        self.counters.updates += 1

    def _summary(self, passes: Passes, explained: Tensor, aim: Aim) -> dict[str, float]:
        *means, explained_share = torch.cat((passes.figures(), explained.view(1))).tolist()
        figures = dict(zip(FIGURES, means, strict=True)) | {"explained_variance": explained_share}
        return self._told(figures | {"epochs_done": float(passes.epochs), "gradient_steps": float(passes.steps)}, aim)

    def _told(self, figures: dict[str, float], aim: Aim) -> dict[str, float]:
        """Figures of an update for people: the whole loss, and how undecided the policy is."""
        entropy = figures.pop("entropy")
        loss = figures["policy_loss"] + aim.value * figures["value_loss"] - aim.entropy * entropy
        beside = float(self._measure(self.rollout.lived(self.rollout.mask)))
        return figures | {"loss": loss, **self._openness(entropy, beside)}

    def _parts(self) -> dict[str, Stateful]:
        return {"rollout": self.rollout, **super()._parts()}

    def _rows(self) -> State:
        return {"hidden": self._hidden, "fresh": self._fresh, "last_value": self.last_value}

    def state(self) -> State:
        """Network, optimizer, the rollout so far, exploration and the random stream."""
        return super().state() | {"rows": self._rows(), "generator": self.generator.get_state()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        super().restore(state)
        copy_into(self._rows(), state["rows"], "ppo")
        restore_generator(self.generator, state["generator"], "ppo")


register(
    AgentEntry(
        settings=PpoSettings,
        agent=Ppo,
        network=policy_network,
        kind="policy",
        on_policy=True,
        recurrent="optional",
        actions=ANY_ACTIONS,
        rows=1024,
        sweep={
            "lr": LR_RANGE,
            "gamma": GAMMA_CHOICES,
            "gae_lambda": Searched(choices=(0.8, 0.9, 0.95, 0.98)),
            "entropy": Searched(low=1e-5, high=0.1),
            "epochs": Searched(choices=(2, 4, 10, 20)),
            "clip": Searched(choices=(0.1, 0.2, 0.3)),
        },
        smoke={"n_steps": 32, "batch_size": 32, "epochs": 1},
        tunable=("lr", "clip", "value_clip", "entropy", "value", "epochs"),
        shard_axes=("rows",),
    )
)
