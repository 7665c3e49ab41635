"""The service without a server, with a real log and real versions."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from decide.ads_service import FileService, ask, click, request, run_visits, start_service
from townlet.decide.events import DecisionMade
from townlet.decide.recovery import read_events, replay_folder
from townlet.decide.state import is_held_out
from townlet.decide.storage import LOG
from townlet.errors import TownletError


def counts(service: FileService) -> dict[str, int]:
    found = service.storage.state.join.counts
    assert found.balanced
    assert found.decisions == found.joined + found.expired + found.pending + found.not_executed
    return {"decisions": found.decisions, "joined": found.joined, "expired": found.expired, "pending": found.pending}


def test_repeated_observation_gets_the_same_answer(tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path)
    first, again = ask(service, request(1.0))[0], ask(service, request(1.0))[0]
    assert first == again
    both = ask(service, request(2.0), request(2.0))
    assert both[0] == both[1] != first
    assert counts(service)["decisions"] == 2
    service.storage.close()


def test_stale_observation_is_refused(tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path)
    ask(service, request(5.0))
    assert ask(service, request(4.0))[0]["code"] == "STALE_OBSERVATION"
    assert ask(service, request(4.0, "another site"))[0]["type"] == "ad_decision"
    service.storage.close()


def test_report_counts_once(tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path)
    id = ask(service, request(1.0))[0]["decisionId"]
    for _ in range(3):
        assert service.report(click(id)).reply == {"type": "outcome_ack", "decisionId": id}
    assert counts(service) == {"decisions": 1, "joined": 1, "expired": 0, "pending": 0}
    assert service.storage.state.totals.completed == 1
    assert service.storage.state.join.counts.duplicates == 2
    service.storage.close()


@pytest.mark.parametrize(
    "id",
    ["", "-", "1", "abc-1", "{epoch}-1", "{epoch}-0-{tag}", "{epoch}-2-{tag}", "{epoch}-1e0-{tag}", "00000000-1-{tag}"],
)
def test_reports_of_unknown_decisions_have_no_effect(tmp_path: Path, id: str) -> None:
    service, _, _ = start_service(tmp_path)
    epoch, _, tag = ask(service, request(1.0))[0]["decisionId"].split("-")
    reply = service.report(click(id.format(epoch=epoch, tag=tag)) if id else {"type": "click_report"}).reply
    assert reply["code"] == ("UNKNOWN_DECISION" if id else "INVALID_REPORT")
    assert counts(service) == {"decisions": 1, "joined": 0, "expired": 0, "pending": 1}
    service.storage.close()


def test_pending_decision_expires_and_late_report_is_ignored(tmp_path: Path) -> None:
    service, _, clock = start_service(tmp_path)
    id = ask(service, request(1.0))[0]["decisionId"]
    clock.now += 19
    service.storage.maintain()
    assert counts(service)["pending"] == 1
    clock.now += 2
    service.storage.maintain()
    service.report(click(id))
    assert counts(service) == {"decisions": 1, "joined": 0, "expired": 1, "pending": 0}
    assert service.storage.state.join.counts.late == 1
    assert len(service.storage.state.buffer) + len(service.storage.state.held_out) == 0  # censored
    service.storage.close()


def test_pending_decisions_are_limited(tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path, ["memory.pending=3"])
    ids = [ask(service, request(float(n)))[0]["decisionId"] for n in range(5)]
    service.storage.maintain()
    assert counts(service) == {"decisions": 5, "joined": 0, "expired": 2, "pending": 3}
    for id in ids:
        service.report(click(id))
    assert counts(service) == {"decisions": 5, "joined": 3, "expired": 2, "pending": 0}  # the oldest two expired
    service.storage.close()


@pytest.mark.parametrize(
    ("domain", "words", "message"),
    [
        ("hive", (), "holds decisions for bandit-ads, not for hive; serve bandit-ads"),
        ("bandit-ads", ("seed=3",), "seed is 3, but this folder was created with 0; set seed=0"),
        ("bandit-ads", ("memory.capacity=50",), "set memory.capacity=10000"),
    ],
)
def test_folder_of_another_domain_is_refused_unchanged(
    tmp_path: Path, domain: str, words: tuple[str, ...], message: str
) -> None:
    service, _, _ = start_service(tmp_path)
    ask(service, request(1.0))
    service.storage.close()
    with pytest.raises(TownletError, match=re.escape(message)):
        start_service(tmp_path, words, domain)
    again, _, _ = start_service(tmp_path)
    assert counts(again)["decisions"] == 1
    again.storage.close()


def test_expired_decisions_can_have_a_default_outcome(tmp_path: Path) -> None:
    service, _, clock = start_service(tmp_path, ["memory.expired_outcome=0"])
    ask(service, request(1.0))
    clock.now += 21
    service.storage.maintain()
    assert len(service.storage.state.buffer) + len(service.storage.state.held_out) == 1
    service.storage.close()


def test_unaffordable_action_is_never_sent(tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path)
    found = ask(service, request(1.0, budgets=[0.0] * 12))[0]
    assert (found["type"], found["reason"]) == ("no_ad", "no_budget")
    assert service.storage.state.join.counts.waited == 1
    service.storage.close()


def test_invalid_messages_are_answered_with_an_error(tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path)
    found = ask(service, request(1.0, traits=[2.0] * 8))[0]
    assert (found["type"], found["code"]) == ("error", "INVALID_OBSERVATION")
    assert found["message"].startswith("traits.0:")
    assert counts(service)["decisions"] == 0
    service.storage.close()


def test_kill_switch_lets_the_gate_decide_alone(tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path)
    service.versions.set_gate_only(True, "it is odd")
    service.storage.close()
    service, _, _ = start_service(tmp_path)  # the kill switch survives a restart
    found = ask(service, request(100.0))[0]
    assert (found["ad"], found["modelVersion"], found["confidence"]) == (0, 0, 1.0)
    assert ask(service, request(101.0))[0]["ad"] == 1  # the first was shown a second ago, and is less fresh
    assert service.versions.history[-1].kind == "gate_only"
    assert service.versions.history[-1].reason == "it is odd"
    service.versions.set_gate_only(False, "fixed")
    assert ask(service, request(102.0))[0]["modelVersion"] == 1
    service.storage.close()


def test_service_learns_and_replay_gives_the_same_versions(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path, ["memory.expired_outcome=0", "learning.lr=0.005"])
    first = run_visits(service, training, clock, 200)
    second = run_visits(service, training, clock, 450, seed=2)
    third = run_visits(service, training, clock, 250, seed=3)
    rates = [site.clicks / site.shown for site in (first, second, third)]
    assert rates[0] < 0.26 < 0.34 < rates[2], rates  # about .64 is possible
    assert training.progress.agreed == training.progress.samples > 0  # the gate was never changed
    service.storage.close()
    found = list(replay_folder(tmp_path))
    assert len(found) > 40
    assert all(one.same for one in found)


@pytest.mark.parametrize("milestone", [None, 30, 120])
def test_service_resumes_after_close(tmp_path: Path, milestone: int | None) -> None:
    service, training, clock = start_service(tmp_path)
    run_visits(service, training, clock, 70 if milestone == 120 else 10)
    if milestone:
        service.storage.save_snapshot()
    run_visits(service, training, clock, 120, seed=2)
    pending = {number: one.decision for number, one in service.storage.state.pending.items()}
    held = service.storage.state.held_out.newest(10**9), service.storage.state.buffer.newest(10**9)
    training.step()
    training.step()  # not published: it must be repeated
    before = service.storage.state.join.counts, service.storage.trainer.step, service.versions.serving
    weights = {name: tensor.tolist() for name, tensor in service.storage.trainer.weights().items()}
    service.storage.close()
    again, _, _ = start_service(tmp_path)
    assert before[2] is not None
    assert again.versions.serving is not None
    assert (again.storage.state.join.counts, again.storage.trainer.step) == before[:2]
    assert again.versions.serving.digest == before[2].digest
    assert {name: tensor.tolist() for name, tensor in again.storage.trainer.weights().items()} == weights
    assert {number: one.decision for number, one in again.storage.state.pending.items()} == pending
    for kept, found in zip(
        held, (again.storage.state.held_out.newest(10**9), again.storage.state.buffer.newest(10**9)), strict=True
    ):
        assert kept.number.tolist() == found.number.tolist()
        assert kept.outcome.tolist() == found.outcome.tolist()
        assert all((kept.rows[name] == found.rows[name]).all() for name in kept.rows)
    assert again.storage.state.totals == service.storage.state.totals
    decided = [
        event
        for event in read_events(tmp_path / LOG)
        if isinstance(event, DecisionMade) and event.territory == "site 2"
    ]
    assert ask(again, decided[-1].message) == [decided[-1].reply]
    again.storage.close()


def test_changed_gate_changes_agreement(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path)
    run_visits(service, training, clock, 120)
    assert training.progress.last is not None
    assert training.progress.last.agreement == 1.0
    service.storage.close()
    again, later, clock = start_service(tmp_path, ["gate.threshold=0.12", "learning.samples_per_insert=100"])
    later.step()
    assert later.progress.last is not None
    assert (later.progress.last.agreement or 0.0) < 0.9
    again.storage.close()
    assert all(one.same for one in replay_folder(tmp_path))


@pytest.mark.parametrize("games", [20, 144, 233])
def test_held_out_share_is_equal_for_alternating_games(games: int) -> None:
    held = [number for number in range(1, 60_000) if is_held_out(number, 0.1)]
    assert len(held) == pytest.approx(6000, abs=300)  # four standard deviations
    chance = games * (1 - (1 - 1 / games) ** 500)
    for first in range(0, 5500, 500):
        met = Counter(number % games for number in held[first : first + 500])
        assert abs(len(met) - chance) < 0.15 * games
        assert max(met.values()) < 500 / games + 6 * (500 / games) ** 0.5


def test_refusal_rewinds_the_trainer(tmp_path: Path) -> None:
    service, training, clock = start_service(
        tmp_path, ["promotion.entropy_floor=1.0", "versions=2"]
    )  # lower entropy is always refused
    run_visits(service, training, clock, 160)
    assert training.progress.verdicts["refuse"] >= 5
    assert service.versions.serving is not None
    assert service.versions.serving.version == 1
    first, now = service.versions.open(1)[0], service.storage.trainer.weights()
    assert {name: tensor.tolist() for name, tensor in first.items()} == {
        name: tensor.tolist() for name, tensor in now.items()
    }
    assert service.storage.trainer.step > 20  # the step count continues
    service.storage.close()
    again, _, _ = start_service(tmp_path, ["promotion.entropy_floor=1.0", "versions=2"])
    assert again.storage.trainer.step == service.storage.trainer.step
    again.storage.close()
    assert all(one.same for one in replay_folder(tmp_path))
