"""What a run learned, ready to act: its network and the weights of a checkpoint, without memories or optimizers."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

from townlet.agents.policy import OutputKind, Policy
from townlet.agents.registry import entry
from townlet.errors import SourceLocation, TownletError
from townlet.gym.wrappers.transforms import Scaling
from townlet.interfaces.vec_env import Continuous
from townlet.nets.kernels import select_matmul_backend
from townlet.nets.optimizers import restore_weights
from townlet.nets.spec import CnnSpec
from townlet.rng import Streams
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run
from townlet.tasks.experiment import LoadedExperiment
from townlet.town.world.tables import World
from townlet.train.reopen import reopen
from townlet.train.weights import chosen, training_state

Which = Literal["best", "last"]


class TrainedPolicy:
    """Acts as a run has learned to, on single observations and on batches; one with memory keeps it by itself.

    `network` is the part that acts, `whole` what was trained; `info` is what the checkpoint `found` says of itself
    (env_steps, score, …).
    """

    def __init__(
        self,
        run: Run,
        found: Checkpoint,
        loaded: LoadedExperiment,
        whole: nn.Module,
        kind: OutputKind,
        streams: Streams,
    ) -> None:
        self.run, self.found, self.loaded, self.whole, self.kind = run, found, loaded, whole, kind
        self.info = dict(found.info)
        self._agent = entry(loaded.recipe.agent.name)
        self.network = cast(nn.Module, whole.actor) if self._agent.kind == "policy" else whole
        self.layout, self.actions = loaded.task.layout, loaded.task.actions
        self._streams = streams
        self._policy = self.policy()

    @property
    def world(self) -> World:
        """The town it was trained in; refused where that was no town."""
        return self.loaded.worlds.training

    @property
    def env_steps(self) -> int:
        """How far the run was."""
        return int(self.info["env_steps"])

    @property
    def hidden(self) -> int:
        """Numbers that it remembers of a row; 0 without memory."""
        return int(getattr(self.network, "hidden_size", 0))

    def policy(self, seed: int | None = None) -> Policy:
        """The same weights with a memory and a random stream of their own, of another seed where one is given."""
        streams = self._streams if seed is None else Streams(seed)
        return Policy(self.network, self.kind, streams.torch("policy"))

    @cached_property
    def _scaling(self) -> list[Tensor] | None:
        return as_tensors(self.loaded.task.raw().scaling)

    def reset(self, rows: int = 1) -> None:
        """Forget the past: every one of `rows` is before its first step."""
        self._policy.reset(rows)

    def act(self, obs: Any, mask: Any = None, episode_start: Any = None, greedy: bool = True) -> Any:
        """The actions for obs [N, D], or the one for obs [D] as an int; no mask [N, K] means that all are valid.

        Observations are as the environment gives them: what was learned of their size is applied here. Takes tensors,
        arrays and lists; tensors give a tensor [N] int64, all else an array. Switches are [N, A] int64,
        numbers [N, A] float32 within their bounds. `episode_start` [N] bool marks rows that begin an episode. Unless
        greedy, actions are drawn where the agent learned probabilities.
        """
        actions = self._policy.act(*self._inputs(obs, mask, episode_start), greedy=greedy)
        if isinstance(self.actions, Continuous):
            actions = actions.clamp(torch.tensor(self.actions.low), torch.tensor(self.actions.high))
        given = actions if isinstance(obs, Tensor) else actions.numpy()
        if np.ndim(obs) > 1:
            return given
        return given[0] if actions.dim() > 1 else int(given[0])

    @torch.inference_mode()
    def values(self, obs: Tensor) -> Tensor:
        """What was expected [T] at each moment of one episode, obs [T, D] in order: a value, or the highest of all.

        Here observations are as the agent sees them, brought to size already.
        """
        steps = obs.unsqueeze(1) if self.hidden else obs  # without memory moments are as good as rows
        outputs = self.whole(steps, cast(Any, self.whole).initial_hidden(steps.shape[-2]))
        found: Tensor = outputs[1] if self._agent.kind == "policy" else outputs[0].amax(-1)
        return found.flatten()

    def outputs(self, obs: Any, mask: Any = None, episode_start: Any = None) -> dict[str, Any]:
        """What stands behind the next act, each [N, K] (or [K]): `values` or `logits`, and `probabilities`."""
        found = self._policy.outputs(*self._inputs(obs, mask, episode_start))
        single, tensors = np.ndim(obs) == 1, isinstance(obs, Tensor)
        parts = {name: part[0] if single else part for name, part in found.items()}
        return {name: part if tensors else part.numpy() for name, part in parts.items()}

    def _inputs(self, obs: Any, mask: Any, episode_start: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
        seen = scaled(_rows(obs, torch.float32, self.layout.size, "an observation"), self._scaling)
        allowed = None if mask is None else _rows(mask, torch.bool, self.actions.choices, "a mask")
        begins = None if episode_start is None else _tensor(episode_start, torch.bool).reshape(-1)
        for name, part in (("mask", allowed), ("episode_start", begins)):
            if part is not None and len(part) != len(seen):
                raise TownletError(f"`{name}` has {len(part)} rows and `obs` {len(seen)}", "give as many of each")
        return seen, allowed, begins


def as_tensors(scaling: Scaling | None) -> list[Tensor] | None:
    """Centre, spread and limit [D] of each number; None where all are seen as they are."""
    return None if scaling is None else [torch.from_numpy(part.copy()) for part in scaling]


def scaled(obs: Tensor, scaling: list[Tensor] | None) -> Tensor:
    """Observations [N, D] as the agent sees them."""
    if scaling is None:
        return obs
    centre, spread, limit = scaling
    return torch.minimum(torch.maximum((obs - centre) / spread, -limit), limit)


def load_policy(run: Run, which: Which = "best", seed: int | None = None) -> TrainedPolicy:
    """The policy of the run's best (or last) checkpoint; `seed` is for actions that are drawn, by default as the run
    itself drew them when it was measured."""
    if which not in get_args(Which):
        raise TownletError(f"a run has no checkpoint '{which}'", f"known: {', '.join(get_args(Which))}")
    return load_checkpoint(run, chosen(run, which), seed)


def load_checkpoint(run: Run, found: Checkpoint, seed: int | None = None) -> TrainedPolicy:
    """The policy of one checkpoint of the run."""
    loaded = reopen(run)
    task = loaded.task
    state, info = training_state(found)
    if info.get("interface") != task.interface:
        what = f"{task.name} has other actions or another observation than when this run was trained"
        raise TownletError(what, "bring it back to what it was", SourceLocation(str(run.path)))
    task.recall(state["env"])
    select_matmul_backend(isinstance(loaded.recipe.network, CnnSpec))
    recipe, agent = loaded.recipe, entry(loaded.recipe.agent.name)
    whole, kind = (
        agent.network(recipe.agent, recipe.network, task.layout, task.actions),
        agent.output_kind(task.actions),
    )
    restore_weights(whole, state["agent"]["network"])
    streams = Streams(loaded.recipe.seed).child("agent") if seed is None else Streams(seed)
    return TrainedPolicy(run, found, loaded, whole.requires_grad_(False).eval(), kind, streams)


def require_interface(trained: TrainedPolicy, world: World) -> None:
    """Refuse a world in which this policy cannot act, with what differs."""
    home = trained.world
    if world.interface_hash == home.interface_hash:
        return
    here, there = ({b.name: list(b.shape) for b in w.layout} for w in (world, home))
    names = [name for name in {**there, **here} if here.get(name) != there.get(name)]
    parts = [f"{name} is {here.get(name, 'not seen')}, was {there.get(name, 'not seen')}" for name in names]
    if world.actions != home.actions:
        parts.append(f"{len(world.actions)} actions, was {len(home.actions)}")
    differs = "; ".join(parts[:4]) or "the ranges of what is seen differ"
    what = f"the world {world.name} does not fit the agent of {trained.run.name}: {differs}"
    raise TownletError(what, "an agent needs the observation and the actions that it was trained with")


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
    found = np.asarray(values)
    return torch.as_tensor(found if found.flags.writeable else found.copy()).to(dtype)
