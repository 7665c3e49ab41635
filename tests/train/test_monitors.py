"""Alerts are reported once, with a tip, even across a resume."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from metrics_digest import content_digest
from townlet.runs.metrics_store import MetricsStore
from townlet.runs.report import write_report
from townlet.tasks.experiment import load_experiment
from townlet.train.logger import MetricsLogger
from townlet.train.monitors import MONITORS, PATIENCE_INTERVALS, SCORE, STALE_INTERVALS, WINDOW, Alert, Monitors
from townlet.train.session import start
from train.tiny import RecordingSink, build_with_logger, tiny

LONG = 4 * PATIENCE_INTERVALS
RETURN = "episode_return"
RISING = [float(at) for at in range(40)]
# monitor → (good values, bad values, part of the message)
CASES: dict[str, tuple[list[float], list[float], str]] = {
    "kl high": ([0.01], [0.2] * LONG, "approx_kl is 0.2"),
    "kl low": ([0.01], [1e-5] * LONG, "below 0.001"),
    "clip high": ([0.1], [0.7] * LONG, "70%"),
    "clip low": ([0.1], [0.01] * LONG, "1.0%"),
    "explained variance": ([0.5], [-0.9] * LONG, "worse than a constant"),
    "entropy collapse": ([1.6], [0.3] * LONG, "below 25% of its initial value 1.6"),
    "action_std collapse": ([1.0], [1e-4] * LONG, "0.0001"),
    "score stalls": (RISING, [39.0, 38.0] * STALE_INTERVALS, "episode_return has not exceeded 38.6"),
    "score falls": (RISING, [5.0] * LONG, "episode_return fell from 34.5"),
    "dead units": ([0.1], [0.8] * LONG, "80%"),
    "exploding gradients": ([1.0], [1e5] * LONG, "initially 1"),
    "vanishing gradients": ([1.0], [0.0] * LONG, "nothing is learned"),
    "loss diverges": ([1.0], [-1e6] * LONG, "-1e+06"),
    "value loss": ([1.0], [1e6] * LONG, "1e+06"),
    "td error": ([1.0], [1e6] * LONG, "1e+06"),
    "values diverge": ([3.0], [1e6] * LONG, "1e+06"),
    "rnd loss": ([1.0], [1e3] * LONG, "rnd_loss is 1e+03"),
    "steps_per_second": ([1000.0] * WINDOW, [300.0] * 5, "usual 1,000"),
}


def reported(values: Sequence[float], metric: str, goal: float | None = None) -> list[tuple[int, Alert]]:
    """The alerts, each with the number of its interval."""
    monitors = Monitors(RETURN, goal)
    return [(at, alert) for at, value in enumerate(values) for alert in monitors.check({metric: value})]


def test_every_monitor_has_a_case() -> None:
    assert list(CASES) == [monitor.name for monitor in MONITORS]


@pytest.mark.parametrize("name", CASES)
def test_lasting_problem_is_reported_once_with_a_tip(name: str) -> None:
    good, bad, word = CASES[name]
    (monitor,) = (monitor for monitor in MONITORS if monitor.name == name)
    metric = RETURN if monitor.metric == SCORE else monitor.metric
    assert reported(good * 3 if len(good) == 1 else good, metric) == []
    found = [(at, alert) for at, alert in reported([*good, *bad], metric) if alert.name == name]
    ((at, alert),) = found
    assert at >= len(good) - 1 + monitor.patience
    assert word in alert.message
    assert (alert.tip, alert.value) == (monitor.tip, [*good, *bad][at])
    assert alert.tip


@pytest.mark.parametrize("name", [name for name in CASES if len(CASES[name][0]) == 1])
def test_single_bad_interval_raises_no_alert(name: str) -> None:
    (good,), (bad, *_), _ = CASES[name]
    (metric,) = (monitor.metric for monitor in MONITORS if monitor.name == name)
    assert reported([good, *[bad] * (PATIENCE_INTERVALS - 1), good, bad], metric) == []


@pytest.mark.parametrize("metric", ["approx_kl", "clip_fraction"])
def test_single_gradient_step_raises_no_alert_about_small_updates(metric: str) -> None:
    def alerts(steps: float) -> int:
        monitors = Monitors(RETURN)
        return sum(len(monitors.check({metric: 0.0, "gradient_steps": steps})) for _ in range(LONG))

    assert (alerts(1.0), alerts(2.0)) == (0, 1)


@pytest.mark.parametrize(
    ("metric", "values", "name"),
    [
        ("approx_kl", (0.0, 0.0), "kl low"),
        ("approx_kl", (0.2, 0.2), "kl high"),
        ("clip_fraction", (0.0, 0.0), "clip low"),
        ("clip_fraction", (0.9, 0.9), "clip high"),
        ("entropy", (1.6, 0.1), "entropy collapse"),
    ],
)
def test_updates_raise_no_alert_while_the_score_rises_or_is_good_enough(
    metric: str, values: tuple[float, float], name: str
) -> None:
    def alerts(scores: Sequence[float], goal: float | None = None) -> int:
        monitors, found = Monitors(RETURN, goal), []
        for at, score in enumerate(scores):
            found += monitors.check({metric: values[at > 0], RETURN: score})
        return sum(alert.name == name and "does not rise" in alert.message for alert in found)

    constant = [7.0] * (WINDOW + LONG)
    assert (alerts(RISING), alerts([*RISING, *constant], goal=6.0), alerts([*RISING, *constant])) == (0, 0, 1)


def test_fallen_evaluations_raise_one_alert_even_across_a_resume() -> None:
    monitors, alerts = Monitors(RETURN), []
    monitors.check_evaluation(100.0, random=True)
    for score in (300.0, 900.0, 700.0, 600.0, 900.0, 640.0, 2000.0, 1400.0, 500.0, 400.0):
        alerts += monitors.check_evaluation(score)
        state, monitors = monitors.state(), Monitors(RETURN)
        monitors.restore(state)
    (alert,) = alerts
    assert (alert.name, alert.value) == ("evaluation falls", 500.0)  # the second one in a row below 2000 − 30% of 1900
    assert "from 2000 to 500" in alert.message
    assert "best checkpoint is kept" in alert.tip


def test_agent_that_has_learned_little_cannot_fall() -> None:
    """162 to 154 steps of 300, where a random agent survives 141: exploration has hardly begun to fade."""
    monitors = Monitors(RETURN, 285.0)
    monitors.check_evaluation(141.0, 1.0, random=True)
    assert not any(monitors.check_evaluation(score, 0.2) for score in (162.0, 154.0, 154.0))
    assert any(monitors.check_evaluation(score, 0.2) for score in (230.0, 154.0, 154.0))


def test_score_at_its_maximum_does_not_stall() -> None:
    """Exploration keeps the mean of training below the goal after it was reached."""
    values = [*RISING, *[39.0] * WINDOW, *[36.0] * (STALE_INTERVALS + LONG)]
    assert not any(alert.name == "score stalls" for _, alert in reported(values, RETURN, goal=38.0))
    assert any(alert.name == "score stalls" for _, alert in reported(values, RETURN, goal=40.0))


def test_small_updates_of_a_decayed_learning_rate_raise_no_alert() -> None:
    def alerts(last: float) -> int:
        monitors, found = Monitors(RETURN), []
        for at in range(2 * LONG):
            found += monitors.check({"approx_kl": 1e-5, "lr": 1e-3 if at < WINDOW else last, RETURN: 7.0})
        return sum(alert.name == "kl low" for alert in found)

    assert (alerts(1e-3), alerts(4e-4)) == (1, 0)


def test_evaluations_that_differ_by_chance_raise_no_alert() -> None:
    """Scores of an agent that has learned next to nothing: the best one is a lucky one."""
    scores = (26.6, 26.84, 26.04, 26.5, 27.08, 26.4, 26.2)
    for error, alerts in ((0.2, 0), (0.02, 2)):
        monitors = Monitors(RETURN)
        monitors.check_evaluation(26.28, error, random=True)
        assert sum(len(monitors.check_evaluation(score, error)) for score in scores) == alerts


def test_alert_is_repeated_after_a_recovery() -> None:
    bad = [9.0] * PATIENCE_INTERVALS
    assert [at for at, _ in reported([*bad, *bad, 0.01, *bad], "approx_kl")] == [
        PATIENCE_INTERVALS - 1,
        3 * PATIENCE_INTERVALS,
    ]


def test_nan_is_outside_every_limit() -> None:
    assert [alert.name for _, alert in reported([math.nan] * LONG, "approx_kl")] == ["kl high", "kl low"]


@pytest.mark.parametrize(("name", "value"), [("policy_loss", -0.01), ("explained_variance", -0.1), ("mean_q", -50.0)])
def test_negative_metrics_raise_no_alert(name: str, value: float) -> None:
    assert reported([value] * LONG, name) == []


def test_score_above_the_goal_need_not_rise() -> None:
    assert reported([*RISING, *[39.0] * (STALE_INTERVALS + LONG)], RETURN, goal=38.0) == []
    assert reported([*RISING, *[39.0] * (STALE_INTERVALS + LONG)], RETURN, goal=40.0) != []
    monitors = Monitors(RETURN, 40.0)
    monitors.check_evaluation(41.0)  # exploration lowers the score of training
    assert not any(monitors.check({RETURN: score}) for score in [*RISING, *[39.0] * (STALE_INTERVALS + LONG)])


def test_noisy_constant_score_raises_no_alert() -> None:
    assert reported([10.0, 20.0, 12.0, 18.0] * 7, RETURN) == []


def test_occasional_slow_interval_raises_no_alert() -> None:
    assert reported([*[1000.0] * 9, 100.0] * 10, "steps_per_second") == []


def test_alerts_are_stored_and_reported_across_a_resume(tmp_path: Path) -> None:
    sink = RecordingSink()
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(tiny(), store, sink)
        for mark in range(1, PATIENCE_INTERVALS + 3):
            t.counters.env_steps = 100 * mark
            logger.on_update({"mean_q": 1e7})
            logger.on_rollout_end()
            state, logger = logger.state(), MetricsLogger(t, 100, 20, store, [sink])
            logger.restore(state)
        found = store.read("alerts", ["env_steps", "name", "value"])
    assert found == {"env_steps": [100 * PATIENCE_INTERVALS], "name": ["values diverge"], "value": [1e7]}
    assert [note.split(":")[0] for note in sink.messages] == ["values diverge"]


def test_timing_is_in_no_checkpoint_and_no_digest(tmp_path: Path) -> None:
    monitors = Monitors()
    for _ in range(WINDOW):
        monitors.check({"steps_per_second": 1e3, "loss": 1.0})
    assert list(monitors.state()["past"]) == ["loss"]
    assert "steps_per_second" not in monitors.state()["bad"]
    with MetricsStore(tmp_path / "metrics.db") as store:
        before = content_digest(store)
        store.add("alerts", {"env_steps": 1, "name": "steps_per_second", "message": "slow"})
        assert content_digest(store) == before
        store.add("alerts", {"env_steps": 1, "name": "kl high", "message": "far"})
        assert content_digest(store) != before


def test_too_high_learning_rate_alerts_on_console_in_store_and_report(tmp_path: Path) -> None:
    sink = RecordingSink()
    words = ["threads=1", "rows=4", "agent={n_steps: 32, epochs: 4, lr: 10}", "env_steps=4096"]
    words += ["network={hidden: [16], activation: relu}"]
    quiet = ("metrics={every: 128, tensorboard: false, report: false}", "evaluation={every: 1, episodes: 2}")
    run = start(load_experiment("CartPole-v1:ppo", [*words, *quiet]), tmp_path, sinks=[sink]).run
    with MetricsStore(run.metrics_file) as store:
        found = store.read("alerts", ["name", "tip"])
    assert {"entropy collapse", "dead units"} & {*found["name"]}
    assert all(found["tip"])
    text = write_report(run)[0].read_text().replace("\\", "")  # without Markdown escapes
    for name, tip in zip(found["name"], found["tip"], strict=True):
        assert any(note.startswith(f"{name}: ") and note.endswith(f"Tip: {tip}") for note in sink.messages)
        assert name in text
        assert tip in text
