"""Run folders: created atomically, found by path, name and prefix."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from townlet.errors import TownletError
from townlet.runs.folder import Run


def make(root: Path, env: str = "town", variant: str = "dqn", **meta: Any) -> Run:
    return Run.create(root, env, variant, "agent: dqn\n", "agent: dqn  # default\n", meta)


def test_new_run_has_its_files_and_is_the_latest(tmp_path: Path) -> None:
    first = make(tmp_path, seed=3)
    second = make(tmp_path, variant="ppo")
    assert re.fullmatch(r"town-dqn-\d{8}T\d{6}Z-[0-9a-f]{6}", first.name)
    assert first.recipe_file.read_text() == "agent: dqn\n"
    assert first.resolved_file.read_text() == "agent: dqn  # default\n"
    assert first.meta()["seed"] == 3
    assert first.checkpoints.is_dir()
    assert Run.open("latest", tmp_path).path.samefile(second.path)
    assert Run.open("latest", tmp_path).name == second.name
    assert [run.name for run in Run.list(tmp_path)] == [first.name, second.name]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["latest", first.name, second.name])


def test_new_run_is_synced_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync, rename = os.fsync, os.rename

    def record(descriptor: int) -> None:
        synced.append(re.sub(r"\.town-.*?(?=/|$)|\.(?=meta)|(?<=json)\..*", "", relative(descriptor)))
        fsync(descriptor)

    def relative(descriptor: int) -> str:
        return os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path)

    def commit(old: Path, new: Path) -> None:
        synced.append("renamed")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "rename", commit)
    worlds = {"training": "x: 1\n", "evaluation": "x: 1\n"}
    Run.create(tmp_path / "new" / "root", "town", "dqn", "a: 1\n", "a: 1\n", {}, worlds, "# none\n")
    at = synced.index("renamed")
    assert synced[:2] == [".", "new"]  # the names of the new parents
    files = {"recipe.yaml", "resolved.yaml", "tune.yaml", "meta.json", "worlds/training.yaml", "worlds/evaluation.yaml"}
    assert {name.removeprefix("new/root//") for name in synced[2:at]} >= {*files, "worlds"}
    assert synced[at - 1] == "new/root/"  # the run's own folder, last
    assert synced[at + 1 :] == ["new/root"]


def test_run_is_found_by_path_name_and_prefix(tmp_path: Path) -> None:
    dqn, ppo = make(tmp_path), make(tmp_path, variant="ppo")
    for word in (dqn.path, str(dqn.path), f"{dqn.path}/", dqn.name, "town-d", dqn.name[:-2]):
        assert Run.open(word, tmp_path).path == dqn.path
    assert Run.open("town-p", tmp_path) == ppo


def test_missing_run_is_explained(tmp_path: Path) -> None:
    with pytest.raises(TownletError, match=r"no run 'x' in .*; train one first"):
        Run.open("x", tmp_path)
    with pytest.raises(TownletError, match="no run 'latest'"):
        Run.open("latest", tmp_path / "nowhere")
    made = [make(tmp_path), make(tmp_path)]
    with pytest.raises(TownletError, match="2 runs start with 'town-'") as caught:
        Run.open("town-", tmp_path)
    assert all(run.name in str(caught.value) for run in made)
    with pytest.raises(TownletError, match=f"did you mean '{made[0].name}'"):
        Run.open(made[0].name.replace("town", "towm"), tmp_path)
    with pytest.raises(TownletError, match="no run ''"):
        Run.open("", tmp_path)


def test_latest_run_is_found_without_the_link(tmp_path: Path) -> None:
    make(tmp_path)
    last = make(tmp_path)
    (tmp_path / "latest").unlink()
    assert Run.open("latest", tmp_path) == last
    (tmp_path / "latest").symlink_to("gone")
    assert Run.open("latest", tmp_path) == last


def test_latest_for_a_policy_is_the_newest_run_that_has_one(tmp_path: Path) -> None:
    """Resuming still takes the newest run: one that was killed before its first checkpoint starts again."""
    trained, killed = make(tmp_path, recipe="town:dqn"), make(tmp_path, recipe="town:dqn")
    (trained.checkpoints / "step-000000000000").mkdir()
    for name in ("latest", "town:dqn"):
        assert Run.open(name, tmp_path, for_policy=True) == trained
        assert Run.open(name, tmp_path) == killed


def test_a_withdrawn_run_is_not_the_latest(tmp_path: Path) -> None:
    trained, failed_before, failed = make(tmp_path), make(tmp_path), make(tmp_path)
    (trained.checkpoints / "step-000000000000").mkdir()
    failed_before.withdraw()  # another run is the latest: nothing changes
    assert Run.open("latest", tmp_path) == failed
    failed.withdraw()
    assert Run.open("latest", tmp_path) == trained


def test_folder_named_latest_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "mine").write_text("precious")
    run = make(tmp_path)
    assert (tmp_path / "latest" / "mine").read_text() == "precious"
    assert {p.name for p in tmp_path.iterdir()} == {"latest", run.name}
    assert Run.open("latest", tmp_path) == run


@pytest.mark.parametrize(("env", "variant"), [("ALE/Pong-v5", "dqn"), ("../..", "/etc"), ("", ".."), ("a b\n", "ü:*")])
def test_run_names_cannot_escape_the_root(env: str, variant: str, tmp_path: Path) -> None:
    run = make(tmp_path / "runs", env, variant)
    assert run.path.parent == tmp_path / "runs"
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]+", run.name)
    assert Run.list(tmp_path / "runs") == [run]


def test_incomplete_runs_and_unrelated_folders_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".town-dqn-x").mkdir()
    (tmp_path / ".town-dqn-x" / "meta.json").write_text("{}")
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").write_text("x")
    assert Run.list(tmp_path) == []


def test_meta_can_be_updated(tmp_path: Path) -> None:
    run = make(tmp_path, seed=1)
    run.update_meta(ended="2026-01-01T00:00:00+00:00", seed=2)
    assert run.meta()["seed"] == 2
    assert run.meta()["ended"].startswith("2026")
    with pytest.raises(TownletError, match="is nan"):
        run.update_meta(score=float("nan"))
    assert "score" not in run.meta()


def test_damaged_meta_file_is_named(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.meta_file.write_text('{"seed": NaN}')
    assert Run.list(tmp_path) == [run]
    with pytest.raises(TownletError, match=r"meta\.json cannot be read: NaN"):
        run.meta()


def test_run_is_found_from_inside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(tmp_path)
    monkeypatch.chdir(run.path)
    assert Run.open(".").name == run.name
    monkeypatch.chdir(run.checkpoints)
    assert Run.open("..").name == run.name


def test_link_to_a_run_outside_the_root_is_listed_once(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    own, moved = make(here), make(there)
    (here / "on-the-other-disk").symlink_to(moved.path)
    (here / "nickname").symlink_to(own.path)
    (here / "broken").symlink_to(tmp_path / "gone")
    assert {run.name for run in Run.list(here)} == {own.name, "on-the-other-disk"}
    assert Run.open("nickname", here).path == own.path


@pytest.mark.parametrize(("key", "value"), [("seed", 1.5), ("finished", 1), ("versions", {"torch": 2})])
def test_meta_json_of_wrong_types_is_rejected_by_name(tmp_path: Path, key: str, value: Any) -> None:
    run = make(tmp_path, **{key: value})
    with pytest.raises(TownletError, match=rf"'{key}.*' in meta.json is not valid.*correct that value"):
        run.meta()
