"""Attacks with links in runs and service folders from elsewhere, and access of other users to both."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from attack.damage import command
from decide.ads_service import run_visits, start_service
from townlet.decide.storage import LOG, VERSIONS
from townlet.decide.storage.backup import backup
from townlet.errors import TownletError
from townlet.live.watched_run import find_run
from townlet.runs.folder import Run
from townlet.runs.overview import list_overviews
from townlet.train.session import start
from train.tiny import tiny

SEGMENT = "LAST-SEGMENT"  # replaced with the name of the file
IN_RUNS = (
    "log.txt",
    "tune.yaml",
    "meta.json",
    "metrics.csv",
    "metrics.db",
    "metrics.db-wal",
    "metrics.db-shm",
    "metrics.db-journal",
    "checkpoints",
    "checkpoints/.new-abc",
    "snapshots",
    "tensorboard",
    "plots",
    "videos",
    "live.feed",
    "wandb",
    "wandb/run-1/debug.log",
)
IN_SERVICES = (
    LOG,
    f"{LOG}/{SEGMENT}",
    f"{LOG}/control",
    f"{LOG}/lock",
    VERSIONS,
    f"{VERSIONS}/serving.jsonl",
    f"{VERSIONS}/.new-abc",
    "snapshots",
    "tokens.json",
)


def serve(folder: Path, visits: int) -> None:
    """Serve some visits, save a snapshot and stop."""
    service, training, clock = start_service(folder)
    run_visits(service, training, clock, visits)
    service.storage.save_snapshot()
    service.storage.close()


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints, snapshots and TensorBoard's file; copy it before use."""
    words = ("metrics.tensorboard=true", "metrics.csv=true")
    return start(tiny("town:dqn", *words), tmp_path_factory.mktemp("links"), pause_at=600).run.path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a service with versions and a snapshot; copy it before use."""
    folder = tmp_path_factory.mktemp("links") / "ads"
    serve(folder, 60)
    return folder


@pytest.fixture
def open_umask() -> Iterator[None]:
    """New files are open to all users, unless the program restricts them."""
    before = os.umask(0)
    yield
    os.umask(before)


def move_out(path: Path, elsewhere: Path) -> dict[Path, bytes]:
    """Move a file or folder out, add what a program may overwrite or remove, and leave a link; returns all bytes."""
    elsewhere.mkdir()
    target = elsewhere / path.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.rename(target)
    elif path.suffix or path.name.startswith("metrics"):
        target.write_bytes(b"precious")
    else:
        target.mkdir()
    if target.is_dir():
        (target / ".new-abc").mkdir()
        (target / ".new-abc" / "f").write_bytes(b"precious")
    path.symlink_to(target)
    return contents(elsewhere)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("name", IN_RUNS)
def test_resume_does_not_write_through_links(name: str, paused: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(paused, tmp_path / "run"))
    before = move_out(run / name, tmp_path / "elsewhere")
    done = command("train", "--resume", str(run), "budget.env_steps=700", "metrics.report=true")
    assert contents(tmp_path / "elsewhere") == before
    assert done.code == 2
    assert f"{name} is a symbolic link" in done.text


@pytest.mark.parametrize("name", IN_SERVICES)
def test_service_does_not_write_through_links(name: str, stopped: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "ads"))
    name = name.replace(SEGMENT, max(path.name for path in (folder / LOG).glob("*.wal")))
    before = move_out(folder / name, tmp_path / "elsewhere")
    with pytest.raises(TownletError, match=f"{name} is a symbolic link"):
        serve(folder, 20)
    assert contents(tmp_path / "elsewhere") == before


@pytest.mark.parametrize(
    "words", [("runs", "show"), ("runs", "export"), ("runs", "verify", "--reseal"), ("eval",), ("export",)]
)
def test_no_command_follows_a_link_in_a_run(words: tuple[str, ...], paused: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(paused, tmp_path / "run"))
    before = move_out(run / "plots", tmp_path / "elsewhere")
    done = command(*words, str(run))
    assert (done.code, "plots is a symbolic link" in done.text) == (2, True)
    assert contents(tmp_path / "elsewhere") == before


def test_live_page_does_not_follow_a_link_in_a_run(paused: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(paused, tmp_path / "run"))
    move_out(run / "live.feed", tmp_path / "elsewhere")
    with pytest.raises(TownletError, match=r"live\.feed is a symbolic link"):
        find_run(tmp_path, "run")


def test_list_of_runs_creates_no_files_beside_a_linked_database(paused: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(paused, tmp_path / "run"))
    with closing(sqlite3.connect(run / "metrics.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")  # as while a run is trained
    before = move_out(run / "metrics.db", tmp_path / "elsewhere")
    assert "symbolic link" in list_overviews(tmp_path)[0].problem
    assert contents(tmp_path / "elsewhere") == before


@pytest.mark.parametrize("words", [("backup", "ads", "copy"), ("verify", "ads"), ("versions", "--folder", "ads")])
def test_no_command_follows_a_link_in_a_service(
    words: tuple[str, ...], stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(stopped, tmp_path / "ads"))
    move_out(folder / VERSIONS, tmp_path / "elsewhere")
    done = command("decide", *words)
    assert (done.code, "versions is a symbolic link" in done.text) == (2, True)


def test_pipe_in_a_run_does_not_block_its_training(paused: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(paused, tmp_path / "run"))
    (run / "log.txt").unlink()
    os.mkfifo(run / "log.txt")
    with pytest.raises(TownletError, match=r"log\.txt is a pipe"):
        Run.open(run)
    (run / "log.txt").unlink()
    (run / "wandb").mkdir()
    os.mkfifo(run / "wandb" / "latest-run")
    with pytest.raises(TownletError, match="latest-run is a pipe"):
        Run.open(run)


def test_linked_runs_and_links_of_wandb_are_opened(paused: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(paused, tmp_path / "disk" / "run"))
    logs = run / "wandb" / "run-20260101_000000-a" / "logs"
    logs.mkdir(parents=True)
    (logs / "debug-core.log").symlink_to(tmp_path / "gone")
    for name in ("latest-run", "debug.log", "debug-internal.log"):
        (run / "wandb" / name).symlink_to(logs)
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    (tmp_path / "linked").symlink_to(run)
    assert Run.open("run", tmp_path / "runs").path == tmp_path / "runs" / "run"
    assert Run.open(tmp_path / "linked").path == run


@pytest.mark.usefixtures("open_umask")
def test_run_folder_is_private(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "runs", "town", "dqn", "", "", {})
    assert mode(run.path) == 0o700


@pytest.mark.usefixtures("open_umask")
def test_service_folder_is_private(tmp_path: Path) -> None:
    created, empty, copy = tmp_path / "new" / "ads", tmp_path / "empty", tmp_path / "copy"
    empty.mkdir()
    for folder in (created, empty):
        start_service(folder)[0].storage.close()
    backup(created, copy)
    assert [mode(folder) for folder in (created, empty, copy)] == [0o700] * 3
    assert {mode(path) for folder in (created, copy) for path in (folder / LOG).glob("*.wal")} == {0o600}


@pytest.mark.usefixtures("open_umask")
def test_folder_of_an_earlier_release_is_closed_to_other_users(
    stopped: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "ads"))
    folder.chmod(0o755)
    start_service(folder)[0].storage.close()
    assert mode(folder) == 0o700
    assert f"Other users had access to {folder}" in caplog.text
