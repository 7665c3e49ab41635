"""Alerts: told once, with what to do, and the same after a resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from townlet.runs.store import Store
from townlet.train.journal import Journal
from townlet.train.monitors import PATIENCE, Monitors
from train.tiny import Heard, begun, tiny

LONG = 4 * PATIENCE


def told(values: list[float], name: str) -> list[int]:
    """At which of the marks an alert comes."""
    monitors = Monitors()
    return [at for at, value in enumerate(values) if monitors.look({name: value})]


@pytest.mark.parametrize(
    ("name", "bad", "word"),
    [("entropy", 0.3, "below 25%"), ("mean_q", 1e6, "run away"), ("grad_norm", 0.0, "nothing is learned"),
     ("grad_norm", 1e5, "clip"), ("explained_variance", -0.9, "worse than a constant"), ("approx_kl", 0.2, "lower lr")],
)  # fmt: skip
def test_what_stays_bad_is_told_once_with_a_tip(name: str, bad: float, word: str) -> None:
    good = {"entropy": 1.6, "mean_q": 3.0, "grad_norm": 1.0, "explained_variance": 0.5, "approx_kl": 0.01}[name]
    monitors, found = Monitors(), []
    for value in [good, *[bad] * LONG]:
        found += monitors.look({name: value})
    (alert,) = found
    assert (alert.name, alert.value) == (name, bad)
    assert word in alert.message


def test_a_single_bad_interval_is_no_alert() -> None:
    assert told([0.01, *[9.0] * (PATIENCE - 1), 0.01, 9.0], "approx_kl") == []


def test_it_is_told_again_after_it_had_been_well() -> None:
    bad = [9.0] * PATIENCE
    assert told([*bad, *bad, 0.01, *bad], "approx_kl") == [PATIENCE - 1, 3 * PATIENCE]


@pytest.mark.parametrize(("name", "value"), [("policy_loss", -0.01), ("explained_variance", -0.1), ("mean_q", -50.0)])
def test_a_figure_may_be_below_zero(name: str, value: float) -> None:
    assert told([value] * LONG, name) == []


def test_what_depends_on_the_clock_is_no_alert() -> None:
    assert told([1e-9] * LONG, "steps_per_second") == []


def test_alerts_of_a_training_are_kept_and_told_also_after_a_resume(tmp_path: Path) -> None:
    heard = Heard()
    with Store(tmp_path / "metrics.db") as store:
        t, journal = begun(tiny(), store, heard)
        for mark in range(1, PATIENCE + 3):
            t.counters.env_steps = 100 * mark
            journal.update({"mean_q": 1e7})
            journal.tick()
            state, journal = journal.state(), Journal(t, 100, 20, store, [heard])
            journal.restore(state)
        found = store.read("alerts", ["env_steps", "name", "value"])
    assert found == {"env_steps": [100 * PATIENCE], "name": ["mean_q"], "value": [1e7]}
    assert [note.split(":")[0] for note in heard.notes] == ["mean_q"]
