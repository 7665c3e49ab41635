"""A private PostgreSQL cluster, started once per test process, and services in both storages."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from decide.both_storages import Opened, Opener, open_at
from decide.postgres_cluster import Cluster, find_binaries, running_cluster
from townlet.decide.clock import ManualClock


@pytest.fixture(scope="session")
def cluster_folder() -> Iterator[Path]:
    """A folder that the account of the server may enter, unlike those of pytest."""
    if find_binaries() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="townlet-postgres-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(cluster_folder: Path) -> Iterator[Cluster]:
    with running_cluster(cluster_folder / "shared", "fsync = off") as started:
        yield started


@pytest.fixture
def database(cluster: Cluster) -> str:
    """The URL of an empty database."""
    return cluster.make_database(f"test_{secrets.token_hex(4)}")


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """Where a service is stored: a folder, then a database."""
    return request.getfixturevalue("database") if request.param == "postgres" else tmp_path / "service"


@pytest.fixture
def open_service(place: str | Path) -> Iterator[Opener]:
    """Opens a service; opening it again continues it, after `close`."""
    opened: list[Opened] = []

    def open_again(words: Sequence[str] = (), domain: str = "bandit-ads", clock: ManualClock | None = None) -> Opened:
        opened.append(open_at(place, words, domain, clock))
        return opened[-1]

    yield open_again
    for one in opened:
        one.close()
