"""Territories of a service, up to a limit: the least recently used ones of the busiest token are evicted first.

Eviction by token keeps one game from pushing out the territories of others, and so from taking them over. Which
territory is evicted follows from the log alone, so that a replay evicts the same ones.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from townlet.decide.clients import token_of
from townlet.decide.domain import ObservationRow
from townlet.decide.events import DecisionMade
from townlet.decide.json import parsed

Answers = tuple[tuple[float, bytes], ...]  # times and replies as JSON, which takes less memory than dictionaries


@dataclass(frozen=True)
class Territory:
    """The state of one territory."""

    known: ObservationRow  # columns that the domain carries over
    time: float  # of the last observation
    last: DecisionMade | None = None  # its answer, for repeated requests
    earlier: Answers = ()  # the answers before it

    def answered(self, time: float) -> dict[str, Any] | None:
        """The reply to the observation of this time, if it is still known."""
        if time > self.time:
            return None
        if self.last and time == self.time:
            return self.last.reply
        return next((parsed(reply) for then, reply in self.earlier if then == time), None)


class Territories(OrderedDict[str, Territory]):
    """Territories by name, the least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self._tokens: dict[str, OrderedDict[str, None]] = {}  # names by the token that used them last, same order

    def remember(self, name: str, territory: Territory) -> None:
        """Store the newest state of a territory, and move it to the end."""
        self.forget(name)
        self[name] = territory
        self._tokens.setdefault(_token(territory), OrderedDict())[name] = None

    def forget(self, name: str) -> None:
        """Remove a territory, if it exists."""
        if (found := self.pop(name, None)) is not None:
            names = self._tokens[_token(found)]
            del names[name]
            if not names:
                del self._tokens[_token(found)]

    def trim(self, most: int) -> None:
        """Evict territories until no more than `most` are left."""
        while len(self) > most:
            busiest = max(self._tokens, key=lambda token: (len(self._tokens[token]), token))
            self.forget(next(iter(self._tokens[busiest])))


def _token(territory: Territory) -> str:
    return token_of(territory.last.client) if territory.last else ""
