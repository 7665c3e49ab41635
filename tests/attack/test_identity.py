"""Attacks on identity: wrong roles, foreign territories and decisions, forged origins, guessed and leaked tokens."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

import warm
from decide.ads_service import click, request
from decide.service_process import Process
from townlet.live.app import make_app
from townlet.live.hub import Hub
from townlet.web.server import Server
from townlet.web.tokens import MAX_GUESSES, OPERATOR, VIEWER
from web.generated import generate_tokens

TOKENS = {
    "game": {"one": "one-plays-with-this", "two": "two-plays-with-this", "three": "three-plays-with-this"},
    "operator": {"ann": "ann-operates-with-this", "bob": "bob-operates-with-this"},
    "viewer": {"screen": "the-viewer-looks-with-this"},
}
ONE, TWO, THREE = TOKENS["game"].values()
ANN, BOB = TOKENS["operator"].values()
(LOOKS,) = TOKENS["viewer"].values()
WRONG = "a-token-that-is-not-valid"
ADDRESSES = (f"127.0.{n // 250}.{n % 250 + 1}" for n in count(300))  # loopback addresses: each may guess some tokens


class Guarded(Process):
    """A service with two games, two operators and a viewer, whose output is captured."""

    def __init__(self, folder: Path, *words: str) -> None:
        file = folder.with_name(f"{folder.name}-tokens.json")
        file.touch(0o600)
        file.write_text(json.dumps(TOKENS))
        super().__init__(folder, "bandit-ads", *words, "--token-file", str(file))
        self.output = folder.with_suffix(".txt")

    def start(self) -> Guarded:
        command = [sys.executable, "-m", "townlet", "decide", "serve", *self._words]
        with open(self.output, "ab") as file:
            self.process = warm.Popen(command, stdout=file, stderr=file, env={**os.environ, "NO_COLOR": "1"})
        return self

    def status(self, method: str, path: str, token: str | None, body: Any = None, **headers: str) -> int:
        """The status of one request, each from another address."""
        return self.ask(method, path, token, body, next(ADDRESSES), **headers)[0]

    def ask(
        self, method: str, path: str, token: str | None, body: Any = None, address: str = "127.0.0.1", **headers: str
    ) -> tuple[int, str]:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20, source_address=(address, 0))
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            text = None if body is None else json.dumps(body)
            link.request(method, path, text, {"Content-Type": "application/json", **headers})
            answer = link.getresponse()
            return answer.status, answer.read().decode()
        finally:
            link.close()

    def handshake(self, path: str, token: str | None) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url, own = f"ws://127.0.0.1:{self.port}{path}", (next(ADDRESSES), 0)
        try:
            with connect(url, additional_headers=headers, proxy=None, source_address=own):
                return 101
        except InvalidStatus as error:
            return error.response.status_code

    def play(self, token: str, key: str | None = None) -> ClientConnection:
        """A game's connection."""
        query = f"?client={key}" if key else ""
        return connect(f"{self.address}{query}", additional_headers={"Authorization": f"Bearer {token}"}, proxy=None)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    running = Guarded(tmp_path_factory.mktemp("guarded") / "ads", "learning.interval=0.2").start()
    running.wait()
    yield running
    running.end(signal.SIGTERM)


def say(link: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
    link.send(json.dumps(message))
    return dict(json.loads(link.recv(20)))


def code(link: ClientConnection, message: dict[str, Any]) -> str:
    """The code of the refusal, else the type of the answer."""
    reply = say(link, message)
    return str(reply.get("code", reply["type"]))


def site() -> str:
    return f"site {time.monotonic_ns()}"


READ, CHANGE, PLAY, PUBLIC, ANY = "read", "change", "play", "public", "any role"
ENDPOINTS = {  # what it takes
    "GET /": READ, "GET /api/decide/stats": READ, "GET /api/decide/versions": READ, "GET /api/decide/me": READ,
    "GET /metrics": READ, "GET /openapi.json": READ, "GET /api/decide/schema": ANY, "GET /health": PUBLIC,
    "GET /client.js": PUBLIC, "GET /client.d.ts": PUBLIC, "GET /client.cs": PUBLIC, "GET /examples/": PUBLIC,
    "GET /static/decide.js": PUBLIC, "POST /api/decide/unpin": CHANGE,
    "POST /api/decide/gate-only": CHANGE, "POST /api/decide/pin": CHANGE, "POST /api/decide/rollback": CHANGE,
    "WEBSOCKET /ws": PLAY, "WEBSOCKET /ws/stats": READ,
}  # fmt: skip
BODIES = {"/api/decide/gate-only": {"on": False}, "/api/decide/pin": {"version": 999_999}}  # no such version: 422
DONE = {"POST /api/decide/pin": 422, "POST /api/decide/rollback": 422, "WEBSOCKET /ws": 101, "WEBSOCKET /ws/stats": 101}
MAY = {
    "game one": (ONE, {PLAY, ANY}, 403), "game two": (TWO, {PLAY, ANY}, 403),
    "operator ann": (ANN, {READ, CHANGE, ANY}, 403), "operator bob": (BOB, {READ, CHANGE, ANY}, 403),
    "viewer": (LOOKS, {READ, ANY}, 403), "wrong token": (WRONG, set(), 401), "no token": (None, set(), 401),
}  # fmt: skip


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("who", MAY)
def test_each_role_has_the_documented_permissions(server: Guarded, who: str, endpoint: str) -> None:
    (token, rights, refused), (method, path), takes = MAY[who], endpoint.split(), ENDPOINTS[endpoint]
    expected = DONE.get(endpoint, 200) if takes in rights | {PUBLIC} else refused
    if method == "WEBSOCKET":
        found = server.handshake(path, token)
    else:
        found = server.status(method, path, token, BODIES.get(path, {}) if method == "POST" else None)
    assert found == expected


def test_a_game_token_cannot_operate_the_service(server: Guarded) -> None:
    status, text = server.ask("POST", "/api/decide/gate-only", ONE, {"on": True})
    assert (status, text.strip()) == (403, "this needs the token of the operator, but has that of the game")
    assert json.loads(server.ask("GET", "/api/decide/versions", LOOKS)[1])["gate_only"] is False


def test_public_paths_ignore_the_token(server: Guarded) -> None:
    here = next(ADDRESSES)
    for path in ("/health", f"/health?token={WRONG}", "/client.js?token=", f"/static/decide.js?token={ONE}"):
        assert server.status("GET", path, None) == 200
    found = [server.ask("GET", "/health", WRONG, address=here) for _ in range(2 * MAX_GUESSES)]
    assert found == [(200, '{"ok":true}')] * (2 * MAX_GUESSES)


def test_a_token_in_the_query_of_a_change_is_accepted(server: Guarded) -> None:
    assert server.status("POST", f"/api/decide/unpin?token={ANN}", None, {}) == 200
    assert server.status("POST", f"/api/decide/unpin?token={ONE}", None, {}) == 403


def test_the_history_names_the_operator(server: Guarded) -> None:
    for token, on in ((ANN, True), (BOB, False)):
        assert server.ask("POST", "/api/decide/gate-only", token, {"on": on, "reason": "a test"})[0] == 200
    history = json.loads(server.ask("GET", "/api/decide/versions", LOOKS)[1])["history"]
    reasons = [change["reason"] for change in history if change["kind"] in ("gate_only", "gate_and_network")]
    assert reasons[-2:] == ["a test (ann)", "a test (bob)"]


def test_health_shows_details_to_readers_only(server: Guarded) -> None:
    assert json.loads(server.ask("GET", "/health", None)[1]) == {"ok": True}
    assert json.loads(server.ask("GET", "/health", ONE)[1]) == {"ok": True}
    assert json.loads(server.ask("GET", "/health", LOOKS)[1]) == {"ok": True, "problem": None}


@pytest.mark.parametrize(("token", "key"), [(TWO, None), (TWO, "own"), (ONE, None), (ONE, "another")])
def test_a_second_game_cannot_make_the_owner_of_a_territory_stale(server: Guarded, token: str, key: str | None) -> None:
    where = site()
    with server.play(ONE, "owner") as owner, server.play(token, key) as second:
        first = say(owner, request(1.0, where))
        before = json.loads(server.ask("GET", "/api/decide/stats", LOOKS)[1])["buffer"]["decisions"]
        assert code(second, request(1e9, where)) == "FOREIGN_TERRITORY"
        assert code(second, request(1.0, where)) == "FOREIGN_TERRITORY"  # nor is its reply shown
        after = json.loads(server.ask("GET", "/api/decide/stats", LOOKS)[1])["buffer"]["decisions"]
        assert after == before
        assert say(owner, request(1.0, where)) == first
        assert code(owner, request(2.0, where)) == "ad_decision"


@pytest.mark.parametrize(("token", "key"), [(TWO, None), (ONE, None), (ONE, "another")])
def test_a_second_game_cannot_report_the_outcome_of_a_decision_of_the_first(
    server: Guarded, token: str, key: str | None
) -> None:
    with server.play(ONE, "owner") as owner, server.play(token, key) as second:
        made = say(owner, request(1.0, site()))["decisionId"]
        refused = say(second, click(made, False))
        assert refused == {
            "type": "error", "code": "FOREIGN_DECISION", "message": "this decision belongs to another client"
        }  # fmt: skip
        assert say(owner, click(made)) == {"type": "outcome_ack", "decisionId": made}


def test_a_territory_without_a_key_is_free_for_its_token_once_the_connection_is_closed(server: Guarded) -> None:
    where = site()
    with server.play(ONE) as first:
        made = say(first, request(1.0, where))["decisionId"]
    with server.play(TWO) as other, server.play(ONE) as again:
        assert code(other, request(2.0, where)) == "FOREIGN_TERRITORY"
        assert code(again, click(made)) == "outcome_ack"
        assert code(again, request(2.0, where)) == "ad_decision"


def test_a_client_with_a_key_keeps_its_territory_while_it_is_away(server: Guarded) -> None:
    where = site()
    with server.play(ONE, "traveler") as owner:
        say(owner, request(1.0, where))
    with server.play(ONE, "thief") as thief:
        assert code(thief, request(2.0, where)) == "FOREIGN_TERRITORY"
    with server.play(ONE, "traveler") as owner:
        assert code(owner, request(2.0, where)) == "ad_decision"


def test_a_client_key_of_another_form_is_refused(server: Guarded) -> None:
    with pytest.raises(InvalidStatus) as refused:
        server.play(ONE, "x" * 65)
    assert refused.value.response.status_code == 400


def test_a_forged_origin_on_loopback_does_not_operate_the_service(server: Guarded) -> None:
    forged = {"Origin": server.origin}
    assert server.status("POST", "/api/decide/gate-only", None, {"on": True}, **forged) == 401
    assert json.loads(server.ask("GET", "/api/decide/versions", LOOKS)[1])["gate_only"] is False


def test_a_token_in_a_link_is_not_logged_and_not_in_the_list_of_processes(server: Guarded) -> None:
    server.status("GET", f"/?token={ANN}", None)
    server.status("GET", f"/nothing?token={ANN}", None)
    server.status("GET", f"/?token={WRONG}", None)
    assert server.process is not None
    shown = server.output.read_text() + Path(f"/proc/{server.process.pid}/cmdline").read_text()
    for token in (ONE, TWO, ANN, BOB, LOOKS, WRONG):
        assert token not in shown


def test_guessing_tokens_is_slowed_down_and_does_not_lock_out_the_operator(server: Guarded) -> None:
    here, there = next(ADDRESSES), next(ADDRESSES)
    assert server.ask("GET", "/api/decide/me", ANN, address=here)[0] == 200
    begun = time.monotonic()
    found = [server.ask("GET", "/api/decide/me", f"{WRONG}-{n}", address=here)[0] for n in range(3 * MAX_GUESSES)]
    allowed = MAX_GUESSES + (time.monotonic() - begun)
    assert found[:MAX_GUESSES] == [401] * MAX_GUESSES
    assert found.count(401) <= allowed + 1
    assert found.count(429) >= 3 * MAX_GUESSES - allowed - 1
    # Meanwhile a correct guess is refused too, but tokens that were used from here before still work.
    assert server.ask("GET", "/api/decide/me", BOB, address=here)[0] == 429
    assert server.ask("GET", "/api/decide/me", ANN, address=here)[0] == 200
    assert server.ask("GET", "/api/decide/me", BOB, address=there)[0] == 200


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A service that takes few messages of each client."""
    words = ("limits.messages_per_second=1", "limits.burst=20")
    running = Guarded(tmp_path_factory.mktemp("strict") / "ads", *words).start()
    running.wait()
    yield running
    running.end(signal.SIGTERM)


def test_ownership_survives_a_kill_of_the_service(strict: Guarded) -> None:
    where = site()
    with strict.play(THREE, "owner") as owner:
        made = say(owner, request(1.0, where))["decisionId"]
    strict.end(signal.SIGKILL)
    strict.start().wait()
    with strict.play(TWO) as second, strict.play(THREE, "owner") as owner:
        assert code(second, request(1e9, where)) == "FOREIGN_TERRITORY"
        assert code(second, click(made, False)) == "FOREIGN_DECISION"
        assert code(owner, click(made)) == "outcome_ack"
        assert code(owner, request(2.0, where)) == "ad_decision"


def test_a_client_that_floods_is_limited_and_others_are_not(strict: Guarded) -> None:
    with strict.play(ONE, "a") as first, strict.play(ONE, "b") as same, strict.play(TWO) as other:
        where = site()
        found = [code(first, request(float(time), where)) for time in range(1, 41)]
        assert found[:20] == ["ad_decision"] * 20
        assert found.count("RATE_LIMITED") >= 10
        assert "RATE_LIMITED" in [code(same, request(float(time), f"{where} b")) for time in range(1, 10)]
        assert {code(other, request(float(time), f"{where} c")) for time in range(1, 15)} == {"ad_decision"}
        time.sleep(1.2)
        assert code(first, request(100.0, where)) == "ad_decision"  # the connection was kept


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """The live page in a thread, and the folder of worlds that it saves."""
    root = tmp_path_factory.mktemp("page")
    server = Server("127.0.0.1", 0, generate_tokens(OPERATOR, VIEWER))
    app = make_app(Hub(root / "runs", None), root / "worlds")
    thread = threading.Thread(target=server.run, args=(app,), daemon=True)
    thread.start()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", server.port)) == 0:
                break
        time.sleep(0.05)
    yield server, root / "worlds"
    server.stop()
    thread.join(20)


@pytest.mark.parametrize(("role", "status"), [(None, 401), (VIEWER, 403), (OPERATOR, 200)])
def test_a_forged_origin_on_loopback_does_not_write_a_world(
    page: tuple[Server, Path], role: str | None, status: int
) -> None:
    server, worlds = page
    body = json.dumps({"name": f"mine-{status}", "text": "extends: town\n"})
    headers = {"Origin": f"http://127.0.0.1:{server.port}", "Content-Type": "application/json"}
    assert server.tokens is not None
    if role:
        headers["Authorization"] = f"Bearer {server.tokens.first(role)}"
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    link.request("POST", "/api/worlds", body, headers)
    assert link.getresponse().status == status
    link.close()
    assert (worlds / f"mine-{status}.yaml").exists() is (status == 200)


def test_wrong_tokens_of_an_address_do_not_lock_out_a_later_operator(page: tuple[Server, Path]) -> None:
    """After a restart no identity is known at any address, and a client with an old token may come first."""
    server, _ = page
    assert server.tokens is not None
    address = next(ADDRESSES)

    def status(token: str | None) -> int:
        link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20, source_address=(address, 0))
        link.request("GET", "/api/me", headers={"Authorization": f"Bearer {token}"})
        try:
            return link.getresponse().status
        finally:
            link.close()

    assert [status(WRONG) for _ in range(MAX_GUESSES + 3)][-1] == 429
    assert status(server.tokens.first(OPERATOR)) == 200
