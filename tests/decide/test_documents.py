"""What the document about decisions says is true: its settings are valid, its program plays."""

from __future__ import annotations

import asyncio
import re
import runpy
import signal
from pathlib import Path

from decide.served import Process
from townlet.decide.domains import DOMAINS
from townlet.decide.settings import load

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "decide.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return str(found)


def test_settings_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "game.yaml"
    file.write_text(block("yaml settings"))
    assert load(file, (), DOMAINS).policy == "candidates"


def test_the_program_plays(tmp_path: Path) -> None:
    server = Process(tmp_path / "service", "hive").start().wait()
    try:
        script = tmp_path / "game.py"
        script.write_text(block("python game").replace("ws://127.0.0.1:8780/ws", server.url))
        play = runpy.run_path(str(script))["play"]
        observation = DOMAINS["hive"].game(1, "documented", 0).message()
        found = asyncio.run(play(observation))
        assert found["type"] in ("spawn_decision", "observation_ack")
        assert asyncio.run(play(observation)) == found
    finally:
        server.end(signal.SIGTERM)
