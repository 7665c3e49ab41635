"""Recorded metrics: every documented table and metric, and no undocumented metric."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from shared_runs import train_once, train_towns
from townlet.runs.database import TABLES
from townlet.runs.folder import Run
from townlet.runs.metric_catalog import METRICS, describe_metric
from townlet.runs.metrics_reader import MetricsReader, write_csv
from townlet.tasks.experiment import load_experiment
from townlet.train.session import start
from train.tiny import DQN, PPO, STAGES

RECURRENT: Final = "network={name: mlp, hidden: [16], recurrent: {kind: gru, size: 8, post_widths: [8]}}"
BOLTZMANN: Final = (
    "explore={action_selection: {name: boltzmann, temperature: 0.5}, bonus: {name: counts}, "
    "weight: {name: scheduled, value: 0.1}}"
)
SHORT: Final = "budget.env_steps=480"
SCHEDULED: Final = (
    "agent.clip=lin_0.2", "agent.value_clip=lin_0.2", "agent.value_coef=lin_0.5",
    "plateau={key: lr, patience: 400, min_delta: 1e6, multiply: .5}",
)  # fmt: skip
RECIPES: Final = {
    "town:dqn": (*DQN, SHORT, "agent.gradient_steps=8"),  # some metrics are recorded every 100 gradient steps
    "town:ppo": (*PPO, *SCHEDULED),
    "town:dqn-rnd": (*DQN, SHORT, "explore.bonus.hidden=[8]", "agent.prioritized={}"),
    "town:dqn-curriculum": (*DQN, SHORT, STAGES, "change.max_steps=12"),
    "town-l2:drqn": (
        *(word for word in DQN if not word.startswith("network")),
        SHORT,
        RECURRENT,
        BOLTZMANN,
        "agent.update_every=8",
    ),
    "Pendulum-v1:ppo": (
        *(word for word in PPO if not word.startswith("change")),
        SHORT,
        "gym.max_episode_steps=40",
    ),
}


def train_all(root: Path) -> dict[str, Run]:
    return {recipe: start(load_experiment(recipe, words), root).run for recipe, words in RECIPES.items()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return train_once(tmp_path_factory, "recorded-metrics", train_all)


@pytest.fixture
def reported(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a report."""
    return Run.open("town-ppo", train_towns(tmp_path_factory))


def metric_names(run: Run, to: Path) -> set[str]:
    with MetricsReader(run.metrics_file) as store:
        write_csv(store, to, long=True)
    with to.open(encoding="utf-8") as file:
        return {row["name"] for row in csv.DictReader(file)}


def test_every_written_metric_is_in_the_catalog_and_vice_versa(recorded: dict[str, Run], tmp_path: Path) -> None:
    written = set().union(*(metric_names(run, tmp_path / "metrics.csv") for run in recorded.values()))
    assert {name for name in written if describe_metric(name) is None} == set()
    assert set(METRICS) - written == set()


def test_curriculum_writes_to_every_table(recorded: dict[str, Run]) -> None:
    """Except alerts, which report problems, and setting changes, of which there are none."""
    with MetricsReader(recorded["town:dqn-curriculum"].metrics_file) as store:
        counts = {table: len(store.read(table, ["env_steps"])["env_steps"]) for table in TABLES}
    assert {table for table, count in counts.items() if not count} <= {"alerts", "setting_changes"}


def test_every_column_is_written_by_some_run(recorded: dict[str, Run]) -> None:
    for table in TABLES.keys() - {"alerts"}:
        filled: set[str] = set()
        for run in recorded.values():
            with MetricsReader(run.metrics_file) as store:
                filled |= {name for name, values in store.read(table).items() if any(v is not None for v in values)}
        assert set(TABLES[table]) - filled == set(), table


@pytest.mark.parametrize("recipe", ["town:dqn-rnd", "town-l2:drqn"])
def test_novelty_is_recorded_for_every_cell_and_changes_with_learning(recorded: dict[str, Run], recipe: str) -> None:
    with MetricsReader(recorded[recipe].metrics_file) as store:
        found = store.read("cell_visits", ["env_steps", "cell", "novelty", "count"])
    marks = sorted(set(found["env_steps"]))
    assert found["cell"][:64] == list(range(64))
    novelty = np.array(found["novelty"]).reshape(len(marks), 64)
    assert (novelty > 0).all()
    assert (novelty[-1] != novelty[0]).any()
    if recipe == "town-l2:drqn":  # novelty by counts never rises; that of RND is normalized by its history
        assert (novelty[-1] <= novelty[0]).all()
    assert 0 in found["count"]  # including cells that were not visited


def test_without_bonus_only_visited_cells_are_written(recorded: dict[str, Run]) -> None:
    with MetricsReader(recorded["town:dqn"].metrics_file) as store:
        found = store.read("cell_visits", ["novelty", "count"])
    assert set(found["novelty"]) == {None}
    assert min(found["count"]) > 0


def test_run_leaves_no_write_ahead_log_of_the_database(recorded: dict[str, Run], reported: Run) -> None:
    """Neither after training, nor after its report was written and read."""
    assert reported.report_md.is_file()
    for run in (*recorded.values(), reported):
        assert [path.name for path in run.path.glob("metrics.db*")] == ["metrics.db"]


def test_map_size_and_affordance_cells_are_recorded(reported: Run) -> None:
    meta = reported.meta()
    assert meta["size"] == [8, 8]
    assert meta["places"]["Bed"] == 9
    assert "plots/cells.svg" in reported.report_md.read_text(encoding="utf-8")
