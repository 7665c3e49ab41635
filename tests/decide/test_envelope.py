"""Messages in the envelope {"type": …, "data": {…}} are the same messages, and are answered in the same form."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from decide.service_process import Process
from townlet.decide.domains import DOMAINS


@pytest.fixture(scope="module", params=sorted(DOMAINS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    running = Process(tmp_path_factory.mktemp("service"), request.param, "learning.interval=3600").start().wait()
    running.domain = request.param  # type: ignore[attr-defined]
    yield running
    running.end(signal.SIGTERM)


def exchange(socket: ClientConnection, *frames: str) -> list[dict[str, Any]]:
    for frame in frames:
        socket.send(frame)
    return [json.loads(socket.recv(20)) for _ in frames]


def wrapped(message: dict[str, Any]) -> str:
    return json.dumps({"type": message["type"], "data": {k: v for k, v in message.items() if k != "type"}})


def unwrapped(reply: dict[str, Any]) -> dict[str, Any]:
    assert reply.keys() == {"type", "data"}
    assert "type" not in reply["data"]
    return {"type": reply["type"], **reply["data"]}


def test_both_forms_of_a_message_get_the_same_answer_in_their_form(server: Process) -> None:
    game = DOMAINS[server.domain].make_game(1, "in an envelope", 0)  # type: ignore[attr-defined]
    reported = 0
    with connect(server.url, proxy=None) as socket:
        for turn in range(12):
            observation = game.observe()
            forms = (wrapped(observation), json.dumps(observation))
            first, again, third = exchange(socket, *(forms if turn % 2 else forms[::-1]), forms[0])
            enveloped, flat = (first, again) if turn % 2 else (again, first)
            assert unwrapped(enveloped) == unwrapped(third) == flat
            assert flat["type"] != "error", flat
            for report in game.apply(flat) + game.advance():
                enveloped, flat = exchange(socket, wrapped(report), json.dumps(report))
                assert unwrapped(enveloped) == flat
                assert flat["type"] == "outcome_ack"
                reported += 1
    stats = server.get("/api/decide/stats")["buffer"]
    assert stats["decisions"] == 12
    assert reported > 0


def test_errors_come_in_the_form_of_the_message(server: Process) -> None:
    observation = DOMAINS[server.domain].make_game(2, "wrong", 0).observe()  # type: ignore[attr-defined]
    with connect(server.url, proxy=None) as socket:
        frames = [
            '{"type": "ping"}',
            '{"type": "ping", "data": {}}',
            wrapped(observation | {"more": 1}),
            '{"type": "no such type", "data": {}}',
            '{"type": "ping", "data": 3}',
            '{"type": "ping", "data": {"type": "ping"}}',
            "{",
            '{"type": "no such type"}',
            "{",
            wrapped(observation)[:-1] + ', "more": 1}',
        ]
        found = exchange(socket, *frames)
    assert found[:2] == [{"type": "pong"}, {"type": "pong", "data": {}}]
    codes = [unwrapped(reply)["code"] for reply in found[2:7]]
    assert codes == ["INVALID_OBSERVATION", "UNKNOWN_TYPE", "INVALID_MESSAGE", "INVALID_MESSAGE", "INVALID_JSON"]
    assert [reply["code"] for reply in found[7:]] == ["UNKNOWN_TYPE", "INVALID_JSON", "INVALID_OBSERVATION"]


def test_schema_describes_every_message_in_an_envelope(server: Process) -> None:
    schemas = server.get("/api/decide/schema")
    envelope = schemas.pop("envelope")
    forms = {form["properties"]["type"]["const"]: form["properties"]["data"] for form in envelope["oneOf"]}
    assert forms.keys() == schemas.keys()
    for name, schema in schemas.items():
        assert {"type", *forms[name]["properties"]} == schema["properties"].keys()
        assert "type" not in forms[name]["required"]
        assert forms[name]["additionalProperties"] is False
        assert schema.get("$defs", {}).items() <= envelope.get("$defs", {}).items()


def test_exceeded_rate_limit_is_reported_in_the_form_of_the_connection(tmp_path: Path) -> None:
    words = ("learning.interval=3600", "limits.messages_per_second=0.001", "limits.burst=2")
    server = Process(tmp_path / "service", "bandit-ads", *words).start().wait()
    with connect(server.url, proxy=None) as socket:
        found = exchange(socket, *['{"type": "ping", "data": {}}'] * 3)
    assert [unwrapped(reply).get("code") for reply in found] == [None, None, "RATE_LIMITED"]
    server.end(signal.SIGTERM)
