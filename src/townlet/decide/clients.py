"""Clients of the service: owners of territories, open connections, and message rates.

An owner is the name of a token and the key that the client sends with `?client=`, hashed, since the log contains it.
A connection without a key is an owner of its own; once it is closed, its territories are free for clients with the
same token.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final, NamedTuple

from townlet.decide.settings import LimitSettings
from townlet.web.limits import TokenBucket

KEY: Final = re.compile(r"[A-Za-z0-9._~-]{1,64}")
KEYED, KEYLESS = ".", "~"  # separators between the two halves of an owner
DIGITS: Final = 12  # of each half


class GameConnection(NamedTuple):
    """The client behind a connection."""

    owner: str
    messages: TokenBucket  # shared by all connections with the same token


class Clients:
    """The clients that are connected."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._connections: Counter[str] = Counter()  # by owner
        self._buckets: dict[str, TokenBucket] = {}  # by the name of the token, so that new keys do not evade it

    @contextmanager
    def connect(self, name: str, key: str | None) -> Iterator[GameConnection]:
        """Count a connection with the token of this name inside the block."""
        owner = owner_of(name, key)
        limits = self._limits
        bucket = self._buckets.setdefault(name, TokenBucket(limits.messages_per_second, limits.burst))
        self._connections[owner] += 1
        try:
            yield GameConnection(owner, bucket)
        finally:
            self._connections[owner] -= 1
            if not self._connections[owner]:
                del self._connections[owner]

    def excludes(self, owner: str, client: str, recent: bool) -> bool:
        """Whether a client may not use what an owner opened; `recent`: the owner has used it recently.

        Others are excluded while the owner is connected or has used it recently. An owner without a key cannot
        reconnect, so what it opened is free for its own token as soon as it is disconnected.
        """
        if owner == client or not owner or not client:  # callers within this process have no connection
            return False
        if owner in self._connections:
            return True
        return recent and not (owner[DIGITS] == KEYLESS and token_of(owner) == token_of(client))


def owner_of(name: str, key: str | None) -> str:
    """The owner id of a connection, short and without secrets."""
    if key is None:
        return f"{_hash(name)}{KEYLESS}{secrets.token_hex(DIGITS // 2)}"
    return f"{_hash(name)}{KEYED}{_hash(f'{name} {key}')}"


def token_of(owner: str) -> str:
    """The part of an owner id that identifies its token."""
    return owner[:DIGITS]


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:DIGITS]
