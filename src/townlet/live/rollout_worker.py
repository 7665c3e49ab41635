"""Where episodes are rolled out for viewers: one after the other, in a thread of their own, within limits.

One thread alone makes, steps, draws and closes environments: some can be drawn only where they were made.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import torch
from pydantic import Field

from townlet.errors import Diagnostic, TownletError
from townlet.live.gym_episode import GymEpisode
from townlet.live.policy_cache import PolicyCache
from townlet.live.protocol import Checkpoint, Message
from townlet.live.watched_run import NotFound
from townlet.runs.folder import Run
from townlet.train.policies import TrainedPolicy

if TYPE_CHECKING:
    from townlet.tasks.gym import GymTask
    from townlet.tasks.gym_rollout import Rollout

LOG: Final = logging.getLogger(__name__)
MAX_STEPS: Final = 4000  # steps of one episode; a longer one is stopped there
MAX_IMAGE_BYTES: Final = 24 << 20  # bytes of pictures of one episode; more stop it
CACHED_EPISODES: Final = 6  # episodes in memory; the one that was looked at longest ago goes first
MAX_PENDING: Final = 4  # episodes that may wait for their turn
ABANDON_AFTER: Final = 15.0  # seconds after which one that nobody looks at is given up
VALUE_BATCH: Final = 32  # moments whose values are asked for together
NO_OBSERVATION: Final = np.zeros(0, np.float32)


class TooManyRollouts(TownletError):
    """More was asked for than can be done now."""


class RolloutRequest(Message):
    """Roll out an episode of this checkpoint."""

    checkpoint: Checkpoint
    seed: int = Field(ge=0, lt=2**31, description="Another number gives another episode.")
    greedy: bool = Field(True, description="False: actions are drawn where the agent has learned probabilities.")


class RolloutWorker:
    """Episodes by key, which stands for run, checkpoint, seed and way of acting: the same wish is the same one."""

    def __init__(self) -> None:
        self._casting = PolicyCache()
        self._kept: OrderedDict[str, GymEpisode] = OrderedDict()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "studio")
        self._closed = False

    def begin(self, run: Run, wish: RolloutRequest) -> GymEpisode:
        """The episode that is wished for: a new one, unless it is there."""
        if not run.meta().get("gym"):
            raise TownletError(f"{run.name} is a run in a town", "watch its lives instead")
        found = self._casting.find(run, wish.checkpoint)
        meant = (run.name, found.name, wish.seed, wish.greedy)
        key = hashlib.sha256(repr(meant).encode()).hexdigest()[:16]
        with self._lock:
            known = self._kept.get(key)
            if known is not None and not known.problem:
                return self._looked_at(known)
            if sum(not one.over for one in self._kept.values()) > MAX_PENDING:
                raise TooManyRollouts("many episodes are being rolled out already", "wait a moment, and ask again")
            named = f"{wish.checkpoint} checkpoint" if wish.checkpoint in ("latest", "best") else "checkpoint"
            who = f"{named}, after {found.env_steps:,} steps"
            episode = self._kept[key] = GymEpisode(key, run.name, found.name, who, wish.seed, wish.greedy)
            self._forget()
        self._pool.submit(self._roll, run, found.name, episode)
        return episode

    def find(self, run: str, key: str) -> GymEpisode:
        """One that was begun, of this run."""
        with self._lock:
            found = self._kept.get(key)
            if found is None or found.run != run:
                raise NotFound(f"there is no episode '{key[:40]}' of this run", "roll it out again")
            return self._looked_at(found)

    def _looked_at(self, episode: GymEpisode) -> GymEpisode:
        episode.asked = time.monotonic()
        self._kept.move_to_end(episode.key)
        return episode

    def _forget(self) -> None:
        """Let those go that nobody has looked at for longest; what is being rolled out stays."""
        ended = [key for key, one in self._kept.items() if one.over]
        for key in ended[: max(0, len(self._kept) - CACHED_EPISODES)]:
            del self._kept[key]

    def close(self) -> None:
        """Nothing more is rolled out."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _roll(self, run: Run, checkpoint: str, episode: GymEpisode) -> None:
        """In the thread of the studio: all of one episode; what goes wrong is told in it."""
        try:
            trained = self._casting.policy(run, self._casting.find(run, checkpoint))
            episode.cast(trained.layout, trained.actions, trained.loaded.recipe)
            rollout = _start_rollout(trained, episode)
            try:
                self._play(rollout, trained, episode)
            finally:
                rollout.env.close()
        except TownletError as error:
            episode.problem = _error_text(error)
        except Exception as error:  # of an environment that is somebody else's
            LOG.exception("%s could not be rolled out", run.name)
            episode.problem = f"it failed with {type(error).__name__}: {str(error)[:200]}"
        with self._lock:
            self._forget()

    def _play(self, rollout: Rollout, trained: TrainedPolicy, episode: GymEpisode) -> None:
        """To its end, or as far as it may go."""
        waiting: list[torch.Tensor] = []

        def expect() -> None:
            if episode.judged and waiting:
                episode.values += np.asarray(trained.values(torch.stack(waiting)), np.float64).tolist()
            waiting.clear()

        while True:
            at = len(rollout.moments) - 1
            moment = rollout.moments[at]
            episode.add(moment)
            waiting.append(torch.from_numpy(moment.obs))
            rollout.moments[at] = moment._replace(
                frame=None, obs=NO_OBSERVATION
            )  # the episode has what is needed of it
            if len(waiting) == VALUE_BATCH and not trained.hidden:  # with memory all moments are needed at once
                expect()
            if rollout.over or at == MAX_STEPS or episode.room > MAX_IMAGE_BYTES:
                break
            if self._closed or time.monotonic() - episode.asked > ABANDON_AFTER:
                raise TownletError("nobody looked at it any more", "ask for it again")
            rollout.step()
        expect()
        episode.ended = "terminated" if rollout.terminated else "truncated" if rollout.truncated else "stopped"


def _start_rollout(trained: TrainedPolicy, episode: GymEpisode) -> Rollout:
    """Before its first step: with pictures where that is possible, else with the reason why not."""
    from townlet.tasks.gym_rollout import Rollout

    task = cast("GymTask", trained.loaded.task)
    if "rgb_array" in task.render_info.modes:
        env = task.stage(render_mode="rgb_array")
        try:
            return Rollout(env, episode.seed, trained.policy(episode.seed), greedy=episode.greedy)
        except Exception as error:  # what draws may lack a package, a screen or a driver
            env.close()
            told = _error_text(error) if isinstance(error, TownletError) else str(error)
            episode.unseen = f"{task.name} cannot be drawn here: {told[:200]}"
    else:
        episode.unseen = f"{task.name} does not draw itself."
    return Rollout(task.stage(), episode.seed, trained.policy(episode.seed), greedy=episode.greedy)


def _error_text(error: TownletError) -> str:
    """What is wrong and how to fix it, without the place in a file that viewers do not have."""
    first = error.diagnostics[0]
    return str(Diagnostic(first.what, first.fix))
