"""Messages queued for one client."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from townlet.web.mailbox import MAX_BYTES, Mailbox


def delivered(mailbox: Mailbox, seconds: float = 0.05) -> list[str]:
    """All messages sent within `seconds`."""
    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    async def run() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(mailbox.deliver(send), seconds)

    asyncio.run(run())
    return sent


def test_only_the_latest_state_is_sent() -> None:
    mailbox = Mailbox()
    for n in range(1000):
        mailbox.post_latest("frame", f"frame {n}")
        mailbox.post_latest("wall", f"wall {n}")
    assert delivered(mailbox) == ["frame 999", "wall 999"]


def test_messages_are_sent_in_order_of_their_last_post() -> None:
    mailbox = Mailbox()
    mailbox.post_event("begin")
    mailbox.post_latest("frame", "frame 1")
    mailbox.post_event("event")
    mailbox.post_latest("frame", "frame 2")
    mailbox.post_event("end")
    assert delivered(mailbox) == ["begin", "event", "frame 2", "end"]


def test_oldest_events_are_dropped_beyond_the_limit() -> None:
    mailbox = Mailbox(max_events=5)
    for n in range(100):
        mailbox.post_event(str(n))
    assert delivered(mailbox) == ["95", "96", "97", "98", "99"]


def test_client_that_reads_nothing_times_out() -> None:
    async def run() -> None:
        mailbox = Mailbox()
        mailbox.post_event("never read")
        await mailbox.deliver(lambda _: asyncio.sleep(10), timeout=0.02)

    with pytest.raises(TimeoutError):
        asyncio.run(run())


def test_client_that_reads_slowly_is_kept() -> None:
    async def run() -> None:
        mailbox = Mailbox()
        for n in range(30):
            mailbox.post_event(str(n))
        sending = asyncio.create_task(mailbox.deliver(lambda _: asyncio.sleep(0.01), timeout=0.1))
        await asyncio.sleep(0.5)
        assert sending.cancel()  # it is still running: each message was sent in time

    asyncio.run(run())


def test_events_are_bounded_in_bytes_and_the_newest_is_kept() -> None:
    mailbox = Mailbox()
    for n in range(10):
        mailbox.post_event(str(n) * (MAX_BYTES // 4))
    assert [text[0] for text in delivered(mailbox)] == ["6", "7", "8", "9"]
    mailbox = Mailbox()
    mailbox.post_event("small")
    mailbox.post_event("x" * 2 * MAX_BYTES)
    assert len(delivered(mailbox)) == 1
