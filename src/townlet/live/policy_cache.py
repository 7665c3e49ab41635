"""Policies of checkpoints, cached and shared between viewers, and the actor that plays one of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.rng import Streams
from townlet.runs import checkpoint
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run
from townlet.train.policies import TrainedPolicy, load_checkpoint

CACHED_POLICIES: Final = 8
OutputKind = Literal["values", "probabilities"]


class CheckpointActor:
    """Acts greedily except for a share `epsilon` of random actions."""

    def __init__(self, trained: TrainedPolicy, epsilon: float, seed: int) -> None:
        self._policy, self._epsilon = trained.policy(), epsilon
        self._policy.reset(1)
        self._rng = Streams(seed).numpy("epsilon")
        self.outputs: OutputKind = "values" if trained.kind == "values" else "probabilities"

    def act(self, obs: NDArray[Any], mask: NDArray[Any], first: bool) -> tuple[int, NDArray[Any]]:
        """The action, and the values or probabilities [K] of all actions; `first` marks an episode's first step."""
        obs_batch, mask_batch = torch.from_numpy(obs).unsqueeze(0), torch.from_numpy(mask).unsqueeze(0)
        starts = torch.tensor([first])
        outputs = self._policy.outputs(obs_batch, mask_batch, starts)[self.outputs][0].numpy()
        action = int(self._policy.act(obs_batch, mask_batch, starts)[0])
        if self._epsilon and self._rng.random() < self._epsilon:
            action = int(self._rng.choice(np.flatnonzero(mask)))
        return action, outputs


class PolicyCache:
    """Loaded policies by checkpoint; the least recently used is evicted first."""

    def __init__(self) -> None:
        self._policies: OrderedDict[str, TrainedPolicy] = OrderedDict()

    def find(self, run: Run, name: str) -> Checkpoint:
        """A checkpoint by name; `latest` and `best` are resolved at the time of the call."""
        if name == "latest":
            found = checkpoint.latest(run.checkpoints)
        elif name == "best":
            found = checkpoint.best(run.checkpoints) or checkpoint.latest(run.checkpoints)
        else:
            found = next((c for c in checkpoint.scan(run.checkpoints)[0] if c.name == name), None)
        if found is None:
            raise TownletError(f"this run has no checkpoint '{name[:60]}'", "choose one from the list")
        return found

    def policy(self, run: Run, found: Checkpoint) -> TrainedPolicy:
        """The policy of a checkpoint, from memory or from disk."""
        key = str(found.path)
        if key not in self._policies:
            self._policies[key] = load_checkpoint(run, found)
            if len(self._policies) > CACHED_POLICIES:
                self._policies.popitem(last=False)
        self._policies.move_to_end(key)
        return self._policies[key]


def player_label(name: str, found: Checkpoint) -> str:
    """How the page names a checkpoint that plays: `best checkpoint, after 1,200 steps`."""
    label = f"{name} checkpoint" if name in ("latest", "best") else "checkpoint"
    return f"{label}, after {found.env_steps:,} steps"
