"""Token buckets: rates with a burst, for messages of a client and for wrong access tokens of an address."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from townlet.web.tokens import Identity

GUESSES: Final = 10  # wrong tokens of an address before it has to wait
EVERY: Final = 1.0  # seconds until it may try one more
ADDRESSES: Final = 4096  # that are remembered; the longest silent is forgotten first


class TokenBucket:
    """Grants `rate` units a second in the long run, and `burst` at once.

    It keeps the moment at which it will be full again (the generic cell rate algorithm): one number, and one addition
    for each unit, since every message of a game takes one.
    """

    __slots__ = ("_burst", "_clock", "_full", "_interval", "_limit")

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._burst, self._clock = 1 / rate, burst, clock
        self._limit = (burst - 1 + 1e-6) / rate  # seconds from full that are left where one unit is
        self._full = clock()

    def level(self) -> float:
        """Units that are left now."""
        return self._burst - max(0.0, self._full - self._clock()) / self._interval

    def take(self) -> bool:
        """Take a unit if there is one."""
        now, full = self._clock(), self._full
        if full < now:
            full = now
        elif full - now > self._limit:
            return False
        self._full = full + self._interval
        return True


class _Address:
    """State of one address."""

    def __init__(self, clock: Callable[[], float]) -> None:
        # Stale cookies of a page that reconnects on its own must not keep out the link that replaces them.
        self.guesses = {kept: TokenBucket(1 / EVERY, GUESSES, clock) for kept in (True, False)}
        self.accepted: set[Identity] = set()


class Guesses:
    """Slows down attempts to guess a token: an address may send a few wrong ones, then one a second.

    An identity that was accepted from an address stays accepted there, else a neighbour (or another process, on
    loopback) could lock out the operator by guessing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, _Address] = OrderedDict()

    def judge(self, address: str, kept: bool, found: Identity | None) -> bool:
        """Whether the result of this attempt may be used; `kept` tells a cookie from a token that was written out."""
        if found is None or (known := self._addresses.get(_network(address))) is None or found not in known.accepted:
            return self._attempt(self._address(address), kept, found)
        return True

    def _attempt(self, known: _Address, kept: bool, found: Identity | None) -> bool:
        bucket = known.guesses[kept]
        if found is None:
            return bucket.take()
        if bucket.level() < 1 - 1e-6:
            return False
        known.accepted.add(found)
        return True

    def _address(self, address: str) -> _Address:
        network = _network(address)
        known = self._addresses.setdefault(network, _Address(self._clock))
        self._addresses.move_to_end(network)
        while len(self._addresses) > ADDRESSES:
            self._addresses.popitem(last=False)
        return known


def _network(address: str) -> str:
    """The /64 network of an IPv6 address, since one subscriber has all of it; other addresses unchanged."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network(f"{address.partition('%')[0]}/64", strict=False))
    except ValueError:
        return address
