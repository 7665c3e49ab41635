"""The HTTP API: a conversation recorded with a Personalizer client, replayed at another address."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPMessage
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from decide.rank.events import request, reward
from decide.service_process import GAME, OPERATOR, VIEWER, Process
from townlet.decide.client import Client

KEY = "Ocp-Apim-Subscription-Key"
# The quickstart: a meal for a person who is in a hurry. Only address and key were changed.
CONVERSATION: tuple[tuple[str, dict[str, Any] | None, int], ...] = (
    ("/personalizer/v1.0/rank", {
        "contextFeatures": [{"timeOfDay": "morning"}, {"user": {"hurry": True, "age": 31}}],
        "actions": [
            {"id": "pasta", "features": [{"taste": "salty", "spiceLevel": "medium"}, {"cuisine": "italian"}]},
            {"id": "ice cream", "features": [{"taste": "sweet", "spiceLevel": "none"}, {"nutritionalLevel": 2}]},
            {"id": "juice", "features": [{"taste": "sweet", "nutritionLevel": 5}, {"drink": True}]},
            {"id": "salad", "features": [{"taste": "salty", "spiceLevel": "low"}, {"nutritionLevel": 8}]},
        ],
        "excludedActions": ["juice"],
        "eventId": "75269AD0-BFEE-4598-8196-C57383D38E10",
        "deferActivation": False,
    }, 201),
    ("/personalizer/v1.0/events/75269AD0-BFEE-4598-8196-C57383D38E10/reward", {"value": 0.5}, 204),
    ("/personalizer/v1.0/rank", {
        "contextFeatures": [], "actions": [{"id": "a", "features": []}, {"id": "b", "features": [{"x": 1}]}],
        "eventId": "later", "deferActivation": True, "excludedActions": None,
    }, 201),
    ("/personalizer/v1.0/events/later/reward", {"value": 1}, 409),
    ("/personalizer/v1.0/events/later/activate", None, 204),
    ("/personalizer/v1.0/events/later/reward", {"value": 1}, 204),
    ("/personalizer/v1.0/events/later/reward", {"value": 1.0}, 204),
    ("/personalizer/v1.0/events/later/reward", {"value": 0.2}, 204),
    ("/personalizer/v1.0/events/never/reward", {"value": 0.2}, 404),
    ("/personalizer/v1.0/rank", {"actions": []}, 400),
    ("/personalizer/v1.0/evaluations", {}, 404),
)  # fmt: skip


PAGE = "http://shop.example"  # an allowed origin


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(
        tmp_path_factory.mktemp("rank"), "rank", "learning.interval=0.1", "memory.expire_after=3600", "--origin", PAGE
    ).start()
    yield process.wait()
    process.end(signal.SIGTERM)


def post(server: Process, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    headers = {KEY: GAME} if headers is None else headers
    asked = urllib.request.Request(server.origin + path, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_recorded_conversation(server: Process) -> None:
    before = server.get("/api/decide/stats")["buffer"]
    for path, body, status in CONVERSATION:
        found, answer = post(server, path, body)
        assert found == status, (path, answer)
        if status == 201:
            assert body is not None
            assert set(answer) == {"ranking", "eventId", "rewardActionId"}
            assert answer["eventId"] == body["eventId"]
            assert answer["ranking"][0]["id"] == answer["rewardActionId"]
            assert {one["id"] for one in answer["ranking"]} == {one["id"] for one in body["actions"]}
            assert sum(one["probability"] for one in answer["ranking"]) == pytest.approx(1)
            assert post(server, path, body) == (201, answer)
        elif status == 204:
            assert answer is None
        else:
            assert set(answer) == {"error"}
            assert set(answer["error"]) == {"code", "message"}
    after = server.get("/api/decide/stats")["buffer"]
    assert (after["decisions"] - before["decisions"], after["joined"] - before["joined"]) == (2, 2)


def test_service_chooses_an_event_id(server: Process) -> None:
    body = {"actions": [{"id": "a"}, {"id": "b"}], "eventId": None}
    answers = [post(server, "/personalizer/v1.0/rank", body)[1] for _ in range(2)]
    assert answers[0]["eventId"] != answers[1]["eventId"]
    assert post(server, f"/personalizer/v1.0/events/{answers[0]['eventId']}/reward", {"value": -1})[0] == 204


@pytest.mark.parametrize("event", ["shop/42", "a/reward", "ä ö/?#%2F", "/", "x/activate/reward"])
def test_any_event_id_can_be_rewarded_and_activated(server: Process, event: str) -> None:
    """A client escapes the id as one part of the path."""
    body = {"actions": [{"id": "a"}, {"id": "b"}], "eventId": event, "deferActivation": True}
    assert post(server, "/personalizer/v1.0/rank", body)[1]["eventId"] == event
    path = f"/personalizer/v1.0/events/{quote(event, safe='')}"
    assert [post(server, f"{path}/{what}", {"value": 1})[0] for what in ("reward", "activate", "reward")] == [
        409,
        204,
        204,
    ]


def test_tokens_and_errors_have_the_shape_of_the_api(server: Process) -> None:
    body = {"actions": [{"id": "a"}]}
    path = "/personalizer/v1.0/rank"
    assert post(server, path, body, {"Authorization": f"Bearer {GAME}"})[0] == 201
    wrong: dict[int, list[dict[str, str]]] = {
        401: [{}, {KEY: "not-a-token-of-this-service"}],
        403: [{KEY: VIEWER}, {KEY: OPERATOR}],
    }
    for status, headers in wrong.items():
        for one in headers:
            found, answer = post(server, path, body, one)
            assert found == status
            assert set(answer["error"]) == {"code", "message"}
    strange = b'{"actions": [{"id": "a"}], "size": 1, "request": 2, "self": 3}'
    for data, status in ((b"{", 400), (b"[]", 400), (strange, 400), (b" " * 300_000, 413)):
        found, answer = post(server, path, data)
        assert (found, set(answer)) == (status, {"error"})


def ask_as_page(
    server: Process, method: str, path: str, origin: str, headers: dict[str, str], body: str | None = None
) -> tuple[int, HTTPMessage]:
    """Status and headers of an answer to a page of this origin."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request(method, path, body, {"Origin": origin, **headers})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, answer.headers


def test_pages_of_allowed_origins_may_use_the_api_and_nothing_else(server: Process) -> None:
    rank, body = "/personalizer/v1.0/rank", json.dumps({"actions": [{"id": "a"}]})
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": f"content-type,{KEY}"}
    status, found = ask_as_page(server, "OPTIONS", rank, PAGE, preflight)
    assert (status, found["Access-Control-Allow-Origin"], found["Access-Control-Allow-Methods"]) == (204, PAGE, "POST")
    assert {"Authorization", "Content-Type", KEY} == set(found["Access-Control-Allow-Headers"].split(", "))
    assert found["Vary"] == "Origin"
    for token, expected in ((GAME, 201), (VIEWER, 403), ("not-a-token-of-this-service", 401)):
        status, found = ask_as_page(server, "POST", rank, PAGE, {KEY: token}, body)
        assert (status, found["Access-Control-Allow-Origin"]) == (expected, PAGE)  # it may read the reason too
        assert "Access-Control-Allow-Credentials" not in found
    refused = [(rank, f"{PAGE}.evil.example"), (rank, "null"), (rank, "https://shop.example")]
    for path, origin in [*refused, ("/api/decide/stats", PAGE), ("/api/decide/gate-only", PAGE), ("/", PAGE)]:
        for method, headers in (("OPTIONS", preflight), ("POST", {"Authorization": f"Bearer {OPERATOR}"})):
            status, found = ask_as_page(server, method, path, origin, headers, "{}")
            assert not [name for name in found if name.lower().startswith("access-control-")], (method, path, origin)
            assert status >= 400


def test_an_event_may_be_ranked_by_http_and_rewarded_over_the_websocket(server: Process) -> None:
    async def talk() -> list[dict[str, Any]]:
        async with Client(server.address, GAME, client="http") as client:
            return [await client.request(one) for one in (reward("both"), request("socket"), reward("socket"))]

    body = {name: value for name, value in request("both").items() if name != "type"}
    assert post(server, "/personalizer/v1.0/rank", body)[0] == 201
    first, ranked, second = asyncio.run(talk())
    assert [first["type"], ranked["type"], second["type"]] == ["outcome_ack", "rank_response", "outcome_ack"]


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    process = Process(tmp_path / "service", "rank", "learning.interval=0.1").start().wait()
    body = {"actions": [{"id": "a"}, {"id": "b"}]}
    answers = [post(process, "/personalizer/v1.0/rank", body | {"eventId": f"e{k}"})[1] for k in range(20)]
    assert all(post(process, f"/personalizer/v1.0/events/e{k}/reward", {"value": 1})[0] == 204 for k in range(10))
    process.end()
    process.start().wait()
    assert [post(process, "/personalizer/v1.0/rank", body | {"eventId": f"e{k}"})[1] for k in range(20)] == answers
    assert post(process, "/personalizer/v1.0/events/e3/reward", {"value": 1})[0] == 204
    found = process.get("/api/decide/stats")["buffer"]
    assert (found["decisions"], found["joined"], found["pending"]) == (20, 10, 10)
    process.end(signal.SIGTERM)
