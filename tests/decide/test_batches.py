"""Batches of messages that clients send without waiting for answers, for both storages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from decide.ads_service import ask, click, request
from decide.both_storages import Opener, open_at, visit
from townlet.decide.batcher import Batcher, make_batcher
from townlet.decide.fair_queue import FutureReply
from townlet.decide.territories import owner_id


def run_with_batcher(open_service: Opener, act: Callable[[Batcher], Awaitable[None]], *words: str) -> None:
    one = open_service(words)

    async def run() -> None:
        batcher = make_batcher(one.service)
        try:
            await asyncio.wait_for(act(batcher), 60)
        finally:
            batcher.close()

    asyncio.run(run())
    one.counts()


def test_observations_sent_at_once_are_answered_in_order(open_service: Opener) -> None:
    async def act(batcher: Batcher) -> None:
        replies = [batcher.submit(request(float(turn)), client="one") for turn in range(150)]
        others = [batcher.submit(request(float(turn), "b"), client="two") for turn in range(3)]
        answers = await asyncio.gather(*replies, *others)
        assert {answer["type"] for answer in answers} == {"ad_decision"}, answers
        numbers = [answer["decisionId"] for answer in answers]
        assert len(set(numbers)) == 153

    run_with_batcher(open_service, act)


async def finished(replies: dict[str, list[FutureReply]]) -> list[tuple[str, str]]:
    """Client and code or type of each reply, in the order in which they were sent."""
    order: list[tuple[str, str]] = []

    def note(client: str, reply: FutureReply) -> None:
        order.append((client, str(reply.result().get("code", reply.result()["type"]))))

    for client, futures in replies.items():
        for future in futures:
            future.add_done_callback(partial(note, client))
    await asyncio.gather(*(future for futures in replies.values() for future in futures))
    return order


def test_a_token_with_many_keys_does_not_delay_the_clients_of_another(open_service: Opener) -> None:
    async def act(batcher: Batcher) -> None:
        keys = [owner_id("many", str(number)) for number in range(100)]
        quiet = owner_id("quiet", "key")
        replies = {
            key: [batcher.submit(request(float(turn), key), client=key) for turn in range(2)] for key in keys
        }  # fmt: skip
        replies[quiet] = [batcher.submit(request(float(turn), "quiet"), client=quiet) for turn in range(2)]
        order = await finished(replies)
        assert {kind for _, kind in order} == {"ad_decision"}
        places = [place for place, (client, _) in enumerate(order) if client == quiet]
        assert max(places) < 4 * 16  # in one of the first batches

    run_with_batcher(open_service, act, "overload.batch_size=16", "overload.patience=10")


def test_a_token_that_fills_the_queue_does_not_crowd_out_another(open_service: Opener) -> None:
    async def act(batcher: Batcher) -> None:
        greedy, quiet = owner_id("greedy", "key"), owner_id("quiet", "key")
        replies = {
            greedy: [batcher.submit(request(float(turn), "greedy"), client=greedy) for turn in range(40)],
            quiet: [batcher.submit(request(float(turn), "quiet"), client=quiet) for turn in range(12)],
        }
        kinds = Counter(await finished(replies))
        # Each gets half of the 20 places; what is refused of a client is the newest.
        assert kinds == {
            (greedy, "OVERLOADED"): 30, (greedy, "ad_decision"): 10,
            (quiet, "OVERLOADED"): 2, (quiet, "ad_decision"): 10,
        }  # fmt: skip
        for futures in replies.values():
            assert [future.result()["type"] for future in futures[:10]] == ["ad_decision"] * 10

    run_with_batcher(open_service, act, "overload.waiting=20", "overload.patience=10")


def test_reports_between_observations_are_all_answered(open_service: Opener) -> None:
    async def act(batcher: Batcher) -> None:
        first = await asyncio.gather(*(batcher.submit(request(float(turn)), client="one") for turn in range(30)))
        replies = []
        for turn, answer in enumerate(first, 30):
            replies.append(batcher.report(click(answer["decisionId"]), client="one"))
            replies.append(batcher.submit(request(float(turn)), client="one"))
        answers = await asyncio.gather(*replies)
        assert [answer["type"] for answer in answers] == ["outcome_ack", "ad_decision"] * 30

    run_with_batcher(open_service, act)


@pytest.mark.parametrize("mode", ["gate_greedy", "refuse"])
def test_observations_that_waited_too_long_do_not_make_later_ones_stale(open_service: Opener, mode: str) -> None:
    """While a batch is computed, others wait; some of the next batch have then waited for longer than `patience`."""
    seen: list[dict[str, Any]] = []

    async def act(batcher: Batcher) -> None:
        replies = []
        for turn in range(200):
            replies.append(batcher.submit(request(float(turn)), client="one"))
            await asyncio.sleep(0.0005)
        seen.extend(await asyncio.gather(*replies))

    run_with_batcher(open_service, act, "overload.patience=0.002", f"overload.mode={mode}", "overload.batch_size=16")
    assert len(seen) == 200
    codes = {answer.get("code") for answer in seen}
    assert codes <= ({None} if mode == "gate_greedy" else {None, "OVERLOADED"}), codes


def test_a_statement_that_fails_does_not_harm_later_batches(database: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    one = open_at(database)
    visit(one, 2)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ALTER TABLE event ADD CONSTRAINT full_disk CHECK (false) NOT VALID")
        for _ in range(3):
            with pytest.raises(psycopg.errors.CheckViolation):
                one.service.answer([request(1e6)])
        connection.execute("ALTER TABLE event DROP CONSTRAINT full_disk")
    for turn in range(3):
        assert ask(one.service, request(2e6 + turn))[0]["type"] == "ad_decision"
    one.counts()
    one.close()
