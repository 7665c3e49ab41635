"""Feed from the trainer to the live server, with real files and processes."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from townlet.errors import TownletError
from townlet.runs.feed import HEADER, SLOT, Feed


def test_messages_arrive_once_and_in_order(tmp_path: Path) -> None:
    with (
        closing(Feed.create(tmp_path / "feed", slots=4, size=100)) as writer,
        closing(Feed.open(tmp_path / "feed")) as reader,
    ):
        assert reader.poll() == []
        writer.publish(1, b"one")
        writer.publish(2, b"two")
        assert [(m.number, m.kind, m.data) for m in reader.poll()] == [(0, 1, b"one"), (1, 2, b"two")]
        assert reader.poll() == []


def test_slow_reader_gets_the_latest_message(tmp_path: Path) -> None:
    with (
        closing(Feed.create(tmp_path / "feed", slots=4, size=100)) as writer,
        closing(Feed.open(tmp_path / "feed")) as reader,
    ):
        for n in range(50):
            writer.publish(1, str(n).encode())
        assert [m.data for m in reader.poll()] == [b"46", b"47", b"48", b"49"]


def test_feed_is_watched_only_after_a_read(tmp_path: Path) -> None:
    with closing(Feed.create(tmp_path / "feed")) as writer:
        assert not writer.has_readers
        with closing(Feed.open(tmp_path / "feed")) as reader:
            reader.poll()
        assert writer.has_readers


def test_oversized_message_is_skipped(tmp_path: Path) -> None:
    with (
        closing(Feed.create(tmp_path / "feed", slots=2, size=10)) as writer,
        closing(Feed.open(tmp_path / "feed")) as reader,
    ):
        assert not writer.publish(1, b"x" * 11)
        assert writer.publish(1, b"x" * 10)
        assert len(reader.poll()) == 1


def test_torn_message_is_discarded(tmp_path: Path) -> None:
    path = tmp_path / "feed"
    with closing(Feed.create(path, slots=2, size=10)) as writer, closing(Feed.open(path)) as reader:
        writer.publish(1, b"whole")
        with path.open("r+b") as file:
            file.seek(HEADER.size + SLOT.size)
            file.write(b"W")
        assert reader.poll() == []


@pytest.mark.parametrize("data", [b"", b"townfeed", os.urandom(500), b"townfeed" + b"\xff" * 100])
def test_foreign_files_are_rejected(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "feed"
    path.write_bytes(data)
    with pytest.raises(TownletError, match="this run publishes no messages"):
        Feed.open(path)


def test_readers_detect_replacement_and_removal(tmp_path: Path) -> None:
    path = tmp_path / "feed"
    first = Feed.create(path)
    with closing(Feed.open(path)) as reader:
        current_before = reader.is_current
        second = Feed.create(path)
        assert (current_before, reader.is_current) == (True, False)
    first.close()
    with closing(Feed.open(path)) as reader:
        second.remove()
        assert not reader.is_current


WRITER = """
import sys
from pathlib import Path
from townlet.runs.feed import Feed
feed = Feed.open(Path(sys.argv[1]))
for n in range(20000):
    feed.publish(1, (str(n) * 20).encode())
"""


def test_reader_in_another_process_never_gets_half_a_message(tmp_path: Path) -> None:
    path = tmp_path / "feed"
    with closing(Feed.create(path, slots=2, size=200)), closing(Feed.open(path)) as reader:
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) as writer:
            seen = []
            while writer.poll() is None:
                seen += reader.poll()
        seen += reader.poll()
        numbers = [m.number for m in seen]
        assert all(m.data == (str(m.number) * 20).encode() for m in seen)
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == 19999
