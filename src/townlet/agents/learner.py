"""What agents share: a bonus for the new with its weight; and those with a network its weights and the optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import torch
from torch import Tensor, nn

from townlet.agents.agent import Materials
from townlet.config.schedule import Schedule, value_at
from townlet.contract.episodes import Episodes
from townlet.contract.restore import SAME
from townlet.contract.state import State, Stateful
from townlet.contract.vec_env import VecEnv
from townlet.errors import TownletError
from townlet.explore.make import make_bonus, make_weight
from townlet.nets.dead import dead_share
from townlet.nets.optimizers import Kind, Optimizer, restore_weights, weights

if TYPE_CHECKING:
    from townlet.agents.whole import Whole

LOOKED_AT: Final = 256  # observations, to tell which units never do anything


def at_once(device: str) -> int:
    """How many steps go through a network at once.

    What it keeps of them for the way back then stays in a processor's caches and in memory that is reused: a minibatch
    of 131072 takes half of the time that it takes in one piece. A GPU has memory enough, and waits for every call.
    """
    return 8192 if device == "cpu" else 1 << 20


def refuse_voids(name: str, env: VecEnv) -> None:
    """A memory that lasts through an episode would keep what was seen in steps that never happened."""
    if env.voids:
        what = f"{name} with a memory cannot learn where rows need a step to begin anew"
        fix = "write gym.vectorization: sync, or take a network without `recurrent` (with drqn, take dqn)"
        raise TownletError(what, fix)


class Descent(Protocol):
    """Settings of gradient descent."""

    @property
    def lr(self) -> float | Schedule:
        """Learning rate."""

    @property
    def optimizer(self) -> Kind:
        """How gradients become steps."""


class Seeker:
    """What is paid for novelty, and a state part by part. An agent adds its own parts by `_parts`."""

    name: str
    settings: Any
    whole: Whole | None = None

    def __init__(self, given: Materials) -> None:
        env, self.counters, self.crew = given.env, given.counters, given.crew
        self.bonus = make_bonus(given.explore.bonus, env.layout, given.streams.child("bonus"), env.device)
        self.weight = make_weight(given.explore.weight, given.counters, given.max_steps)
        self.intrinsic = torch.zeros(env.rows, device=env.device)

    def _see(self, reached: Tensor, void: Tensor | None) -> None:
        """What was reached [N, D] is seen, and paid for by its novelty; void rows reached nothing."""
        assert self.bonus is not None
        if void is None:
            self.intrinsic.copy_(self.bonus.reward(reached))
            return
        self.intrinsic.zero_()
        if len(lived := void.logical_not().nonzero().squeeze(1)):
            self.intrinsic.index_copy_(0, lived, self.bonus.reward(reached.index_select(0, lived)))

    def tune(self, settings: Any) -> None:
        """Go on with other values of what may change, from the next update on."""
        self.settings = settings

    def cut(self) -> None:
        """The episodes under way were broken off; an agent that keeps anything of them lets go of it."""

    def finished(self, episodes: Episodes) -> None:
        """Episodes that ended: the weight of the bonus may fade with them."""
        self.weight.finished(episodes)

    def figures(self) -> dict[str, float]:
        """What is scheduled or annealed, at this moment."""
        novelty = {"novelty": float(self.intrinsic.mean())} if self.bonus else {}
        return {"intrinsic_weight": self.weight.value} | novelty

    def _parts(self) -> dict[str, Stateful]:
        """What keeps a state of its own, by name."""
        parts: dict[str, Stateful] = {"weight": self.weight}
        return parts | ({"bonus": self.bonus} if self.bonus else {})

    def state(self) -> State:
        """Every part."""
        return {name: part.state() for name, part in self._parts().items()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken; refuses one that lacks something."""
        needed = {name for name, part in self.state().items() if not isinstance(part, dict) or part}
        if missing := sorted(needed - state.keys()):
            raise TownletError(f"the saved {self.name} has no '{missing[0]}'", SAME)
        for name, part in self._parts().items():
            part.restore(state.get(name, {}))  # a part that keeps nothing may be left out


class Learner(Seeker):
    """A network that is learned by gradient descent, and the reward for novelty. How it acts and learns is elsewhere.

    What an agent keeps beside its parts it adds to `state` and `restore`.
    """

    network: nn.Module
    settings: Descent

    def __init__(self, settings: Descent, network: nn.Module, given: Materials) -> None:
        super().__init__(given)
        self.settings, self.network = settings, network
        self.optimizer = Optimizer(settings.optimizer, network, self._lr, crew=given.crew)

    @property
    def _lr(self) -> float:
        return value_at(self.settings.lr, self.counters)

    def _follow_lr(self) -> None:
        """The next gradient steps are as long as the schedule says now."""
        self.optimizer.lr = self._lr

    def _dead(self, obs: Tensor) -> dict[str, float]:
        """The share of units that do nothing at some of these observations [B, D], where there are such units."""
        some, start = obs[:: max(1, len(obs) // LOOKED_AT)], cast(Any, self.network).start
        share = dead_share(self.network, some, start(len(some)))
        return {} if share is None else {"dead_units": share}

    def parameters(self) -> dict[str, Tensor]:
        """Every weight by name, live."""
        return dict(self.network.named_parameters())

    def figures(self) -> dict[str, float]:
        """What is scheduled or annealed, at this moment."""
        return super().figures() | {"lr": self._lr}

    def state(self) -> State:
        """Network, optimizer, and every part."""
        kept = {"network": weights(self.network), "optimizer": self.optimizer.state()}
        return kept | super().state()

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken; refuses one that lacks something."""
        super().restore(state)
        restore_weights(self.network, state["network"])
        self.optimizer.restore(state.get("optimizer", {}))
