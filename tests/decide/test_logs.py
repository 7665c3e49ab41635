"""Messages of `serve`: lines about training, JSON, and no secrets."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

import warm
from decide.test_commands import Captured, Own
from townlet.decide.domains import DOMAINS
from townlet.decide.logs import JsonFormatter, TextFormatter
from townlet.decide.simulate import simulate

SECRET = "vUC3_4fJ2kd-9sQm"
TRAINING = re.compile(
    r"^training step [\d,]+: loss \S+, batch \S+, \S+ ms per step, agreement 100% \(means of \d+ steps\)$"
)


def play(service: Captured, token: str, observations: int) -> None:
    games = [DOMAINS["bandit-ads"].make_game(1, "logged", 0)]
    asyncio.run(simulate(f"{service.address}?token={token}", games, observations))


def test_training_is_logged_every_n_steps(tmp_path: Path) -> None:
    words = ("learning.interval=0.02", "learning.samples_per_insert=100", "--log-every", "5")
    service = Captured(tmp_path / "ads", "bandit-ads", *words)
    service.start().wait()
    asyncio.run(simulate(service.url, [DOMAINS["bandit-ads"].make_game(1, "logged", 0)], 60))
    lines = [line for line in service.until("training step 10:").splitlines() if line.startswith("training step")]
    assert [int(re.findall(r"\d+", line)[0]) for line in lines[:2]] == [5, 10]
    assert all(TRAINING.match(line) for line in lines)
    service.end(signal.SIGTERM)


def entries(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_log_has_one_object_per_line_and_no_token(tmp_path: Path) -> None:
    words = ("learning.interval=0.02", "--log-format", "json", "--log-every", "1")
    service = Own(tmp_path / "ads", "bandit-ads", *words)
    service.start()
    service.until('"event": "listening"')
    tokens = json.loads((tmp_path / "ads" / "tokens.json").read_text(encoding="utf-8"))
    with pytest.raises(InvalidStatus):
        connect(f"{service.address}?token={SECRET}", origin=Origin("http://stranger.example"), proxy=None)
    play(service, tokens["game"], 60)
    service.until('"event": "training"')
    service.end(signal.SIGTERM)
    found = entries(service.words)
    assert all({"time", "level", "event", "message", "fields"} <= entry.keys() for entry in found)
    events = {entry["event"]: entry["fields"] for entry in found}
    assert {"opening", "listening", "training", "stopped"} <= events.keys()
    assert events["listening"]["games"] == service.address
    assert events["stopped"]["decisions"] == 60
    assert events["training"]["agreement"] == 1.0
    for secret in (SECRET, *tokens.values()):
        assert secret not in service.words


def test_error_at_the_start_is_a_line_of_the_json_log() -> None:
    command = [sys.executable, "-m", "townlet", "decide", "serve", "hives", "--log-format", "json"]
    done = warm.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    (entry,) = entries(done.stderr.decode())
    assert (done.returncode, done.stdout) == (2, b"")
    assert (entry["level"], entry["event"]) == ("error", "error")
    assert "no domain is called 'hives'" in entry["message"]


@pytest.mark.parametrize(
    "text",
    [
        f"the database postgresql://townlet:{SECRET}@db/townlet cannot be used",
        f"the database postgresql://townlet:#/{SECRET}?@{SECRET}@db/townlet cannot be used",
        f"GET /?token={SECRET} failed",
        f"Authorization: Bearer {SECRET}",
        f"a message with {SECRET} in it",
    ],
)
def test_secrets_are_removed_from_messages_fields_and_tracebacks(text: str) -> None:
    known = [SECRET] if text.startswith("a message") else []
    try:
        raise ValueError(text)
    except ValueError:
        record = logging.LogRecord("townlet", logging.ERROR, "x.py", 1, text, (), sys.exc_info())
    record.fields = {"nested": {"text": text}}
    for formatter in (TextFormatter(known), JsonFormatter(known)):
        written = formatter.format(record)
        assert SECRET not in written
        assert "[removed]" in written
