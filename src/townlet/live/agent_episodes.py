"""Agents of viewers: loading their policies in a thread, and the source of their episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from townlet.live.agents import SCRIPTED_LABELS, HumanChoice, PolicyChoice, make_actor
from townlet.live.names import first_name
from townlet.live.playback import MAX_PLAYED_STEPS, PlayedEpisode, TownEpisode
from townlet.live.policy_cache import PolicyCache, player_label, progress_text
from townlet.live.watched_run import find_run
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run
from townlet.tasks.transfer import transfer_note
from townlet.town.world.tables import World
from townlet.train.policies import TrainedPolicy

FIRST_SEED: Final = 1  # seed of the first episode of an agent
SEED_STEP: Final = 1000  # between the seeds of successive episodes
MAX_SEED: Final = 2**63
MOVING_NAMES: Final = ("latest", "best")  # of checkpoints; another one may have the name for the next episode


@dataclass(frozen=True)
class LoadedAgent:
    """An agent that can play in a world; `trained` and `checkpoint` are those of a `PolicyChoice`."""

    choice: Any
    label: str
    name: str  # first name
    trained: TrainedPolicy | None = None
    checkpoint: Checkpoint | None = None


class AgentLoader:
    """Loads the policies of agents in one thread: reading them and compiling worlds would block the event loop."""

    def __init__(self, root: Path) -> None:
        self._root, self._policies, self._pool = root, PolicyCache(), ThreadPoolExecutor(1, "policies")

    async def load(self, choice: Any, run: Run, world: World) -> LoadedAgent:
        """An agent of `run`, unless it names another one; raises TownletError if it does not fit the world."""
        if isinstance(choice, HumanChoice):
            return LoadedAgent(choice, SCRIPTED_LABELS["human"], "You")
        if not isinstance(choice, PolicyChoice):
            return LoadedAgent(choice, SCRIPTED_LABELS[choice.kind], first_name(choice.kind))
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._load, choice, run, world)

    def _load(self, choice: PolicyChoice, watched: Run, world: World) -> LoadedAgent:
        run = watched if choice.run is None else find_run(self._root, choice.run)
        found = self._policies.find(run, choice.checkpoint)
        trained = self._policies.policy(run, found)
        trained = trained.in_world(world)
        label = player_label(choice.checkpoint, found)
        if run.name != watched.name:
            meta = run.meta()
            label = f"{run.name if meta.get('published') else meta.get('recipe', run.name)}, {label}"
        label += f", {choice.epsilon:.0%} random" if choice.epsilon else ""
        if note := transfer_note(trained.unobserved, trained.missing):
            label += f", {note}"
        return LoadedAgent(choice, label, first_name(run.name), trained, found)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class EpisodeSeeds:
    """Seeds of a viewer's episodes. Two sides share the index, so that they play in the same towns."""

    def __init__(self) -> None:
        self.first, self._index = FIRST_SEED, 0

    def restart(self, first: int) -> None:
        """Start again at index 0, with this seed."""
        self.first, self._index = first % MAX_SEED, 0

    def following(self, index: int) -> int:
        """The index after that of a side's last episode, or that of the other side if it is further."""
        self._index = max(self._index, index + 1)
        return self._index

    def at(self, index: int) -> int:
        """The seed of an index."""
        return (self.first + SEED_STEP * index) % MAX_SEED


class AgentEpisodes:
    """Source of the episodes of one side's agent; `reload` finds the newest checkpoint for each episode."""

    def __init__(
        self, agent: LoadedAgent, reload: Callable[[], Awaitable[LoadedAgent]], world: World, seeds: EpisodeSeeds,
        note: str = "", record: Callable[[], int | None] = lambda: None, limit: int = MAX_PLAYED_STEPS,
    ) -> None:  # fmt: skip
        self.agent, self.reload, self._world, self._seeds = agent, reload, world, seeds
        self._note, self._record, self._limit = note, record, limit
        self.beside: AgentEpisodes | None = None  # the source of the other side
        self.side_name = ""
        self._index = -1  # of the last episode
        self._reloading: asyncio.Future[LoadedAgent] | None = None

    def __call__(self) -> TownEpisode | None:
        """The next episode; None while its policy is being loaded."""
        if self._index >= 0 and getattr(self.agent.choice, "checkpoint", None) in MOVING_NAMES:
            if self._reloading is None:
                self._reloading = asyncio.ensure_future(self.reload())
            if not self._reloading.done():
                return None
            reloaded, self._reloading = self._reloading, None
            self.agent = reloaded.result()
        return self._next()

    def restart(self, agent: LoadedAgent) -> TownEpisode:
        """The first episode after the seeds were restarted."""
        self.agent, self._index, self._reloading = agent, -1, None
        return self._next()

    def _next(self) -> TownEpisode:
        agent, self._index = self.agent, self._seeds.following(self._index)
        seed = self._seeds.at(self._index)
        actor = make_actor(agent.choice, agent.trained, self._world, seed)
        name, env_steps = (agent.checkpoint.name, agent.checkpoint.env_steps) if agent.checkpoint else (None, 0)
        mark = self._mark()
        label = (agent.label.replace(f", {mark}", "") if mark else agent.label) + self._note
        return PlayedEpisode(
            self._world, actor, seed, label, env_steps, f"{agent.name} · {mark}" if mark else agent.name,
            self._record(), name, self._limit,
        )  # fmt: skip

    def _mark(self) -> str:
        """What distinguishes the agent from one of the same name beside it: its training, or else its side."""
        if self.beside is None or self.beside.agent.name != self.agent.name:
            return ""
        mine, other = self.agent.checkpoint, self.beside.agent.checkpoint
        if mine is None or (other is not None and mine.env_steps == other.env_steps):
            return self.side_name
        return progress_text(mine.env_steps)


def distinguish(left: AgentEpisodes, right: AgentEpisodes) -> None:
    """Agents of one run have the same first name: name each by what distinguishes it."""
    left.beside, right.beside = right, left
    left.side_name, right.side_name = "left", "right"
