"""Territories of a service: their owners, their memory limits, and the message rates of clients.

An owner is identified by a hash of the token name and of the key that the client sends with `?client=`. A connection
without a key is a separate owner; once it is closed, its territories are free for clients with the same token.

Byte budgets are converted to numbers of entries, each counted at its maximum size. So a budget is kept whatever games
send, and replaying a log evicts the same entries, independent of the memory layout of a Python release.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import numpy as np
from pydantic_core import from_json

from townlet.decide.domain import Domain, ObservationRow
from townlet.decide.events import DecisionMade
from townlet.decide.settings import LimitSettings, MemorySettings
from townlet.web.limits import TokenBucket

CLIENT_KEY: Final = re.compile(r"[A-Za-z0-9._~-]{1,64}")
KEYED, KEYLESS = ".", "~"  # separators between the two halves of an owner id
DIGITS: Final = 12  # length of each half
ARRAY_BYTES: Final = 128  # overhead of an array
ENTRY_BYTES: Final = 4096  # size of names, keys and a decision without its message
ANSWER_BYTES: Final = 640  # size of a stored answer with its time
MAX_ANSWERS: Final = 66  # earlier answers per territory: the 64 that one connection may await, and two in transit

Answers = tuple[tuple[float, bytes], ...]  # (time, reply as JSON, which takes less memory than a dictionary)


class Clients:
    """The connected clients."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._connections: Counter[str] = Counter()  # by owner
        self._buckets: dict[str, TokenBucket] = {}  # by token name, so that new keys do not evade the limit

    @contextmanager
    def connect(self, name: str, key: str | None) -> Iterator[tuple[str, TokenBucket]]:
        """Count a connection with this token name while the block runs; yields its owner id and its rate limit."""
        owner, limits = owner_id(name, key), self._limits
        bucket = self._buckets.setdefault(name, TokenBucket(limits.messages_per_second, limits.burst))
        self._connections[owner] += 1
        try:
            yield owner, bucket
        finally:
            self._connections[owner] -= 1
            if not self._connections[owner]:
                del self._connections[owner]

    def excludes(self, owner: str, client: str, recent: bool) -> bool:
        """Whether a client may not use an owner's territory; `recent`: the owner has used it recently.

        Others are excluded while the owner is connected or has used it recently. An owner without a key cannot
        reconnect, so its territories are free for its token as soon as it is disconnected.
        """
        if owner == client or not owner or not client:  # callers within this process have no connection
            return False
        if owner in self._connections:
            return True
        return recent and not (owner[DIGITS] == KEYLESS and token_of(owner) == token_of(client))


def owner_id(name: str, key: str | None) -> str:
    """The owner id of a connection; it is stored in the log, so it contains no secret."""
    if key is None:
        return f"{_hash(name)}{KEYLESS}{secrets.token_hex(DIGITS // 2)}"
    return f"{_hash(name)}{KEYED}{_hash(f'{name} {key}')}"


def token_of(owner: str) -> str:
    """The half of an owner id that identifies its token."""
    return owner[:DIGITS]


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Territory:
    """A territory: its state, and its latest answers."""

    state: ObservationRow  # columns that the domain carries from one observation to the next
    time: float  # time of the last observation
    last: DecisionMade | None = None  # the last decision, for repeated requests
    earlier: Answers = ()  # the answers before it, oldest first

    def answer_at(self, time: float) -> dict[str, Any] | None:
        """The reply to the observation of this time, None if it is new or no longer stored."""
        if time > self.time:
            return None
        if self.last and time == self.time:
            return self.last.reply
        return next((from_json(reply) for then, reply in self.earlier if then == time), None)


class Territories(OrderedDict[str, Territory]):
    """Territories by name, the least recently used first.

    The token with the most territories loses one first, so that a game cannot push out the territories of others and
    take them over. Eviction depends on the log alone, so a replay evicts the same territories.
    """

    def __init__(self) -> None:
        super().__init__()
        # Names by the token that used them last, in the same order.
        self._tokens: dict[str, OrderedDict[str, None]] = {}

    def store(self, name: str, territory: Territory) -> None:
        """Store the newest state of a territory, and move it to the end."""
        self.discard(name)
        self[name] = territory
        self._tokens.setdefault(_token(territory), OrderedDict())[name] = None

    def discard(self, name: str) -> None:
        if (territory := self.pop(name, None)) is not None:
            names = self._tokens[_token(territory)]
            del names[name]
            if not names:
                del self._tokens[_token(territory)]

    def surplus(self, limit: int) -> list[str]:
        """The territories to evict so that at most `limit` are left."""
        if len(self) <= limit:
            return []
        counts = {token: len(names) for token, names in self._tokens.items()}
        oldest = {token: iter(names) for token, names in self._tokens.items()}
        evicted: list[str] = []
        while len(self) - len(evicted) > limit:
            largest = max(counts, key=lambda token: (counts[token], token))
            counts[largest] -= 1
            evicted.append(next(oldest[largest]))
        return evicted


def _token(territory: Territory) -> str:
    return token_of(territory.last.client) if territory.last else ""


def max_pending(domain: Domain, memory: MemorySettings) -> int:
    """Number of decisions that may be pending, by count and by bytes."""
    row = sum(int(np.prod(column.shape)) * np.dtype(column.dtype).itemsize for column in domain.columns.values())
    return min(memory.pending, memory.pending_bytes // (row + ARRAY_BYTES * len(domain.columns) + ENTRY_BYTES))


def max_territories(domain: Domain, memory: MemorySettings) -> int:
    """Number of territories that may be stored, by count and by bytes."""
    columns = sum(column.nbytes + ARRAY_BYTES for column in domain.initial_territory_state().values())
    answers = 1 if domain.single_observations else MAX_ANSWERS + 1
    return min(memory.territories, memory.territory_bytes // (columns + ANSWER_BYTES * answers + ENTRY_BYTES))
