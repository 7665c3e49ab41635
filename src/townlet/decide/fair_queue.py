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
        client = queued.client
        if client not in self._messages:
            self._messages[client] = deque()
            self._add_turn(client)
        self._messages[client].append(queued)
        self._count(queued, 1)

    def first(self) -> QueuedMessage:
        """The next message."""
        clients = next(iter(self._turns.values()))
        return self._messages[next(iter(clients))][0]

    def take(self) -> QueuedMessage:
        """Remove the next message; its token and its client have their next turn after all others."""
        token, clients = next(iter(self._turns.items()))
        client = next(iter(clients))
        queued = self._messages[client].popleft()
        clients.move_to_end(client)
        self._turns.move_to_end(token)
        self._count(queued, -1)
        return queued

    def drop_newest(self, token: str) -> QueuedMessage:
        """Remove the newest message of the client of a token that has the most."""
        of_token = (messages for client, messages in self._messages.items() if token_of(client) == token)
        queued = max(of_token, key=len).pop()
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
            self._turns.setdefault(token_of(client), OrderedDict())[client] = None

    def _remove_turn(self, client: str) -> None:
        token = token_of(client)
        clients = self._turns.get(token, OrderedDict())
        clients.pop(client, None)
        if not clients:
            self._turns.pop(token, None)

    def _count(self, queued: QueuedMessage, change: int) -> None:
        """Count a message that was added (1) or removed (−1); a client without messages has no turn."""
        self.counts[token_of(queued.client)] += change
        self.bytes += change * queued.size
        self._length += change
        if not self._messages[queued.client]:
            del self._messages[queued.client]
            self._remove_turn(queued.client)
