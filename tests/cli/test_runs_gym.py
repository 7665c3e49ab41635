"""Reports and comparisons of Gymnasium runs: solved or not, cost, and pooled seeds."""

from __future__ import annotations

import json
import re
from functools import reduce
from pathlib import Path

import pytest

from cli.program import Program
from small import REPORT, SMALL_GYM, train_gym
from townlet.config.merge import merge
from townlet.gym.extras import reward_threshold
from townlet.recipes.catalog import find_layers, recipe_names
from townlet.runs.folder import Run
from townlet.runs.statistics import iqm, score_text


def test_report_states_solved_and_resources(gym_runs: dict[str, Run]) -> None:
    run = gym_runs["ppo"]
    report, page = run.report_md.read_text(), run.report_html.read_text()
    recipe, words = SMALL_GYM["ppo"]
    assert "| reach the limit | solved at 475 |" in report
    assert "That does not solve the environment: Gymnasium's threshold is 475." in report
    assert "goal of this recipe" not in report
    assert f"townlet train {recipe} {words[0]}" in report
    assert "solved at 475" in page  # the line in the curve
    assert "return, last evaluation" in page
    for heading in ("Return", "Evaluations", "Learning", "Resources"):
        assert f"<h2>{heading}</h2>" in page
    assert " MB</td>" in page
    assert " steps/s</td>" in page
    (line,) = [line for line in report.splitlines() if line.startswith("| entropy |")]
    assert set(line.split("|")[2].strip()) <= set("▁▂▃▄▅▆▇█")
    assert re.search('<td class="word">[▁-█]+</td>', page)  # not wrapped, nor are the names of metrics
    assert '<td class="word">entropy</td>' in page
    assert ">reach the limit</th>" in page


def test_only_runs_in_towns_show_the_fraction_of_episodes_with_income(
    townlet: Program, gym_runs: dict[str, Run], runs: Path
) -> None:
    run = gym_runs["ppo"]
    shown = townlet("runs", "show", run.name, "--root", str(run.path.parent)).out
    assert "reach the limit  score" in shown
    assert "reach the limit  earn money  score" in townlet("runs", "show", "latest", "--root", str(runs)).out


def test_reaching_the_goal_of_a_recipe_does_not_solve_the_environment(townlet: Program, tmp_path: Path) -> None:
    """Only Gymnasium's threshold does, in every output."""
    run = train_gym("ppo", tmp_path, "reward_threshold=2", "budget.env_steps=256", REPORT)
    report, page = run.report_md.read_text(), run.report_html.read_text()
    assert "| solved at 475 | goal of this recipe: 2 |" in report
    assert "| no | yes |" in report
    sentences = (
        "That does not solve the environment: Gymnasium's threshold is 475. That reaches the goal of this recipe: 2.00."
    )
    assert sentences in report
    assert "solved at 475" in page
    assert "goal of this recipe: 2" in page
    words = ("eval", run.name, "--episodes", "4", "--root", str(tmp_path))
    assert sentences in " ".join(townlet(*words).out.split())
    result = json.loads(townlet(*words, "--json").out)
    assert (result["threshold"], result["solved"]) == (475, False)
    assert (result["goal"], result["reached_goal"]) == (2, True)
    assert "; solved at 475; goal of this recipe: 2.00." in townlet("play", *words[1:]).out


def test_the_goal_of_a_recipe_is_not_below_gymnasiums_threshold() -> None:
    """Unless the threshold cannot be reached."""
    lowered = []
    for name in recipe_names():
        values = reduce(merge, find_layers(name).layers).to_python()
        threshold, goal = reward_threshold(str(values["env"])), values.get("reward_threshold")
        if threshold is not None and goal is not None and goal < threshold:
            lowered.append(name)
    assert lowered == ["Taxi-v4:qlearning"], "its optimum is 7.93 on average, the threshold 8"


def test_seeds_are_pooled_by_return(townlet: Program, tmp_path: Path) -> None:
    runs = [train_gym("numbers", tmp_path, f"seed={seed}", "budget.env_steps=256") for seed in (1, 2, 3)]
    found = json.loads(townlet("runs", "compare", *(run.name for run in runs), "--json", "--root", str(tmp_path)).out)
    (group,) = found["groups"]
    last = [one["evaluations"]["return"][-1] for one in found["runs"]]
    assert group["metric"] == "return"
    assert group["iqm"] == pytest.approx(iqm(last))
    low, high = group["interval"]
    assert min(last) <= low <= group["iqm"] <= high <= max(last)
    curves = tmp_path / "curves.svg"
    done = townlet("runs", "compare", "Pendulum", "--plot", str(curves), "--root", str(tmp_path))
    assert f"IQM of the last evaluation's return {score_text(group['iqm'])}" in done.out
    assert "earn money" not in done.out
    drawn = curves.read_text()
    assert "return per episode, evaluated" in drawn
    assert "A, B, C Pendulum-v1:ppo: IQM of 3 seeds (band: 95% interval)" in drawn
    assert "FillBetweenPolyCollection" in drawn
    assert "seed 1" not in drawn  # one curve for the group, none for its runs
