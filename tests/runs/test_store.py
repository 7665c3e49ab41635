"""Metrics store: no loss, no duplicates, concurrent readers, and clear messages about damage."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from metrics_digest import content_digest
from time_limit import within
from townlet.errors import TownletError
from townlet.runs.database import TABLES, connect
from townlet.runs.integrity import START, Damage, add_group
from townlet.runs.metrics_reader import MetricsReader, write_csv
from townlet.runs.metrics_store import MAX_BUFFERED_ROWS, MetricsStore


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with MetricsStore(tmp_path / "metrics.db") as made:
        yield made


def loss(store: MetricsStore, *moments: int) -> None:
    for moment in moments:
        store.add("updates", {"env_steps": moment, "updates": moment // 10, "name": "loss", "value": moment / 4})


def test_rows_are_read_as_columns(store: MetricsStore) -> None:
    store.add(
        "episodes",
        {
            "env_steps": 640,
            "row": torch.tensor([3, 5]),
            "length": np.array([7, 9], np.int32),
            "return": torch.tensor([0.5, -1.25]),
            "cause": ["energy", "time"],
            "meters": [{"energy": 0.0}, {"energy": 0.5}],
        },
    )
    found = store.read("episodes")
    assert found["env_steps"] == [640, 640]
    assert (found["row"], found["length"], found["return"]) == ([3, 5], [7, 9], [0.5, -1.25])
    assert found["meters"] == [{"energy": 0.0}, {"energy": 0.5}]
    assert found["epsilon"] == [None, None]
    assert all(abs(wall - time.time()) < 60 for wall in found["wall"])


def test_rows_can_be_added_one_by_one(store: MetricsStore) -> None:
    store.add("alerts", [{"env_steps": 1, "name": "loss", "value": np.float32(0.5)}, {"env_steps": 2, "message": "x"}])
    store.add("alerts", {"env_steps": np.int64(3), "value": torch.tensor(2.5)})
    assert store.read("alerts", ("env_steps", "name", "message", "value")) == {
        "env_steps": [1, 2, 3],
        "name": ["loss", None, None],
        "message": [None, "x", None],
        "value": [0.5, None, 2.5],
    }
    store.add("alerts", [])
    store.add("alerts", {"env_steps": [], "name": "none"})
    assert len(store.read("alerts")["env_steps"]) == 3


@pytest.mark.parametrize(
    ("table", "rows", "why"),
    [
        ("epsodes", {"env_steps": 1}, "did you mean 'episodes'"),
        ("episodes", {"env_steps": 1, "lenght": 2}, "did you mean 'length'"),
        ("episodes", {"length": 2}, "lacks env_steps"),
        ("episodes", [{"env_steps": 1}, {"length": 2}], "lacks env_steps"),
        ("episodes", {"env_steps": [1, 2], "length": [1, 2, 3]}, "different lengths: env_steps 2, length 3"),
    ],
)
def test_invalid_rows_are_rejected(table: str, rows: Any, why: str, store: MetricsStore) -> None:
    with pytest.raises(TownletError, match=why):
        store.add(table, rows)


def test_reading_a_range(store: MetricsStore) -> None:
    loss(store, 10, 20, 30, 40)
    store.add("updates", {"env_steps": 40, "name": "entropy", "value": 1.0})
    assert store.read("updates", ("env_steps",), since=10, until=30)["env_steps"] == [20, 30]
    assert store.read("updates", ("value",), last=2) == {"value": [10.0, 1.0]}
    assert store.read("updates", ("env_steps",), where={"name": "entropy"})["env_steps"] == [40]
    assert store.names() == ["entropy", "loss"]
    assert store.series("loss") == ([10, 20, 30, 40], [2.5, 5.0, 7.5, 10.0])
    assert store.series("loss", points=2) == ([20, 40], [3.75, 8.75])
    assert store.series("nothing", points=2) == ([], [])
    with pytest.raises(TownletError, match="no column 'nam'; did you mean 'name'"):
        store.read("updates", ("nam",))


def test_counts_are_summed(store: MetricsStore) -> None:
    for moment, count in ((10, 1), (20, 2), (30, 4)):
        store.add("affordance_transitions", {"env_steps": moment, "from": "Bed", "to": ["Job", "Bar"], "count": count})
    assert store.totals("affordance_transitions", ("from", "to")) == {("Bed", "Bar"): 7, ("Bed", "Job"): 7}
    assert store.totals("affordance_transitions", ("to",), since=10) == {("Bar",): 6, ("Job",): 6}
    with pytest.raises(TownletError, match="no column 'count'"):
        store.totals("alerts", ("name",))


def test_another_process_can_read_during_writing(store: MetricsStore) -> None:
    loss(store, 10)
    store.flush()
    loss(store, 20)
    with MetricsReader(store.path) as other:
        assert other.series("loss")[0] == [10]  # only flushed rows
        store.flush()
        assert other.series("loss")[0] == [10, 20]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            other._connection.execute("DELETE FROM updates")


def test_many_rows_are_flushed_without_waiting(store: MetricsStore) -> None:
    store.add("updates", {"env_steps": 1, "name": ["loss"] * MAX_BUFFERED_ROWS, "value": 0.0})
    with MetricsReader(store.path) as other:
        assert len(other.series("loss")[0]) == MAX_BUFFERED_ROWS


def test_rewind_removes_exactly_the_later_rows(tmp_path: Path) -> None:
    with MetricsStore(tmp_path / "metrics.db") as store:
        loss(store, 10, 20)
        position = store.sync()
        loss(store, 30)
        store.add("alerts", {"env_steps": 21, "name": "x"})
        store.flush()
        loss(store, 40)  # still waiting
    with MetricsStore(tmp_path / "metrics.db") as store:
        loss(store, 50)
        store.rewind(20, position)
        assert store.series("loss")[0] == [10, 20]
        assert store.read("alerts")["name"] == []
        assert store.sync() == position


def test_gap_in_the_metrics_is_reported_and_nothing_is_removed(store: MetricsStore) -> None:
    loss(store, 10, 20)
    position = store.sync()
    loss(store, 30)
    store.flush()
    store._connection.execute('DELETE FROM "updates" WHERE "env_steps" = 10')
    with pytest.raises(TownletError, match="'updates' has 1 rows up to env_steps 20, but the checkpoint has 2"):
        store.rewind(20, position)
    assert store.series("loss")[0] == [20, 30]


ROWS = st.lists(st.tuples(st.sampled_from(["episodes", "updates", "alerts"]), st.integers(0, 3)), max_size=20)


@settings(max_examples=examples(10, 25))
@given(rows=ROWS, cut=st.integers(0, 20), flushed=st.integers(0, 20))
def test_rewound_and_repeated_run_has_the_same_metrics(
    rows: list[tuple[str, int]], cut: int, flushed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def log(store: MetricsStore, begin: int, end: int) -> None:
        for moment, (table, value) in list(enumerate(rows))[begin:end]:
            column = {"episodes": "return", "updates": "value", "alerts": "value"}[table]
            store.add(table, {"env_steps": moment, column: value / 3, "wall": time.perf_counter()})
            if moment == flushed:
                store.flush()

    folder = tmp_path_factory.mktemp("rewind")
    with MetricsStore(folder / "straight.db") as straight:
        log(straight, 0, len(rows))
        wanted = content_digest(straight)
    with MetricsStore(folder / "again.db") as again:
        log(again, 0, len(rows))
    with MetricsStore(folder / "again.db") as again:
        again.rewind(cut - 1)
        log(again, cut, len(rows))
        assert content_digest(again) == wanted


def test_digest_covers_every_column_except_the_clock(store: MetricsStore) -> None:
    def digest(table: str, **values: Any) -> str:
        store.rewind(0)
        store.add(table, {"env_steps": 1, **values})
        return content_digest(store)

    for table, columns in TABLES.items():
        plain = digest(table)
        for column, kind in columns.items():
            value: Any = {"TEXT": "x", "JSON": {"x": 1}}.get(kind, 7)
            if column != "env_steps":
                assert (digest(table, **{column: value}) == plain) == (column == "wall")
    assert digest("updates", name="loss", value=1.0) != digest("updates", name="loss", value=2.0)
    assert digest("updates", name="steps_per_second", value=1.0) == digest(
        "updates", name="steps_per_second", value=2.0
    )


def test_flushed_rows_survive_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "metrics.db"
    child = os.fork()
    if not child:
        store = MetricsStore(path)
        loss(store, *range(1000))
        store.flush()
        loss(store, *range(1000, 2000))
        store._connection.execute("BEGIN IMMEDIATE")
        store._connection.execute('DELETE FROM "updates"')
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with MetricsReader(path) as reader:
        assert reader.series("loss")[0] == list(range(1000))
    with MetricsStore(path) as store:
        loss(store, 1000)
        assert len(store.series("loss")[0]) == 1001


def test_closed_store_is_one_file(tmp_path: Path) -> None:
    with MetricsStore(tmp_path / "metrics.db") as store:
        loss(store, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.db"]


def test_damaged_and_foreign_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.db"
    with pytest.raises(TownletError, match="has no metrics; `townlet train --resume` starts new ones"):
        MetricsReader(path)
    with MetricsStore(path) as store:
        loss(store, *range(5000))
    good = path.read_bytes()
    path.write_bytes(b"not a database" * 100)
    for kind in (MetricsReader, MetricsStore):
        with pytest.raises(TownletError, match="the metrics are damaged"):
            kind(path)
    path.write_bytes(good[: len(good) // 2 // 4096 * 4096] + b"\xff" * 4096 * 4)
    with pytest.raises(TownletError, match="the metrics are damaged"), MetricsReader(path) as reader:
        content_digest(reader)
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    for kind in (MetricsReader, MetricsStore):
        with pytest.raises(TownletError, match="not a metrics store of Townlet"):
            kind(path)


@pytest.mark.parametrize(
    "trick",
    [
        "CREATE TRIGGER t AFTER INSERT ON updates BEGIN DELETE FROM episodes; END",
        "CREATE VIEW v AS SELECT 1",
        "ALTER TABLE updates ADD COLUMN more",
        "DROP TABLE alerts",
    ],
)
def test_store_with_other_tables_views_or_triggers_is_rejected(trick: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.db"
    MetricsStore(path).close()
    with sqlite3.connect(path) as other:
        other.execute(trick)
    other.close()
    for kind in (MetricsReader, MetricsStore):
        with pytest.raises(TownletError, match="the metrics are damaged"):
            kind(path)


def test_checksum_of_missing_rows_is_refused(tmp_path: Path) -> None:
    connection = connect(tmp_path / "metrics.db", read_only=False)
    with pytest.raises(sqlite3.DatabaseError, match="some of the rows 1 to 2 of 'alerts' are missing"):
        add_group(connection, "alerts", 1, 2, START)
    connection.close()


def test_damage_names_its_table_if_it_has_one() -> None:
    assert str(Damage("", "a page is missing")) == "the metrics are damaged: a page is missing"
    place = "the metrics are damaged in 'updates' between env_steps 0 and 1,000"
    assert str(Damage("updates", "rows are missing", 0, 1000)) == f"{place}: rows are missing"


def test_later_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.db"
    MetricsStore(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version=9")
    other.close()
    with pytest.raises(TownletError, match="format version 9, but this Townlet reads 5"):
        MetricsReader(path)


def test_interval_columns_keep_their_types(store: MetricsStore) -> None:
    row = {"count": 11, "length_mean": np.float64(6.0), "causes": {"energy": 10, "time": 1}, "stages": {"1": 3, "5": 8}}
    store.add("episode_intervals", {"env_steps": 100, "start": 50, **row})
    found = {name: values[0] for name, values in store.read("episode_intervals").items()}
    assert {name: found[name] for name in row} == row
    assert found["extrinsic"] is None
    store.add("episode_intervals", {"env_steps": 110, "start": 100, "count": 0})
    assert store.read("episode_intervals", ("count", "length_mean"), last=1) == {"count": [0], "length_mean": [None]}


def test_export_as_csv(store: MetricsStore, tmp_path: Path) -> None:
    loss(store, 10)
    store.add("episodes", {"env_steps": 5, "length": 7, "return": 1.5})
    store.add("evaluations", {"env_steps": 10, "policy": ["random", "greedy"], "length": [116.0, 480.5]})
    write_csv(store, tmp_path / "metrics.csv")
    assert (tmp_path / "metrics.csv").read_text().splitlines() == [
        "env_steps,updates,evaluation_length,loss",
        "10,1,480.5,2.5",
    ]
    write_csv(store, tmp_path / "metrics.csv", long=True)
    assert (tmp_path / "metrics.csv").read_text().splitlines() == [
        "env_steps,updates,name,value",
        "10,1,loss,2.5",
        "10,,evaluation_length,480.5",
    ]


def test_idle_store_is_a_single_file(tmp_path: Path) -> None:
    """Readers after the writer leave no write-ahead log either."""
    path = tmp_path / "metrics.db"
    with MetricsStore(path) as store:
        store.add("updates", {"env_steps": 1, "name": "loss", "value": 0.5})
    with MetricsReader(path) as reader:
        assert reader.series("loss") == ([1], [0.5])
    assert [found.name for found in tmp_path.iterdir()] == ["metrics.db"]


def test_open_reader_does_not_block_the_end_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "metrics.db"
    store = MetricsStore(path)
    store.add("updates", {"env_steps": 1, "name": "loss", "value": 0.5})
    store.flush()
    with MetricsReader(path) as reader:
        reader.names()
        with within(3, time.monotonic):
            store.add("updates", {"env_steps": 2, "name": "loss", "value": 0.25})
            store.close()
        assert reader.series("loss") == ([1, 2], [0.5, 0.25])
    with MetricsStore(path):
        pass
    assert [found.name for found in tmp_path.iterdir()] == ["metrics.db"]


def test_store_reports_whether_anything_was_written(tmp_path: Path) -> None:
    with MetricsStore(tmp_path / "metrics.db") as store:
        empty = [store.empty]
        store.add("updates", {"env_steps": 1, "name": "loss", "value": 0.5})
        empty.append(store.empty)
        store.flush()
        empty.append(store.empty)
        store.rewind(-1)
        empty.append(store.empty)
    assert empty == [True, False, False, True]
