"""Logs with valid checksums and odd values: every command gives a result or one error, and none a traceback."""

from __future__ import annotations

import re
import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.program import Program, program
from decide.both_storages import open_at, visit
from decide.forged_log import REMOVED, forge, paths, stored_events
from townlet.decide.events import TrainingStep, encode
from townlet.decide.storage import LOG
from townlet.decide.storage.log import WriteAheadLog
from townlet.decide.storage.stored_service import is_url
from townlet.errors import TownletError

WORDS = ("memory.held_out=0.2", "memory.territories=2")
DECISION = "decisionmade"
(NUMBER, TERRITORY, MESSAGE, ACTION, PROPENSITY, GATE, REPLY) = (1, 2, 5, 6, 7, 12, 14)
SETTINGS = 2
FORGED: dict[str, tuple[str, tuple[int | str, ...], Any]] = {
    "a setting out of range": ("servicestarted", (SETTINGS, "learning", "lr"), -1.0),
    "a setting of another type": ("servicestarted", (SETTINGS, "memory"), []),
    "an unknown setting": ("servicestarted", (SETTINGS, "more"), 1),
    "no domain": ("servicestarted", (SETTINGS, "domain"), REMOVED),
    "a key that is not hexadecimal": ("servicestarted", (1,), "zz"),
    "unknown gate settings": (DECISION, (GATE,), "none"),
    "an odd message": (DECISION, (MESSAGE,), {"type": 3}),
    "a message that is no object": (DECISION, (MESSAGE,), 3),
    "the message of another territory": (DECISION, (MESSAGE, "territoryId"), "elsewhere"),
    "an unknown action": (DECISION, (ACTION,), 10**6),
    "an impossible propensity": (DECISION, (PROPENSITY,), 0.0),
    "a number beyond all others": (DECISION, (NUMBER,), 10**30),
    "a number that is not positive": (DECISION, (NUMBER,), 0),
    "a reply that is no object": (DECISION, (REPLY,), []),
    "an outcome that is no number": ("outcomerecorded", (2,), "x"),
    "numbers that are none": ("decisionsexpired", (2,), [None]),
    "an unknown event": ("outcomerecorded", (0,), "__class__"),
    "a missing field": ("trainingstep", (1,), REMOVED),
}
ODD: tuple[Any, ...] = (None, True, -1, 0, 3, 0.5, 1e308, 2**63, 10**30, "", "x", "\0", [], {}, [[]], {"a": 1}, REMOVED)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service with a version whose checkpoint was removed, so that the training is repeated."""
    folder = tmp_path_factory.mktemp("forged") / "service"
    play(folder)
    return folder


def play(place: str | Path) -> None:
    one = open_at(place, WORDS)
    visit(one, 12, sites=3)
    one.clock.now += 100
    one.maintain()
    one.learner.await_durable()
    one.close()


@pytest.fixture
def townlet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    return program(capsys, monkeypatch, "decide")


def use(place: str | Path, townlet: Program, to: Path) -> list[str]:
    """Check, replay, copy and serve; returns the errors."""
    option = ["--storage"] if is_url(place) else []
    results = [
        townlet("verify", *option, str(place)),
        townlet("replay", *(option or ["--folder"]), str(place)),
        townlet("copy", str(place), str(to)),
        townlet("versions", *(option or ["--folder"]), str(place)),
    ]
    shutil.rmtree(to, ignore_errors=True)
    errors = [one.err + one.out for one in results if one.code]
    if not option:
        try:
            open_at(place, WORDS).close()
        except TownletError as error:
            errors.append(str(error))
    return errors


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_record_is_named_by_every_command_that_reads_it(
    forged: str, log: Path, tmp_path: Path, townlet: Program
) -> None:
    folder = Path(shutil.copytree(log, tmp_path / "service"))
    forge(folder, *FORGED[forged])
    found = use(folder, townlet, tmp_path / "copy")
    assert len(found) == 4  # all but `versions`
    for text in found:
        assert re.search(r"(record|decision) \d", text), text
        assert "Traceback" not in text


@pytest.mark.parametrize("forged", ["a setting out of range", "unknown gate settings", "an outcome that is no number"])
def test_a_forged_row_is_named_by_every_command_that_reads_it(
    forged: str,
    database: str,
    tmp_path: Path,
    townlet: Program,
) -> None:
    play(database)
    forge(database, *FORGED[forged])
    found = use(database, townlet, tmp_path / "copy")
    assert len(found) == 3
    assert not any("Traceback" in text for text in found)


def test_training_steps_without_experience_do_not_delay_a_start(log: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(log, tmp_path / "service"))
    with closing(WriteAheadLog(folder / LOG)) as forged:
        for step in range(10_000):
            forged.append(encode(TrainingStep(step)))
    began = time.monotonic()
    with pytest.raises(TownletError, match="it has a training step without enough experience"):
        open_at(folder, WORDS)
    assert time.monotonic() - began < 5


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_any_record_gives_a_result_or_an_error(
    data: st.DataObject, log: Path, tmp_path: Path, townlet: Program
) -> None:
    fields = data.draw(st.sampled_from(stored_events(log)))
    path, value = data.draw(st.sampled_from(paths(fields))), data.draw(st.sampled_from(ODD))
    nth = data.draw(st.integers(0, 2))
    shutil.rmtree(tmp_path / "service", ignore_errors=True)
    folder = Path(shutil.copytree(log, tmp_path / "service"))
    try:
        forge(folder, fields[0], path, value, nth)
    except (LookupError, TypeError):  # another record of that kind has no such place
        return
    use(folder, townlet, tmp_path / "copy")
