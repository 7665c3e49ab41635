"""Training with several seeds, and the statistics of their scores."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from townlet.errors import TownletError
from townlet.interfaces.counters import Counters
from townlet.recipes.schema import Recipe
from townlet.train.multi_seed import bootstrap_interval, iqm, train_seeds
from train.tiny import DQN, RecordingSink


@pytest.mark.parametrize(
    ("scores", "mean"),
    [
        ([7.0], 7),
        ([1.0, 3.0], 2),
        (
            [0.0, 6.0, 100.0],
            (0 + 6 * 4 + 100) / 6,
        ),  # the middle half contains 1/4 of each end value and all of the middle one
        ([0.0, 1.0, 3.0, 1000.0], 2),  # the middle two
        ([5.0, -1e9, 1.0, 2.0, 3.0, 4.0, 1e9, 6.0], 3.5),  # the middle four, in any order
    ],
)
def test_interquartile_mean_equals_a_manual_computation(scores: list[float], mean: float) -> None:
    assert iqm(scores) == pytest.approx(mean)


@settings(deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=10))
def test_interval_contains_the_mean_and_lies_within_the_scores(scores: list[float]) -> None:
    low, high = bootstrap_interval(scores)
    slack = 1e-9 * max(1.0, *map(abs, scores))
    assert min(scores) - slack <= low <= iqm(scores) + slack
    assert iqm(scores) - slack <= high <= max(scores) + slack


def test_interval_narrows_with_more_seeds() -> None:
    def width(scores: list[float]) -> float:
        low, high = bootstrap_interval(scores)
        return high - low

    assert width([400.0, 450.0, 500.0] * 10) < width([400.0, 450.0, 500.0]) / 2


def test_every_seed_gives_a_separate_run(tmp_path: Path) -> None:
    heard: list[RecordingSink] = []

    def sink(recipe: object) -> RecordingSink:
        heard.append(RecordingSink())
        return heard[-1]

    found = train_seeds("town:dqn", [*DQN, "seed=5", "budget={env_steps: 400}"], tmp_path, 2, sink)
    assert [outcome.seed for outcome in found.outcomes] == [5, 6]
    assert len({outcome.run.path for outcome in found.outcomes}) == 2
    assert not found.interrupted
    assert found.scores == [each.evaluations[-1]["length"] for each in heard]
    assert f"IQM of length over 2 seeds: {sum(found.scores) / 2:.1f}, 95 % interval" in found.summary()
    assert all(each.closed for each in heard)


class FailingSink(RecordingSink):
    """A sink that fails after the first rollout."""

    def on_rollout(self, counters: Counters) -> None:
        raise RuntimeError("out of memory\nmore about it")


def test_failed_seed_is_named_and_does_not_stop_the_others(tmp_path: Path) -> None:
    def sink(recipe: Recipe) -> RecordingSink:
        return FailingSink() if recipe.seed == 5 else RecordingSink()

    found = train_seeds("town:dqn", [*DQN, "seed=5", "budget={env_steps: 200}"], tmp_path, 2, sink)
    assert [outcome.seed for outcome in found.outcomes] == [6]
    (failed,) = found.failed
    assert (failed.seed, failed.why, failed.exit_code) == (5, "RuntimeError: out of memory", 1)
    assert failed.run.meta()["seed"] == 5
    assert (found.exit_code, found.interrupted) == (1, False)
    assert "over 1 seed: " in found.summary()
    assert found.summary().endswith("failed: seed 5")


def test_error_common_to_all_seeds_is_reported_once(tmp_path: Path) -> None:
    with pytest.raises(TownletError, match="there is no run 'nothing'"):
        train_seeds("town:dqn", [*DQN, "init_from=nothing"], tmp_path, 2)
