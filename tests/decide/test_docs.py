"""docs/decide.md and docs/rank.md: settings, messages, error codes, commands and the example program are correct."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import townlet.decide
from decide.ads_service import ask, start_service
from decide.clients.csharp import compile_csharp
from decide.service_process import Process, environment
from townlet.config.yaml import Node, parse
from townlet.decide.domains import DOMAINS
from townlet.decide.envelope import is_enveloped, unwrap
from townlet.decide.settings import load_settings
from townlet.decide.simulate import simulate

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("decide.md", "rank.md"))
ADDRESS = "127.0.0.1:8780"
PATIENT = 60.0


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return str(found)


def keys(node: Node, path: str = "") -> Iterator[str]:
    """Dotted keys of all leaves."""
    if not isinstance(node.value, dict):
        yield path
        return
    for key, below in node.value.items():
        yield from keys(below, f"{path}.{key}" if path else key)


def flat(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in values.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from flat(value, name)
        else:
            yield name


@pytest.mark.parametrize(("name", "domain"), [("settings", "hive"), ("ads", "bandit-ads")])
def test_documented_settings_are_complete_and_the_defaults(tmp_path: Path, name: str, domain: str) -> None:
    file = tmp_path / "game.yaml"
    file.write_text(block(f"yaml {name}"), encoding="utf-8")
    usual = load_settings(domain, (), DOMAINS)
    assert load_settings(file, (), DOMAINS).model_dump() == usual.model_dump()
    every = set(flat(usual.model_dump(mode="json")))
    written = set(keys(parse(file.read_text(encoding="utf-8"), "docs")))
    own = {
        "domain",
        "policy",
        *(key for key in every if key.startswith("gate.")),
    }  # the rest is the same in all domains
    assert written == (every if name == "settings" else own)


def test_documented_settings_of_ranking_are_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "my-problem.yaml"
    file.write_text(block("yaml rank"), encoding="utf-8")
    usual = load_settings("rank", (), DOMAINS)
    assert load_settings(file, (), DOMAINS).model_dump() == usual.model_dump()
    written = set(keys(parse(block("yaml rank"), "docs")))
    assert {key for key in flat(usual.model_dump(mode="json")) if key.startswith("options.")} <= written
    assert len(block("yaml rank").splitlines()) <= 30


@pytest.mark.parametrize("domain", sorted(DOMAINS))
def test_documented_messages_are_accepted(tmp_path: Path, domain: str) -> None:
    service, _, _ = start_service(tmp_path, domain=domain)
    try:
        observation = json.loads(block(f"json {domain} observation"))
        (reply,) = ask(service, observation)
        assert reply["type"] != "error", reply
        report = json.loads(block(f"json {domain} report"))
        if "timestamp" in observation:
            (again,) = ask(service, {**observation, "timestamp": observation["timestamp"] - 1})
            assert again["code"] == "STALE_OBSERVATION"
            report["decisionId"] = reply["decisionId"]
        assert service.report(report).reply["type"] == "outcome_ack"
        answer, schema = json.loads(block(f"json {domain} answer")), service.domain.schema()
        assert set(answer) == set(schema[answer["type"]]["properties"])
        for message in schema:
            assert f"`{message}`" in TEXT
    finally:
        service.storage.close()


def test_documented_envelope_is_one() -> None:
    message = json.loads(block("json envelope"))
    assert is_enveloped(message)
    assert DOMAINS["bandit-ads"].parse_report(unwrap(message)).value == 1.0


def test_every_error_code_is_documented() -> None:
    folder = Path(townlet.decide.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    codes = set(re.findall(r'error_message\(\s*"([A-Z_]+)"', source)) | set(re.findall(r'message, "([A-Z_]+)"', source))
    assert {"INVALID_OBSERVATION", "STALE_OBSERVATION", "OVERLOADED"} <= codes
    assert {code for code in codes if f"`{code}`" not in TEXT} == set()


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    server = Process(tmp_path_factory.mktemp("ranking"), "rank").start().wait()
    yield server
    server.end(signal.SIGTERM)


def download(server: Process, path: str, file: Path) -> Path:
    """A file that needs no token."""
    with urllib.request.urlopen(server.origin + path, timeout=20) as answer:
        file.write_bytes(answer.read())
    return file


def python_game(name: str, folder: Path, server: Process) -> list[str]:
    script = folder / "game.py"
    script.write_text(block(f"python {name}").replace("127.0.0.1:8780", f"127.0.0.1:{server.port}"), encoding="utf-8")
    return [sys.executable, str(script)]


def javascript_game(folder: Path, server: Process) -> list[str]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    download(server, "/client.js", folder / "client.mjs")
    script = folder / "game.mjs"
    script.write_text(block("js game").replace("127.0.0.1:8780", f"127.0.0.1:{server.port}"), encoding="utf-8")
    return [node, str(script)]


def csharp_game(folder: Path, server: Process) -> list[str]:
    client, game = download(server, "/client.cs", folder / "TownletClient.cs"), folder / "LevelChooser.cs"
    game.write_text(block("csharp game").replace("127.0.0.1:8780", f"127.0.0.1:{server.port}"), encoding="utf-8")
    return compile_csharp([client, game, Path(__file__).parent / "clients" / "UnityEngine.cs"], folder)


GAMES: dict[str, Callable[[Path, Process], list[str]]] = {
    "python": partial(python_game, "game"), "python without asyncio": partial(python_game, "loop"),
    "javascript": javascript_game, "csharp": csharp_game,
}  # fmt: skip


@pytest.mark.parametrize("language", GAMES)
def test_documented_game_runs(ranking: Process, language: str, tmp_path: Path) -> None:
    command, before = GAMES[language](tmp_path, ranking), ranking.get("/api/decide/stats")["buffer"]["joined"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("next level: caves\n", "next level: castle\n")
    assert ranking.get("/api/decide/stats")["buffer"]["joined"] == before + 1


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_documented_operator_commands_work(tmp_path: Path) -> None:
    server = Process(tmp_path / "service", "bandit-ads", "learning.interval=0.1", "versions=1000").start().wait()
    try:
        games = [DOMAINS["bandit-ads"].make_game(1, "documented", 0)]
        asyncio.run(simulate(server.url, games, 40))
        until = time.monotonic() + PATIENT
        while server.get("/api/decide/versions")["serving"] < 2:
            assert time.monotonic() < until, "no second version came"
            time.sleep(0.1)
        script = block("sh operator").replace(ADDRESS, f"127.0.0.1:{server.port}")
        done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=60, env=environment())
        assert done.returncode == 0, done.stdout + done.stderr
        kinds = [change["kind"] for change in server.get("/api/decide/versions")["history"]]
        asked = [kind for kind in kinds if kind not in ("promote", "note")]
        assert asked == ["pin", "unpin", "roll_back", "pin", "unpin", "gate_only", "gate_and_network"]
    finally:
        server.end(signal.SIGTERM)


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_documented_ranking_commands_work(tmp_path: Path) -> None:
    server = Process(tmp_path / "service", "rank").start().wait()
    try:
        script = block("sh rank").replace(ADDRESS, f"127.0.0.1:{server.port}")
        done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=60, env=environment())
        assert done.returncode == 0, done.stdout + done.stderr
        answer = json.loads(done.stdout)
        assert answer["eventId"] == "visit-1"
        assert answer["ranking"][-1] == {"id": "news-19", "probability": 0.0}
        assert server.get("/api/decide/stats")["buffer"]["joined"] == 1
    finally:
        server.end(signal.SIGTERM)
