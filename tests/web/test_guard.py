"""Access control: which address a wrong token counts for, and which origins can be allowed."""

from __future__ import annotations

import asyncio
import logging

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from townlet.errors import TownletError
from townlet.web.server import Server
from townlet.web.tokens import MAX_GUESSES, VIEWER
from web.generated import generate_tokens
from web.served import exchange, served

APP = Starlette(routes=[Route("/", lambda _: PlainTextResponse("welcome"))])


async def statuses(server: Server, *headers: str) -> list[int]:
    """The status of a request with each of these headers."""
    head = "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{}\r\n\r\n"
    answers = [await exchange(server, head.format(server.address, more).encode()) for more in headers]
    return [int(answer.split()[1]) for answer in answers]


@pytest.mark.parametrize("proxies", ["", "127.0.0.1"])
def test_wrong_tokens_count_for_the_socket_or_behind_a_named_proxy_for_its_client(
    proxies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    if proxies:
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", proxies)

    async def guess() -> tuple[list[int], list[int]]:
        tokens = generate_tokens(VIEWER)
        async with served(APP, tokens) as server:
            wrong = [f"X-Forwarded-For: 10.0.0.{n}\r\nAuthorization: Bearer wrong-{n}" for n in range(2 * MAX_GUESSES)]
            right = f"Authorization: Bearer {tokens.first(VIEWER)}"
            return await statuses(server, *wrong), await statuses(server, right)

    guesses, owner = asyncio.run(guess())
    assert guesses[:MAX_GUESSES] == [401] * MAX_GUESSES
    assert (429 in guesses) is (not proxies)
    assert owner == [200]  # never locked out, also if all share the address of a proxy


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "*",
        "a.example",
        "file://",
        "",
        "https://",
        "https://*.a.example",
        "https://a.example/game",
        "http://a b",
    ],
)
def test_what_is_not_an_origin_is_refused(origin: str) -> None:
    with pytest.raises(TownletError, match=r"is not the origin of a web page; write scheme://host or"):
        Server("127.0.0.1", 0, None, origins=[origin])


def test_allowed_origins_are_compared_as_browsers_send_them() -> None:
    origins = ("https://Play.Example/", "http://127.0.0.1:8900", "http://[::1]:8900", "capacitor://localhost")

    async def ask() -> list[int]:
        def access(*_: str) -> frozenset[str]:
            return frozenset({"game"})

        async with served(APP, origins=origins, access=access) as server:
            sent = ("https://play.example", *origins[1:], "http://play.example")
            return await statuses(server, *(f"Origin: {one}" for one in sent))

    assert asyncio.run(ask()) == [200, 200, 200, 200, 403]


def test_the_log_advises_only_origins_that_can_be_allowed(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> None:
        async with served(APP) as server:
            await statuses(server, *["Origin: null"] * 3, "Origin: https://a.example", "Origin: https://b.example")

    with caplog.at_level(logging.WARNING):
        asyncio.run(ask())
    assert [record.getMessage() for record in caplog.records if record.name == "townlet.web.guard"] == [
        "a page from null was refused; pages in a sandbox and files have no origin that can be allowed: "
        "serve the page over HTTP",
        "a page from https://a.example was refused; if it is yours, allow it with --origin https://a.example",
        "a page from https://b.example was refused; if it is yours, allow it with --origin https://b.example",
    ]
