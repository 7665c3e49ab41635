"""Recorded episodes of a run: which and how many are recorded, and that they replay exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shared_runs import train_once
from townlet.runs import report
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader, as_rows
from townlet.town.env import Town
from townlet.town.episode_recorder import FRAME_FIELDS, Recording
from townlet.train.session import resume, start
from train.tiny import STAGES, tiny

REPORTED = ("env_steps", "row", "length", "cause", "return")


def recordings(run: Run) -> list[dict[str, Any]]:
    """All recorded episodes of a run, in order."""
    with MetricsReader(run.metrics_file) as store:
        return as_rows(store.read("recordings"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run; read-only."""
    loaded = tiny("town:dqn", "budget.env_steps=2400", "evaluation.every=1200", "metrics.whole_episodes=1000")
    return train_once(tmp_path_factory, "highlights", lambda root: {"run": start(loaded, root).run})["run"]


def test_recorded_episodes_are_training_episodes(run: Run) -> None:
    with MetricsReader(run.metrics_file) as store:
        ended = set(zip(*store.read("episodes", REPORTED).values(), strict=True))
    episodes = recordings(run)
    assert len(episodes) >= 5
    for episode in episodes:
        assert tuple(episode[name] for name in REPORTED) in ended
        recording = Recording.from_bytes(episode["data"])
        assert int(recording.age[-1]) == episode["length"] == len(recording)


@pytest.mark.parametrize("recipe", ["town:dqn", "town:ppo", "town-l2:drqn"])
def test_recorded_actions_replay_the_same_episode(recipe: str, tmp_path: Path) -> None:
    words = ["budget.env_steps=3000", "evaluation.every=3000"]
    if not recipe.endswith("ppo"):
        words.append("explore.action_selection={name: epsilon, start: 0, end: 0, schedule: null}")
    if recipe.endswith("drqn"):
        words.append("network.recurrent={size: 8}")
    loaded = tiny(recipe, *words)
    episodes = recordings(start(loaded, tmp_path, pause_at=400).run)
    assert episodes
    town = Town(loaded.worlds.training, 1, threads=1)
    for episode in episodes:
        recording = Recording.from_bytes(episode["data"])
        names = (*FRAME_FIELDS, "meters")
        valid = town.restore({name: getattr(recording, name)[:1] for name in names}).mask
        for step, action in enumerate(recording.actions.tolist()):
            assert valid[0].tolist() == recording.mask[step].tolist()
            shown = recording.outputs[step]
            if episode["outputs"] == "probabilities":
                assert shown.sum() == pytest.approx(1, abs=1e-5)
                assert shown[action] > 0
            result = town.step(torch.tensor([action]))
            valid = result.mask
            assert float(result.reward[0]) == recording.reward[step]
            if step + 1 < len(recording):
                now = town.engine.peek(*names)
                assert all((now[name][0] == getattr(recording, name)[step + 1]).all() for name in names)
        if episode["outputs"] == "values":
            assert np.where(recording.mask, recording.outputs, -np.inf).argmax(1).tolist() == recording.actions.tolist()


def test_longest_shortest_and_periodic_episodes_are_recorded(run: Run) -> None:
    episodes = recordings(run)
    longest = [episode["length"] for episode in episodes if episode["kind"] == "longest"]
    shortest = [episode["length"] for episode in episodes if episode["kind"] == "shortest"]
    assert longest == sorted(set(longest))
    assert shortest == sorted(set(shortest), reverse=True)
    assert max(episode["length"] for episode in episodes) == longest[-1]
    at_intervals = [episode["env_steps"] for episode in episodes if episode["kind"] == "periodic sample"]
    assert 3 <= len(at_intervals) <= 25
    assert at_intervals[-1] > 1800  # not only at the beginning


@pytest.mark.long
def test_long_run_records_hardly_more_episodes(run: Run, tmp_path: Path) -> None:
    longer = start(tiny("town:dqn", "budget={minutes: 100, env_steps: 32000}"), tmp_path).run
    assert len(recordings(longer)) < len(recordings(run)) + 25


def test_episodes_that_changed_a_stage_are_recorded(tmp_path: Path) -> None:
    loaded = tiny("town:dqn", STAGES, "budget.env_steps=6000", "evaluation.every=6000")
    episodes = recordings(start(loaded, tmp_path, pause_at=2400).run)
    staged = [
        (episode["kind"], episode["stage"]) for episode in episodes if episode["kind"] in ("advanced", "retreated")
    ]
    assert staged
    assert len(staged) == len(set(staged))  # one for each change of stage
    firsts = [episode["stage"] for episode in episodes if episode["kind"] == "first of its stage"]
    assert firsts[0] == 1
    assert len(firsts) == len(set(firsts))


def test_interrupted_run_records_the_same_episodes(tmp_path: Path) -> None:
    loaded = tiny("town:dqn", "budget.env_steps=3000", "evaluation.every=3000")
    whole = recordings(start(loaded, tmp_path / "whole", pause_at=600).run)
    paused = start(loaded, tmp_path / "paused", pause_at=300).run
    resume(paused, pause_at=600)
    assert [(episode["env_steps"], episode["data"]) for episode in recordings(paused)] == [
        (episode["env_steps"], episode["data"]) for episode in whole
    ]


def test_report_shows_recorded_episodes(run: Run) -> None:
    text, page = (path.read_text("utf-8") for path in report.write_report(run))
    assert "## Recorded episodes" in text
    assert "plots/highlights.svg" in text
    assert "longest, after" in (run.plots / "highlights.svg").read_text("utf-8")
    assert "Recorded episodes" in page
    for episode in recordings(run):
        assert episode["kind"] in text
