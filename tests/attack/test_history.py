"""Histories of clients under faults: nothing acknowledged is lost, duplicated or changed, and the checker can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from attack import campaign
from attack.damage import command
from attack.history import (
    COUNTED,
    History,
    Logged,
    LoggedDecision,
    LoggedOutcome,
    Message,
    Operation,
    Poll,
    check,
    counted,
)

IDS = ((1, 1), (2, 2), (3, 4))  # numbers and times of the decisions of a small history
FEW = ("kill", "full", "jump", "pause", "kill")


def assert_consistent(result: campaign.Result, folder: Path) -> None:
    history = result.history
    stored = {one.stored_id for one in history.operations if one.observation and one.stored_id}
    print(f"\n{len(history.operations)} operations, {len(stored)} decisions stored, faults {dict(result.faults)}")
    print({name: history.counts[name] for name in (*COUNTED, "late", "duplicates")})
    assert not (broken := check(history)), "\n".join(broken[:20])
    assert not result.problems
    verified = command("decide", "verify", str(folder))
    assert verified.code == 0, verified.text


def test_acknowledgements_survive_a_kill_a_full_disk_and_a_clock_jump(tmp_path: Path) -> None:
    result = campaign.run(tmp_path / "service", "bandit-ads", FEW, seed=8)
    assert result.faults["kill"] >= 3
    assert_consistent(result, tmp_path / "service")


@pytest.mark.long(minutes=12)
@pytest.mark.parametrize("domain", ["bandit-ads", "hive"])
def test_acknowledgements_survive_dozens_of_faults(domain: str, tmp_path: Path) -> None:
    result = campaign.run(tmp_path / "service", domain, campaign.lasting(600, seed=3), seed=3)
    assert result.faults.total() >= 36
    assert_consistent(result, tmp_path / "service")


def observation(time: float) -> Message:
    return {"type": "ad_request", "territoryId": "a", "timestamp": time, "traits": [0.5], "budgets": [1.0]}


def decision(number: int, ad: int = 3) -> Message:
    return {"type": "ad_decision", "decisionId": f"x-{number}-t", "ad": ad, "confidence": 0.5, "modelVersion": 1}


def report(number: int, clicked: bool = True) -> Message:
    return {"type": "click_report", "decisionId": f"x-{number}-t", "clicked": clicked}


def acknowledged(number: int) -> Message:
    return {"type": "outcome_ack", "decisionId": f"x-{number}-t"}


def with_counts(history: History) -> History:
    """Set the statistics to those of the log."""
    counts = counted(history.log)
    history.counts = {name: counts[name] for name in COUNTED} | {"not_executed": counts["waited"] + counts["failed"]}
    return history


@pytest.fixture
def history() -> History:
    """Four decisions, of which one is not stored, and two outcomes, of which one was reported twice."""
    said: list[tuple[Message, Message | None]] = [
        (observation(1), decision(1)), (report(1), acknowledged(1)), (report(1), acknowledged(1)),
        (observation(2), decision(2)), (observation(2), decision(2)), (report(2, clicked=False), acknowledged(2)),
        (observation(3), decision(0)), (observation(4), decision(3)), (observation(5), None),
    ]  # fmt: skip
    operations = [Operation(0, float(at), at + 0.5, *both) for at, both in enumerate(said)]
    one, two, three = (LoggedDecision(f"x-{n}-t", observation(t), decision(n), 100.0 + t, True) for n, t in IDS)
    clicked, ignored = LoggedOutcome("x-1-t", 1.0, "report"), LoggedOutcome("x-2-t", 0.0, "report")
    log: list[Logged] = [one, clicked, two, ignored, three]
    return with_counts(History(operations, [Poll(4.0, {"decisions": 2})], log))


def test_a_correct_history_passes(history: History) -> None:
    wanted = {"decisions": 3, "joined": 2, "pending": 1}
    assert {name: history.counts[name] for name in wanted} == wanted
    assert check(history) == []


def lost_decision(history: History) -> None:
    del history.log[-1]
    with_counts(history)


def lost_outcome(history: History) -> None:
    del history.log[3]
    with_counts(history)


def changed_outcome(history: History) -> None:
    history.log[3] = LoggedOutcome("x-2-t", 1.0, "report")


def duplicated_outcome(history: History) -> None:
    history.counts = {**history.counts, "joined": 3, "pending": 0}


def duplicated_outcome_in_the_log(history: History) -> None:
    history.log.insert(2, history.log[1])


def uncounted_outcome(history: History) -> None:
    history.counts = {**history.counts, "joined": 1, "pending": 2}


def duplicated_decision(history: History) -> None:
    history.log.append(LoggedDecision("x-9-t", observation(4), decision(9), 110.0, True))
    with_counts(history)


def duplicated_id(history: History) -> None:
    history.log.append(history.log[-1])
    with_counts(history)


def changed_reply(history: History) -> None:
    history.operations[4] = replace(history.operations[4], reply=decision(2, ad=7))


def reply_other_than_logged(history: History) -> None:
    history.operations[7] = replace(history.operations[7], reply=decision(3, ad=7))


def id_of_another_observation(history: History) -> None:
    history.operations[8] = replace(history.operations[8], reply=decision(3))


def unrequested_decision(history: History) -> None:
    history.log.append(LoggedDecision("x-4-t", observation(9), decision(4), 109.0, True))
    with_counts(history)


def unreported_outcome(history: History) -> None:
    history.log.append(LoggedOutcome("x-3-t", 1.0, "report"))
    with_counts(history)


def broken_sum(history: History) -> None:
    history.counts = {**history.counts, "pending": 0}


def shrunk_statistics(history: History) -> None:
    history.polls.append(Poll(8.0, {"decisions": 1}))


def stored_decision_reported_as_unstored(history: History) -> None:
    refusal = {"type": "error", "code": "UNLOGGED_DECISION", "message": ""}
    history.operations[5] = replace(history.operations[5], reply=refusal)


def newest_observation_refused_as_stale(history: History) -> None:
    refusal = {"type": "error", "code": "STALE_OBSERVATION", "message": ""}
    history.operations[8] = replace(history.operations[8], reply=refusal)


FOUND: dict[Callable[[History], None], str] = {
    lost_decision: "the decision x-3-t was acknowledged, but is not in the log",
    lost_outcome: "the outcome 0.0 of x-2-t was acknowledged, but is not in the log",
    changed_outcome: "the outcome 0.0 of x-2-t was acknowledged, but is not in the log",
    duplicated_outcome: "the statistics have joined = 3, but the log gives 2",
    duplicated_outcome_in_the_log: "the log has 2 outcomes of x-1-t",
    uncounted_outcome: "the statistics have joined = 1, but the log gives 2",
    duplicated_decision: "('a', 4) was decided 2 times",
    duplicated_id: "the log has 2 decisions with the id x-3-t",
    changed_reply: "('a', 2) was answered with",
    reply_other_than_logged: "client 0 received",
    id_of_another_observation: "the id x-3-t was given to ('a', 4) and to ('a', 5)",
    unrequested_decision: "x-4-t answers an observation that no client sent",
    unreported_outcome: "the log has an outcome 1.0 of x-3-t that no client reported",
    broken_sum: "the sum rule does not hold",
    shrunk_statistics: "3 decisions were acknowledged, but the statistics showed 1",
    stored_decision_reported_as_unstored: "x-2-t was stored and is reported as not stored",
    newest_observation_refused_as_stale: "its newest observation was refused as stale",
}


@pytest.mark.parametrize("tamper", FOUND, ids=lambda tamper: tamper.__name__)
def test_checker_detects_a_falsified_history(tamper: Callable[[History], None], history: History) -> None:
    tamper(history)
    found = check(history)
    assert any(FOUND[tamper] in broken for broken in found), found
