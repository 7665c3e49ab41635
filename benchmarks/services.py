"""Decision services and a private PostgreSQL cluster for benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

SOURCE: Final = Path(__file__).parents[1] / "src"
TICKS: Final = os.sysconf("SC_CLK_TCK")
START_SECONDS: Final = 180.0  # several services start at the same time


def stats(port: int) -> dict[str, Any]:
    """Statistics of the service."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/decide/stats", timeout=20) as answer:
        result: dict[str, Any] = json.loads(answer.read())
        return result


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


class Database:
    """A private cluster with the settings of the distribution."""

    def __init__(self, folder: Path) -> None:
        binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        self._owner: dict[str, Any] = {}
        if os.getuid() == 0:  # which the server refuses
            account = pwd.getpwnam("postgres")
            shutil.chown(folder, "postgres")
            self._owner = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}
        data, self.port = folder / "data", free_port()
        create = [str(binaries / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust"]
        subprocess.run(create, check=True, capture_output=True, **self._owner)
        words = ["-D", str(data), "-p", str(self.port), "-k", "", "-h", "127.0.0.1"]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([str(binaries / "postgres"), *words], **quiet, **self._owner)
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                self.execute("SELECT 1")
                return
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def execute(self, sql: str, name: str = "postgres") -> Any:
        """The first value of the first row, or None."""
        import psycopg

        try:
            with psycopg.connect(self.url(name), autocommit=True) as connection:
                found = connection.execute(sql)
                row = found.fetchone() if found.description else None
        except psycopg.OperationalError as error:
            raise OSError(str(error)) from error
        return row[0] if row else None

    def url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def cpu_seconds(self) -> float:
        """Time of the server and its children."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return cpu_seconds(self.process.pid) + sum(cpu_seconds(int(pid)) for pid in children)

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


@contextlib.contextmanager
def serving(
    domain: str, commands: Sequence[Sequence[str]], source: Path = SOURCE
) -> Iterator[tuple[list[int], list[int]]]:
    """Run a service of `domain` for each list of options; yields their ports and process ids."""
    ports, processes = [free_port() for _ in commands], list[subprocess.Popen[bytes]]()
    try:
        for port, words in zip(ports, commands, strict=True):
            command = [sys.executable, "-m", "townlet", "decide", "serve", domain, *words]
            command += ["--port", str(port), "--no-token"]
            paths = [str(source), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment))
        for port in ports:
            until = time.monotonic() + START_SECONDS
            while True:
                try:
                    stats(port)
                    break
                except OSError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.1)
        yield ports, [process.pid for process in processes]
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(60)
