"""Who plays: the policy of a checkpoint as an actor for one viewer, with weights that viewers share."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.live.playback import OutputKind
from townlet.rng import Streams
from townlet.runs import checkpoint
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run
from townlet.train.policies import TrainedPolicy, load_checkpoint

CACHED_POLICIES: Final = 8  # policies in memory


class CheckpointActor:
    """Plays greedily, but for a share `epsilon` of random actions."""

    def __init__(self, trained: TrainedPolicy, epsilon: float, seed: int) -> None:
        self._policy, self._epsilon = trained.policy(), epsilon
        self._policy.start(1)
        self._chance = Streams(seed).numpy("epsilon")
        self.outputs: OutputKind = "values" if trained.kind == "values" else "probabilities"

    def act(self, obs: NDArray[Any], mask: NDArray[Any], fresh: bool) -> tuple[int, NDArray[Any]]:
        """The action, and the values or probabilities [K] of all."""
        seen, allowed = torch.from_numpy(obs).unsqueeze(0), torch.from_numpy(mask).unsqueeze(0)
        begins = torch.tensor([fresh])
        outputs = self._policy.outputs(seen, allowed, begins)[self.outputs][0].numpy()
        action = int(self._policy.act(seen, allowed, begins)[0])
        if self._epsilon and self._chance.random() < self._epsilon:
            action = int(self._chance.choice(np.flatnonzero(mask)))
        return action, outputs


class PolicyCache:
    """Policies by checkpoint, the least used forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, TrainedPolicy] = OrderedDict()

    def find(self, run: Run, word: str) -> Checkpoint:
        """The checkpoint of that name; `latest` and `best` are what they are at this moment."""
        if word == "latest":
            found = checkpoint.latest(run.checkpoints)
        elif word == "best":
            found = checkpoint.best(run.checkpoints) or checkpoint.latest(run.checkpoints)
        else:
            found = next((c for c in checkpoint.scan(run.checkpoints)[0] if c.name == word), None)
        if found is None:
            raise TownletError(f"this run has no checkpoint '{word[:60]}'", "choose one from the list")
        return found

    def policy(self, run: Run, found: Checkpoint) -> TrainedPolicy:
        """Its policy, from memory or from disk."""
        key = str(found.path)
        if key not in self._known:
            self._known[key] = load_checkpoint(run, found)
            if len(self._known) > CACHED_POLICIES:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]
