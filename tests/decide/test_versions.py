"""Version store: readers always see one complete version, under publishing, pins, damage and kills."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import warm
from decide.publisher import Twin, twin_state
from townlet.decide.estimate import Estimate
from townlet.decide.storage.serving_log import KEPT_CHANGES, SERVING_LOG
from townlet.decide.storage.version_folder import VersionFolder
from townlet.decide.storage.versions import VersionStore, weights_digest
from townlet.errors import TownletError
from townlet.runs import checkpoint, disk

SCRIPT = Path(__file__).with_name("publisher.py")


def reopen(folder: Path) -> VersionStore:
    return VersionStore(VersionFolder(folder), Twin())


def filled(folder: Path, count: int, keep: int = 20) -> VersionStore:
    """Publish and promote versions 1 … count."""
    versions = VersionStore(VersionFolder(folder), Twin(), keep)
    for number in range(1, count + 1):
        versions.publish(10 * number, twin_state(number), {"step": 10 * number}, {"config": "abc", "log": number})
        versions.promote(number, f"reason {number}")
    return versions


def serves(versions: VersionStore) -> int | None:
    """The serving version; checks that its weights match."""
    if versions.serving is None:
        return None
    both = versions.serving.network(torch.ones(1, 64)) / 64
    assert both.tolist() == [[versions.serving.version] * 2]
    return versions.serving.version


def test_a_version_is_published_and_read_again(tmp_path: Path) -> None:
    versions = VersionStore(VersionFolder(tmp_path), Twin(), clock=lambda: 5.0)
    assert versions.serving is None
    trainer = {"optimizer": {"mean": torch.arange(3.0)}, "step": 40, "more": {}}
    snapshot = versions.publish(40, twin_state(1), trainer, {"config": "abc", "log": 17})
    assert (snapshot.version, snapshot.step, snapshot.parent) == (1, 40, None)
    assert snapshot.digest == weights_digest(twin_state(1))
    assert snapshot.finite
    assert not snapshot.network.training
    assert not any(weight.requires_grad for weight in snapshot.network.parameters())
    assert versions.serving is None  # not evaluated yet
    weights, kept, info = versions.open(1)
    assert weights_digest(weights) == snapshot.digest
    assert torch.equal(kept["optimizer"]["mean"], torch.arange(3.0))
    assert (kept["step"], kept["more"]) == (40, {})
    assert info == {
        "config": "abc", "log": 17, "version": 1, "parent": None, "step": 40, "digest": snapshot.digest, "time": 5.0,
    }  # fmt: skip
    assert versions.publish(41, twin_state(2), {}, {}).parent == 1
    assert versions.publish(42, twin_state(3), {}, {}, parent=1).parent == 1
    assert [versions.step_of(version) for version in (1, 2, None, 99)] == [40, 41, 0, 0]


def test_published_weights_do_not_change_during_training(tmp_path: Path) -> None:
    versions, state = reopen(tmp_path), twin_state(1)
    snapshot = versions.publish(1, state, {}, {})
    versions.promote(1, "first")
    state["first"].fill_(9.0)
    assert serves(versions) == 1
    assert weights_digest(dict(snapshot.network.named_parameters())) == snapshot.digest


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    versions = filled(tmp_path, 1)
    with pytest.raises(TownletError, match="lacks 'second'"):
        versions.publish(2, {"first": torch.zeros(64)}, {}, {})
    with pytest.raises(TownletError, match="'network: first' was saved as"):
        versions.publish(2, {"first": torch.zeros(3), "second": torch.zeros(64)}, {}, {})
    assert versions.list_versions() == [1]
    with pytest.raises(TownletError, match="network"):
        VersionStore(VersionFolder(tmp_path), nn.Linear(3, 3))


def test_versions_that_are_not_finite_are_reported(tmp_path: Path) -> None:
    versions, state = filled(tmp_path, 1), twin_state(2)
    state["second"][5] = float("nan")
    assert not versions.publish(2, state, {}, {}).finite


def test_digests_depend_on_names_shapes_types_and_values() -> None:
    ones = torch.ones(4)
    different = [
        {"a": ones}, {"b": ones}, {"a": ones.view(2, 2)}, {"a": ones.view(torch.int32)}, {"a": ones * 2},
        {"a": ones, "b": ones}, {"a": torch.ones(8)}, {"a": torch.ones(4, dtype=torch.bfloat16)}, {"a": torch.ones(())},
        {"a": torch.ones(0)}, {},
    ]  # fmt: skip
    assert len({weights_digest(state) for state in different}) == len(different)
    rows = torch.arange(6.0).view(2, 3)
    assert weights_digest({"a": rows, "b": ones}) == weights_digest({"b": ones.clone(), "a": rows.t().contiguous().t()})


def test_every_promotion_has_its_reason(tmp_path: Path) -> None:
    versions, estimate = filled(tmp_path, 2), Estimate(0.1, 0.0, 0.2, 40.0, 50)
    versions.publish(30, twin_state(3), {}, {})
    versions.note(3, "held: too little is known", estimate)
    versions.promote(3, "it earns more", estimate)
    for seen in (versions, reopen(tmp_path)):
        history = [(change.kind, change.version, change.reason, change.estimate) for change in seen.history]
        assert history == [
            ("promote", 1, "reason 1", None), ("promote", 2, "reason 2", None),
            ("note", 3, "held: too little is known", estimate), ("promote", 3, "it earns more", estimate),
        ]  # fmt: skip
        assert serves(seen) == 3


def test_pinned_versions_stay_despite_promotions(tmp_path: Path) -> None:
    versions = filled(tmp_path, 3)
    assert versions.pin(1, "a calm night").applied
    versions.publish(40, twin_state(4), {}, {})
    assert not versions.promote(4, "better").applied
    assert not versions.roll_back("worse").applied
    assert [serves(seen) for seen in (versions, reopen(tmp_path))] == [1, 1]
    assert versions.unpin() is not None
    assert versions.unpin() is None
    assert (serves(versions), versions.pinned) == (1, None)  # until the next promotion
    assert versions.promote(4, "better").applied
    versions.roll_back("worse")
    assert serves(versions) == 1  # what served before


def test_each_rollback_serves_an_older_version(tmp_path: Path) -> None:
    versions = filled(tmp_path, 4)
    assert [(versions.roll_back("bad"), serves(versions))[1] for _ in range(3)] == [3, 2, 1]
    with pytest.raises(TownletError, match="no version to go back to"):
        versions.roll_back("bad")
    assert serves(versions) == 1


def test_unknown_versions_are_refused_by_name(tmp_path: Path) -> None:
    versions = filled(tmp_path, 2)
    for act in (versions.open, versions.pin, lambda version: versions.promote(version, "why not")):
        with pytest.raises(TownletError, match="there is no version 7"):
            act(7)
    assert serves(versions) == 2
    assert len(versions.history) == 2


def test_old_versions_are_removed_unless_needed(tmp_path: Path) -> None:
    versions = filled(tmp_path, 3, keep=2)
    versions.pin(2)
    for number in range(4, 10):
        versions.publish(10 * number, twin_state(number), {}, {})
    assert versions.list_versions() == [2, 3, 8, 9]  # pinned, what served before it, and the last two
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != SERVING_LOG) == [
        checkpoint.folder_name(number) for number in (2, 3, 8, 9)
    ]
    assert [facts["version"] for facts in versions.overview()["versions"]] == [2, 3, 8, 9]
    versions.roll_back("noted")
    versions.unpin()
    versions.roll_back("now")
    assert serves(versions) == 3


def test_version_numbers_are_unique(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    for path in tmp_path.glob("step-*"):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    versions = reopen(tmp_path)
    assert versions.serving is None
    assert versions.publish(1, twin_state(4), {}, {}).version == 4


def damage(folder: Path, version: int) -> None:
    file = folder / checkpoint.folder_name(version) / "state.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)


def test_a_damaged_version_is_named_and_an_older_one_serves(tmp_path: Path) -> None:
    filled(tmp_path, 4)
    damage(tmp_path, 4)
    damage(tmp_path, 3)
    versions = reopen(tmp_path)
    assert serves(versions) == 2
    assert sorted(versions.damaged) == [3, 4]
    assert "does not match its sha256" in str(versions.damaged[4])
    assert versions.list_versions() == [1, 2]
    assert "step-000000000004 is damaged" in versions.history[-1].reason
    assert "4" in versions.overview()["damaged"]
    with pytest.raises(TownletError, match="damaged"):
        versions.promote(4, "again")
    assert versions.publish(50, twin_state(5), {}, {}).version == 5
    assert serves(reopen(tmp_path)) == 2


def test_rollback_skips_a_damaged_version(tmp_path: Path) -> None:
    versions = filled(tmp_path, 4)
    damage(tmp_path, 3)
    again = reopen(tmp_path)
    again.roll_back("bad")
    assert serves(again) == 2
    del versions


def test_damaged_pinned_version_is_replaced_by_another(tmp_path: Path) -> None:
    filled(tmp_path, 4).pin(2)
    damage(tmp_path, 2)
    versions = reopen(tmp_path)
    assert (serves(versions), versions.pinned, versions.replaced_pin) == (4, 4, 2)
    assert re.search("at startup, and pinned like .*step-000000000002 is damaged", versions.history[-1].reason)
    versions.publish(50, twin_state(5), {}, {})
    assert not versions.promote(5, "better").applied
    damage(tmp_path, 4)
    again = reopen(tmp_path)
    assert (serves(again), again.pinned, again.replaced_pin) == (3, 3, 2)  # an operator had pinned version 2
    again.unpin()
    assert (serves(again), again.pinned, again.replaced_pin) == (3, None, None)
    assert again.promote(5, "better").applied
    again.pin(1)
    assert (again.pinned, again.replaced_pin, reopen(tmp_path).replaced_pin) == (
        1,
        None,
        None,
    )


def test_without_intact_versions_the_gate_decides(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    for version in (1, 2):
        damage(tmp_path, version)
    versions = reopen(tmp_path)
    assert versions.serving is None
    versions.publish(30, twin_state(3), {}, {})
    versions.promote(3, "whole again")
    assert serves(reopen(tmp_path)) == 3


TORN = (b'0123abcd {"kind": "promote", "ver', b"\0" * 20, b"\xff\n", b"\n\n", b'{"kind": "promote"}\n')


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_line_leaves_decisions_to_the_gate_until_an_operator_switches(torn: bytes, tmp_path: Path) -> None:
    filled(tmp_path, 2)
    with open(tmp_path / SERVING_LOG, "ab") as file:
        file.write(torn)
    damaged = (tmp_path / SERVING_LOG).read_bytes()
    versions = reopen(tmp_path)
    assert serves(versions) == 2
    assert versions.gate_only
    assert "line" in versions.fault
    versions.roll_back("after the crash")
    assert [copy.read_bytes() for copy in tmp_path.glob("serving-damaged-*")] == [damaged]
    again = reopen(tmp_path)
    assert [(serves(seen), seen.gate_only, bool(seen.fault)) for seen in (versions, again)] == [(1, True, True)] * 2
    again.set_gate_only(False, "looked at it")
    assert [(serves(seen), seen.gate_only, seen.fault) for seen in (again, reopen(tmp_path))] == [(1, False, "")] * 2


def test_the_history_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert KEPT_CHANGES == 1000
    monkeypatch.setattr("townlet.decide.storage.serving_log.KEPT_CHANGES", 20)
    versions = filled(tmp_path, 1)
    for number in range(100):
        versions.note(1, f"note {number}")
        assert len((tmp_path / SERVING_LOG).read_bytes().splitlines()) <= 40
    assert [change.reason for change in versions.history] == [f"note {number}" for number in range(80, 100)]
    again = reopen(tmp_path)
    assert again.history == versions.history
    assert serves(again) == 1


def test_a_full_disk_promotes_nothing_but_still_rolls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = filled(tmp_path, 3)
    versions.publish(40, twin_state(4), {}, {})
    whole = (tmp_path / SERVING_LOG).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(TownletError, match="the disk is full"):
            versions.promote(4, "better")
        assert serves(versions) == 3
        with pytest.raises(TownletError, match=r"done, but not stored; .*the disk is full"):
            versions.roll_back("bad")
        assert serves(versions) == 2
        with pytest.raises(TownletError, match="done, but not stored"):
            versions.set_gate_only(True, "stop it")
        assert versions.gate_only
    (tmp_path / SERVING_LOG).write_bytes(whole + b'0123abcd {"half')  # as a full disk may leave it
    versions.note(4, "space again")
    assert [serves(seen) for seen in (versions, reopen(tmp_path))] == [2, 2]


def failing(descriptor: int) -> None:
    raise OSError(28, "no space")


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TownletError, match=r"cannot open the versions .* a file of that name already exists"):
        reopen(tmp_path / "file" / "versions")


ACTS = st.lists(
    st.tuples(st.sampled_from(["publish", "promote", "roll_back", "pin", "unpin", "reopen"]), st.integers(0, 30)),
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(ACTS)
def test_serving_version_follows_the_rules(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]]
) -> None:
    """Against a model: a list of serving versions, and the pin."""
    folder = tmp_path_factory.mktemp("versions")
    versions, served, pinned = VersionStore(VersionFolder(folder), Twin(), keep=50), list[int](), 0
    for act, number in acts:
        known = versions.list_versions()
        version = known[number % len(known)] if known else 0
        if act == "publish":
            new = versions.publish(len(known), twin_state(len(known) + 1), {}, {})
            assert new.version == len(known) + 1
        elif act == "reopen":
            versions = VersionStore(VersionFolder(folder), Twin(), keep=50)
        elif act == "unpin":
            versions.unpin()
            pinned = 0
        elif act == "roll_back" and len(served) > 1:
            versions.roll_back("so")
            served = served if pinned else served[:-1]
        elif act in ("promote", "pin") and known:
            (versions.promote(version, "so") if act == "promote" else versions.pin(version))
            if act == "pin" or not pinned:
                served = [*(one for one in served if one != version), version]
                pinned = version if act == "pin" else pinned
        assert serves(versions) == (served[-1] if served else None)
        assert versions.pinned == (pinned or None)


def mixtures(folder: Path, inferences: int, readers: int = 4) -> tuple[int, set[int], int]:
    """Inference in several threads while versions are published.

    (those that did not come from one whole version, the versions that were seen, how many were published)
    """
    versions, stop, wrong, seen = filled(folder, 1, keep=3), threading.Event(), [0] * readers, [set[int]()] * readers
    given = torch.ones(1, 64) / 64

    def read(place: int) -> None:
        found: set[int] = set()
        with torch.inference_mode():
            for _ in range(inferences // readers):
                snapshot = versions.serving
                assert snapshot is not None
                first, second = snapshot.network(given)[0].tolist()
                wrong[place] += not first == second == snapshot.version
                found.add(snapshot.version)
        seen[place] = found

    def publish() -> int:
        number = 1
        while not stop.is_set():
            number += 1
            versions.publish(number, twin_state(number), {}, {})
            versions.promote(number, "the next")
            if number % 7 == 0:
                versions.roll_back("every seventh")
        return number

    with ThreadPoolExecutor(readers + 1) as pool:
        writer = pool.submit(publish)
        try:
            for reader in [pool.submit(read, place) for place in range(readers)]:
                reader.result()
        finally:
            stop.set()
        return sum(wrong), set.union(*seen), writer.result()


def test_no_inference_mixes_two_versions(tmp_path: Path) -> None:
    wrong, seen, published = mixtures(tmp_path, 20_000)
    assert wrong == 0
    assert len(seen) > 3, published


@pytest.mark.long
def test_no_inference_of_a_million_mixes_two_versions(tmp_path: Path) -> None:
    wrong, seen, published = mixtures(tmp_path, 1_000_000)
    print(f"{len(seen)} versions were seen of {published}")
    assert wrong == 0
    assert len(seen) > 100


class Press:
    """A warm process that forks publishers; see publisher.py."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = warm.Popen(
            [sys.executable, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        line: str = self._process.stdout.readline()
        return line.strip()

    def ask(self, **order: Any) -> int:
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return int(self._line())

    def close(self) -> None:
        with self._process:  # closes its pipes
            self._process.kill()


@pytest.fixture(scope="module")
def press() -> Iterator[Press]:
    started = Press()
    yield started
    started.close()


def killed(press: Press, folder: Path, seconds: float | None = None, die: list[Any] | None = None) -> set[str]:
    """Run a publisher, `kill -9` it, and return the versions that may serve afterwards."""
    said = folder.with_name("said")
    said.write_text("")
    pid = press.ask(folder=str(folder), said=str(said), die=die)
    try:
        deadline = time.monotonic() + 60
        while die is None and "is" not in said.read_text() and time.monotonic() < deadline:
            time.sleep(0.005)
        if seconds is not None:
            time.sleep(seconds)
            os.kill(pid, signal.SIGKILL)
    finally:
        assert press.ask(wait=pid) == -signal.SIGKILL
    lines = [line.split() for line in said.read_text().splitlines(keepends=True) if line.endswith("\n")]
    last = next((number for word, number in reversed(lines) if word == "is"), None)
    pending = [lines[-1][1]] if lines and lines[-1][0] == "will" else []
    return {*pending, *([last] if last else [])}


def assert_serving_continues(folder: Path, allowed: set[str]) -> None:
    versions = VersionStore(VersionFolder(folder), Twin(), keep=3)
    assert not versions.damaged
    assert str(serves(versions)) in allowed
    assert {path.name for path in folder.iterdir() if path.name.startswith(".")} == set()
    number = max(versions.list_versions(), default=0) + 1
    assert versions.publish(number, twin_state(number), {}, {}).version == number


def kill_often(press: Press, folder: Path, times: int) -> None:
    chance = random.Random(3)
    for _ in range(times):
        assert_serving_continues(folder, killed(press, folder, seconds=chance.uniform(0, 0.25)))


def test_a_killed_publisher_keeps_the_serving_version(press: Press, tmp_path: Path) -> None:
    kill_often(press, tmp_path / "versions", 10)


@pytest.mark.long
def test_a_publisher_killed_a_hundred_times_keeps_the_serving_version(press: Press, tmp_path: Path) -> None:
    kill_often(press, tmp_path / "versions", 100)


PASSED = [point for point in checkpoint.COMMIT_POINTS if not point.startswith(("replaced", "pruning"))]


@pytest.mark.parametrize("point", PASSED)
def test_a_publisher_killed_at_a_point_of_a_commit_keeps_the_serving_version(
    point: str, press: Press, tmp_path: Path
) -> None:
    folder = tmp_path / "versions"
    allowed = killed(press, folder, die=[point, 6])
    assert allowed
    assert allowed != {"None"}
    assert_serving_continues(folder, allowed)


def test_a_crash_while_the_history_is_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    disk.write_new(tmp_path / f".{SERVING_LOG}.0123abcd", b"half")
    versions = reopen(tmp_path)
    assert serves(versions) == 2
    assert not list(tmp_path.glob(".*"))
