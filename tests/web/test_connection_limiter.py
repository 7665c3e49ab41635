"""Which connections are closed in favor of others."""

from __future__ import annotations

import pytest

from townlet.web import limits
from townlet.web.limits import ConnectionLimiter, ConnectionPool


class Connection:
    """A connection that records its eviction."""

    evicted = False

    def evict(self) -> None:
        self.evicted = True


def test_longest_idle_connection_is_evicted_at_the_limit() -> None:
    pool = ConnectionPool(3)
    first, second, third, fourth, fifth = connections = [Connection() for _ in range(5)]
    for connection in connections[:3]:
        assert pool.admit(connection)
    pool.mark_busy(first)
    pool.mark_idle(first)  # idle again, now for less time than the others
    assert pool.admit(fourth)
    assert second.evicted
    assert not any(one.evicted for one in (first, third, fourth))
    pool.mark_busy(first)
    pool.mark_busy(third)
    pool.mark_busy(fourth)
    assert not pool.admit(fifth)  # none is idle
    assert not any(one.evicted for one in (first, third, fourth, fifth))


def test_messages_incomplete_for_longest_are_evicted() -> None:
    limiter = ConnectionLimiter(max_http=1, max_websockets=3, max_input_bytes=100)
    first, second, third = connections = [Connection() for _ in range(3)]
    limiter.set_buffered(first, 40)
    limiter.set_buffered(second, 30)
    limiter.set_buffered(first, 60)  # more of the same message
    assert not any(one.evicted for one in connections)
    limiter.set_buffered(third, 50)
    assert [one.evicted for one in connections] == [True, False, False]
    limiter.set_buffered(second, 0)  # complete
    limiter.set_buffered(third, 100)
    assert not third.evicted


def test_connections_opened_at_once_may_exceed_the_limit_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, connections = ConnectionPool(limit=2, burst=5), [Connection() for _ in range(7)]
    assert all(pool.admit(one) for one in connections[:5])
    pool.mark_busy(connections[0])
    assert not any(one.evicted for one in connections)
    assert pool.admit(connections[5])
    assert [one.evicted for one in connections] == [False, True, False, False, False, False, False]
    monkeypatch.setattr(limits, "BURST_SECONDS", 0.0)  # no request has arrived in time
    assert pool.admit(connections[6])
    assert [one.evicted for one in connections] == [False, True, True, True, True, True, False]
