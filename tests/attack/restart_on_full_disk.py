"""Run by test_decision_log.py in a separate mount namespace: a service starts on a full disk that is freed later."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from decide.ads_service import FileService, ask, click, request, run_visits, start_service
from decide.both_storages import replay_folder
from runs.small_disk import enter_namespaces
from townlet.decide.domains import DOMAINS
from townlet.decide.settings import load_settings
from townlet.decide.stats import ServiceStats
from townlet.decide.storage.file import FileStorage
from townlet.decide.storage.log import LogStopped
from townlet.decide.storage.verify import verify
from townlet.decide.training_thread import TrainingThread

PAGE = 4096  # bytes that the file system allocates at once


def log_size(folder: Path) -> int:
    return sorted((folder / "log").glob("*.wal"))[-1].stat().st_size


def fill(place: Path) -> Path:
    """Fill the disk; returns the file that fills it."""
    filler = place / "filler"
    with open(filler, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    with open(filler, "ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0")
    return filler


def main(place: Path) -> None:
    enter_namespaces()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(place)], check=True)
    restart(place, place / "closed", torn=False)
    restart(place, place / "torn", torn=True)


def restart(place: Path, folder: Path, torn: bool) -> None:
    service, training, clock = start_service(folder)
    run_visits(service, training, clock, 40)
    (stored,) = ask(service, request(1e6, "stored"))
    assert service.storage.log.wait(service.storage.log.last, 20)
    while log_size(folder) % PAGE < PAGE - 500:  # so that the record of the next start does not fit into the last page
        ask(service, request(1e6 + service.storage.log.last, "padding"))
        assert service.storage.log.wait(service.storage.log.last, 20)
    before = service.storage.state.decisions
    if torn:  # by a crash while the log was written
        service.storage.close()
        with open(sorted((folder / "log").glob("*.wal"))[-1], "ab") as segment:
            segment.write(b"half a record")
    filler = fill(place)
    with suppress(LogStopped):
        service.storage.close()
    # What `townlet decide serve` does.
    again = FileService(
        FileStorage(folder, DOMAINS["bandit-ads"], load_settings("bandit-ads", ["learning.interval=0.05"], DOMAINS))
    )
    training = TrainingThread(again.storage)
    training.start()
    stats = ServiceStats(again, training)
    until(lambda: again.storage.log.problem)
    print("problem:", again.storage.log.problem)
    (reply,) = ask(again, request(2e6, "full"))
    assert reply["decisionId"].split("-")[1] == "0", reply
    assert again.report(click(reply["decisionId"])).reply["code"] == "UNLOGGED_DECISION"
    assert again.report(click(stored["decisionId"])).reply["code"] == "LOG_STOPPED"
    stats.update()
    print("alarms:", *(alarm["name"] for alarm in stats.as_json()["alarms"]))
    step = again.storage.trainer.step
    time.sleep(0.3)
    assert again.storage.trainer.step == step, "it learned from unlogged decisions"
    filler.unlink()
    until(lambda: again.storage.log.problem is None)
    (reply,) = ask(again, request(3e6, "full"))
    assert reply["decisionId"].split("-")[1] == str(before + 1), reply
    assert again.report(click(stored["decisionId"])).reply["type"] == "outcome_ack"
    training.stop()
    again.storage.close()
    assert all(version.same for version in replay_folder(folder))
    assert verify(folder).intact
    print("decisions:", again.storage.state.decisions - before)


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
