"""Attacks on metrics.db: flipped bits, changed, removed and added rows, and a reader that keeps the log in use."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from live.conftest import LiveServer, Page
from metrics_digest import content_digest
from townlet.errors import TownletError
from townlet.runs import integrity
from townlet.runs.database import TABLES
from townlet.runs.metrics_reader import MetricsReader, write_csv
from townlet.runs.metrics_store import MetricsStore, StorePosition
from townlet.runs.overview import make_overview
from townlet.train.session import start
from train.tiny import tiny

NAMES = [f"figure_{number}" for number in range(12)]


def fill(store: MetricsStore, begin: int, end: int) -> None:
    """Write several tables as training does, with a flush for each interval."""
    rng = random.Random(begin)
    for moment in range(begin, end, 100):
        values = [rng.random() for _ in NAMES]
        store.add("updates", {"env_steps": moment, "updates": moment // 4, "name": NAMES, "value": values})
        store.add("cell_visits", {"env_steps": moment, "cell": [1, 2, 3], "count": 7, "novelty": [0.5, None, 0.25]})
        meters = [{"energy": rng.random()}, None]
        store.add("episodes", {"env_steps": moment, "length": [9, 8], "return": 1.5, "cause": "é", "meters": meters})
        store.add("evaluations", {"env_steps": moment, "policy": "greedy", "length": rng.random(), "score": 1.0})
        store.flush()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StorePosition]:
    """A closed metrics file, and the position of a checkpoint at env_steps 3000; copy it before use."""
    path = tmp_path_factory.mktemp("metrics") / "metrics.db"
    with MetricsStore(path) as store:
        store.add("recordings", {"env_steps": 1, "kind": "first", "data": bytes(range(256)) * 40})
        fill(store, 100, 3001)
        position = store.sync()
        fill(store, 3100, 4001)
    return path, position


@pytest.fixture
def metrics(written: tuple[Path, StorePosition], tmp_path: Path) -> tuple[Path, StorePosition]:
    return Path(shutil.copy(written[0], tmp_path / "metrics.db")), written[1]


def finished_episode(path: Path) -> str:
    with MetricsReader(path) as store:
        return content_digest(store)


def change(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ('UPDATE "updates" SET "value" = "value" + 1e-12 WHERE rowid = 40', "updates"),
        ('UPDATE "updates" SET "name" = CAST("name" AS BLOB) WHERE rowid = 40', "updates"),
        ('UPDATE "evaluations" SET "wall" = 0.0 WHERE rowid = 5', "evaluations"),
        ('UPDATE "cell_visits" SET "novelty" = NULL WHERE rowid = 9', "cell_visits"),
        ('UPDATE "recordings" SET "data" = zeroblob(10240)', "recordings"),
        ('DELETE FROM "episodes" WHERE rowid = 7', "episodes"),
        ('DELETE FROM "evaluations" WHERE rowid = (SELECT max(rowid) FROM "evaluations")', "evaluations"),
        ('INSERT INTO "updates" ("env_steps", "name", "value") VALUES (5000, \'figure_1\', 9.0)', "updates"),
        ('INSERT INTO "evaluations" (rowid, "env_steps", "score") VALUES (-1, 1, 99.0)', "evaluations"),
        ('UPDATE "row_groups" SET "digest" = zeroblob(32) WHERE "table" = \'episodes\' AND "first" = 1', "episodes"),
        ('UPDATE "row_groups" SET "last" = "last" - 1 WHERE "table" = \'updates\' AND "first" = 13', "updates"),
        ('DELETE FROM "row_groups" WHERE "table" = \'updates\' AND "first" = 13', "updates"),
    ],
)
def test_changed_removed_and_added_rows_are_refused_by_readers_and_at_resume(
    statement: str, table: str, metrics: tuple[Path, StorePosition]
) -> None:
    path, position = metrics
    change(path, statement)
    with MetricsReader(path) as store, pytest.raises(TownletError, match=f"'{table}'.*move metrics.db away"):
        store.read(table)
    before = path.read_bytes()
    if "5000" not in statement and "max(rowid)" not in statement:  # rows after the checkpoint are removed anyway
        with MetricsStore(path) as store, pytest.raises(TownletError, match=r"damaged|but the checkpoint has"):
            store.rewind(3000, position)
        assert path.read_bytes()[100:] == before[100:]  # except for counters in the header


def test_the_message_names_the_table_and_the_range_of_env_steps(metrics: tuple[Path, StorePosition]) -> None:
    change(metrics[0], 'UPDATE "updates" SET "value" = 7.0 WHERE "env_steps" = 2000')
    with (
        MetricsReader(metrics[0]) as store,
        pytest.raises(TownletError, match="'updates' between env_steps 1,900 and 2,000"),
    ):
        store.series("figure_3")


def test_garbage_text_in_a_number_column_is_damage(metrics: tuple[Path, StorePosition], tmp_path: Path) -> None:
    change(metrics[0], 'UPDATE "evaluations" SET "score" = \'many\', "env_steps" = \'some\'')
    with MetricsReader(metrics[0]) as store:
        with pytest.raises(TownletError, match="damaged"):
            store.read("evaluations", ("score",), last=1)
        with pytest.raises(TownletError, match="damaged"):
            write_csv(store, tmp_path / "metrics.csv")


def test_garbage_text_in_metrics_watched_live_is_one_message_and_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = start(tiny(), tmp_path / "runs", pause_at=200).run
    change(run.metrics_file, 'UPDATE "evaluations" SET "causes" = \'{garbage\'')
    served = LiveServer(run.path.parent, run.name, tmp_path / "worlds")
    try:
        with served.connect() as connection:
            page = Page(connection)
            page.send("subscribe", run=run.name, source="none")
            error = page.receive("error")
            assert "the metrics are damaged" in error["what"]
            assert "move metrics.db away" in error["fix"]
            with pytest.raises(TimeoutError):
                page.receive("error", seconds=1.5)
    finally:
        served.stop()
    assert [record.getMessage() for record in caplog.records if "could not be shown" in record.getMessage()] == []


def flips(path: Path, count: int) -> tuple[int, int]:
    """Flip single bits; how many were refused, and how many changed nothing that can be read."""
    rng, good, before = random.Random(3), finished_episode(path), path.read_bytes()
    refused = harmless = 0
    for _ in range(count):
        place, bit = rng.randrange(len(before)), rng.randrange(8)
        path.write_bytes(before[:place] + bytes([before[place] ^ 1 << bit]) + before[place + 1 :])
        try:
            with MetricsReader(path) as store:
                found = content_digest(store) + str([store.series(name, 50) for name in NAMES])
                listed = overview_of(path)
        except TownletError:
            refused += 1
            continue
        harmless += 1
        path.write_bytes(before)
        with MetricsReader(path) as store:
            assert found == good + str([store.series(name, 50) for name in NAMES]), f"byte {place}, bit {bit}"
            assert listed == overview_of(path), f"byte {place}, bit {bit}"
    path.write_bytes(before)
    return refused, harmless


def overview_of(path: Path) -> list[object]:
    """What lists of runs read: not the full tables."""
    with MetricsReader(path) as store:
        last = store.read("updates", ("env_steps",), last=1)
        return [last, store.read("evaluations", where={"policy": "greedy"})]


def test_no_single_flipped_bit_changes_a_figure_silently(metrics: tuple[Path, StorePosition]) -> None:
    refused, harmless = flips(metrics[0], 50)
    assert refused > 10
    assert refused + harmless == 50


@pytest.mark.long(minutes=2)
def test_no_flipped_bit_of_two_thousand_changes_a_figure_silently(metrics: tuple[Path, StorePosition]) -> None:
    assert flips(metrics[0], 2000)[0] > 400


def test_a_file_that_changes_after_it_was_checked_is_checked_again(metrics: tuple[Path, StorePosition]) -> None:
    assert finished_episode(metrics[0])
    change(metrics[0], 'UPDATE "updates" SET "value" = 7.0 WHERE "env_steps" = 2000')
    with pytest.raises(TownletError, match="damaged"):
        finished_episode(metrics[0])


def test_metrics_of_another_run_with_as_many_rows_are_not_resumed(
    metrics: tuple[Path, StorePosition], tmp_path: Path
) -> None:
    with MetricsStore(tmp_path / "other.db") as other:
        other.add("recordings", {"env_steps": 1, "kind": "first", "data": b"other"})
        fill(other, 100, 3001)
    with MetricsStore(tmp_path / "other.db") as other, pytest.raises(TownletError, match="do not match the checkpoint"):
        other.rewind(3000, metrics[1])


def test_sync_makes_the_log_durable_while_a_reader_holds_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader keeps SQLite from moving its log into the file, so that only an fsync of the log makes it durable."""
    path = tmp_path / "metrics.db"
    durable: dict[str, bytes] = {}
    fsync = integrity_fsync(tmp_path, durable)
    with MetricsStore(path) as store:
        fill(store, 100, 501)
        store.sync()
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute('SELECT count(*) FROM "updates"').fetchone()
        monkeypatch.setattr("os.fsync", fsync)
        fill(store, 600, 1001)
        position = store.sync()
        monkeypatch.undo()
        reader.close()
    copy = tmp_path / "after"
    copy.mkdir()
    (copy / "metrics.db").write_bytes(durable["metrics.db"])
    (copy / "metrics.db-wal").write_bytes(durable["metrics.db-wal"])
    with MetricsStore(copy / "metrics.db") as found:
        found.rewind(1000, position)
        assert found.read("updates", ["env_steps"])["env_steps"][-1] == 1000


def integrity_fsync(folder: Path, durable: dict[str, bytes]) -> object:
    """An fsync that remembers what the disk would hold."""
    import os

    durable["metrics.db"] = b""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        if name == "metrics.db-wal":
            durable[name] = (folder / name).read_bytes()
            durable["metrics.db"] = (folder / "metrics.db").read_bytes()
        real(descriptor)

    return fsync


def test_a_run_whose_metrics_are_damaged_is_listed_as_damaged(metrics: tuple[Path, StorePosition]) -> None:
    from townlet.runs.folder import Run

    path = metrics[0]
    run = Run.create(path.parent / "runs", "town", "dqn", "a: 1\n", "a: 1\n", {})
    change(path, 'UPDATE "evaluations" SET "score" = 99.0 WHERE rowid = 3')
    shutil.move(path, run.metrics_file)
    found = make_overview(run)
    assert found.state == "damaged"
    assert found.best is None
    assert "'evaluations'" in found.problem


def test_first_column_of_every_table_is_env_steps() -> None:
    """The checksums say where damage is by the first column."""
    assert all(next(iter(columns)) == "env_steps" for columns in TABLES.values())
    assert bytes(32) == integrity.START
