"""Training with several seeds, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from townlet.errors import TownletError
from townlet.interfaces.counters import Counters
from townlet.recipes.schema import Recipe
from townlet.runs.folder import Run
from townlet.train.multi_seed import RunHooks, train_seeds
from train.tiny import DQN, RecordingSink


def test_every_seed_gives_a_separate_run(tmp_path: Path) -> None:
    heard: list[RecordingSink] = []

    def observe(run: Run, recipe: Recipe) -> RunHooks:
        heard.append(RecordingSink())
        return RunHooks([heard[-1]])

    found = train_seeds("town:dqn", [*DQN, "seed=5", "budget={env_steps: 400}"], tmp_path, 2, observe)
    assert [result.seed for result in found.results if result.ended_normally] == [5, 6]
    assert len({result.run for result in found.results}) == 2
    assert not found.interrupted
    assert found.scores == [each.evaluations[-1]["length"] for each in heard]
    assert f"IQM of length over 2 seeds: {sum(found.scores) / 2:.1f}, 95% interval" in found.summary()
    assert all(each.closed for each in heard)


class FailingSink(RecordingSink):
    """A sink that fails after the first rollout."""

    def on_rollout(self, counters: Counters) -> None:
        raise RuntimeError("out of memory\nmore about it")


def test_failed_seed_is_named_and_does_not_stop_the_others(tmp_path: Path) -> None:
    def observe(run: Run, recipe: Recipe) -> RunHooks:
        return RunHooks([FailingSink() if recipe.seed == 5 else RecordingSink()])

    found = train_seeds("town:dqn", [*DQN, "seed=5", "budget={env_steps: 200}"], tmp_path, 2, observe)
    assert [result.seed for result in found.results if result.ended_normally] == [6]
    (failed,) = found.failed
    assert (failed.seed, failed.failure, failed.exit_code) == (5, "RuntimeError: out of memory", 1)
    assert failed.run is not None
    assert failed.run.meta()["seed"] == 5
    assert (found.exit_code, found.interrupted) == (1, [])
    assert "over 1 seed: " in found.summary()
    assert found.summary().endswith("failed: seed 5")


def test_error_common_to_all_seeds_is_reported_once(tmp_path: Path) -> None:
    with pytest.raises(TownletError, match="there is no run 'nothing'"):
        train_seeds("town:dqn", [*DQN, "init_from=nothing"], tmp_path, 2)
