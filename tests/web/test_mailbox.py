"""What waits for one client."""

from __future__ import annotations

import asyncio

import pytest

from townlet.web.mailbox import Mailbox, Stuck


def delivered(mailbox: Mailbox, seconds: float = 0.05) -> list[str]:
    """All that leaves in a moment."""
    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    async def run() -> None:
        try:
            await asyncio.wait_for(mailbox.deliver(send), seconds)
        except TimeoutError:
            pass

    asyncio.run(run())
    return sent


def test_of_what_moves_only_the_latest_is_sent() -> None:
    mailbox = Mailbox()
    for n in range(1000):
        mailbox.post("frame", f"frame {n}")
        mailbox.post("wall", f"wall {n}")
    assert delivered(mailbox) == ["frame 999", "wall 999"]
    assert mailbox.dropped == 2 * 999


def test_what_happened_comes_in_order_and_before_what_moves() -> None:
    mailbox = Mailbox()
    mailbox.post("frame", "frame")
    for n in range(3):
        mailbox.tell(f"event {n}")
    assert delivered(mailbox) == ["event 0", "event 1", "event 2", "frame"]


def test_letters_are_bounded_and_the_oldest_go() -> None:
    mailbox = Mailbox(letters=5)
    for n in range(100):
        mailbox.tell(str(n))
    assert delivered(mailbox) == ["95", "96", "97", "98", "99"]
    assert mailbox.dropped == 95


def test_a_client_that_reads_nothing_is_given_up() -> None:
    async def run() -> None:
        mailbox = Mailbox()
        mailbox.tell("never read")
        await mailbox.deliver(lambda _: asyncio.sleep(10), patience=0.02)

    with pytest.raises(Stuck):
        asyncio.run(run())
