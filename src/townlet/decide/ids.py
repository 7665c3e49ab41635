"""Decision ids: `<epoch>-<number>-<tag>`. They cannot be guessed, and belong to one start of one log.

Every start draws a random key. The epoch is a hash of the key, the tag a keyed hash of the number; so an id that was
made after a log was cut or copied is unknown to the other copy, although both continue from the same number.
"""

from __future__ import annotations

import re
from hashlib import blake2b, sha256
from hmac import compare_digest
from typing import Any, Final, NamedTuple

PATTERN: Final = re.compile(r"([0-9a-f]{8})-(0|[1-9][0-9]{0,17})-([0-9a-f]{16})")
UNLOGGED: Final = 0  # the number in the id of a decision that could not be logged


class Epoch(NamedTuple):
    """The decisions of one start of the service."""

    first: int  # the number of its first decision
    key: str  # 32 hexadecimal digits

    @property
    def name(self) -> str:
        """The first part of its ids."""
        return sha256(bytes.fromhex(self.key)).hexdigest()[:8]


class DecisionIds:
    """The epochs of a log. Makes the ids of the last one, and recognises those of all of them."""

    def __init__(self) -> None:
        self._epochs: list[Epoch] = []
        self._places: dict[str, int] = {}  # by name
        self._name, self._key = "", b""

    def begin(self, first: int, key: str) -> None:
        """Start an epoch whose first decision has this number."""
        if self._epochs and self._epochs[-1].first == first:
            del self._places[self._epochs.pop().name]  # it made no decision
        epoch = Epoch(first, key)
        self._name, self._key = epoch.name, bytes.fromhex(key)
        self._places[epoch.name] = len(self._epochs)
        self._epochs.append(epoch)

    def make(self, number: int) -> str:
        """The id of a decision of this epoch."""
        return f"{self._name}-{number}-{_tag(self._key, number)}"

    def number(self, id: str, last: int) -> int | None:
        """The number of the decision with this id, `UNLOGGED`, or None if this log (up to `last`) did not make it."""
        match = PATTERN.fullmatch(id)
        place = self._places.get(match[1]) if match else None
        if match is None or place is None:
            return None
        number, epoch = int(match[2]), self._epochs[place]
        if not compare_digest(match[3], _tag(bytes.fromhex(epoch.key), number)):
            return None
        end = self._epochs[place + 1].first - 1 if place + 1 < len(self._epochs) else last
        return number if number == UNLOGGED or epoch.first <= number <= min(end, last) else None

    def state(self) -> list[tuple[int, str]]:
        """All epochs as JSON."""
        return [(epoch.first, epoch.key) for epoch in self._epochs]

    def restore(self, state: list[Any]) -> None:
        """Replace the epochs with saved ones."""
        self._epochs.clear()
        self._places.clear()
        for first, key in state:
            self.begin(int(first), str(key))


def _tag(key: bytes, number: int) -> str:
    return blake2b(b"%d" % number, digest_size=8, key=key).hexdigest()
