"""Rolls out episodes of Gymnasium runs for viewers, one at a time in a background thread, within limits.

A single thread creates, steps, renders and closes environments: some can be rendered only in the thread that made them.
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
from townlet.live.messages import CheckpointName, Message
from townlet.live.policy_cache import PolicyCache, player_label
from townlet.live.watched_run import NotFound
from townlet.runs.folder import Run
from townlet.train.policies import TrainedPolicy

if TYPE_CHECKING:
    from townlet.tasks.gym import GymTask
    from townlet.tasks.gym_playback import Rollout

LOG: Final = logging.getLogger(__name__)
MAX_STEPS: Final = 4000  # per episode; a longer one is stopped
MAX_IMAGE_BYTES: Final = 24 << 20  # per episode; a larger one is stopped
CACHED_EPISODES: Final = 6  # the least recently viewed is evicted first
MAX_PENDING: Final = 4  # episodes waiting for the thread
ABANDON_SECONDS: Final = 15.0  # an episode that is not requested for this long is cancelled
VALUE_BATCH: Final = 32  # timesteps whose values are computed together
NO_OBSERVATION: Final = np.zeros(0, np.float32)


class TooManyRollouts(TownletError):
    """Too many episodes are waiting."""


class RolloutRequest(Message):
    """Request to roll out an episode of a checkpoint."""

    checkpoint: CheckpointName
    seed: int = Field(ge=0, lt=2**31, description="Seed of the environment and of sampled actions.")
    greedy: bool = Field(True, description="False: sample actions if the policy is stochastic.")


class RolloutWorker:
    """Rolls out episodes; equal requests share one. The key is a hash of run, checkpoint, seed and `greedy`."""

    def __init__(self) -> None:
        self._policies = PolicyCache()
        self._episodes: OrderedDict[str, GymEpisode] = OrderedDict()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "rollouts")
        self._closed = False

    def start(self, run: Run, request: RolloutRequest) -> GymEpisode:
        """The requested episode: from the cache, or newly started."""
        if not run.meta().get("gym"):
            raise TownletError(f"{run.name} trains in a town", "watch it over the WebSocket instead")
        found = self._policies.find(run, request.checkpoint)
        identity = (run.name, found.name, request.seed, request.greedy)
        key = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
        with self._lock:
            cached = self._episodes.get(key)
            if cached is not None and not cached.error:
                return self._touch(cached)
            if sum(not episode.over for episode in self._episodes.values()) > MAX_PENDING:
                raise TooManyRollouts("too many episodes are being rolled out", "wait a moment and try again")
            label = player_label(request.checkpoint, found)
            episode = GymEpisode(key, run.name, found.name, label, request.seed, request.greedy)
            self._episodes[key] = episode
            self._evict()
        self._pool.submit(self._roll_out, run, found.name, episode)
        return episode

    def find(self, run: str, key: str) -> GymEpisode:
        """An episode of this run that was started earlier."""
        with self._lock:
            episode = self._episodes.get(key)
            if episode is None or episode.run != run:
                raise NotFound(f"there is no episode '{key[:40]}' of this run", "roll it out again")
            return self._touch(episode)

    def _touch(self, episode: GymEpisode) -> GymEpisode:
        episode.last_request = time.monotonic()
        self._episodes.move_to_end(episode.key)
        return episode

    def _evict(self) -> None:
        evictable = [key for key, episode in self._episodes.items() if episode.over]
        for key in evictable[: max(0, len(self._episodes) - CACHED_EPISODES)]:
            del self._episodes[key]

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _roll_out(self, run: Run, checkpoint: str, episode: GymEpisode) -> None:
        """Roll out one episode in the worker thread; a failure is stored in `episode.error`."""
        try:
            trained = self._policies.policy(run, self._policies.find(run, checkpoint))
            episode.prepare(trained.layout, trained.actions, trained.loaded.recipe)
            rollout = _start_rollout(trained, episode)
            try:
                self._collect(rollout, trained, episode)
            finally:
                rollout.env.close()
        except TownletError as error:
            episode.error = _error_text(error)
        except Exception as error:  # raised by a third-party environment
            LOG.exception("%s could not be rolled out", run.name)
            episode.error = f"it failed with {type(error).__name__}: {str(error)[:200]}"
        with self._lock:
            self._evict()

    def _collect(self, rollout: Rollout, trained: TrainedPolicy, episode: GymEpisode) -> None:
        pending: list[torch.Tensor] = []  # observations whose values were not computed yet

        def compute_values() -> None:
            if episode.has_values and pending:
                episode.values += np.asarray(trained.values(torch.stack(pending)), np.float64).tolist()
            pending.clear()

        while True:
            at = len(rollout.frames) - 1
            frame = rollout.frames[at]
            episode.add(frame)
            pending.append(torch.from_numpy(frame.obs))
            rollout.frames[at] = frame._replace(image=None, obs=NO_OBSERVATION)  # the episode has its own copy
            if len(pending) == VALUE_BATCH and not trained.hidden_size:  # recurrent networks need all timesteps at once
                compute_values()
            if rollout.over or at == MAX_STEPS or episode.image_bytes > MAX_IMAGE_BYTES:
                break
            if self._closed or time.monotonic() - episode.last_request > ABANDON_SECONDS:
                raise TownletError("the episode was abandoned by its viewer", "request it again")
            rollout.step()
        compute_values()
        if rollout.terminated:
            episode.ended = "terminated"
        else:
            episode.ended = "truncated" if rollout.truncated else "stopped"


def _start_rollout(trained: TrainedPolicy, episode: GymEpisode) -> Rollout:
    """A rollout before its first step, with rendering if the environment supports it."""
    from townlet.tasks.gym_playback import Rollout

    task = cast("GymTask", trained.loaded.task)
    if "rgb_array" in task.render_info.modes:
        env = task.make_eval_env(render_mode="rgb_array")
        try:
            return Rollout(env, episode.seed, trained.policy(episode.seed), greedy=episode.greedy)
        except Exception as error:  # rendering may lack a package, a screen or a driver
            env.close()
            reason = f"{task.name} cannot be rendered: {error}"
            episode.render_problem = (_error_text(error) if isinstance(error, TownletError) else reason)[:200]
    else:
        episode.render_problem = f"{task.name} does not support rendering."
    return Rollout(task.make_eval_env(), episode.seed, trained.policy(episode.seed), greedy=episode.greedy)


def _error_text(error: TownletError) -> str:
    """The message and its fix, without the file location, which means nothing to viewers."""
    first = error.diagnostics[0]
    return str(Diagnostic(first.what, first.fix))
