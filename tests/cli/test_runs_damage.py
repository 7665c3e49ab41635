"""Damaged files of a run: the message names the file, and its advice works."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cli.program import Program
from townlet.runs import checkpoint
from townlet.runs.checkpoint_files import MANIFEST
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader

DAMAGE = b"no database" * 500
BRIEF = ("--episodes", "2", "max_steps=30")


@pytest.fixture
def run(runs: Path, tmp_path: Path) -> Run:
    """A copy of a finished run."""
    source = Run.open("town-ppo", runs)
    shutil.copytree(source.path, tmp_path / source.name)
    return Run(tmp_path / source.name)


def test_resume_starts_new_metrics_after_damage(townlet: Program, run: Run) -> None:
    root = ["--root", str(run.path.parent)]
    with MetricsReader(run.metrics_file) as store:
        before = store.series("loss")[0]
    run.metrics_file.write_bytes(DAMAGE)
    done = townlet("train", "--resume", run.name, "budget.env_steps=2048", *root)
    assert done.code == 2
    assert "metrics.db: the metrics are damaged" in done.err
    assert "move metrics.db away; `townlet train --resume` then starts new metrics" in done.err
    assert run.meta()["finished"]  # unchanged

    run.metrics_file.rename(run.path / "damaged.db")
    done = townlet("train", "--resume", run.name, "budget.env_steps=1152", *root)
    assert done.code == 0
    assert "metrics: earlier metrics are missing; they restart at env_steps 1,024" in done.err
    with MetricsReader(run.metrics_file) as store:
        assert min(store.series("loss")[0]) > max(before)
        assert store.read("evaluations", ["policy", "env_steps"])["policy"][0] == "random"
        assert store.read("alerts", ["name"])["name"] == ["metrics"]
    assert "earlier metrics are missing" in run.report_md.read_text(encoding="utf-8")
    assert townlet("train", "--resume", run.name, "budget.env_steps=1280", "metrics.report=false", *root).code == 0


def test_new_metrics_survive_an_immediate_crash(townlet: Program, run: Run) -> None:
    """A checkpoint refers to the new metrics before anything is written to them."""
    root = ["--root", str(run.path.parent)]
    words = ["budget.env_steps=1152", "metrics.report=false"]
    run.metrics_file.unlink()
    assert townlet("train", "--resume", run.name, *words, "--pause-at", "1024", *root).code == 0
    with MetricsReader(run.metrics_file) as store:
        assert store.names() == []
    done = townlet("train", "--resume", run.name, *root)
    assert done.code == 0
    assert "earlier metrics are missing" not in done.err


def test_run_without_metrics_is_shown(townlet: Program, run: Run) -> None:
    root = ["--root", str(run.path.parent)]
    for change, message in (
        (run.metrics_file.unlink, "has no metrics"),
        (None, "the metrics are damaged"),
    ):
        if change:
            change()
        else:
            run.metrics_file.write_bytes(DAMAGE)
        shown = townlet("runs", "show", run.name, *root)
        assert shown.code == 0
        assert "damaged" in shown.out
        assert message in shown.out
        assert "--resume" in shown.out
        assert "runs show" in townlet("runs", "list", *root).out
        exported = townlet("runs", "export", run.name, *root)
        assert (exported.code, message in exported.err) == (2, True)
    assert townlet("eval", run.name, *BRIEF, *root).code == 0  # it needs only the checkpoint


def test_damaged_checkpoint_is_reported_and_never_replaced_silently(townlet: Program, run: Run) -> None:
    root = ["--root", str(run.path.parent)]
    first = run.checkpoints / checkpoint.folder_name(512)
    if not first.is_dir():
        shutil.copytree(checkpoint.paths(run.checkpoints)[-1], first)
    (first / MANIFEST).write_bytes(b"{}")
    done = townlet("eval", run.name, *BRIEF, *root)
    assert done.code == 2
    assert "the best checkpoint cannot be determined: the checkpoint step-000000000512 is damaged" in done.err
    assert townlet("eval", run.name, *BRIEF, "--which", "last", *root).code == 0
    assert "step-000000000512 is damaged" in townlet("runs", "show", run.name, *root).out
    going_on = townlet("train", "--resume", run.name, "budget.env_steps=1152", "metrics.report=false", *root)
    assert going_on.code == 0
    assert "checkpoint: the checkpoint step-000000000512 is damaged" in going_on.err
    assert first.is_dir()  # it may have been the best one, so it is kept
    shutil.rmtree(first)
    assert townlet("eval", run.name, *BRIEF, *root).code == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", "one"), ("seconds", "x"), ("versions", []), ("summary", 5), ("resumed_with", 3), ("created", 7),
     ("places", {"Bed": "x"}), ("size", "8"), ("finished", "yes"), ("overrides", [1])],
)  # fmt: skip
def test_wrong_type_in_meta_json_is_one_error(townlet: Program, run: Run, key: str, value: Any) -> None:
    root = ["--root", str(run.path.parent)]
    whole = json.loads(run.meta_file.read_text(encoding="utf-8"))
    run.meta_file.write_text(json.dumps(whole | {key: value}), encoding="utf-8")
    done = townlet("train", "--resume", run.name, *root)
    assert done.code == 2
    assert f"'{key}" in done.err
    assert "in meta.json is not valid" in done.err
    assert "Traceback" not in done.err
    shown = townlet("runs", "show", run.name, *root)
    assert (shown.code, f"'{key}" in shown.out) == (0, True)
    assert townlet("runs", "list", *root).code == 0
    run.meta_file.write_text(json.dumps(whole), encoding="utf-8")
    assert "damaged" not in townlet("runs", "show", run.name, *root).out


def test_verify_reports_damage_and_usable_files(townlet: Program, run: Run) -> None:
    words = ("runs", "verify", run.name, "--root", str(run.path.parent))
    done = townlet(*words)
    assert done.code == 0
    assert "Intact: every checksum matches." in done.out
    last = checkpoint.paths(run.checkpoints)[-1]
    state = last / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    with sqlite3.connect(run.metrics_file) as connection:
        connection.execute('UPDATE "updates" SET "value" = 1e6 WHERE rowid = 3')
    connection.close()
    done = townlet(*words, "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert not found["intact"]
    damaged = {item["name"]: item["text"] for item in found["items"] if item["state"] == "damaged"}
    assert set(damaged) == {f"checkpoints/{last.name}", "metrics.db"}
    assert "'updates' between env_steps 0 and" in damaged["metrics.db"]
    verified = townlet(*words)
    assert verified.code == 1
    assert "does not match its sha256" in " ".join(verified.out.split())
    assert "No command reports metrics of a damaged table" in verified.out
    assert townlet("runs", "export", run.name, "--root", str(run.path.parent)).code == 2
    assert townlet("runs", "verify", "nothing", "--root", str(run.path.parent)).code == 2
