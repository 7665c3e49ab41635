"""Publishes versions until it is killed. Everything is imported first; then each line on stdin forks one publisher.

A line is JSON: the folder, and perhaps a point of a commit at which to die. A publisher writes what it is about to do
and what it has done into a file beside the folder, for the test to compare.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from townlet.decide.storage.version_folder import VersionFolder
from townlet.decide.storage.versions import VersionStore
from townlet.runs import checkpoint

LONGEST = 120  # seconds after which a publisher ends if its test failed


class Twin(nn.Module):
    """Two parameters with the same value, so that a mixture of two versions is detected."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.zeros(64)), nn.Parameter(torch.zeros(64))

    def forward(self, given: Tensor) -> Tensor:
        """Outputs of both parameters, [B, 64] → [B, 2]."""
        return torch.stack([(given * self.first).sum(1), (given * self.second).sum(1)], 1)


def twin_state(number: int) -> dict[str, Tensor]:
    """Weights with this value."""
    return {"first": torch.full((64,), float(number)), "second": torch.full((64,), float(number))}


def publish_for_ever(folder: Path, said: Path, die: list[object] | None) -> None:
    """Promote most versions, roll some back, pin now and then."""
    passed: list[str] = []

    def at(point: str) -> None:
        passed.append(point)
        if [point, passed.count(point)] == die:
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.on_point = at
    versions = VersionStore(VersionFolder(folder), Twin(), keep=3)
    with open(said, "a", buffering=1) as output:

        def tell(word: str, version: int | None) -> None:
            output.write(f"{word} {version}\n")

        tell("is", versions.serving.version if versions.serving else None)
        while True:
            number = max(versions.list_versions(), default=0) + 1
            snapshot = versions.publish(number, twin_state(number), {"step": number}, {})
            tell("will", snapshot.version)
            versions.promote(snapshot.version, "the next")
            tell("is", snapshot.version)
            if number % 5 == 0:
                trail = versions.history[-1].trail
                tell("will", trail[-2])
                versions.roll_back("every fifth")
                tell("is", trail[-2])


def main() -> None:
    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            print(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if not pid:
            signal.alarm(LONGEST)
            try:
                publish_for_ever(Path(order["folder"]), Path(order["said"]), order.get("die"))
            finally:
                os._exit(99)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
