"""Attacks on the lock of a folder: its file is removed, or the folder is replaced while a process writes."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import closing
from pathlib import Path

import pytest

import warm
from townlet.decide.storage.log import LogStopped, WriteAheadLog
from townlet.decide.storage.segments import read_records
from townlet.errors import TownletError
from townlet.interfaces.counters import MetricsInterval
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.lock import LOCK_FILE, Lock, lock_holder
from townlet.runs.metrics_store import MetricsStore
from townlet.train.session import start
from train.tiny import RecordingSink, tiny

TAKE = """
import sys; from pathlib import Path
from townlet.errors import TownletError; from townlet.runs.lock import Lock
try: Lock(Path(sys.argv[1])).acquire(); print("acquired")
except TownletError as error: print(error)
"""


def second_writer(folder: Path) -> str:
    """The lock as another process gets it, or the refusal."""
    command = [sys.executable, "-c", TAKE, str(folder)]
    return str(warm.run(command, capture_output=True, text=True, check=True).stdout)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("replaced", [False, True])
def test_rm_lock_does_not_let_a_second_process_write(replaced: bool, tmp_path: Path) -> None:
    with Lock(tmp_path) as lock:
        (tmp_path / LOCK_FILE).unlink()
        if replaced:
            (tmp_path / LOCK_FILE).write_text("{}")
        assert "another process is writing" in second_writer(tmp_path)
        assert lock_holder(tmp_path) is not None
        lock.check()  # its own writer may continue
    assert lock_holder(tmp_path) is None
    assert second_writer(tmp_path) == "acquired\n"


def test_a_moved_folder_stops_its_writer(tmp_path: Path) -> None:
    folder, away = tmp_path / "run", tmp_path / "away"
    folder.mkdir()
    with Lock(folder) as lock:
        lock.check()
        folder.rename(away)
        with pytest.raises(TownletError, match="moved or removed"):
            lock.check()
        folder.mkdir()
        with pytest.raises(TownletError, match="the folder was replaced by another one"):
            lock.check()
        assert second_writer(folder) == "acquired\n"
        assert "another process is writing" in second_writer(away)
        shutil.rmtree(folder)
        away.rename(folder)
        lock.check()
    with pytest.raises(TownletError, match="not held"):
        lock.check()


def test_metrics_are_not_committed_into_a_folder_that_took_the_place_of_another(tmp_path: Path) -> None:
    folder, away = tmp_path / "run", tmp_path / "away"
    folder.mkdir()
    with Lock(folder) as lock:
        store = MetricsStore(folder / "metrics.db", lock.check)
        store.add("updates", {"env_steps": 1, "name": "loss", "value": 0.5})
        store.sync()
        shutil.copytree(folder, tmp_path / "copy")
        folder.rename(away)
        (tmp_path / "copy").rename(folder)
        before = contents(folder)
        store.add("updates", {"env_steps": 2, "name": "loss", "value": 0.25})
        with pytest.raises(TownletError, match="the folder was replaced by another one"):
            store.flush()
        with pytest.raises(TownletError, match="the folder was replaced by another one"):
            store.close()
    assert contents(folder) == before  # including SQLite's write-ahead log, which closing would remove by name
    with MetricsStore(away / "metrics.db") as found:
        assert found.read("updates", ["env_steps"])["env_steps"] == [1]


class Swap(RecordingSink):
    """Puts a copy in the place of the run's folder at the first evaluation of training."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root, self.before = root, dict[str, bytes]()

    def on_interval(self, mark: MetricsInterval) -> None:
        super().on_interval(mark)
        if len(self.intervals) == 5:
            (run,) = Run.list(self.root)
            shutil.copytree(run.path, self.root / "copy")
            os.rename(run.path, self.root / ".away")
            os.rename(self.root / "copy", run.path)
            self.before = contents(run.path)


def test_run_whose_folder_was_replaced_stops_and_writes_nothing_there(tmp_path: Path) -> None:
    swap = Swap(tmp_path)
    with pytest.raises(TownletError, match="the folder was replaced by another one"):
        start(tiny(), tmp_path, sinks=[swap])
    (run,) = Run.list(tmp_path)
    assert contents(run.path) == swap.before
    assert checkpoint.latest(tmp_path / ".away" / "checkpoints") is not None


def test_a_decision_log_whose_folder_was_replaced_takes_no_record_until_it_is_back(tmp_path: Path) -> None:
    folder, away = tmp_path / "log", tmp_path / "away"
    with closing(WriteAheadLog(folder)) as log:
        assert log.wait(log.append(b"first"), 10)
        folder.rename(away)
        folder.mkdir()
        log.check_lock()  # as once a second
        with pytest.raises(LogStopped, match="the folder was replaced by another one"):
            log.append(b"second")
        assert list(folder.iterdir()) == []
        folder.rmdir()
        away.rename(folder)
        log.check_lock()
        assert log.wait(log.append(b"second"), 10)
    assert [payload for _, payload in read_records(folder)] == [b"first", b"second"]
