"""Lives that a run keeps: which, how many, and that they are what was lived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from townlet.runs import report
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader, as_rows
from townlet.town.env import Town
from townlet.town.episode_recorder import FRAME_FIELDS, Recording
from townlet.train.session import resume, start
from train.tiny import STAGES, tiny

TOLD = ("env_steps", "row", "length", "cause", "return")


def kept(run: Run) -> list[dict[str, Any]]:
    """All lives of a run, in order."""
    with MetricsReader(run.metrics_file) as store:
        return as_rows(store.read("recordings"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return start(
        tiny("town:dqn", "budget.env_steps=8000", "metrics.whole_episodes=1000"), tmp_path_factory.mktemp("a")
    ).run


def test_a_kept_life_is_one_that_was_lived(run: Run) -> None:
    with MetricsReader(run.metrics_file) as store:
        lived = set(zip(*store.read("episodes", TOLD).values(), strict=True))
    lives = kept(run)
    assert len(lives) >= 5
    for life in lives:
        assert tuple(life[name] for name in TOLD) in lived
        moments = Recording.from_bytes(life["data"])
        assert int(moments.age[-1]) == life["length"] == len(moments)


@pytest.mark.parametrize("recipe", ["town:dqn", "town:ppo", "town-l2:drqn"])
def test_whoever_acts_as_was_written_down_lives_the_same_life(recipe: str, tmp_path: Path) -> None:
    greedy = (
        ()
        if recipe.endswith("ppo")
        else ("explore.action_selection={name: epsilon, start: 0, end: 0, schedule: null}",)
    )
    loaded = tiny(recipe, "budget.env_steps=3000", *greedy)
    lives = kept(start(loaded, tmp_path, pause_at=1600).run)
    assert lives
    town = Town(loaded.worlds.training, 1, threads=1)
    for life in lives:
        moments = Recording.from_bytes(life["data"])
        names = (*FRAME_FIELDS, "meters")
        seen = town.restore({name: getattr(moments, name)[:1] for name in names})
        for step, action in enumerate(moments.actions.tolist()):
            assert seen.mask[0].tolist() == moments.mask[step].tolist()
            shown = moments.outputs[step]
            if life["outputs"] == "probabilities":
                assert shown.sum() == pytest.approx(1, abs=1e-5)
                assert shown[action] > 0
            seen = came = town.step(torch.tensor([action]))
            assert float(came.reward[0]) == moments.reward[step]
            if step + 1 < len(moments):
                now = town.engine.peek(*names)
                assert all((now[name][0] == getattr(moments, name)[step + 1]).all() for name in names)
        if life["outputs"] == "values":
            assert np.where(moments.mask, moments.outputs, -np.inf).argmax(1).tolist() == moments.actions.tolist()


def test_records_are_kept_and_some_on_the_way(run: Run) -> None:
    lives = kept(run)
    longest = [life["length"] for life in lives if life["kind"] == "longest"]
    shortest = [life["length"] for life in lives if life["kind"] == "shortest"]
    assert longest == sorted(set(longest))
    assert shortest == sorted(set(shortest), reverse=True)
    assert max(life["length"] for life in lives) == longest[-1]
    on_the_way = [life["env_steps"] for life in lives if life["kind"] == "at intervals"]
    assert 3 <= len(on_the_way) <= 25
    assert on_the_way[-1] > 6000  # not only of the beginning


@pytest.mark.long
def test_a_long_run_keeps_hardly_more(run: Run, tmp_path: Path) -> None:
    longer = start(tiny("town:dqn", "budget={minutes: 100, env_steps: 32000}"), tmp_path).run
    assert len(kept(longer)) < len(kept(run)) + 25


def test_lives_that_decided_a_stage_are_kept(tmp_path: Path) -> None:
    lives = kept(start(tiny("town:dqn", STAGES, "budget.env_steps=6000"), tmp_path, pause_at=4000).run)
    staged = [(life["kind"], life["stage"]) for life in lives if life["kind"] in ("promoted", "demoted")]
    assert staged
    assert len(staged) == len(set(staged))  # one of each way from each stage
    firsts = [life["stage"] for life in lives if life["kind"] == "first of its stage"]
    assert firsts[0] == 1
    assert len(firsts) == len(set(firsts))


def test_a_life_across_an_interruption_is_whole(tmp_path: Path) -> None:
    words = "budget.env_steps=3000"
    whole = kept(start(tiny("town:dqn", words), tmp_path / "whole", pause_at=2000).run)
    paused = start(tiny("town:dqn", words), tmp_path / "paused", pause_at=1000).run
    resume(paused, pause_at=2000)
    assert [(life["env_steps"], life["data"]) for life in kept(paused)] == [
        (life["env_steps"], life["data"]) for life in whole
    ]


def test_the_report_shows_them(run: Run) -> None:
    text, page = (path.read_text("utf-8") for path in report.write_report(run))
    assert "## Lives that were kept" in text
    assert "plots/kept.svg" in text
    assert "longest, after" in (run.plots / "kept.svg").read_text("utf-8")
    assert "Lives that were kept" in page
    for life in kept(run):
        assert life["kind"] in text
