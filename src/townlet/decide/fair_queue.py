"""Messages that wait for an answer, in an order that is fair to tokens, and to the clients of each token."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from townlet.decide.territories import token_of
from townlet.decide.tracing import Mark, no_mark

FutureReply = asyncio.Future[dict[str, Any]]


class QueuedMessage(NamedTuple):
    """An observation or a report that waits for its answer."""

    message: Mapping[str, Any]
    size: int  # bytes, as JSON
    client: str  # owner id of its sender
    since: float  # time of arrival
    reply: FutureReply
    mark: Mark = no_mark
    is_report: bool = False


class FairQueue:
    """A queue in which tokens take turns, and so do the clients of a token; of one client, the oldest message is next.

    A client can be held: its messages wait until it is released.
    """

    def __init__(self) -> None:
        self.counts = Counter[str]()  # messages by token
        self.bytes = 0  # of all messages
        self._length = 0
        self._messages: dict[str, deque[QueuedMessage]] = {}  # by client
        self._turns: OrderedDict[str, OrderedDict[str, None]] = (
            OrderedDict()
        )  # clients by token, the next in turn first
        self._held: set[str] = set()

    def __len__(self) -> int:
        return self._length

    @property
    def ready(self) -> bool:
        """Whether there is a message of a client that is not held."""
        return bool(self._turns)

    def append(self, queued: QueuedMessage) -> None:
        """Add a message, the last of its client."""
        messages = self._messages.get(queued.client)
        if messages is None:
            messages = self._messages[queued.client] = deque()
            self._add_turn(queued.client)
        messages.append(queued)
        self._count(queued, 1)

    def first(self) -> QueuedMessage:
        """The next message."""
        clients = next(iter(self._turns.values()))
        return self._messages[next(iter(clients))][0]

    def take(self) -> QueuedMessage:
        """Remove the next message; its token and its client have their next turn after all others."""
        queued = self.first()
        client, token = queued.client, token_of(queued.client)
        messages = self._messages[client]
        messages.popleft()
        if messages:
            self._turns[token].move_to_end(client)
        else:
            self._forget(client)
        if token in self._turns:
            self._turns.move_to_end(token)
        self._count(queued, -1)
        return queued

    def drop_newest(self, token: str) -> QueuedMessage:
        """Remove the newest message of the client of a token that has the most."""
        messages = max((one for client, one in self._messages.items() if token_of(client) == token), key=len)
        queued = messages.pop()
        if not messages:
            self._forget(queued.client)
        self._count(queued, -1)
        return queued

    def hold(self, client: str) -> None:
        """Let a client have no turns until it is released."""
        self._held.add(client)
        self._remove_turn(client)

    def release(self, client: str) -> None:
        self._held.discard(client)
        if client in self._messages:
            self._add_turn(client)

    def _add_turn(self, client: str) -> None:
        if client not in self._held:
            token = token_of(client)
            if token not in self._turns:
                self._turns[token] = OrderedDict()
            self._turns[token][client] = None

    def _remove_turn(self, client: str) -> None:
        token = token_of(client)
        clients = self._turns.get(token)
        if clients is not None:
            clients.pop(client, None)
            if not clients:
                del self._turns[token]

    def _forget(self, client: str) -> None:
        del self._messages[client]
        self._remove_turn(client)

    def _count(self, queued: QueuedMessage, change: int) -> None:
        self.counts[token_of(queued.client)] += change
        self.bytes += change * queued.size
        self._length += change
