"""The walk in docs/decide.md, "Writing a domain": its commands, files and messages, as they are shown."""

from __future__ import annotations

import asyncio
import re
import runpy
import shlex
import signal
from pathlib import Path

import pytest

from cli.program import Program, program
from decide.service_process import GAME, TOKENS, Process
from townlet.config import user_code
from townlet.decide.domains import DOMAINS
from townlet.decide.domains.custom.definition import REQUIRED
from townlet.decide.settings import load_settings

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "decide.md").read_text(encoding="utf-8")
WALK = TEXT[TEXT.index("## Writing a domain") :]


def block(name: str) -> str:
    (found,) = re.findall(rf"^```{name}\n(.*?)^```$", WALK, re.MULTILINE | re.DOTALL)
    return str(found)


def words(line: str) -> list[str]:
    """The words of a command, without `townlet decide` and options that name the folder."""
    found = shlex.split(line, comments=True)
    assert found[:2] == ["townlet", "decide"]
    return found[2 : found.index("--folder") if "--folder" in found else None]


@pytest.fixture
def townlet(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    for name, token in TOKENS.items():
        monkeypatch.setenv(name, token)
    monkeypatch.chdir(tmp_path)
    return program(capsys, monkeypatch, "decide")


def test_example_is_written_served_and_played(tmp_path: Path, townlet: Program) -> None:
    new, serve = map(words, block("sh new").splitlines())
    assert townlet(*new).code == 0
    simulate = words(block("sh simulate"))
    assert (serve[0], simulate[0]) == ("serve", "simulate")
    server = Process(tmp_path / "decisions", *serve[1:]).start().wait()
    try:
        played = townlet(*simulate[:-1], "50", "--url", server.address)
        assert played.code == 0, played.err
        assert server.get("/api/decide/stats")["service"]["argument"] == "my-game.py --allow-code"
    finally:
        server.end(signal.SIGTERM)


def test_own_game_is_served_and_learned(tmp_path: Path, townlet: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("levels.py").write_text(block("python levels"))
    serve = words(block("sh levels"))
    server = Process(tmp_path / "levels", *serve[1:], "learning.interval=0.1").start().wait()
    try:
        monkeypatch.setenv("TOWNLET_GAME_TOKEN", GAME)
        Path("game.py").write_text(block("python levels-game").replace("ws://127.0.0.1:8780/ws", server.address))
        chosen = asyncio.run(runpy.run_path("game.py")["play"](players=30, levels=10))
        assert set(chosen) == {"easy", "normal", "hard"}
        stats = server.get("/api/decide/stats")
        assert stats["buffer"]["joined"] == 300
        assert stats["service"]["domain"] == "levels"
    finally:
        server.end(signal.SIGTERM)
    replay, verify, _ = (line for line in WALK.splitlines() if re.match(r"townlet decide (replay|verify)", line))
    assert "versions are identical" in townlet(*words(replay), "--folder", "levels").out
    assert townlet(*words(verify)).code == 0


def test_documented_parts_are_the_members_of_the_file() -> None:
    members = re.findall(r"^\| `(\w+)(?:\(\w+\))?`(?: \(optional\))? \|", WALK.partition("### 3")[0], re.MULTILINE)
    assert members == [*REQUIRED, "outcome", "allowed", "Game"]


def test_documented_settings_and_messages_are_valid(tmp_path: Path) -> None:
    user_code.permit()
    (tmp_path / "levels.py").write_text(block("python levels"))
    (tmp_path / "settings.yaml").write_text(block("yaml levels"))
    settings = load_settings(tmp_path / "settings.yaml", (), DOMAINS)
    assert settings.domain == "levels"
    for setting in ("interval", "gradient_steps", "lr"):
        assert f"`learning.{setting}: {getattr(settings.learning, setting)}`" in WALK
    assert (settings.learning.reward.actual, settings.learning.reward.gate) == (1, 0)
    schema = DOMAINS["levels"].schema()
    table = WALK[WALK.index("| message | fields |") :].partition("\n\n")[0]
    for kind in ("observation", "decision", "wait", "outcome", "not_executed"):
        (fields,) = re.findall(rf"^\| `{kind}` \(\w+\) \| (.*) \|$", table, re.MULTILINE)
        named = set(re.findall(r"`(\w+)`", fields)) & set(schema[kind]["properties"])
        own = {"won", "lost", "minutes", "finished", "seconds", "type"}
        assert named == set(schema[kind]["properties"]) - own


def test_documented_mistake_is_shown_as_documented(tmp_path: Path, townlet: Program) -> None:
    assert townlet("new", "my-game").code == 0
    path = tmp_path / "my-game.py"
    path.write_text(path.read_text().replace('observation["shield"],', "observation['sheild'],"))
    assert block("text").strip() in townlet("serve", "my-game.py", "--allow-code").err
