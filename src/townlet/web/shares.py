"""Fair shares of limited places: at the limit, the holder that has the most gives one up to a holder that has less."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from townlet.web.tokens import ANONYMOUS, Identity, network_of

TRY_AGAIN_LATER: Final = 1013  # WebSocket close code
REPLACED: Final = "closed in favor of others: this token and address had the most connections"

HolderT = TypeVar("HolderT")
Holder = tuple[Identity, str]  # token and address


def find_surplus(counts: Mapping[HolderT, int], own: int) -> HolderT | None:
    """The holder that gives a place to one that has `own` places: the largest, if it has at least two more.

    So each of n holders can get and keep 1/n of the places. Every exchange makes the counts more equal, so two holders
    never take places from each other in turn.
    """
    largest = max(counts, key=counts.__getitem__, default=None)
    return largest if largest is not None and counts[largest] > own + 1 else None


@dataclass(eq=False)
class Slot:
    """The place of an open WebSocket."""

    token: Identity
    address: str
    last_message: float = field(default_factory=time.monotonic)  # time of the last message from the client
    eviction: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))

    @property
    def holder(self) -> Holder:
        return self.token, self.address


class WebSocketLimit:
    """Limits open WebSockets of one kind, and shares them fairly among tokens, then among the addresses of a token.

    At the limit, a new one replaces the longest silent one of the largest holder, or is closed with 1013 (try again
    later) if its token and its address have their share.
    """

    def __init__(self, limit: int, reason: str) -> None:
        self.limit, self._reason = limit, reason
        self._slots: dict[Holder, set[Slot]] = {}
        self.refused = 0  # since the start; those that were replaced count too

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    @asynccontextmanager
    async def acquire(self, socket: WebSocket) -> AsyncIterator[Slot | None]:
        """Count a socket while the block runs; yields None, with the socket closed, if there is no place for it.

        If its place is given to another one, the block is cancelled and the socket closed.
        """
        slot = Slot(socket.scope.get("identity") or ANONYMOUS, network_of(socket.client.host if socket.client else ""))
        if len(self) >= self.limit:
            self.refused += 1
            replaced = self._find_replaceable(slot.token, slot.address)
            if replaced is None:
                with suppress(WebSocketDisconnect, RuntimeError):  # already closed
                    await socket.accept()  # without it a browser reports 403, as for a wrong token
                    await socket.close(TRY_AGAIN_LATER, self._reason)
                yield None
                return
            self._remove(replaced)
            replaced.eviction.reschedule(0.0)  # now
        self._slots.setdefault(slot.holder, set()).add(slot)
        try:
            async with slot.eviction:
                yield slot
        except TimeoutError:
            if not slot.eviction.expired():
                raise
            with suppress(WebSocketDisconnect, RuntimeError):  # already closed
                await socket.close(TRY_AGAIN_LATER, REPLACED)
        finally:
            self._remove(slot)

    def _remove(self, slot: Slot) -> None:
        slots = self._slots.get(slot.holder, set())
        slots.discard(slot)
        if not slots:
            self._slots.pop(slot.holder, None)

    def _find_replaceable(self, own_token: Identity, own_address: str) -> Slot | None:
        tokens = Counter[Identity]()
        for (token, _), slots in self._slots.items():
            tokens[token] += len(slots)
        larger = find_surplus(tokens, tokens[own_token])
        chosen = larger or own_token
        addresses = Counter({address: len(slots) for (token, address), slots in self._slots.items() if token == chosen})
        # Of another token any connection may go, of its own only one of an address that has more.
        address = find_surplus(addresses, -1 if larger else addresses[own_address])
        return None if address is None else min(self._slots[chosen, address], key=lambda slot: slot.last_message)
