"""`townlet runs`: list, show, compare, export and prune."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from cli.program import Program
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.lock import Lock
from townlet.runs.metrics_store import MetricsStore
from townlet.runs.overview import make_overview, sparkline


def stored(root: Path, variant: str, scores: list[float], seed: int = 0, saved: bool = True, **keys: object) -> Run:
    """A run folder as training writes it, without training."""
    resolved = {"env": "town", "variant": variant, "seed": seed, "agent": {"name": variant, "lr": 0.001}, **keys}
    meta = {"recipe": f"town:{variant}", "seed": seed, "finished": True, "ended": "all steps are spent", "seconds": 9.0}
    run = Run.create(root, "town", variant, "", json.dumps(resolved), meta)
    with MetricsStore(run.metrics_file) as store:
        store.add("evaluations", [{"env_steps": 0, "policy": "random", "length": 100.0, "score": 100.0}])
        for place, score in enumerate(scores):
            row = {"policy": "greedy", "length": score, "score": score, "limit": 500}
            fractions = {"survived": 0.5, "earns_money": 0.25}
            store.add("evaluations", [{"env_steps": 1000 * (place + 1), **row, **fractions}])
    if saved:
        checkpoint.save(run.checkpoints, checkpoint.folder_name(1000 * len(scores)), {"x": torch.zeros(1)}, {})
    return run


@pytest.fixture
def four_runs(tmp_path: Path) -> dict[str, Run]:
    """Four runs, the oldest first: two of one recipe, one of another, one without a checkpoint."""
    runs = {
        "poor": stored(tmp_path, "ppo", [110.0, 200.0], seed=0),
        "good": stored(tmp_path, "ppo", [120.0, 480.0, 300.0], seed=1, rows=64),
        "other": stored(tmp_path, "dqn", [250.0]),
        "empty": stored(tmp_path, "dqn", [], saved=False),
    }
    for minute, run in enumerate(runs.values()):
        run.update_meta(created=f"2026-01-01T10:0{minute}:00+00:00")
    return runs


def test_list_is_sorted_by_age_or_score(townlet: Program, four_runs: dict[str, Run], tmp_path: Path) -> None:
    root = ["--root", str(tmp_path)]
    names = {run.name: key for key, run in four_runs.items()}
    listed = json.loads(townlet("runs", "list", "--json", *root).out)
    assert [names[one["name"]] for one in listed] == ["empty", "other", "good", "poor"]
    ranked = json.loads(townlet("runs", "list", "--sort", "score", "--json", *root).out)
    assert [names[one["name"]] for one in ranked] == ["good", "other", "poor", "empty"]
    assert [one["best"] for one in ranked] == [480, 250, 200, None]
    assert ranked[0]["last"] == 300


def test_list_fits_80_columns_with_full_names(
    townlet: Program, four_runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = townlet("runs", "list", "--root", str(tmp_path))
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(any(run.name in line for line in lines) for run in four_runs.values())
    (line,) = [line for line in lines if four_runs["good"].name in line]
    assert line.split()[1:6] == ["town:ppo", "1", "3k", "480.0", "finished"]


@pytest.mark.parametrize(("columns", "shown"), [(100, 6), (80, 4), (60, 3), (30, 3)])
def test_narrow_list_drops_columns_instead_of_wrapping(
    townlet: Program,
    four_runs: dict[str, Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
    shown: int,
) -> None:
    four_runs["good"].path.rename(long := tmp_path / "town-with-a-long-name-curriculum-20261115T100013Z-6f445e")
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = townlet("runs", "list", "--root", str(tmp_path)).out.splitlines()
    assert len(lines) == 1 + len(four_runs)
    (line,) = [line for line in lines if long.name in line]
    assert "480.0" in line
    assert "finished" in line.split()
    assert len(lines[0].split()) == shown


def test_random_score_is_in_the_metric_of_the_scores(tmp_path: Path) -> None:
    run = stored(tmp_path, "ppo", [])
    run.update_meta(metric="return")
    with MetricsStore(run.metrics_file) as store:
        row = {"env_steps": 1, "length": 90.0, "return": 2.5, "score": 2.5}
        store.add("evaluations", [row | {"policy": "random"}, row | {"policy": "greedy", "return": 7.5, "score": 7.5}])
    overview = make_overview(run)
    assert (overview.score_metric, overview.last, overview.random_evaluation["score"]) == ("return", 7.5, 2.5)
    assert (overview.curve, overview.random_evaluation["length"]) == ([90.0], 90.0)


def test_locked_run_is_listed_as_running(townlet: Program, four_runs: dict[str, Run], tmp_path: Path) -> None:
    with Lock(four_runs["poor"].path):
        listed = json.loads(townlet("runs", "list", "--json", "--root", str(tmp_path)).out)
    states = {one["name"]: one["state"] for one in listed}
    assert states[four_runs["poor"].name] == "running"
    assert states[four_runs["good"].name] == "finished"


def test_damaged_run_does_not_hide_others(townlet: Program, four_runs: dict[str, Run], tmp_path: Path) -> None:
    four_runs["poor"].meta_file.write_text("{", encoding="utf-8")
    four_runs["good"].metrics_file.write_bytes(b"no database")
    done = townlet("runs", "list", "--json", "--root", str(tmp_path))
    assert done.code == 0
    listed = {one["name"]: one for one in json.loads(done.out)}
    assert listed[four_runs["poor"].name]["state"] == "damaged"
    assert listed[four_runs["poor"].name]["problem"]
    assert listed[four_runs["good"].name]["best"] is None
    assert listed[four_runs["other"].name]["best"] == 250


def test_empty_list_shows_how_to_train(townlet: Program, tmp_path: Path) -> None:
    done = townlet("runs", "list", "--root", str(tmp_path / "nothing"))
    assert done.code == 0
    assert "Train one: townlet train" in done.out


def test_show_prints_settings_and_results(townlet: Program, runs: Path) -> None:
    done = townlet("runs", "show", "town-ppo", "--root", str(runs))
    run = Run.open("town-ppo", runs)
    assert done.code == 0
    assert "town:ppo, seed 0" in done.out
    assert "finished: all steps of the budget are spent" in done.out
    assert "agent.n_steps=16" in done.out
    assert "checkpoint, this agent survives" in done.out
    assert str(run.report_html) in done.out
    evaluated = [line.split()[0] for line in done.out.splitlines() if line.split()[1:3] == ["8", "500"]]
    assert evaluated == ["512", "1,024"]
    saved = re.findall(r"^ *([\d,]+)  (snapshot|checkpoint)", done.out, re.MULTILINE)
    assert (saved[0], saved[-1]) == (("0", "snapshot"), ("1,024", "checkpoint"))


def test_show_prints_the_resume_command_of_an_interrupted_run(townlet: Program, tmp_path: Path) -> None:
    run = stored(tmp_path, "ppo", [100.0])
    run.update_meta(finished=False, ended="interrupted")
    done = townlet("runs", "show", "latest", "--root", str(tmp_path))
    assert f"townlet train --resume {run.name}" in done.out


def test_compare_shows_only_settings_that_differ(townlet: Program, four_runs: dict[str, Run], tmp_path: Path) -> None:
    names = [four_runs[key].name for key in ("poor", "good", "other")]
    found = json.loads(townlet("runs", "compare", *names, "--json", "--root", str(tmp_path)).out)
    assert found["differences"] == {
        "variant": ["ppo", "ppo", "dqn"],
        "seed": [0, 1, 0],
        "agent.name": ["ppo", "ppo", "dqn"],
        "rows": [None, 64, None],
    }
    done = townlet("runs", "compare", *names, "--root", str(tmp_path))
    assert "agent.lr" not in done.out


def test_only_runs_that_differ_in_seed_are_pooled(townlet: Program, tmp_path: Path) -> None:
    """Runs with other settings, in another world or stopped early are other experiments."""
    alike = [stored(tmp_path, "ppo", [100.0, last], seed) for seed, last in enumerate((200.0, 300.0))]
    others = [
        stored(tmp_path, "ppo", [900.0], seed=2, rows=64),
        stored(tmp_path, "ppo", [900.0], seed=3),
        stored(tmp_path, "ppo", [900.0], seed=4),
        stored(tmp_path, "dqn", [900.0], seed=5),
        stored(tmp_path, "ppo", [250.0], seed=6, threads=8),
        stored(tmp_path, "ppo", [900.0], seed=6),  # the same seed again is no other sample
    ]
    others[1].update_meta(world="another")
    others[2].update_meta(finished=False)
    found = json.loads(townlet("runs", "compare", "town-", "--json", "--root", str(tmp_path)).out)
    (group,) = found["groups"]
    assert group["runs"] == [*(run.name for run in alike), others[4].name]
    assert group["iqm"] == pytest.approx(250)
    done = townlet("runs", "compare", "town-", "--root", str(tmp_path))
    assert "A, B, G (town:ppo, 3 seeds): IQM of the last evaluation's length 250.0" in done.out


def test_prefix_selects_all_matching_runs(townlet: Program, four_runs: dict[str, Run], tmp_path: Path) -> None:
    root = ["--root", str(tmp_path)]
    found = json.loads(townlet("runs", "compare", "town-ppo", four_runs["other"].name[:-2], "--json", *root).out)
    assert [one["name"] for one in found["runs"]] == [four_runs[key].name for key in ("poor", "good", "other")]


def test_compare_rejects_duplicate_runs(townlet: Program, four_runs: dict[str, Run], tmp_path: Path) -> None:
    poor, other = four_runs["poor"], four_runs["other"]
    for words in ((poor.name, str(poor.path)), (poor.name, other.name, poor.name), ("town-ppo", poor.name)):
        done = townlet("runs", "compare", *words, "--root", str(tmp_path))
        assert done.code == 2
        assert f"the run {poor.name} is named" in done.err
    alone = townlet("runs", "compare", poor.name, "--root", str(tmp_path))
    assert (alone.code, "name 2 to 26 different runs" in alone.err) == (2, True)


def test_plot_format_follows_the_file_name(townlet: Program, four_runs: dict[str, Run], tmp_path: Path) -> None:
    names = [four_runs["poor"].name, four_runs["good"].name]
    pictures = {ending: tmp_path / f"curves.{ending}" for ending in ("png", "svg", "html")}
    for path in pictures.values():
        assert townlet("runs", "compare", *names, "--plot", str(path), "--root", str(tmp_path)).code == 0
    assert pictures["png"].read_bytes().startswith(b"\x89PNG")
    assert "B town:ppo seed 1" in "".join(ElementTree.parse(pictures["svg"]).getroot().itertext())
    assert four_runs["good"].name in pictures["html"].read_text(encoding="utf-8")
    refused = townlet("runs", "compare", *names, "--plot", "curves.gif", "--root", str(tmp_path))
    assert refused.code == 2
    assert ".png, .svg, .html" in refused.err


def test_export_writes_every_metric_once(townlet: Program, runs: Path, tmp_path: Path) -> None:
    to = tmp_path / "curves.csv"
    assert townlet("runs", "export", "town-ppo", "--to", str(to), "--root", str(runs)).code == 0
    with to.open(encoding="utf-8") as file:
        (*_, last) = csv.DictReader(file)
    assert last["env_steps"] == "1024"
    assert float(last["evaluation_length"]) > 0 < float(last["meter_energy"])
    assert townlet("runs", "export", "town-ppo", "--long", "--to", str(to), "--root", str(runs)).code == 0
    with to.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["env_steps"] for row in rows if row["name"] == "evaluation_length"] == ["512", "1024"]
    assert len({(row["env_steps"], row["name"]) for row in rows}) == len(rows)
    names = {row["name"] for row in rows}
    assert {"loss", "episode_length", "meter_energy", "evaluation_return", "earns_money"} <= names


def test_prune_removes_only_with_yes(townlet: Program, four_runs: dict[str, Run], tmp_path: Path) -> None:
    root = ["--root", str(tmp_path)]
    done = townlet("runs", "prune", *root)
    assert four_runs["empty"].name in done.out
    assert not any(four_runs[key].name in done.out for key in ("poor", "good", "other"))
    assert all(run.path.is_dir() for run in four_runs.values())
    townlet("runs", "prune", "--yes", *root)
    assert [run.path.is_dir() for run in four_runs.values()] == [True, True, True, False]
    assert Run.open("latest", tmp_path) == four_runs["other"]  # the newest was removed; the one before it is the latest
    assert not os.path.lexists(tmp_path / "latest")


def test_prune_keeps_the_best_of_each_recipe(townlet: Program, four_runs: dict[str, Run], tmp_path: Path) -> None:
    done = townlet("runs", "prune", "--keep", "1", "--yes", "--root", str(tmp_path))
    assert done.code == 0
    assert [run.name for run in Run.list(tmp_path)] == [four_runs["good"].name, four_runs["other"].name]
    assert "Removed 2 runs" in done.out
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_prune_never_touches_a_run_that_is_being_written(
    townlet: Program, four_runs: dict[str, Run], tmp_path: Path
) -> None:
    with Lock(four_runs["poor"].path), Lock(four_runs["empty"].path):
        townlet("runs", "prune", "--keep", "1", "--yes", "--root", str(tmp_path))
    assert all(run.path.is_dir() for run in four_runs.values())


def test_prune_keeps_a_run_that_just_started(townlet: Program, tmp_path: Path) -> None:
    """Its folder exists before its lock and its first checkpoint."""
    run = stored(tmp_path, "dqn", [], saved=False)
    assert "Nothing to remove" in townlet("runs", "prune", "--yes", "--root", str(tmp_path)).out
    assert run.path.is_dir()


def test_prune_keeps_symlinked_runs(townlet: Program, four_runs: dict[str, Run], tmp_path: Path) -> None:
    """A link to a folder on another disk is listed like a run, and neither the link nor the folder is removed."""
    elsewhere, link = tmp_path / "disk" / "moved", tmp_path / four_runs["empty"].name
    elsewhere.parent.mkdir()
    four_runs["empty"].path.rename(elsewhere)
    link.symlink_to(elsewhere)
    listed = json.loads(townlet("runs", "list", "--json", "--root", str(tmp_path)).out)
    assert link.name in [one["name"] for one in listed]
    assert "latest" not in [one["name"] for one in listed]
    townlet("runs", "prune", "--keep", "1", "--yes", "--root", str(tmp_path))
    assert link.is_symlink()
    assert elsewhere.is_dir()


def test_prune_removes_leftovers_of_an_interrupted_removal(
    townlet: Program, four_runs: dict[str, Run], tmp_path: Path
) -> None:
    four_runs["empty"].path.rename(tmp_path / ".gone-123456")
    townlet("runs", "prune", "--yes", "--root", str(tmp_path))
    assert not (tmp_path / ".gone-123456").exists()


@pytest.mark.parametrize("name", ["my run", "прогон ☃", "run[bold]x", "-run"])
def test_run_names_may_contain_any_characters(townlet: Program, tmp_path: Path, name: str) -> None:
    run = stored(tmp_path, "ppo", [110.0, 200.0])
    run.path.rename(tmp_path / name)
    root = ["--root", str(tmp_path)]
    assert name in townlet("runs", "list", *root).out
    shown = townlet("runs", "show", *root, "--", name)
    assert (shown.code, str(tmp_path / name) in shown.out) == (0, True)
    assert townlet("runs", "export", *root, "--", name).code == 0
    assert (tmp_path / name / "metrics.csv").is_file()


def test_export_does_not_replace_the_file_that_training_writes(
    townlet: Program, four_runs: dict[str, Run], tmp_path: Path
) -> None:
    run, root = four_runs["good"], ["--root", str(tmp_path)]
    run.csv_file.write_text("written by training\n", encoding="utf-8")
    with Lock(run.path):
        refused = townlet("runs", "export", run.name, *root)
        assert townlet("runs", "export", run.name, "--to", str(tmp_path / "copy.csv"), *root).code == 0
    assert (refused.code, "--to FILE" in refused.err) == (2, True)
    assert run.csv_file.read_text(encoding="utf-8") == "written by training\n"


def test_export_to_missing_folder_is_rejected(townlet: Program, four_runs: dict[str, Run], tmp_path: Path) -> None:
    to = str(tmp_path / "nowhere" / "curves.csv")
    done = townlet("runs", "export", four_runs["good"].name, "--to", to, "--root", str(tmp_path))
    assert done.code == 2
    assert "cannot write" in done.err


@pytest.mark.parametrize(
    ("values", "line"),
    [([], ""), ([0.0, 7.0], "▁█"), ([7.0, 7.0], "██"), ([0.0, 0.0], "▁▁"), ([-7.0, 0.0], "▁█"), ([1.0] * 99, "█" * 40)],
)
def test_sparkline_starts_at_zero(values: list[float], line: str) -> None:
    assert sparkline(values) == line
