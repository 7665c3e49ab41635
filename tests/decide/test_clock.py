"""Wrong clocks and long pauses: no outcome is lost, and an alarm names the host whose clock is wrong."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from decide.ads_service import QUICK, FileService, ask, click, request
from decide.both_storages import Opener, open_at
from townlet.decide.clock import ManualClock, ServiceClock
from townlet.decide.domains import DOMAINS
from townlet.decide.service import Service
from townlet.decide.settings import load_settings
from townlet.decide.storage.file import FileStorage
from townlet.decide.storage.stored_service import is_url

ADS = DOMAINS["bandit-ads"]
YEARS = 315_360_000.0  # ten


@contextmanager
def host_clock_off(seconds: float) -> Iterator[None]:
    """The clock of this host is wrong."""
    right = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: right() + seconds)
        yield


def clock_alarms(service: Service) -> list[str]:
    return [notice.what for notice in service.storage.notices if notice.name == "clock"]


@contextmanager
def decider(url: str) -> Iterator[Service]:
    """A process that decides, with its own clock."""
    from townlet.decide.storage.postgres.decisions import PostgresStorage

    service = Service(PostgresStorage(url, ADS, load_settings("bandit-ads", QUICK, DOMAINS), ServiceClock()))
    yield service
    service.close()


@pytest.mark.parametrize(("seconds", "direction"), [(-600, "behind"), (600, "ahead of")])
def test_a_wrong_clock_of_a_decider_loses_no_outcome(database: str, seconds: float, direction: str) -> None:
    """Neither at the start of its process nor later."""
    one, owner, other = open_at(database, clock=ServiceClock()), "a" * 12 + "." + "b" * 12, "a" * 12 + "." + "c" * 12
    with host_clock_off(seconds), decider(database) as service:
        (what,) = clock_alarms(service)
        assert what == f"The clock of {socket.gethostname()} is 600 s {direction} the time of the service"
        (answer,) = service.answer([request(1.0)], clients=[owner])
        with host_clock_off(seconds):
            later = ask(service, request(1.0, "later"))[0]
        one.maintain()
        for reply in (answer.reply, later):
            reported = service.report(click(reply["decisionId"]), owner if reply is answer.reply else "").reply
            assert reported == {"type": "outcome_ack", "decisionId": reply["decisionId"]}
    assert (one.counts().joined, one.counts().expired) == (2, 0)
    (taken,) = one.service.answer([request(2.0)], clients=[other])
    assert taken.reply["code"] == "FOREIGN_TERRITORY"
    assert clock_alarms(one.service) == []
    one.close()


def test_a_decider_whose_clock_stood_still_adopts_the_time_of_the_database(database: str) -> None:
    """As after its virtual machine was paused: the first batch has the right time already."""
    one = open_at(database, clock=ServiceClock())
    one.clock.offset -= 600
    id = ask(one.service, request(1.0))[0]["decisionId"]
    one.maintain()
    assert one.service.report(click(id)).reply == {"type": "outcome_ack", "decisionId": id}
    one.close()


def test_a_jump_of_the_clock_of_the_database_expires_nothing(database: str) -> None:
    one = open_at(database, clock=ServiceClock())
    before = ask(one.service, request(1.0))[0]["decisionId"]
    one.clock.synchronize(one.clock() + YEARS)
    after = ask(one.service, request(2.0))[0]["decisionId"]
    one.maintain()
    one.maintain()
    for id in (before, after):
        assert one.service.report(click(id)).reply == {"type": "outcome_ack", "decisionId": id}
    one.close()


def test_time_without_service_does_not_expire_decisions(open_service: Opener) -> None:
    """A pause cannot be distinguished from a wrong clock, and nothing could be reported in it."""
    one = open_service()
    first = ask(one.service, request(1.0))[0]["decisionId"]
    one.clock.now += 12
    second = ask(one.service, request(2.0))[0]["decisionId"]
    one.close()
    if is_url(one.where):
        note_last_report(str(one.where), YEARS)
    clock = ManualClock(one.clock.now + YEARS)
    again = open_service(clock=clock)
    again.maintain()
    assert again.counts().pending == 2
    clock.now += 9
    again.maintain()
    assert again.service.report(click(first)).reply["status"] == "expired"
    assert again.service.report(click(second)).reply == {"type": "outcome_ack", "decisionId": second}


def note_last_report(url: str, seconds: float) -> None:
    """A learner led until this long ago."""
    import psycopg

    with psycopg.connect(url) as connection:
        sql = "INSERT INTO process (id, role, host, status, seen) VALUES ('learner', 'learn', 'a', '{}', %s)"
        connection.execute(sql.replace("%s", f"now() - interval '{seconds} seconds'"))


def test_a_clock_that_was_years_ahead_expires_nothing_and_is_reported_when_it_is_corrected(tmp_path: Path) -> None:
    def start() -> FileService:
        return FileService(FileStorage(tmp_path, ADS, load_settings("bandit-ads", QUICK, DOMAINS)))

    service = start()
    ids = [ask(service, request(1.0))[0]["decisionId"]]
    service.close()
    with host_clock_off(YEARS):
        service = start()
        service.storage.maintain()
        ids.append(ask(service, request(2.0))[0]["decisionId"])
        service.close()
    service = start()
    service.storage.maintain()
    (what,) = clock_alarms(service)
    found = re.search(r" is (\d+) s behind the time of the service$", what)
    assert found
    assert abs(float(found[1]) - YEARS) < 60
    for id in ids:
        assert service.report(click(id)).reply == {"type": "outcome_ack", "decisionId": id}
    assert service.storage.counts().joined == 2
    service.close()
