"""Run by test_io_errors.py under the shim: every operation of every commit fails once, and the next commit works.

A commit is repeated with an error at its first operation of a kind, at the second, and so on, until none fails. All
attempts use one folder and one trace, in which power can be lost at any time (see powerloss.py).
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import torch

from crash.decide_workloads import Snapshots, payload
from crash.run_workloads import Mark, new_run, rows_at, state_of
from crash.shim import Shim
from decide.ads_service import FileService, request, run_visits, start_service
from decide.publisher import Twin, twin_state
from townlet.decide.domains import DOMAINS
from townlet.decide.recovery import read_events
from townlet.decide.settings import load_settings
from townlet.decide.storage import LOG, SNAPSHOTS
from townlet.decide.storage.file import FileStorage
from townlet.decide.storage.log import WriteAheadLog
from townlet.decide.storage.segments import read_records
from townlet.decide.storage.version_folder import VersionFolder
from townlet.decide.storage.versions import VersionStore
from townlet.decide.training_thread import TrainingThread
from townlet.errors import TownletError
from townlet.runs import checkpoint, disk
from townlet.runs.folder import Run
from townlet.runs.metrics_store import MetricsStore, StorePosition

EVERY: Final = ("open", "write", "sync", "rename", "close", "unlink", "mkdir", "rmdir", "truncate", "symlink")
SAMPLED: Final = (1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 94, 141, 211, 316, 474, 711)
FAULTS: Final = [*((kind, errno.EIO) for kind in EVERY), ("open", errno.ENOSPC), ("mkdir", errno.ENOSPC)]


class FaultInjector:
    """Repeats an action with errors, and collects the messages."""

    def __init__(self, shim: Shim, mark: Mark, exhaustive: bool) -> None:
        self.shim, self.mark, self.exhaustive = shim, mark, exhaustive
        self.faults: list[dict[str, Any]] = []

    def repeat(self, what: str, attempt: Callable[[], None], settle: Callable[[], None], lasting: bool = True) -> None:
        """Run `attempt` under every fault; `settle` checks what is left and commits once more without a fault.

        `lasting`: also under faults that last until the attempt ends.
        """
        for kind, error in FAULTS:
            self.series(what, kind, error, attempt, settle)
        self.series(what, "write", errno.ENOSPC, attempt, settle, short=True)
        for kind, error in (("write", errno.ENOSPC), ("sync", errno.EIO)) if lasting else ():
            self.series(what, kind, error, attempt, settle, lasting=True)

    def series(
        self, what: str, kind: str, error: int, attempt: Callable[[], None], settle: Callable[[], None],
        **how: bool,
    ) -> None:  # fmt: skip
        """The same for one kind of fault: at every operation if exhaustive, otherwise at growing distances."""
        for at in range(1, 1000) if self.exhaustive else SAMPLED:
            self.shim.fail(kind, error, at, **how)
            message, exception = "", ""
            try:
                attempt()
            except TownletError as wrong:
                message = str(wrong)
            except Exception:
                exception = traceback.format_exc()
            failed = self.shim.failed
            self.shim.heal()
            if not failed and not message and not exception:
                return
            try:
                settle()
            except Exception:
                exception += traceback.format_exc()
            fault = {"what": what, "kind": kind, "error": errno.errorcode[error], "at": at, "failed": failed}
            self.faults.append({**fault, "message": message, "exception": exception})
            if exception:
                return
        raise AssertionError(f"{what} has too many operations of the kind {kind}")


def checkpoints(injector: FaultInjector, folder: Path) -> None:
    run, number = new_run(folder), 0
    injector.mark(run=run.name)

    def commit() -> None:
        nonlocal number
        number += 1
        info = {"number": number, "score": 0.0}
        checkpoint.save(run.checkpoints, checkpoint.folder_name(10 * number), state_of(number), info)
        injector.mark(step=10 * number, number=number)
        checkpoint.prune(run.checkpoints)

    def settle() -> None:
        whole, damaged = checkpoint.scan(run.checkpoints)
        assert not damaged, damaged
        assert checkpoint.load(whole[-1].path)[1]["number"] in (number, number - 1)
        commit()

    commit()
    injector.repeat("checkpoint", commit, settle)

    def create() -> None:
        new_run(folder)

    def whole_runs() -> None:
        for one in Run.list(folder / "home" / "runs"):
            assert one.meta()["seed"] == 3
            assert (one.worlds / "evaluation.yaml").is_file()
        create()

    injector.repeat("new run", create, whole_runs)


def metrics(injector: FaultInjector, folder: Path) -> None:
    path, moment, position = folder / "metrics.db", 200, StorePosition({}, "")
    store = MetricsStore(path)

    def commit() -> None:
        nonlocal moment, position
        store.add("updates", rows_at(moment + 10))
        store.add("episodes", {"env_steps": moment + 10, "row": [0, 1], "length": moment + 10})
        position = store.sync()
        moment += 10
        injector.mark(moment=moment, position=position)

    def resume() -> None:
        nonlocal store
        store.close()
        store = MetricsStore(path)
        store.rewind(moment, position)

    def settle() -> None:
        resume()
        assert len(store.read("updates", ("env_steps",))["env_steps"]) == position.rows["updates"]
        commit()

    commit()
    injector.repeat("metrics", commit, settle)
    injector.repeat("metrics, closed and opened", resume, settle)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM updates").fetchall()
    commit()  # the reader keeps SQLite from moving this into the database

    def try_again() -> None:
        nonlocal moment, position
        try:
            commit()
        except TownletError:
            position = store.sync()
            moment += 10
            injector.mark(moment=moment, position=position)

    injector.series("metrics beside a reader, tried again", "sync", errno.EIO, try_again, settle)
    reader.close()
    store.close()


def log(injector: FaultInjector, folder: Path) -> None:
    place, synced = folder / "service" / "log", 0

    def acknowledge(number: int) -> None:
        nonlocal synced
        synced = number
        injector.mark(synced=number)

    def use_log() -> None:
        with closing(WriteAheadLog(place, segment_bytes=3000, retry=0.002)) as log:
            log.on_commit = acknowledge
            for _ in range(4):
                with log.batch():
                    for _ in range(2):
                        log.append(payload(log.last + 1))
                log.wait(log.last, 0.02)

    def settle() -> None:
        assert not synced or max(dict(read_records(place))) >= synced
        use_log()

    injector.repeat("log", use_log, settle)


def snapshots(injector: FaultInjector, folder: Path) -> None:
    place = folder / "home" / "ads"
    service, training, clock = start_service(place, Snapshots.WORDS)
    injector.mark(log_id=service.storage.log.log_id.hex())
    run_visits(service, training, clock, 20)

    def save() -> None:
        clock.now += 1
        (answer,) = service.answer([request(clock.now, "a")])
        assert service.storage.log.wait(answer.record, 10)
        injector.mark(record=answer.record, reply=answer.reply)
        service.storage.save_snapshot()
        newest = checkpoint.paths(place / SNAPSHOTS)[-1]
        injector.mark(snapshot=checkpoint.step_and_serial(newest)[0])

    def settle() -> None:
        damaged = checkpoint.scan(place / SNAPSHOTS)[1]
        assert not damaged, damaged
        assert service.storage.log.wait(service.storage.log.last, 10)
        save()

    save()
    injector.repeat("snapshot", save, settle, lasting=False)  # a service waits long for its log
    service.storage.close()
    number, settings = 0, load_settings("bandit-ads", Snapshots.WORDS, DOMAINS)

    def create() -> None:
        with closing(
            FileService(FileStorage(folder / f"other {number}" / "ads", DOMAINS["bandit-ads"], settings))
        ) as service:
            if service.versions.serving is None:
                TrainingThread(service.storage).publish()

    def again() -> None:
        nonlocal number
        create()
        assert list(read_events(folder / f"other {number}" / "ads" / LOG))
        number += 1

    injector.repeat("new service", create, again, lasting=False)


def publications(injector: FaultInjector, folder: Path) -> None:
    versions = VersionStore(VersionFolder(folder / "service" / "versions"), Twin(), keep=2)
    number = 0

    def serving() -> None:
        now = versions.serving.version if versions.serving else None
        injector.mark(serving=now, pinned=versions.pinned, gate_only=versions.gate_only)

    def change(make: Callable[[], object]) -> Callable[[], None]:
        def attempt() -> None:
            injector.mark(begins="change")
            make()
            serving()

        return attempt

    def publish() -> None:
        nonlocal number
        number = max(VersionFolder(folder / "service" / "versions").numbers(), default=0) + 1
        assert versions.publish(number, twin_state(number), {"step": number}, {}).version == number
        injector.mark(published=number)

    def publish_again() -> None:
        publish()
        change(lambda: versions.promote(number, "the next"))()

    publish()
    injector.repeat("publication", publish, publish_again)
    publish_again()
    injector.repeat("promotion", change(lambda: versions.promote(number, "again")), publish_again)
    pin = change(lambda: versions.pin(number))
    injector.repeat("pin", pin, change(lambda: versions.unpin()))
    switch = change(lambda: versions.set_gate_only(not versions.gate_only, "an operator"))
    injector.repeat("gate only", switch, switch)
    change(lambda: versions.unpin())()

    def start() -> None:
        nonlocal versions
        injector.mark(begins="change")  # a version that cannot be read is replaced by one before it
        versions = VersionStore(VersionFolder(folder / "service" / "versions"), Twin(), keep=2)

    injector.repeat("start with versions", start, publish_again)


WORKLOADS: Final[dict[str, Callable[[FaultInjector, Path], None]]] = {
    "checkpoint": checkpoints,
    "metrics": metrics,
    "log": log,
    "snapshot": snapshots,
    "publication": publications,
}


def main(exhaustive: bool) -> None:
    torch.set_num_threads(1)
    defaults = WriteAheadLog.__init__.__defaults__
    assert defaults is not None
    WriteAheadLog.__init__.__defaults__ = (*defaults[:-1], 0.01)  # seconds between attempts
    shim, root, found = Shim.attached(), Path(os.environ["SHIM_ROOT"]), {}
    for name in WORKLOADS:
        shim.mark(f"workload {name}")
        (root / name).mkdir()
        disk.sync_folder(root)
        injector = FaultInjector(shim, lambda **facts: shim.mark(json.dumps(facts)), exhaustive)
        WORKLOADS[name](injector, root / name)
        found[name] = injector.faults
    print(json.dumps(found))


if __name__ == "__main__":
    main(exhaustive="exhaustive" in sys.argv)
