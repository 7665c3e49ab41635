"""Every client passes the same vectors, against a real service behind a proxy that injects faults.

`vectors.json` lists steps of messages that are sent at once, and the expected answers: an object names the fields that
must be equal, a text is the pattern of an error. A driver for each language reads lines from its standard input: the
URL, the token, the timeout in milliseconds, then the messages; an empty line ends a step. It prints each answer as
JSON, an error after "! ", then the answer to a message after the client was closed, and the number of its connections.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import townlet.decide.client
import warm
from decide.clients.csharp import compile_csharp
from decide.clients.fault_proxy import Fault, fault_proxy
from decide.service_process import GAME, Process

HERE: Final = Path(__file__).parent
STATIC: Final = Path(townlet.decide.client.__file__).parent / "static"
VECTORS: Final = json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))
PATIENT: Final = 60_000  # milliseconds
EVERY: Final = range(1, 1000)
CLOSED: Final = "! the client is closed"

Run = Callable[[str], str]  # standard input to standard output


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    running = Process(tmp_path_factory.mktemp("service"), "rank", "learning.interval=60").start().wait()
    yield running
    running.end(signal.SIGTERM)


def python(folder: Path, kind: str) -> Run:
    def run(text: str) -> str:
        file = folder / "input"
        file.write_text(text, encoding="utf-8")
        with file.open("rb") as given:
            command = [sys.executable, str(HERE / "driver.py"), kind]
            done = warm.run(command, stdin=given, capture_output=True, timeout=120, check=True)
        return str(done.stdout.decode())

    return run


def program(command: Sequence[str], folder: Path) -> Run:
    def run(text: str) -> str:
        done = subprocess.run(command, cwd=folder, input=text.encode(), capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return run


def node(folder: Path) -> Run:
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node is not installed")
    shutil.copy(STATIC / "client.js", folder / "client.mjs")
    shutil.copy(HERE / "driver.mjs", folder)
    return program([found, "driver.mjs"], folder)


@pytest.fixture(scope="module", params=["python-async", "python-sync", "javascript", "csharp"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The driver of a client."""
    folder = tmp_path_factory.mktemp("driver")
    if request.param == "javascript":
        return node(folder)
    if request.param == "csharp":
        return program(compile_csharp([STATIC / "TownletClient.cs", HERE / "Driver.cs"], folder), folder)
    return python(folder, request.param.removeprefix("python-"))


def expand(value: Any, run: str, n: int = 0) -> Any:
    """Values in place of {run} and {n}, long texts, and repetitions."""
    if isinstance(value, str):
        return value.replace("{run}", run).replace("{n}", str(n))
    if isinstance(value, list):
        expanded = []
        for item in value:
            if isinstance(item, dict) and "repeat" in item:
                expanded += [expand(item["message"], run, n) for n in range(item["repeat"])]
            else:
                expanded.append(expand(item, run, n))
        return expanded
    if isinstance(value, dict):
        if "times" in value:
            return value["long"] * value["times"]
        return {key: expand(child, run, n) for key, child in value.items()}
    return value


def faults(listed: list[dict[str, Any]]) -> list[Fault]:
    every = [fault | {"connection": n} for fault in listed if fault.get("connection") == "every" for n in EVERY]
    return [Fault(**fault) for fault in [*every, *(one for one in listed if one.get("connection") != "every")]]


def counts(service: Process) -> tuple[int, int]:
    stats = service.get("/api/decide/stats")
    return stats["buffer"]["decisions"], stats["buffer"]["joined"]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"].replace(" ", "-") for vector in VECTORS])
def test_vector(run: Run, vector: dict[str, Any], service: Process) -> None:
    def restart() -> None:
        service.end(signal.SIGKILL)
        service.start().wait()

    id = secrets.token_hex(6)
    steps, expected = expand(vector["steps"], id), expand(vector["answers"], id)
    text = "\n\n".join("\n".join(json.dumps(message, ensure_ascii=False) for message in step) for step in steps)
    before = counts(service)
    with fault_proxy(service.address, faults(vector.get("faults", [])), restart) as proxy:
        token, timeout = vector.get("token", GAME), vector.get("timeout", PATIENT)
        *answers, closed, connections = run(f"{proxy.address}\n{token}\n{timeout}\n{text}\n\n").split("\n")[:-1]
    decisions, outcomes = (now - then for now, then in zip(counts(service), before, strict=True))
    for found, answer in zip(answers, expected, strict=True):
        if isinstance(answer, str):
            assert re.fullmatch(f"! ({answer})", found)
        else:
            fields = json.loads(found)
            assert {name: fields.get(name) for name in answer} == answer
    assert closed == CLOSED
    assert len({answers[index] for index in vector.get("equal", [0])}) == 1
    assert connections == f"connections {vector.get('connections', 1)}"
    assert decisions == vector.get("decisions", 0)
    if "outcomes" in vector:
        assert outcomes == vector["outcomes"]
