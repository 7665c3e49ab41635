"""Attacks on what the page may start or write: wrong tokens, foreign pages, hostile worlds and messages."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from live.conftest import LiveServer, Page
from time_limit import within
from townlet.live.agents import ScriptedActor
from townlet.live.app import make_app
from townlet.live.hub import Hub
from townlet.live.messages import MAX_MESSAGE_BYTES
from townlet.live.playback import MAX_PLAYED_STEPS, Playback, PlayedEpisode
from townlet.live.protocol import CLIENT_MESSAGE
from townlet.runs.folder import Run
from townlet.town.planner import PlannerPlayer
from townlet.town.world.load import from_text
from townlet.web.guard import MAX_BODY_BYTES
from townlet.web.tokens import OPERATOR, VIEWER
from web.generated import generate_tokens

TRAINING = {"world": "mine", "text": "extends: town-l0\n", "variant": "dqn", "env_steps": 2000}
BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 8)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
)
PLACES = "".join(f"  - {{name: P{k}, cell: [{k % 60}, {k // 60}]}}\n" for k in range(300))
HOSTILE_WORLDS = {
    "aliases": BOMB,
    "many places": f"extends: town\nmap: {{size: [64, 64]}}\naffordances:\n{PLACES}",
    "huge map": "extends: town\nmap: {size: [100000, 100000]}\n",
    "huge observation": "extends: town\nmap: {size: [1000, 1000]}\n",
    "long episode": "extends: town\nmax_steps: 1000000000\n",
    "not a number": "extends: town\nmeters: [{name: energy, decay: .nan}]\n",
    "infinite": "extends: town\naffordances: [{name: Bed, price: .inf}]\n",
    "other file": "extends: ../../secret.yaml\n",
    "tag": "extends: !!python/object/apply:os.system ['touch pwned']\n",
    "deep": "map: " + "[" * 500,
}
# Everything that starts or writes something, by path and body.
CHANGES: dict[str, Any] = {
    "worlds": {"name": "mine", "text": "extends: town\n"},
    "trainings": TRAINING,
    "trainings/0/stop": {},
    "tournaments": {"run": "RUN"},
    "runs/RUN/episodes": {},
}
READS = ("runs", "runs/RUN", "runs/RUN/maps", "worlds", "palette", "trainings", "join", "join.svg")


@pytest.fixture(scope="module")
def guarded(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with tokens for an operator and for viewers."""
    folder = tmp_path_factory.mktemp("guarded")
    one = LiveServer(run.path.parent, run.name, folder / "worlds", generate_tokens(OPERATOR, VIEWER))
    one.wait()
    yield one
    one.stop()
    assert not (folder / "worlds").exists()  # nothing was written
    assert [path.name for path in folder.iterdir()] == []


def send(served: LiveServer, path: str, data: bytes | None, token: str = "", origin: str | None = "") -> int:
    """Send a request with the server's own Origin, unless another or none (None) is given; returns the status."""
    connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=30)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    if origin is not None:
        headers["Origin"] = origin or served.origin
    connection.request("GET" if data is None else "POST", f"/api/{path}", data, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def token_of(served: LiveServer, role: str) -> str:
    return served.server.link(role).partition("token=")[2]


def test_every_changing_route_is_attacked(guarded: LiveServer, run: Run) -> None:
    """A new route that changes something must be added to CHANGES."""
    schema = make_app(Hub(run.path.parent)).openapi()
    found = {path for path, methods in schema["paths"].items() if set(methods) - {"get", "head"}}
    attacked = {f"/api/{path}".replace("RUN", "{name}").replace("/0/", "/{id}/") for path in CHANGES}
    assert found == attacked


@pytest.mark.parametrize("path", CHANGES)
def test_changes_need_the_operator_and_the_own_page(guarded: LiveServer, run: Run, path: str) -> None:
    body = json.dumps(CHANGES[path]).replace("RUN", run.name).encode()
    route, operator = path.replace("RUN", run.name), token_of(guarded, OPERATOR)
    assert send(guarded, route, body) == 401
    assert send(guarded, route, body, "x" * 40) == 401
    assert send(guarded, route, body, token_of(guarded, VIEWER)) == 403
    for foreign in (None, "null", "http://evil.example", guarded.origin + "0"):
        assert send(guarded, route, body, operator, foreign) == 403


@pytest.mark.parametrize("path", CHANGES)
def test_malformed_and_oversized_requests_are_refused(guarded: LiveServer, run: Run, path: str) -> None:
    route, operator = path.replace("RUN", run.name), token_of(guarded, OPERATOR)
    if not path.endswith("stop"):  # it has no body
        for data in (b"", b"{", b"[]", b'"x"', b'{"unknown": 1}', b"[" * 50_000, b"\xff\xfe"):
            assert send(guarded, route, data, operator) in (400, 422), data[:20]
    assert send(guarded, route, b" " * (MAX_BODY_BYTES + 1), operator) == 413


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "\ud800", {"\ud800": 1}])
def test_values_that_json_cannot_hold_are_refused(guarded: LiveServer, run: Run, value: Any) -> None:
    for path, body in CHANGES.items():
        route, operator = path.replace("RUN", run.name), token_of(guarded, OPERATOR)
        for field in {*body, "seed", "\udfff"} if not path.endswith("stop") else ():  # it has no body
            assert send(guarded, route, json.dumps(body | {field: value}).encode(), operator) in (400, 422), field


@pytest.mark.parametrize("path", READS)
def test_reading_needs_a_token_of_either_role(guarded: LiveServer, run: Run, path: str) -> None:
    route = path.replace("RUN", run.name)
    assert send(guarded, route, None) == 401
    assert send(guarded, route, None, token_of(guarded, VIEWER)) == 200
    assert send(guarded, route, None, token_of(guarded, VIEWER), "http://evil.example") == 403


@pytest.mark.parametrize(
    "name", ["../out", "/etc/passwd", "a/b", "a\\b", ".hidden", "A", "x" * 41, "a\n", "-rf", "town"]
)
def test_names_of_trained_worlds_are_validated(guarded: LiveServer, name: str) -> None:
    body = json.dumps(TRAINING | {"world": name}).encode()
    assert send(guarded, "trainings", body, token_of(guarded, OPERATOR)) in (400, 422)
    without_text = json.dumps(TRAINING | {"world": f"{name}.yaml", "text": None}).encode()
    assert send(guarded, "trainings", without_text, token_of(guarded, OPERATOR)) in (400, 422)


@pytest.mark.parametrize(
    "wrong",
    [
        {"variant": "../../etc/passwd"}, {"variant": "dqn --root /tmp"}, {"variant": "--help"}, {"variant": ""},
        {"env_steps": -1}, {"env_steps": 1e9}, {"env_steps": "1000"}, {"env_steps": True}, {"env_steps": None},
    ],
)  # fmt: skip
def test_training_takes_only_known_recipes_and_limited_budgets(guarded: LiveServer, wrong: dict[str, Any]) -> None:
    body = json.dumps(TRAINING | {"world": "town-l0", "text": None} | wrong).encode()
    assert send(guarded, "trainings", body, token_of(guarded, OPERATOR)) in (400, 422)


@pytest.mark.parametrize("world", HOSTILE_WORLDS)
def test_hostile_worlds_are_refused_everywhere(guarded: LiveServer, run: Run, world: str) -> None:
    text, operator = HOSTILE_WORLDS[world], token_of(guarded, OPERATOR)
    with within(5, time.monotonic):
        for path, body in (
            ("worlds", {"name": "mine", "text": text}), ("trainings", TRAINING | {"text": text}),
        ):  # fmt: skip
            assert send(guarded, path, json.dumps(body).encode(), operator) == 400
        with guarded.connect(additional_headers={"Authorization": f"Bearer {operator}"}) as connection:
            page = Page(connection)
            page.send("subscribe", run=run.name, source="none")
            page.send("edit_world", text=text, number=1, preview=True)
            assert page.receive("world_checked")["errors"]
            page.send("edit_world", text=text, number=2, change={"op": "set", "path": ["max_steps"], "value": 9})
            assert page.receive("world_checked", "error")


@pytest.mark.parametrize(
    "change",
    [
        '{"op": "set", "path": ["affordances", "Bed", "price"], "value": NaN}',
        '{"op": "set", "path": ["affordances", "Bed", "price"], "value": 1e999}',
        '{"op": "set", "path": ["meters", "energy", "decay"], "value": "x"}',
        '{"op": "set", "path": ["map", "size"], "value": [99999999, 99999999]}',
        '{"op": "set", "path": ["extends"], "value": "../../secret.yaml"}',
        '{"op": "set", "path": ["affordances", "Bed"], "value": 3}',
        '{"op": "set", "path": ["__class__", "x"], "value": 3}',
        '{"op": "add", "section": "affordances", "entry": {"name": "X", "icon": "%s"}}' % ("x" * 5000),
        '{"op": "add", "section": "affordances", "entry": {"cell": [0, 0]}}',
        '{"op": "add", "section": "affordances", "entry": %s}' % ('{"name":' * 200 + "1" + "}" * 200),
    ],
)  # fmt: skip
def test_hostile_changes_leave_an_answering_server(page: Page, run: Run, change: str) -> None:
    page.send("subscribe", run=run.name, source="none")
    page.connection.send(f'{{"type": "edit_world", "text": "extends: town\\n", "number": 1, "change": {change}}}')
    answer = page.receive("world_checked", "error")
    assert answer["type"] == "error" or answer["errors"]
    page.send("edit_world", text="extends: town\n", number=2)
    assert page.receive("world_checked")["errors"] == []


def test_viewer_may_only_watch(guarded: LiveServer, run: Run) -> None:
    """The messages of the protocol change only what the sender sees; a new one must be judged here."""
    known = {
        "subscribe", "play", "pause", "step", "seek", "set_speed", "select", "reset", "watch", "act", "ask",
        "edit_world",
    }  # fmt: skip
    assert set(CLIENT_MESSAGE.json_schema()["discriminator"]["mapping"]) == known
    token = token_of(guarded, VIEWER)
    with guarded.connect(additional_headers={"Authorization": f"Bearer {token}"}) as connection:
        page = Page(connection)
        assert page.receive("hello")["role"] == VIEWER
        for kind in ("save_world", "train", "stop_training", "tournament"):
            page.send(kind, run=run.name, text="extends: town\n", name="mine")
            assert page.receive("error")["fix"] == "see /docs/protocol"
        page.connection.send(json.dumps({"type": "edit_world", "text": "x" * (MAX_MESSAGE_BYTES - 100), "number": 1}))
        assert page.receive("error")


def test_distant_seek_in_an_endless_world_does_not_block_the_others(served: LiveServer, run: Run) -> None:
    text = "extends: town\nmax_steps: 10000000\nrewards: [{name: milestone}, {name: potential, weight: 100}]\n"
    with served.connect() as hostile, served.connect() as quiet:
        page, other = Page(hostile), Page(quiet)
        page.send("subscribe", run=run.name, source="checkpoint")
        page.send("watch", agents=[{"kind": "planner"}])
        page.send("edit_world", text=text, number=1, preview=True)
        page.receive("world_checked")
        page.send("seek", timestep=10**7)
        with within(3, time.monotonic):
            other.send("subscribe", run=run.name, source="checkpoint")
            other.receive("frame")
        first = max(page.receive("frame")["age"])
        while max(page.receive("frame")["age"]) <= first:  # it is approached in parts
            pass


def test_played_episodes_are_limited() -> None:
    """A viewer cannot fill the memory with one endless episode."""
    world = from_text("extends: town\nmax_steps: 10000000\n")
    episode = PlayedEpisode(world, ScriptedActor(PlannerPlayer(world), world), 1, "planner", 0, "Ada", limit=1000)
    playback = Playback(lambda: None)
    playback.show(episode)
    playback.seek(10**7)
    before, reached = 0, int(playback.position)
    assert 0 < reached < 1000
    while before < reached and not episode.over:
        playback.advance(0.2)
        before, reached = reached, int(playback.position)
    assert (reached, episode.cause) == (1000, "time")
    assert episode.reach(10**7) == 1000
    assert MAX_PLAYED_STEPS == 20_000  # as in playback.js
