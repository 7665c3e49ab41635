"""Client for games without asyncio: `Client` in a thread of its own.

    with SyncClient("ws://127.0.0.1:8780/ws", os.environ["TOWNLET_GAME_TOKEN"]) as client:
        decision = client.request({"type": "observation_data", ...})

A game loop that must not wait sends with `submit`, and takes the answer in a later frame:

    pending = client.submit({"type": "observation_data", ...})
    ...
    if pending.done():
        decision = pending.result()
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from townlet.decide.client import CLOSED, Client, NoAnswer

Result = TypeVar("Result")


class SyncClient:
    """`Client` with calls that block; they may come from any thread. Answers arrive in the order of the messages.

    A thread runs the asynchronous client, because resending, deadlines and `submit` need one that continues between
    two calls anyway; on top of the synchronous API of websockets they would be a second implementation.

    Args:
        url, token, timeout, client: see `Client`.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0, client: str | None = None) -> None:
        self._client = Client(url, token, timeout, client)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="townlet client", daemon=True)
        self._lock, self._closed = threading.Lock(), False
        self._thread.start()
        self._call(self._client.__aenter__()).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def client(self) -> str:
        """The key that owns territories."""
        return self._client.client

    @property
    def connections(self) -> int:
        """Number of connections so far."""
        return self._client.connections

    def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message and return its answer, across reconnects; raises NoAnswer after the timeout."""
        return self.submit(message).result()

    def submit(self, message: Mapping[str, Any]) -> Future[dict[str, Any]]:
        """Send a message without waiting; its future gets the answer, or NoAnswer."""
        with self._lock:  # after `close` the loop would never run the request
            if self._closed:
                raise NoAnswer(CLOSED)
            return self._call(self._client.request(dict(message)))

    def close(self) -> None:
        """Disconnect; unanswered requests raise NoAnswer."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._call(self._close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _close(self) -> None:
        await self._client.close()
        requests = asyncio.all_tasks() - {asyncio.current_task()}  # each raises NoAnswer
        await asyncio.gather(*requests, return_exceptions=True)

    def _call(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()
