"""A private PostgreSQL cluster, started once per test process, and an empty database for each test."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from decide.postgres_cluster import Cluster, find_binaries, running_cluster


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
