"""Checkpoints are intact or rejected by name, and pruning keeps the right ones."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from townlet.errors import TownletError
from townlet.runs import checkpoint
from townlet.runs.checkpoint import best, folder_name, latest, load, paths, prune, require_info, rewind, save, verify
from townlet.runs.checkpoint_files import DIGEST, MANIFEST, STATE

FILES = (STATE, MANIFEST, DIGEST)


def sample(seed: int = 0) -> dict[str, Any]:
    chance = torch.Generator().manual_seed(seed)
    return {
        "agent": {
            "body.0.weight": torch.randn(3, 4, generator=chance),
            "steps": torch.tensor(7),
            "none": torch.zeros(0, 2),
        },
        "env": {
            "cell": np.arange(5, dtype=np.uint32),
            "hour": np.array([65535, 1], np.uint16),
            "key": np.uint64(2**63),
        },
        "counters": {"env_steps": 12, "name": "a/b é", "list": [1, 2.5, None, "x"], "empty": {}},
        "chance": chance.get_state(),
    }


def same(a: Any, b: Any) -> bool:
    """Whether two trees of tensors are bit-identical."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, torch.Tensor | np.ndarray | np.generic):
        x, y = np.asarray(a), np.asarray(b)
        return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
    return type(a) is type(b) and bool(a == b)


def put(folder: Path, env_steps: int, **info: Any) -> Path:
    state = {"x": torch.full((2,), float(env_steps))}
    return save(folder, folder_name(env_steps), state, {"env_steps": env_steps, **info}).path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = save(tmp_path_factory.mktemp("whole"), folder_name(12), sample(), {"env_steps": 12}).path
    return {name: (path / name).read_bytes() for name in FILES}


def laid(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / folder_name(12)
    path.mkdir(exist_ok=True)
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def refusal(path: Path) -> str:
    """The message with which every function that opens a checkpoint rejects it."""
    said = []
    for look in (load, verify):
        with pytest.raises(TownletError) as caught:
            look(path)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert folder_name(12) in said[0]
    return said[0]


def test_state_is_restored_bit_for_bit(tmp_path: Path) -> None:
    made = save(tmp_path, folder_name(12), sample(), {"env_steps": 12, "agent": "dqn"})
    state, info = load(made.path)
    assert same(sample(), state)
    assert info == made.info == {"env_steps": 12, "agent": "dqn"}
    assert all(isinstance(leaf, torch.Tensor) for leaf in state["env"].values())
    assert verify(made.path) == made == latest(tmp_path)


def test_leaves_that_share_memory_are_saved_separately(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    state, _ = load(save(tmp_path, folder_name(1), {"all": base, "part": base[2:4], "again": base}, {}).path)
    assert [leaf.tolist() for leaf in state.values()] == [[0, 1, 2, 3, 4, 5], [2, 3], [0, 1, 2, 3, 4, 5]]


def test_loaded_leaves_own_their_memory(tmp_path: Path) -> None:
    path = put(tmp_path, 3)
    load(path)[0]["x"].zero_()
    assert load(path)[0]["x"].tolist() == [3, 3]


def test_checksums_match_sha256sum(tmp_path: Path) -> None:
    path = put(tmp_path, 3)
    subprocess.run(["sha256sum", "-c", DIGEST], cwd=path, check=True, capture_output=True)


@settings(max_examples=examples(40, 150))
@given(data=st.data())
def test_any_flipped_bit_is_detected(
    data: st.DataObject, whole: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = data.draw(st.sampled_from(FILES))
    place, bit = data.draw(st.integers(0, len(whole[name]) - 1)), data.draw(st.integers(0, 7))
    hurt = bytearray(whole[name])
    hurt[place] ^= 1 << bit
    assert "damaged" in refusal(laid(tmp_path_factory.mktemp("flip"), {**whole, name: bytes(hurt)}))


@settings(max_examples=examples(15, 40))
@given(data=st.data())
def test_any_truncation_or_growth_is_detected(
    data: st.DataObject, whole: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = data.draw(st.sampled_from(FILES))
    end = data.draw(st.integers(0, len(whole[name]) - 1))
    hurt = data.draw(st.sampled_from([whole[name][:end], whole[name] + whole[name][: end + 1]]))
    assert "damaged" in refusal(laid(tmp_path_factory.mktemp("cut"), {**whole, name: hurt}))


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(name: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    path = laid(tmp_path, whole)
    (path / name).unlink()
    assert f"{name} is missing" in refusal(path)


def test_unexpected_file_is_named(whole: dict[str, bytes], tmp_path: Path) -> None:
    assert "unexpected file 'x.pkl'" in refusal(laid(tmp_path, {**whole, "x.pkl": b"cos\nsystem\n"}))


@pytest.mark.parametrize("name", FILES)
def test_symbolic_link_is_rejected(name: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    path = laid(tmp_path, whole)
    (path / name).rename(tmp_path / "elsewhere")
    (path / name).symlink_to(tmp_path / "elsewhere")
    assert "not a plain file" in refusal(path)


def test_linked_folder_is_not_a_checkpoint(whole: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = laid(tmp_path / "real", whole)
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / folder_name(12)
    link.symlink_to(path)
    assert latest(tmp_path / "links") is None
    assert "not a folder" in refusal(link)


def test_named_pipe_does_not_block_the_reader(whole: dict[str, bytes], tmp_path: Path) -> None:
    path = laid(tmp_path, {name: data for name, data in whole.items() if name != STATE})
    os.mkfifo(path / STATE)
    assert "not a plain file" in refusal(path)


def test_latest_checkpoint_has_the_highest_step_and_temporary_folders_are_ignored(tmp_path: Path) -> None:
    assert latest(tmp_path / "nowhere") is None
    for moment in (900, 10_000, 2_000):
        put(tmp_path, moment)
    (tmp_path / ".new-0011").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    found = latest(tmp_path)
    assert found is not None
    assert (found.env_steps, found.name) == (10_000, "step-000000010000")
    put(tmp_path, 11_000)
    assert not (tmp_path / ".new-0011").exists()
    assert (tmp_path / "notes.txt").exists()


def test_damaged_latest_checkpoint_is_rejected_by_name(tmp_path: Path) -> None:
    put(tmp_path, 1)
    (put(tmp_path, 2) / MANIFEST).write_text("{}")
    with pytest.raises(TownletError, match=r"step-000000000002 is damaged.*resume from the one before"):
        latest(tmp_path)


def test_best_checkpoint_has_the_highest_score_and_ties_go_to_the_earliest(tmp_path: Path) -> None:
    put(tmp_path, 1)
    assert best(tmp_path) is None
    for moment, score in ((2, 3.5), (3, 9), (4, 9.0), (5, -1.0)):
        put(tmp_path, moment, score=score)
    (put(tmp_path, 6, score=99) / MANIFEST).write_text("{}")
    found = best(tmp_path)
    assert found is not None
    assert found.env_steps == 3


def test_pruning_keeps_last_best_and_the_first_of_each_interval(tmp_path: Path) -> None:
    for moment in range(30, 400, 30):
        put(tmp_path, moment, **({"score": 1.0} if moment == 60 else {}))
    prune(tmp_path, keep_every=100)
    assert [checkpoint.step_and_serial(path)[0] for path in paths(tmp_path)] == [60, 120, 210, 300, 390]
    prune(tmp_path)
    assert [checkpoint.step_and_serial(path)[0] for path in paths(tmp_path)] == [60, 390]
    assert len(list(tmp_path.iterdir())) == 2


def test_same_step_saved_again_replaces_the_checkpoint(tmp_path: Path) -> None:
    put(tmp_path, 5)
    for score in (1.0, 2.0):
        made = save(tmp_path, folder_name(5), {"x": torch.tensor(score)}, {"score": score})
        assert latest(tmp_path) == made
        assert load(made.path)[0]["x"].item() == score
        assert paths(tmp_path) == [made.path]


def test_rewind_removes_later_checkpoints(tmp_path: Path) -> None:
    for moment in (1, 2, 3):
        put(tmp_path, moment)
    rewind(tmp_path, 2)
    assert [checkpoint.step_and_serial(path)[0] for path in paths(tmp_path)] == [1, 2]


@pytest.mark.parametrize("name", ["../step-000000000001", "last", "", "step-1", "step-000000000001/x", ".new-1"])
def test_invalid_checkpoint_name_is_rejected(name: str, tmp_path: Path) -> None:
    with pytest.raises(TownletError, match="not the name of a checkpoint"):
        save(tmp_path / "deep", name, {}, {})
    assert not list(tmp_path.iterdir())


def test_unsupported_leaf_type_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TownletError, match=r"'a/z' of the state has the type torch\.complex128"):
        save(tmp_path, folder_name(1), {"a": {"z": torch.zeros(1, dtype=torch.complex128)}}, {})
    with pytest.raises(TownletError, match="keep long lists as tensors"):
        save(tmp_path, folder_name(1), {"a": [1.5] * 300_000}, {})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_checkpoint_of_another_world_is_named(tmp_path: Path) -> None:
    made = save(tmp_path, folder_name(1), {}, {"interface": "abc", "env": "town"})
    require_info(made, interface="abc", env="town")
    with pytest.raises(TownletError, match="has interface abc, but this run has xyz"):
        require_info(made, env="town", interface="xyz")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_failed_fsync_leaves_only_the_old_checkpoint(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, 1)
    calls = 0

    def failing(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        raise OSError(number, "injected")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(TownletError, match=r"step-000000000002 in .*(error|full).*resume from step-000000000001"):
        put(tmp_path, 2)
    monkeypatch.undo()
    assert calls
    assert [path.name for path in tmp_path.iterdir()] == [folder_name(1)]
    assert load(tmp_path / folder_name(1))[0]["x"].tolist() == [1, 1]


def test_everything_is_synced_before_it_becomes_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noted(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def renamed(old: Path, new: Path) -> None:
        synced.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "rename", renamed)
    put(tmp_path / "checkpoints", 1)
    before, after = synced[: synced.index("rename")], synced[synced.index("rename") + 1 :]
    assert before[0] == tmp_path.name  # where the folder of checkpoints is new
    assert sorted(before[1:4]) == sorted(FILES)
    assert before[4].startswith(".new-")
    assert after == ["checkpoints"]


def test_manifest_lists_every_leaf_in_order(tmp_path: Path) -> None:
    path = save(tmp_path, folder_name(12), sample(), {}).path
    manifest = json.loads((path / MANIFEST).read_text())
    assert list(manifest["state"])[:3] == ["agent/body.0.weight", "agent/steps", "agent/none"]
    assert manifest["state"]["env/hour"] == {"dtype": "U16", "shape": [2]}
    assert manifest["state"]["counters/env_steps"] == {"value": 12}


def test_damaged_checkpoint_is_reported_and_kept(tmp_path: Path) -> None:
    """It may have been the best one, so it is neither ignored nor deleted."""
    for step, score in ((1, 5.0), (2, 9.0), (3, 1.0), (4, 2.0)):
        checkpoint.save(tmp_path, checkpoint.folder_name(step), {"x": torch.zeros(1)}, {"score": score})
    best = tmp_path / checkpoint.folder_name(2)
    (best / MANIFEST).write_bytes(b"{}")
    whole, damaged = checkpoint.scan(tmp_path)
    assert [found.env_steps for found in whole] == [1, 3, 4]
    assert list(damaged) == [best]
    assert "step-000000000002 is damaged" in str(damaged[best])
    checkpoint.prune(tmp_path)
    assert [path.name for path in checkpoint.paths(tmp_path)] == [checkpoint.folder_name(step) for step in (1, 2, 4)]
