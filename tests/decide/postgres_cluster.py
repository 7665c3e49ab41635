"""A private PostgreSQL cluster for the tests, from the binaries of the distribution."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from decide.service_process import free_port


def find_binaries() -> Path | None:
    """The folder with `initdb` and `postgres`."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    return folders[-1] if folders else None


class Cluster:
    """One server with its data, which can be killed and started again at the same port."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        binaries = find_binaries()
        assert binaries is not None
        self.folder, self.port, self._binaries = folder, port or free_port(), binaries
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def run(self, program: str, *words: str) -> None:
        """Run a program of PostgreSQL, which refuses root."""
        subprocess.run([str(self._binaries / program), *words], check=True, capture_output=True, **_owner())

    def create(self, *settings: str) -> Cluster:
        self.folder.mkdir(parents=True)
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres")
        self.run("initdb", "-D", str(self.folder), "-U", "postgres", "-A", "trust", "--no-sync")
        self.configure("max_connections = 60", *settings)
        return self

    def configure(self, *settings: str) -> None:
        with (self.folder / "postgresql.conf").open("a") as file:
            file.writelines(f"{line}\n" for line in settings)

    def start(self) -> Cluster:
        words = ["-D", str(self.folder), "-p", str(self.port), "-k", "", "-h", "127.0.0.1"]
        command = [str(self._binaries / "postgres"), *words]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **_owner())
        return self

    def wait(self) -> Cluster:
        until = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return self
            except psycopg.OperationalError:
                assert time.monotonic() < until, (self.folder / "server.log").read_text()[-2000:]
                time.sleep(0.05)
                if self.process is not None and self.process.poll() is not None:
                    self.start()  # it refuses to start while children of a killed one still end

    def kill(self) -> None:
        """`kill -9` of the postmaster; its children end when they notice."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def restart_killed(self) -> None:
        """`kill -9`, and start again."""
        self.kill()
        self.start().wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # fast shutdown
            self.process.wait(60)

    def follow(self, primary: Cluster) -> Cluster:
        """Become a synchronous standby of another server, which then waits for it before every commit."""
        self.folder.mkdir(mode=0o700)
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres")
        source = f"{primary.url}?application_name=standby"
        self.run("pg_basebackup", "-D", str(self.folder), "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", source)
        self.configure("synchronous_standby_names = ''")  # for the time after its promotion
        self.start().wait()
        with psycopg.connect(primary.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            connection.execute("SELECT pg_reload_conf()")
            until = time.monotonic() + 60
            while connection.execute("SELECT sync_state FROM pg_stat_replication").fetchone() != ("sync",):
                assert time.monotonic() < until
                time.sleep(0.05)
        return self

    def promote(self) -> None:
        """Stop being a standby; waits until it accepts writes."""
        self.run("pg_ctl", "promote", "-w", "-D", str(self.folder))

    def make_database(self, name: str) -> str:
        """A new empty database; returns its URL."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url.removesuffix("postgres") + name


def _owner() -> dict[str, Any]:
    """The user to run as: root must not, so the tests use the distribution's account."""
    if os.getuid() != 0:
        return {}
    account = pwd.getpwnam("postgres")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}


@contextmanager
def running_cluster(folder: Path, *settings: str) -> Iterator[Cluster]:
    """A cluster that is stopped at the end."""
    cluster = Cluster(folder).create(*settings).start().wait()
    try:
        yield cluster
    finally:
        cluster.stop()
