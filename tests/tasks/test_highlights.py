"""Recorded episodes of a run: which are chosen, how many, and that they equal what happened."""

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


def kept(run: Run) -> list[dict[str, Any]]:
    """All recorded episodes of a run, in order."""
    with MetricsReader(run.metrics_file) as store:
        return as_rows(store.read("recordings"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run, only to be read."""
    loaded = tiny("town:dqn", "budget.env_steps=4000", "evaluation.every=2000", "metrics.whole_episodes=1000")
    return train_once(tmp_path_factory, "highlights", lambda root: {"run": start(loaded, root).run})["run"]


def test_recorded_episode_is_one_of_the_training(run: Run) -> None:
    with MetricsReader(run.metrics_file) as store:
        lived = set(zip(*store.read("episodes", REPORTED).values(), strict=True))
    lives = kept(run)
    assert len(lives) >= 5
    for life in lives:
        assert tuple(life[name] for name in REPORTED) in lived
        moments = Recording.from_bytes(life["data"])
        assert int(moments.age[-1]) == life["length"] == len(moments)


@pytest.mark.parametrize("recipe", ["town:dqn", "town:ppo", "town-l2:drqn"])
def test_recorded_actions_replay_the_same_episode(recipe: str, tmp_path: Path) -> None:
    words = ["budget.env_steps=3000", "evaluation.every=3000"]
    if not recipe.endswith("ppo"):
        words.append("explore.action_selection={name: epsilon, start: 0, end: 0, schedule: null}")
    if recipe.endswith("drqn"):
        words.append("network.recurrent={size: 8}")
    loaded = tiny(recipe, *words)
    lives = kept(start(loaded, tmp_path, pause_at=800).run)
    assert lives
    town = Town(loaded.worlds.training, 1, threads=1)
    for life in lives:
        moments = Recording.from_bytes(life["data"])
        names = (*FRAME_FIELDS, "meters")
        valid = town.restore({name: getattr(moments, name)[:1] for name in names}).mask
        for step, action in enumerate(moments.actions.tolist()):
            assert valid[0].tolist() == moments.mask[step].tolist()
            shown = moments.outputs[step]
            if life["outputs"] == "probabilities":
                assert shown.sum() == pytest.approx(1, abs=1e-5)
                assert shown[action] > 0
            came = town.step(torch.tensor([action]))
            valid = came.mask
            assert float(came.reward[0]) == moments.reward[step]
            if step + 1 < len(moments):
                now = town.engine.peek(*names)
                assert all((now[name][0] == getattr(moments, name)[step + 1]).all() for name in names)
        if life["outputs"] == "values":
            assert np.where(moments.mask, moments.outputs, -np.inf).argmax(1).tolist() == moments.actions.tolist()


def test_records_and_some_episodes_at_intervals_are_recorded(run: Run) -> None:
    lives = kept(run)
    longest = [life["length"] for life in lives if life["kind"] == "longest"]
    shortest = [life["length"] for life in lives if life["kind"] == "shortest"]
    assert longest == sorted(set(longest))
    assert shortest == sorted(set(shortest), reverse=True)
    assert max(life["length"] for life in lives) == longest[-1]
    at_intervals = [life["env_steps"] for life in lives if life["kind"] == "periodic sample"]
    assert 3 <= len(at_intervals) <= 25
    assert at_intervals[-1] > 3000  # not only at the beginning


@pytest.mark.long
def test_long_run_records_hardly_more(run: Run, tmp_path: Path) -> None:
    longer = start(tiny("town:dqn", "budget={minutes: 100, env_steps: 32000}"), tmp_path).run
    assert len(kept(longer)) < len(kept(run)) + 25


def test_episodes_that_decided_a_stage_are_recorded(tmp_path: Path) -> None:
    loaded = tiny("town:dqn", STAGES, "budget.env_steps=6000", "evaluation.every=6000")
    lives = kept(start(loaded, tmp_path, pause_at=2400).run)
    staged = [(life["kind"], life["stage"]) for life in lives if life["kind"] in ("advanced", "retreated")]
    assert staged
    assert len(staged) == len(set(staged))  # one of each way from each stage
    firsts = [life["stage"] for life in lives if life["kind"] == "first of its stage"]
    assert firsts[0] == 1
    assert len(firsts) == len(set(firsts))


def test_episode_across_an_interruption_is_whole(tmp_path: Path) -> None:
    loaded = tiny("town:dqn", "budget.env_steps=3000", "evaluation.every=3000")
    whole = kept(start(loaded, tmp_path / "whole", pause_at=1000).run)
    paused = start(loaded, tmp_path / "paused", pause_at=500).run
    resume(paused, pause_at=1000)
    assert [(life["env_steps"], life["data"]) for life in kept(paused)] == [
        (life["env_steps"], life["data"]) for life in whole
    ]


def test_report_shows_recorded_episodes(run: Run) -> None:
    text, page = (path.read_text("utf-8") for path in report.write_report(run))
    assert "## Recorded episodes" in text
    assert "plots/highlights.svg" in text
    assert "longest, after" in (run.plots / "highlights.svg").read_text("utf-8")
    assert "Recorded episodes" in page
    for life in kept(run):
        assert life["kind"] in text
