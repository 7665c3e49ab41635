"""Episodes of runs that are no towns, as a page asks for them, and the same ones played here."""

from __future__ import annotations

import json
import time
from typing import Any

from live.conftest import Served
from live.test_security import ask
from townlet.runs.folder import Run
from townlet.tasks.gym_rollout import Rollout
from townlet.train.policies import TrainedPolicy, load_policy


def by_hand(run: Run, seed: int, greedy: bool = True) -> tuple[Rollout, TrainedPolicy]:
    """The same episode, played here."""
    trained = load_policy(run, "best")
    task: Any = trained.loaded.task
    rollout = Rollout(task.stage(), seed, trained.policy(seed), greedy=greedy)
    rollout.play()
    rollout.env.close()
    return rollout, trained


def begin(served: Served, run: str, origin: str | None = None, **wish: Any) -> tuple[int, dict[str, Any]]:
    """Wish for an episode, as our own page does unless another origin is given."""
    served.wait()
    body = json.dumps({"checkpoint": "best", "seed": 1, **wish}).encode()
    headers = {"Content_Type": "application/json", "Origin": served.origin if origin is None else origin}
    status, told, _ = ask(served, f"/api/runs/{run}/episodes", "POST", body, **headers)
    return status, json.loads(told) if told.startswith("{") else {}


def whole(served: Served, run: str, **wish: Any) -> dict[str, Any]:
    """All that is told of an episode once it is over; who is told to wait does."""
    for _ in range(300):
        status, told = begin(served, run, **wish)
        if status != 429:
            break
        time.sleep(0.1)
    assert status == 200, told
    for _ in range(600):
        status, text, _ = ask(served, f"/api/runs/{run}/episodes/{told['episode']}")
        part: dict[str, Any] = json.loads(text)
        if part.get("ended") or part.get("error"):
            return part
        time.sleep(0.1)
    raise AssertionError("it was not rolled out")
