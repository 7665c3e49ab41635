"""Damage at scale: holes in decision logs, and single flipped bits in every file of a service and of a run."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from attack import run_folder, service_folder
from attack.damage import Effect, Hole, Table, flips

DOMAINS = ("hive", "bandit-ads")
SIZES = (512, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
MANY = pytest.mark.long(minutes=5)


class Build(NamedTuple):
    """Length of play and settings of a service."""

    turns: int
    words: tuple[str, ...]


SMALL = Build(24, ("segment_bytes=32768", "versions=4"))  # a log of 120 kB in 4 segments
LARGE = Build(600, ("segment_bytes=1000000", "versions=4"))  # a log of 3 MB in 4 segments


@pytest.fixture(scope="session")
def service_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Build], Path]:
    """A service of a domain, built at first use; copy it before use."""
    root = tmp_path_factory.mktemp("services")
    return cache(lambda domain, build: service_folder.build(root / f"{domain}-{build.turns}", domain, *build))


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A small run of a kind, built at first use; copy it before use."""
    root = tmp_path_factory.mktemp("runs")
    return cache(lambda kind: run_folder.build(root, kind))


def _copy(folder: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to


def _holes(folder: Path, count: int, seed: int) -> Iterator[Hole]:
    """Holes of all sizes anywhere in the log, half at block boundaries, half of zeros."""
    chance, paths = random.Random(seed), sorted((folder / "log").glob("*.wal"))
    for number in range(count):
        path = chance.choices(paths, [path.stat().st_size for path in paths])[0]
        offset = chance.randrange(path.stat().st_size)
        offset -= offset % chance.choice((512, 1))
        file, size = path.relative_to(folder).as_posix(), SIZES[number % len(SIZES)]
        yield Hole(file, offset, size, zeros=chance.random() < 0.5)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "log").iterdir()}


def _vanished(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """Segments that lost a byte: neither in place nor, as the end of a segment, in another file."""
    beside = [data for name, data in after.items() if name not in before]

    def kept(name: str, data: bytes) -> bool:
        found = after.get(name, b"")
        ends = [data[-len(end) :] == end and found.startswith(data[: -len(end)]) for end in beside if end]
        return found.startswith(data) or any(ends)

    return [name for name, data in before.items() if name.endswith(".wal") and not kept(name, data)]


@pytest.mark.parametrize(
    ("build", "offsets"), [pytest.param(SMALL, 9, id="9"), pytest.param(LARGE, 200, id="200", marks=MANY)]
)
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_hole_of_any_size_in_the_decision_log_is_reported_and_no_byte_is_removed(
    domain: str, build: Build, offsets: int, service_of: Callable[[str, Build], Path], tmp_path: Path
) -> None:
    words, folder, table = build.words, service_of(domain, build), Table()
    tokens = service_folder.tokens_of(folder)
    intact = service_folder.start(_copy(folder, tmp_path / "copy"), domain, words, tokens)
    assert intact.view is not None, intact.refusal
    for hole in _holes(folder, offsets, seed=len(domain)):
        copy = _copy(folder, tmp_path / "copy")
        if not hole.make(copy):
            continue
        before = _contents(copy)
        effect, output = service_folder.effect(intact, copy, domain, words, tokens)
        vanished = _vanished(before, _contents(copy))
        named = Path(hole.file).name in output and "byte" in output
        if effect is not Effect.REPORTED or vanished or not named:
            effect = Effect.SILENT
        table.add(f"{hole.size} B", effect, lambda: f"{hole}: vanished from {vanished}; {output}")  # noqa: B023
    print(f"\n{domain}\n{table}")
    assert not table.silent, "\n".join(table.silent[:20])


@pytest.mark.parametrize("count", [8, pytest.param(22, marks=MANY), pytest.param(250, marks=MANY)])
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_flipped_bit_in_any_file_of_a_service_changes_nothing_silently(
    domain: str, count: int, service_of: Callable[[str, Build], Path], tmp_path: Path
) -> None:
    words, folder, table = SMALL.words, service_of(domain, SMALL), Table()
    tokens = service_folder.tokens_of(folder)
    intact = service_folder.start(_copy(folder, tmp_path / "copy"), domain, words, tokens)
    assert intact.view is not None, intact.refusal
    for flip in flips(folder, count, seed=count):
        copy = _copy(folder, tmp_path / "copy")
        flip.make(copy)
        effect, output = service_folder.effect(intact, copy, domain, words, tokens)
        table.add(flip.kind, effect, lambda: f"{flip}: {output}")  # noqa: B023
    print(f"\n{domain}\n{table}")
    assert not table.silent, "\n".join(table.silent[:20])


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("town", 5), ("gym", 4), pytest.param("town", 16, marks=MANY),
        pytest.param("town", 200, marks=MANY), pytest.param("gym", 100, marks=MANY),
        pytest.param("finished", 200, marks=MANY),
    ],
)  # fmt: skip
def test_a_flipped_bit_in_any_file_of_a_run_changes_nothing_silently(
    kind: str, count: int, run_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, table = run_of(kind), Table()
    intact = run_folder.show(run_folder.copy(folder, tmp_path / "copy"))
    assert all(result.value for result in intact), intact
    for flip in flips(folder, count, seed=count):
        copy = run_folder.copy(folder, tmp_path / "copy")
        flip.make(copy)
        effect, output = run_folder.effect(intact, copy, flip.file)
        table.add(flip.kind, effect, lambda: f"{flip}: {output}")  # noqa: B023
    print(f"\n{kind}\n{table}")
    assert not table.silent, "\n".join(table.silent[:20])
