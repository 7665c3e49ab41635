"""Episodes of Gymnasium runs: requested from a server, and rolled out locally for comparison."""

from __future__ import annotations

import json
import time
from typing import Any

from live.conftest import LiveServer
from live.test_security import ask
from townlet.runs.folder import Run
from townlet.tasks.gym_playback import Rollout
from townlet.train.policies import TrainedPolicy, load_policy


def local_rollout(run: Run, seed: int, greedy: bool = True) -> tuple[Rollout, TrainedPolicy]:
    """The same episode, rolled out in this process."""
    trained = load_policy(run, "best")
    task: Any = trained.loaded.task
    rollout = Rollout(task.make_eval_env(), seed, trained.policy(seed), greedy=greedy)
    rollout.play()
    rollout.env.close()
    return rollout, trained


def start_episode(
    served: LiveServer, run: str, origin: str | None = None, **request: Any
) -> tuple[int, dict[str, Any]]:
    """Request an episode, with the server's own origin by default."""
    served.wait()
    body = json.dumps({"checkpoint": "best", "seed": 1, **request}).encode()
    headers = {"Content_Type": "application/json", "Origin": served.origin if origin is None else origin}
    status, text, _ = ask(served, f"/api/runs/{run}/episodes", "POST", body, **headers)
    return status, json.loads(text) if text.startswith("{") else {}


def finished_episode(served: LiveServer, run: str, **request: Any) -> dict[str, Any]:
    """Request an episode, retry while the server is busy, and return it once it is complete."""
    for _ in range(300):
        status, answer = start_episode(served, run, **request)
        if status != 429:
            break
        time.sleep(0.1)
    assert status == 200, answer
    for _ in range(1200):
        status, text, _ = ask(served, f"/api/runs/{run}/episodes/{answer['episode']}")
        episode: dict[str, Any] = json.loads(text)
        if episode.get("ended") or episode.get("error"):
            return episode
        time.sleep(0.05)
    raise AssertionError("the episode was not rolled out")
