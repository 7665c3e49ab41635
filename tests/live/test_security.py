"""Security of the live server: foreign origins and hosts, path traversal, floods and missing tokens."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from live.conftest import LiveServer, Page
from time_limit import within
from townlet.errors import TownletError
from townlet.live.messages import MAX_MESSAGE_BYTES
from townlet.runs.folder import Run
from townlet.web.guard import COOKIE, SECURITY_HEADERS
from townlet.web.server import Server
from townlet.web.tokens import OPERATOR, VIEWER, Tokens
from web.generated import generate_tokens

SESAME = "open-sesame-open"
SECRET = "secret content"
TRAVERSAL_PATHS = (
    "..",
    "../secret.txt",
    "..%2fsecret.txt",
    "..%2F..%2fsecret.txt",
    "%2e%2e/secret.txt",
    "%2e%2e%2fsecret.txt",
    "..%5csecret.txt",
    "....//secret.txt",
    "..%252fsecret.txt",
    "%00",
    "secret.txt%00.csv",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "~",
    "x" * 5000,
)


def ask(
    served: LiveServer, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    """Send one raw request, with the server's own Host by default."""
    connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=10)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        if body is not None and "Content_Length" not in headers and "Transfer_Encoding" not in headers:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace"), answer.headers
    finally:
        connection.close()


@pytest.fixture(autouse=True)
def secret(run: Run) -> None:
    """Secret files next to the folder of runs and inside it."""
    for folder in (run.path.parent.parent, run.path.parent):
        (folder / "secret.txt").write_text(SECRET)


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "",
        "http://evil.example",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1",
        "http://127.0.0.1:{other}",
        "http://127.0.0.1:{port}.evil.example",
        "http://127.0.0.1:{port}@evil.example",
        "http://evil.example/http://127.0.0.1:{port}",
        "http://localhost:{port}",  # the server's, but not its Host
        "http://127.0.0.1:{port}/",
        "file://",
    ],
)
def test_websocket_with_foreign_origin_is_refused(served: LiveServer, origin: str | None) -> None:
    served.wait()
    port = served.server.port
    body = None if origin is None else origin.format(port=port, other=port + 1)
    with pytest.raises(InvalidStatus) as refused, served.connect(origin=body):
        pass
    assert refused.value.response.status_code == 403


def test_post_requires_the_own_origin(served: LiveServer) -> None:
    served.wait()
    body = json.dumps({"name": "mine", "text": "extends: town\n"}).encode()
    kind = {"Content_Type": "application/json"}
    for foreign in ({}, {"Origin": "null"}, {"Origin": "http://evil.example"}, {"Origin": served.origin + "0"}):
        assert ask(served, "/api/worlds", "POST", body, **kind, **foreign)[0] == 403
    assert not served.worlds.exists()
    assert ask(served, "/api/worlds", "POST", body, Origin=served.origin, **kind)[0] == 200
    # Simple requests of a foreign page carry an Origin as well and are refused.
    assert ask(served, "/api/runs", Origin="http://evil.example")[0] == 403
    assert ask(served, "/api/runs")[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:{port}.evil.example",
        "127.0.0.1:80",
        "",
        "[::2]:1",
    ],
)
def test_foreign_host_is_refused(served: LiveServer, host: str) -> None:
    served.wait()
    status, body, _ = ask(served, "/api/runs", Host=host.format(port=served.server.port))
    assert status in (400, 421)
    assert "town" not in body
    with pytest.raises(InvalidStatus), served.connect(origin="http://evil.example", additional_headers={"Host": host}):
        pass


def test_names_of_this_machine_are_accepted(served: LiveServer) -> None:
    served.wait()
    for name in ("localhost", "127.0.0.1", "LOCALHOST", "[::1]"):
        assert ask(served, "/healthz", Host=f"{name}:{served.server.port}")[0] == 200


@pytest.mark.parametrize("way", TRAVERSAL_PATHS)
@pytest.mark.parametrize(
    "path", ["/{}", "/static/{}", "/api/runs/{}", "/api/runs/{}/maps", "/api/runs/{}/recordings/1.csv",
             "/api/runs/RUN/recordings/{}.csv", "/api/worlds/{}", "/docs/{}"]
)  # fmt: skip
def test_path_traversal_is_refused(served: LiveServer, run: Run, path: str, way: str) -> None:
    served.wait()
    status, body, _ = ask(served, path.format(way).replace("RUN", run.name))
    assert status in (307, 400, 404, 405, 422) or (path == "/{}" and status == 200 and "<title>Townlet" in body)
    assert SECRET not in body
    assert "root:" not in body


def test_path_traversal_in_messages_is_refused(page: Page, served: LiveServer, run: Run) -> None:
    for name in ("../secret.txt", "..", ".", "/etc/passwd", run.path.as_posix(), f"{run.name}/..", f"./{run.name}"):
        page.send("subscribe", run=name, source="none")
        assert "there is no run" in page.receive("error")["what"]
    page.send("subscribe", run=run.name, source="checkpoint")
    for name in ("../../secret.txt", "/etc/passwd", "..", "."):
        page.send("watch", agents=[{"kind": "policy", "checkpoint": name}])
        assert "no checkpoint" in page.receive("error")["what"]
    for name in ("../secret.txt", "/etc/passwd", ".."):
        page.send("watch", agents=[{"kind": "policy", "run": name}])
        assert "there is no run" in page.receive("error")["what"]
    page.send("select", recording=10**9)
    assert "no recorded episode" in page.receive("error")["what"]
    for name in ("../secret.txt", "/etc/passwd", "../../../etc/hostname"):
        page.send("edit_world", text=f"extends: {name}\n", number=1)
        (mistake,) = page.receive("world_checked")["errors"]
        assert SECRET not in json.dumps(mistake)
        assert "only shipped worlds" in mistake["what"]


@pytest.mark.parametrize("name", ["../evil", "town", "a/b", "a\\b", ".hidden", "", "x" * 41, "Ä", "a.yaml", "con\n"])
def test_world_names_are_validated(served: LiveServer, name: str) -> None:
    served.wait()
    body = json.dumps({"name": name, "text": "extends: town\n"}).encode()
    status, _, _ = ask(served, "/api/worlds", "POST", body, Origin=served.origin, Content_Type="application/json")
    assert status in (400, 422)
    assert not served.worlds.exists() or not list(served.worlds.iterdir())


def test_existing_worlds_are_never_overwritten(served: LiveServer) -> None:
    served.wait()
    served.worlds.mkdir()
    mine, target = served.worlds / "mine.yaml", served.worlds / "target"
    mine.write_text("mine\n")
    (served.worlds / "link.yaml").symlink_to(target)
    for name in ("mine", "link"):
        body = json.dumps({"name": name, "text": "extends: town\n"}).encode()
        status, text, _ = ask(
            served, "/api/worlds", "POST", body, Origin=served.origin, Content_Type="application/json"
        )
        assert (status, json.loads(text)) == (200, {"file": str(served.worlds / f"{name}-2.yaml")})
    assert mine.read_text() == "mine\n"
    assert not target.exists()


def test_oversize_message_closes_the_connection(served: LiveServer) -> None:
    with served.connect() as connection:
        page = Page(connection)
        page.connection.send(" " * (MAX_MESSAGE_BYTES - 1))
        assert page.receive("error")
        page.connection.send(" " * (MAX_MESSAGE_BYTES + 1))
        with pytest.raises(ConnectionClosedError) as closed:
            page.receive("an end")
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009
    served.wait()


def test_oversize_body_is_refused(served: LiveServer) -> None:
    served.wait()
    assert ask(served, "/api/worlds", "POST", b"", Origin=served.origin, Content_Length=str(10**9))[0] == 413
    assert ask(served, "/api/worlds", "POST", b"", Origin=served.origin, Content_Length="-5")[0] in (400, 413)
    endless = b"".join(b"10000\r\n" + b"x" * 0x10000 + b"\r\n" for _ in range(8)) + b"0\r\n\r\n"
    try:
        status = ask(served, "/api/worlds", "POST", endless, Origin=served.origin, Transfer_Encoding="chunked")[0]
        assert status >= 400
    except (ConnectionError, http.client.HTTPException):
        pass  # it may also close the connection
    assert ask(served, "/healthz")[0] == 200


def test_deeply_nested_and_malformed_messages_are_answered(page: Page, run: Run) -> None:
    deep = "[" * 50_000 + "]" * 50_000
    for text in (deep, f'{{"type": "subscribe", "run": {deep}}}', '{"type": "step", "by": 1e999}', '{"type":' * 9000):
        page.connection.send(text)
        assert page.receive("error")["what"]
    page.send("edit_world", text="a: " + "[" * 20_000, number=1)
    assert page.receive("error", "world_checked")
    page.send("subscribe", run=run.name, source="edit")
    assert page.receive("error")["what"]
    page.send("edit_world", text="&a [*a, *a]", number=2)
    assert page.receive("error", "world_checked")
    for binary in (b"", b"\x00" * 1000, json.dumps({"type": "play"}).encode()):
        page.connection.send(binary)
        assert "binary" in page.receive("error")["what"]
    page.send("subscribe", run=run.name, source="none")
    assert page.receive("run_status")


def test_flooding_client_does_not_delay_others(served: LiveServer, run: Run) -> None:
    with served.connect() as flooding, served.connect() as quiet:
        for _ in range(3000):
            flooding.send('{"type": "play"}')
        page = Page(quiet)
        with within(3, time.monotonic):
            page.send("subscribe", run=run.name, source="checkpoint")
            page.receive("frame")
        assert any("too many" in Page(flooding).receive("error")["what"] for _ in range(60))


def test_security_headers(served: LiveServer) -> None:
    served.wait()
    for path in ("/", "/static/main.js", "/api/runs", "/nothing", "/docs/protocol"):
        headers = ask(served, path)[2]
        assert {name: headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
    refused = ask(served, "/", Host="evil.example")[2]
    assert refused["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in SECURITY_HEADERS["Content-Security-Policy"]
    assert "unsafe" not in SECURITY_HEADERS["Content-Security-Policy"]


@pytest.fixture
def guarded(run: Run, tmp_path: Path) -> Iterator[LiveServer]:
    """A server that requires a token."""
    tokens = Tokens({OPERATOR: {OPERATOR: SESAME}, VIEWER: {VIEWER: "only-to-view-at-it"}})
    one = LiveServer(run.path.parent, run.name, tmp_path / "worlds", tokens)
    one.wait()
    yield one
    one.stop()


def test_requests_without_token_are_refused(guarded: LiveServer) -> None:
    for path in (
        "/",
        "/static/main.js",
        "/api/runs",
        "/docs/protocol",
        "/?token=wrong",
        "/?token=",
        f"/?token={SESAME[:-1]}",
    ):
        assert ask(guarded, path)[0] == 401
    assert ask(guarded, "/api/runs", Cookie=f"{COOKIE}_{guarded.server.port}=wrong")[0] == 401
    assert ask(guarded, "/api/runs", Authorization="Bearer wrong")[0] == 401
    with pytest.raises(InvalidStatus) as refused, guarded.connect():
        pass
    assert refused.value.response.status_code in (401, 403)


def test_link_with_token_sets_the_cookie(guarded: LiveServer) -> None:
    status, _, headers = ask(guarded, f"/?token={SESAME}")
    assert (status, headers["Location"]) == (303, "/")  # the token does not stay in the address bar
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ask(guarded, "/", Cookie=cookie.partition(";")[0])[0] == 200
    assert ask(guarded, "/api/runs", Authorization=f"Bearer {SESAME}")[0] == 200
    with guarded.connect(additional_headers={"Cookie": cookie.partition(";")[0]}) as connection:
        assert Page(connection).receive()["type"] == "hello"


def test_one_time_link_works_once(guarded: LiveServer) -> None:
    """The link appears on the browser's command line, which every user of the machine can read."""
    link = guarded.server.one_time_link()
    assert SESAME not in link
    path = link.removeprefix(guarded.origin)
    status, _, headers = ask(guarded, path)
    assert (status, headers["Location"]) == (303, "/")
    assert ask(guarded, "/", Cookie=headers["Set-Cookie"].partition(";")[0])[0] == 200
    assert ask(guarded, path)[0] == 401
    # Strict cookies are not sent after a cross-site redirect, so the page refreshes itself.
    crossed = ask(guarded, f"/?token={SESAME}&run=a", Sec_Fetch_Site="cross-site")
    assert (crossed[0], crossed[2]["Refresh"]) == (200, "0; url=/?run=a")


def test_public_address_requires_a_token() -> None:
    with pytest.raises(TownletError, match=r"without a token, anyone who can reach 0\.0\.0\.0"):
        Server("0.0.0.0", 0, None)
    public = Server("0.0.0.0", 0, generate_tokens(OPERATOR))
    public.close()
    token = public.link().partition("?token=")[2]
    assert len(token) >= 32
    assert "0.0.0.0" not in public.link()


def test_missing_resources_give_404_and_invalid_ones_400(served: LiveServer, run: Run) -> None:
    """A missing name inside a world is a 400."""
    served.wait()
    for path in ("/api/runs/unknown", "/api/worlds/nowhere", f"/api/runs/{run.name}/recordings/999999.csv"):
        assert ask(served, path)[0] == 404
    wrong = json.dumps({"name": "mine", "text": "extends: town\ncurrency: gold\n"}).encode()
    status, body, _ = ask(served, "/api/worlds", "POST", wrong, Origin=served.origin, Content_Type="application/json")
    assert status == 400
    assert json.loads(body)["what"].startswith("there is no meter 'gold'")
