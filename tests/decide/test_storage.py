"""One suite for both storages: the same promises, whatever keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from decide.ads_service import ask, click, request
from decide.both_storages import Opener, visit
from townlet.decide import events
from townlet.errors import TownletError


def test_repeated_and_stale_observations(open_service: Opener) -> None:
    one = open_service()
    first, again = ask(one.service, request(1.0))[0], ask(one.service, request(1.0))[0]
    assert first == again
    both = ask(one.service, request(2.0), request(2.0), request(3.0))
    assert both[0] == both[1] != first
    assert both[2]["decisionId"] not in (both[0]["decisionId"], first["decisionId"])
    assert ask(one.service, request(1.0))[0] == first
    assert ask(one.service, request(1.5))[0]["code"] == "STALE_OBSERVATION"
    assert one.counts().decisions == 3


def test_reports_count_once(open_service: Opener) -> None:
    one = open_service()
    id = ask(one.service, request(1.0))[0]["decisionId"]
    for _ in range(3):
        assert one.service.report(click(id)).reply == {"type": "outcome_ack", "decisionId": id}
    assert one.service.report(click(id, clicked=False)).reply["code"] == "CONTRADICTING_REPORT"
    assert one.service.report(click(f"{id[:-1]}g")).reply["code"] == "UNKNOWN_DECISION"
    counts = one.counts()
    assert (counts.decisions, counts.joined, counts.duplicates, counts.contradicting) == (1, 1, 2, 1)
    assert one.learner.state.totals.completed == 1


def test_a_batch_of_reports_is_handled_in_order(open_service: Opener) -> None:
    one = open_service()
    ids = [reply["decisionId"] for reply in ask(one.service, *(request(1.0, f"site {n}") for n in range(3)))]
    reports = [click(ids[0]), click(ids[0]), click(ids[1], clicked=False), {"type": "?"}, click(ids[0], clicked=False)]
    answers = one.service.report_all([*reports, click("nothing"), click(ids[2])], [""] * 7)
    kinds = [answer.reply.get("code") or answer.reply["type"] for answer in answers]
    ack = "outcome_ack"
    assert kinds == [ack, ack, ack, "INVALID_REPORT", "CONTRADICTING_REPORT", "UNKNOWN_DECISION", ack]
    counts = one.counts()
    assert (counts.joined, counts.duplicates, counts.contradicting, counts.pending) == (3, 1, 1, 0)
    assert one.learner.state.totals.actual == 2


@pytest.mark.parametrize("outcome", ["null", "0"])
def test_decisions_expire(open_service: Opener, outcome: str) -> None:
    one = open_service([f"memory.expired_outcome={outcome}"])
    id = ask(one.service, request(1.0))[0]["decisionId"]
    one.clock.now += 19
    one.maintain()
    assert one.counts().pending == 1
    one.clock.now += 2
    one.maintain()
    # Unlike a report that counts.
    assert one.service.report(click(id)).reply == {"type": "outcome_ack", "decisionId": id, "status": "expired"}
    counts = one.counts()
    assert (counts.expired, counts.joined, counts.late) == (1, 0, 1)
    state = one.learner.state
    assert len(state.buffer) + len(state.held_out) == (outcome == "0")


def test_an_event_that_expired_without_activation_cannot_be_activated_or_rewarded(open_service: Opener) -> None:
    words = ("options.bits=8", "memory.capacity=64")
    one = open_service(words, "rank")
    actions = {"actions": [{"id": "a"}, {"id": "b"}]}
    for name, deferred in (("deferred", True), ("activated", True), ("shown", False)):
        ask(one.service, {"type": "rank_request", "eventId": name, "deferActivation": deferred, **actions})
    one.service.report({"type": "activate", "eventId": "activated"})
    one.clock.now += 21
    one.maintain()
    for again in (one, None):
        if again is None:
            one.close()
            again = open_service(words, "rank", one.clock)
        for message in ({"type": "activate"}, {"type": "reward", "value": 1.0}):
            code = again.service.report({**message, "eventId": "deferred"}).reply["code"]
            assert code == "INACTIVE_DECISION"
            for name in ("activated", "shown"):
                assert again.service.report({**message, "eventId": name}).reply["status"] == "expired"
        assert (again.counts().expired, again.counts().joined) == (3, 0)


def test_pending_decisions_and_territories_are_limited(open_service: Opener) -> None:
    one = open_service(["memory.pending=3", "memory.territories=4"])
    for n in range(6):
        ask(one.service, request(float(n), f"site {n}"))
    one.maintain()
    counts = one.counts()
    assert (counts.expired, counts.pending) == (3, 3)
    assert sorted(one.learner.state.territories) == [f"site {n}" for n in range(2, 6)]
    assert ask(one.service, request(0.5, "site 0"))[0]["type"] == "ad_decision"  # evicted, so it begins as a new one


def test_territories_belong_to_their_client(open_service: Opener) -> None:
    one = open_service()
    owner, other = "a" * 12 + "." + "b" * 12, "a" * 12 + "." + "c" * 12
    with one.service.clients.connect("game", "one"):
        (mine,) = one.service.answer([request(1.0)], clients=[owner])
        (theirs,) = one.service.answer([request(2.0)], clients=[other])
    assert (mine.reply["type"], theirs.reply["code"]) == ("ad_decision", "FOREIGN_TERRITORY")
    assert one.service.report(click(mine.reply["decisionId"]), other).reply["code"] == "FOREIGN_DECISION"
    assert one.service.report(click(mine.reply["decisionId"]), owner).reply["type"] == "outcome_ack"


def test_outcomes_follow_from_the_next_observation(open_service: Opener) -> None:
    one = open_service(domain="hive")
    game = one.service.domain.make_game(3, "north", 0)
    sent = 0
    for _ in range(40):
        (answer,) = one.service.answer([game.observe()])
        sent += answer.reply["type"] == "spawn_decision"
        for report in game.apply(answer.reply) + game.advance():
            one.service.report(report)
        one.clock.now += 1
    counts = one.counts()
    assert sent > 3
    assert counts.joined + counts.failed + counts.pending == sent
    assert counts.pending <= 1


def test_a_failed_decision_is_undone_in_its_territory(open_service: Opener) -> None:
    one = open_service(domain="hive")
    game = one.service.domain.make_game(3, "north", 0)
    reply: dict[str, Any] = {}
    while reply.get("type") != "spawn_decision":
        game.advance()
        (answer,) = one.service.answer([game.observe()])
        reply = answer.reply
    failed = {"type": "spawn_result", "decisionId": reply["decisionId"], "success": False, "reason": "no path"}
    with one.service.storage.batch(["north"]) as batch:
        before = {name: column.copy() for name, column in batch.state("north").items()}
    assert one.service.report(failed).reply["type"] == "outcome_ack"
    with one.service.storage.batch(["north"]) as batch:
        after = batch.state("north")
    assert any((before[name] != after[name]).any() for name in after)
    assert one.counts().failed == 1
    learned = one.learner.state.territory("north").state
    assert all((learned[name] == after[name]).all() for name in after)


def test_it_continues_after_a_restart_and_its_replay_gives_equal_weights(open_service: Opener) -> None:
    one = open_service(["promotion.min_count=10"])
    visit(one, 40)
    one.learner.save_snapshot()
    counts, weights = one.counts(), one.learner.trainer.weights()
    serving, id = one.service.versions.serving, ask(one.service, request(1e6, "late"))[0]["decisionId"]
    before = {name: weight.clone() for name, weight in weights.items()}
    one.close()
    again = open_service(["promotion.min_count=10"], clock=one.clock)
    assert again.counts().decisions == counts.decisions + 1
    assert all((again.learner.trainer.weights()[name] == weight).all() for name, weight in before.items())
    assert serving is not None
    assert again.service.versions.serving is not None
    assert again.service.versions.serving.digest == serving.digest
    assert again.service.report(click(id)).reply["type"] == "outcome_ack"
    again.training.step()
    again.training.publish()
    again.learner.catch_up()
    versions = list(again.replayed())
    assert len(versions) == len(again.learner.versions.list_versions())
    assert all(version.same for version in versions)


def test_an_operator_pins_rolls_back_and_turns_the_network_off(open_service: Opener) -> None:
    one = open_service()
    visit(one, 20)
    versions = one.service.versions
    newest = versions.list_versions()[-1]
    versions.pin(1, "looks best")
    assert versions.serving is not None
    assert (versions.serving.version, versions.pinned) == (1, 1)
    one.learner.versions.refresh()
    assert not one.learner.versions.promote(newest, "better").applied
    versions.refresh()
    versions.unpin()
    versions.set_gate_only(True, "strange decisions")
    assert ask(one.service, request(1e6, "new"))[0]["modelVersion"] == 0
    one.close()
    again = open_service(clock=one.clock)
    assert again.service.versions.gate_only
    assert again.service.versions.serving is not None
    assert again.service.versions.serving.version == 1


@pytest.mark.parametrize(
    ("domain", "words", "message"),
    [
        ("hive", (), "holds decisions for bandit-ads, not for hive"),
        ("bandit-ads", ("seed=3",), "seed is 3, but this .* was created with 0"),
    ],
)
def test_incompatible_settings_are_refused(
    open_service: Opener, domain: str, words: tuple[str, ...], message: str
) -> None:
    one = open_service()
    ask(one.service, request(1.0))
    one.close()
    with pytest.raises(TownletError, match=message):
        open_service(words, domain)
    assert open_service().counts().decisions == 1


def test_new_settings_are_adopted(open_service: Opener) -> None:
    one = open_service()
    visit(one, 6)
    one.close()
    again = open_service(["learning.lr=0.005"], clock=one.clock)
    assert again.learner.state.settings.learning.lr == 0.005
    again.learner.await_durable()
    recent = list(again.learner.recent_events(10_000))
    starts = [event.settings["learning"]["lr"] for event in recent if isinstance(event, events.ServiceStarted)]
    assert starts in ([0.002, 0.005], [0.002, 0.002, 0.005])  # a session of a database repeats the settings in force
