"""The trained policy of a run, for inference: its network with the weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from townlet.agents.policy import OutputKind, Policy
from townlet.agents.registry import entry
from townlet.errors import TownletError
from townlet.interfaces.vec_env import Continuous, Discrete
from townlet.nets.kernels import select_matmul_backend
from townlet.nets.optimizers import restore_weights
from townlet.nets.spec import CnnSpec
from townlet.rng import Streams
from townlet.runs import checkpoint as checkpoints
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run
from townlet.tasks.experiment import LoadedExperiment, reopen
from townlet.tasks.transfer import InterfaceMapping, MappedPolicy, map_interface
from townlet.town.world.tables import World
from townlet.train.checkpointer import choose_checkpoint, training_state

Which = Literal["best", "last"] | float  # which saved policy; a number selects the one saved nearest to that step


class TrainedPolicy:
    """The policy of a checkpoint. It acts on single observations and on batches.

    A recurrent policy keeps its hidden state between calls; `reset` clears it.

    Attributes:
        run: the run.
        checkpoint: the checkpoint or snapshot that the weights are from.
        info: what is stored about the checkpoint: `env_steps`, `score`, …
        network: the part of the network that acts.
        full_network: the whole network that was trained.
        layout: the parts of an observation.
        actions: the action space.
    """

    def __init__(
        self, run: Run, checkpoint: Checkpoint, loaded: LoadedExperiment, network: nn.Module, kind: OutputKind,
        streams: Streams,
    ) -> None:  # fmt: skip
        self.run, self.checkpoint, self.loaded, self.full_network, self.kind = run, checkpoint, loaded, network, kind
        self.info = dict(checkpoint.info)
        self._agent = entry(loaded.recipe.agent.name)
        self.network = cast(nn.Module, network.actor) if self._agent.kind == "policy" else network
        self.layout, self.actions = loaded.task.layout, loaded.task.actions
        self._mapping: InterfaceMapping | None = None  # into another world, see `in_world`
        self._streams = streams
        self._policy = self.policy()

    @property
    def world(self) -> World:
        """The world it was trained in; raises TownletError if that is not a town."""
        return self.loaded.worlds.training

    @property
    def unobserved(self) -> tuple[str, ...]:
        """The names of places and meters of a town that it does not observe, see `in_world`."""
        return self._mapping.unobserved if self._mapping else ()

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of places of its training that do not exist in this town, see `in_world`."""
        return self._mapping.missing if self._mapping else ()

    @property
    def env_steps(self) -> int:
        """The number of env_steps after which the policy was saved."""
        return int(self.info["env_steps"])

    @property
    def label(self) -> str:
        """Which saved policy of the run it is, for texts."""
        folder, name = self.run.checkpoints, self.checkpoint.name
        named = {"last": checkpoints.latest(folder), "best": checkpoints.best(folder)}
        kinds = [kind for kind, found in named.items() if found and found.name == name]
        return f"{' and '.join(kinds)} checkpoint" if kinds else "saved policy"

    @property
    def hidden_size(self) -> int:
        """Size of the hidden state of a row; 0 for a feed-forward network."""
        return int(getattr(self.network, "hidden_size", 0))

    def policy(self, seed: int | None = None) -> Policy:
        """A policy with the same weights, its own hidden state and random stream, by default with the run's seed."""
        streams = self._streams if seed is None else Streams(seed)
        generator = streams.torch("policy")
        if self._mapping is None:
            return Policy(self.network, self.kind, generator)
        return MappedPolicy(self.network, self.kind, generator, self._mapping)

    def use_greedy(self, sample: bool | None = None) -> bool:
        """Whether to act greedily: `not sample` if given, else as in evaluations; value-based agents do by default."""
        if sample is not None:
            return not sample
        return self.kind == "values" or self.loaded.recipe.evaluation.deterministic

    def require_probabilities(self, greedy: bool) -> None:
        """Raise an error if actions should be sampled, but the agent has no probabilities."""
        if not greedy and self.kind == "values":
            name = self.loaded.recipe.agent.name
            raise TownletError(f"{name} learns values and has no probabilities to sample from", "leave out --sample")

    def in_world(self, world: World) -> TrainedPolicy:
        """This policy for episodes in another town; raises TownletError if it cannot act there.

        It does not observe places and meters that did not exist in training. Others are mapped by name.
        """
        mapping = map_interface(world, self.world, self.run.name)
        if mapping is self._mapping is None:
            return self
        mapped = copy(self)
        mapped._mapping = mapping
        mapped.layout, mapped.actions = world.layout, Discrete(world.actions)
        mapped._policy = mapped.policy()
        return mapped

    @cached_property
    def _scaling(self) -> list[Tensor] | None:
        return as_tensors(self.loaded.task.raw_observation().scaling)

    def reset(self, rows: int = 1) -> None:
        """Clear the hidden state, for `rows` rows that start an episode."""
        self._policy.reset(rows)

    def act(self, obs: Any, mask: Any = None, episode_start: Any = None, greedy: bool = True) -> Any:
        """Choose actions for a batch of observations, or one action for a single observation.

        Discrete actions are [N] int64, or an int for a single observation; binary ones [N, A] int64; continuous ones
        [N, A] float32 within their bounds. They are a tensor if `obs` is one, otherwise an array.

        Args:
            obs: observations [N, D], or a single one [D], as the environment returns them: a tensor, array or list.
                Learned normalization is applied here.
            mask: the valid actions [N, K] bool; by default all are valid.
            episode_start: rows [N] bool that start an episode; a recurrent policy clears their hidden state.
            greedy: take the most probable action; otherwise sample, if the agent learned probabilities.
        """
        actions = self._policy.act(*self._inputs(obs, mask, episode_start), greedy=greedy)
        if isinstance(self.actions, Continuous):
            actions = actions.clamp(torch.tensor(self.actions.low), torch.tensor(self.actions.high))
        returned = actions if isinstance(obs, Tensor) else actions.numpy()
        if np.ndim(obs) > 1:
            return returned
        return returned[0] if actions.dim() > 1 else int(returned[0])

    @torch.inference_mode()
    def values(self, obs: Tensor) -> Tensor:
        """Estimated returns [T] at the steps of one episode, obs [T, D]: the state value, or the highest action value.

        The observations must already be scaled.
        """
        obs = obs if self._mapping is None else self._mapping.observation(obs)
        steps = obs.unsqueeze(1) if self.hidden_size else obs  # a feed-forward network takes the steps as a batch
        outputs = self.full_network(steps, cast(Any, self.full_network).initial_hidden(steps.shape[-2]))
        values: Tensor = outputs[1] if self._agent.kind == "policy" else outputs[0].amax(-1)
        return values.flatten()

    def outputs(self, obs: Any, mask: Any = None, episode_start: Any = None) -> dict[str, Any]:
        """The network's outputs, each [N, K], or [K] for a single observation; arguments as in `act`.

        These are `values` for agents that learn action values, `logits` for others, and `probabilities` of the actions;
        for continuous actions, `means` and `stds` instead.
        """
        outputs = self._policy.outputs(*self._inputs(obs, mask, episode_start))
        if np.ndim(obs) == 1:
            outputs = {name: values[0] for name, values in outputs.items()}
        if isinstance(obs, Tensor):
            return outputs
        return {name: values.numpy() for name, values in outputs.items()}

    def _inputs(self, obs: Any, mask: Any, episode_start: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Scaled obs [N, D], mask [N, K] and episode_start [N] as tensors."""
        obs = scale_obs(_rows(obs, torch.float32, self.layout.size, "an observation"), self._scaling)
        mask = None if mask is None else _rows(mask, torch.bool, self.actions.choices, "a mask")
        episode_start = None if episode_start is None else _tensor(episode_start, torch.bool).reshape(-1)
        for name, part in (("mask", mask), ("episode_start", episode_start)):
            if part is not None and len(part) != len(obs):
                raise TownletError(
                    f"`{name}` has {len(part)} rows, but `obs` has {len(obs)}", "give the same number of rows"
                )
        return obs, mask, episode_start


def as_tensors(scaling: Sequence[NDArray[np.float32]] | None) -> list[Tensor] | None:
    """Center, scale and limit [D] of a `Scaling` as tensors; None without scaling."""
    return None if scaling is None else [torch.from_numpy(part.copy()) for part in scaling]


def scale_obs(obs: Tensor, scaling: list[Tensor] | None) -> Tensor:
    """Scaled and clipped observations [N, D]."""
    if scaling is None:
        return obs
    center, scale, limit = scaling
    return torch.minimum(torch.maximum((obs - center) / scale, -limit), limit)


def load_policy(run: Run, which: Which = "best", seed: int | None = None) -> TrainedPolicy:
    """The policy of the run's best or last checkpoint, or the checkpoint or snapshot nearest to a step.

    `seed` is for sampled actions, by default that of the run.
    """
    return load_checkpoint(run, choose_checkpoint(run, which), seed)


def load_checkpoint(run: Run, checkpoint: Checkpoint, seed: int | None = None) -> TrainedPolicy:
    """The policy of one checkpoint or snapshot of the run."""
    loaded = reopen(run)
    task = loaded.task
    state, info = training_state(checkpoint)
    # A town needs no such check: its task is loaded from the run's own copy of the world.
    if loaded.recipe.gym is not None and info.get("interface") != task.interface:
        what = f"the actions or the observation of {task.name} have changed since this run was trained"
        raise TownletError(what, "restore the earlier version of the environment", run.path)
    task.load_normalization(state["env"])
    select_matmul_backend(isinstance(loaded.recipe.network, CnnSpec))
    recipe, agent = loaded.recipe, entry(loaded.recipe.agent.name)
    network = agent.network(recipe.agent, recipe.network, task.layout, task.actions)
    restore_weights(network, state["agent"]["network"])
    streams = Streams(recipe.seed).child("agent") if seed is None else Streams(seed)
    kind = agent.output_kind(task.actions)
    return TrainedPolicy(run, checkpoint, loaded, network.requires_grad_(False).eval(), kind, streams)


def _rows(values: Any, dtype: torch.dtype, width: int, what: str) -> Tensor:
    """Values [width] or [N, width] as a tensor [N, width]."""
    tensor = _tensor(values, dtype)
    if tensor.dim() not in (1, 2) or tensor.shape[-1] != width:
        fix = f"give [{width}] for one row or [N, {width}] for N rows"
        raise TownletError(f"{what} has shape {list(tensor.shape)}", fix)
    return tensor if tensor.dim() == 2 else tensor.unsqueeze(0)


def _tensor(values: Any, dtype: torch.dtype) -> Tensor:
    if isinstance(values, Tensor):
        return values.to("cpu", dtype)
    try:
        array = np.asarray(values)
    except ValueError:  # such as the pair of observation and info that env.reset() returns
        what = f"a {type(values).__name__} with parts of different shapes is not an array"
        raise TownletError(what, "give the observation alone, such as env.reset()[0]") from None
    return torch.as_tensor(array if array.flags.writeable else array.copy()).to(dtype)
