"""Places for WebSockets at their limit: each token, and each address of a token, gets its share."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack

from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection

from townlet.web.shares import REPLACED, Slot, WebSocketLimit, find_surplus
from townlet.web.tokens import GAME, Tokens, new_token
from web.served import dial, ends, handshake, served

PLACES = 6
A, B, C = (new_token() for _ in range(3))
TOKENS = Tokens({GAME: {"a": A, "b": B, "c": C}})
NEAR, FAR, FARTHER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
FULL = (1013, "all places are taken")


def echo(limit: WebSocketLimit) -> Starlette:
    """An app that repeats messages; a message is noted as a game's are."""

    async def serve(socket: WebSocket) -> None:
        async with limit.acquire(socket) as slot:
            if slot:
                await socket.accept()
                await repeat(socket, slot)

    async def repeat(socket: WebSocket, slot: Slot) -> None:
        async for text in socket.iter_text():
            slot.last_message = time.monotonic()
            await socket.send_text(text)

    return Starlette(routes=[WebSocketRoute("/ws", serve)])


async def talks(connection: ClientConnection) -> bool:
    await connection.send("hello")
    return await asyncio.wait_for(connection.recv(), 10) == "hello"


def access(*_: str) -> frozenset[str]:
    return frozenset({GAME})


def test_one_token_cannot_take_the_places_of_others() -> None:
    async def attack() -> None:
        limit = WebSocketLimit(PLACES, FULL[1])
        async with served(echo(limit), TOKENS, access=access) as server, AsyncExitStack() as stack:
            greedy = [await stack.enter_async_context(dial(server, A)) for _ in range(PLACES)]
            assert await talks(greedy[0])  # the others have never sent anything
            quiet = [await stack.enter_async_context(dial(server, B)) for _ in range(PLACES // 2)]
            assert [await talks(one) for one in quiet] == [True] * 3
            assert [await ends(one) for one in greedy[1:4]] == [(1013, REPLACED)] * 3
            # Both have half of the places: neither gets more.
            for token in (A, B):
                assert await ends(await stack.enter_async_context(dial(server, token))) == FULL
            third = [await stack.enter_async_context(dial(server, C)) for _ in range(2)]
            assert await ends(await stack.enter_async_context(dial(server, C))) == FULL
            assert [await talks(one) for one in third] == [True, True]
            assert await talks(greedy[0])
            assert len(limit) == PLACES
            assert limit.refused == 3 + 2 + 2 + 1

    asyncio.run(attack())


def test_one_address_cannot_take_the_places_of_other_addresses_with_its_token() -> None:
    """The token of a web page is public."""

    async def attack() -> None:
        limit = WebSocketLimit(PLACES, FULL[1])
        async with served(echo(limit), TOKENS, access=access) as server, AsyncExitStack() as stack:
            greedy = [await stack.enter_async_context(dial(server, A, NEAR)) for _ in range(PLACES)]
            visitors = [await stack.enter_async_context(dial(server, A, where)) for where in (FAR, FARTHER, FAR)]
            assert [await talks(one) for one in visitors] == [True] * 3
            assert [await ends(one) for one in greedy[:3]] == [(1013, REPLACED)] * 3
            assert await ends(await stack.enter_async_context(dial(server, A, NEAR))) == FULL
            # A place goes to another token, which takes it from the address with the most.
            assert await talks(await stack.enter_async_context(dial(server, B, NEAR)))
            assert await ends(greedy[3]) == (1013, REPLACED)
            assert [await talks(one) for one in (*visitors, *greedy[4:])] == [True] * 5

    asyncio.run(attack())


@given(st.integers(1, 12), st.lists(st.integers(0, 4), max_size=80), st.randoms(use_true_random=False))
def test_each_holder_can_get_and_keep_its_share(places: int, newcomers: list[int], rng: random.Random) -> None:
    counts = Counter[int]()
    for newcomer in newcomers:
        if rng.random() < 0.2 and (open_now := +counts):
            counts[rng.choice(sorted(open_now))] -= 1
        if counts.total() < places:
            counts[newcomer] += 1
            continue
        holders = len(+(counts + Counter([newcomer])))
        largest = find_surplus(counts, counts[newcomer])
        if largest is None:
            assert counts[newcomer] + 1 > places // holders  # only more than a share is refused
        else:
            assert counts[largest] > places // holders  # only more than a share is taken away
            counts[largest] -= 1
            counts[newcomer] += 1


def test_closed_connections_that_linger_do_not_lock_others_out() -> None:
    """A client that does not answer the close frame keeps its connection open for two seconds."""

    async def refuse(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close(1013, "full")

    async def attack() -> None:
        app = Starlette(routes=[WebSocketRoute("/ws", refuse)])
        async with served(app, descriptors={"websockets": 4}) as server:
            lingering = []
            for _ in range(12):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(handshake(server))
                assert (await reader.readline()).startswith(b"HTTP/1.1 101")
                lingering.append(writer)
            async with dial(server) as connection:
                assert await ends(connection) == (1013, "full")
            for writer in lingering:
                writer.close()

    asyncio.run(attack())
