"""What waits for one client."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from townlet.web.mailbox import MAX_BYTES, Mailbox, SendTimeout


def delivered(mailbox: Mailbox, seconds: float = 0.05) -> list[str]:
    """All that leaves in a moment."""
    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    async def run() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(mailbox.deliver(send), seconds)

    asyncio.run(run())
    return sent


def test_of_what_moves_only_the_latest_is_sent() -> None:
    mailbox = Mailbox()
    for n in range(1000):
        mailbox.post_latest("frame", f"frame {n}")
        mailbox.post_latest("wall", f"wall {n}")
    assert delivered(mailbox) == ["frame 999", "wall 999"]
    assert mailbox.dropped == 2 * 999


def test_all_comes_in_order_and_what_moves_stands_where_it_moved_last() -> None:
    mailbox = Mailbox()
    mailbox.post_event("begin")
    mailbox.post_latest("frame", "frame 1")
    mailbox.post_event("event")
    mailbox.post_latest("frame", "frame 2")
    mailbox.post_event("end")
    assert delivered(mailbox) == ["begin", "event", "frame 2", "end"]


def test_letters_are_bounded_and_the_oldest_go() -> None:
    mailbox = Mailbox(max_events=5)
    for n in range(100):
        mailbox.post_event(str(n))
    assert delivered(mailbox) == ["95", "96", "97", "98", "99"]
    assert mailbox.dropped == 95


def test_a_client_that_reads_nothing_is_given_up() -> None:
    async def run() -> None:
        mailbox = Mailbox()
        mailbox.post_event("never read")
        sending = asyncio.create_task(mailbox.deliver(lambda _: asyncio.sleep(10)))
        try:
            await mailbox.enforce_timeout(timeout=0.02)
        finally:
            sending.cancel()

    with pytest.raises(SendTimeout):
        asyncio.run(run())


def test_a_client_that_reads_slowly_is_kept() -> None:
    async def run() -> None:
        mailbox = Mailbox()
        sending = asyncio.create_task(mailbox.deliver(lambda _: asyncio.sleep(0.01)))
        for n in range(30):
            mailbox.post_event(str(n))
        with pytest.raises(TimeoutError):  # it was never given up
            await asyncio.wait_for(mailbox.enforce_timeout(timeout=0.1), 0.5)
        sending.cancel()

    asyncio.run(run())


def test_letters_are_bounded_in_bytes_and_the_newest_is_always_kept() -> None:
    mailbox = Mailbox()
    for n in range(10):
        mailbox.post_event(str(n) * (MAX_BYTES // 4))
    assert [text[0] for text in delivered(mailbox)] == ["6", "7", "8", "9"]
    assert mailbox.dropped == 6
    mailbox = Mailbox()
    mailbox.post_event("small")
    mailbox.post_event("x" * 2 * MAX_BYTES)
    assert len(delivered(mailbox)) == 1
