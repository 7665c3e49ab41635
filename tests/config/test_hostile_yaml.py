"""Hostile YAML: every file is rejected or read, in little time and memory."""

from __future__ import annotations

from math import isqrt
from pathlib import Path

import pytest

from time_limit import within
from townlet.config.yaml import MAX_BYTES, MAX_DEPTH, MAX_DIAGNOSTICS, MAX_NODES, parse, read
from townlet.errors import ConfigError

SECONDS = 6.0
SIZE = MAX_BYTES


def refused(text: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, "x")
    return str(caught.value)


def test_alias_bomb_is_refused() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "x:2:8: aliases are not accepted (*a); write the value out" in refused(bomb)


def test_alias_to_itself_is_refused() -> None:
    assert "aliases are not accepted" in refused("a: &a [*a]")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}")])
def test_nesting_deeper_than_the_limit_is_refused(opening: str, closing: str) -> None:
    def nest(depth: int) -> str:
        return "k: " + opening * (depth - 1) + closing * (depth - 1)

    assert parse(nest(MAX_DEPTH), "x").to_python()
    assert f"nested deeper than {MAX_DEPTH} levels" in refused(nest(MAX_DEPTH + 1))


def test_more_values_than_the_limit_are_refused() -> None:
    def many(count: int) -> str:  # the mapping, the key and the list are three values
        return "k: [" + "1," * (count - 3) + "]"

    assert len(parse(many(MAX_NODES), "x").to_python()["k"]) == MAX_NODES - 3
    assert f"more than {MAX_NODES} values" in refused(many(MAX_NODES + 1))


def test_a_file_over_the_size_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_text("k: " + "x" * (MAX_BYTES - 3))
    assert len(read(path).to_python()["k"]) == MAX_BYTES - 3
    path.write_text("k: " + "é" * (MAX_BYTES // 2))
    with pytest.raises(ConfigError, match="more than 128 KiB of text"):
        read(path)


def test_number_of_errors_is_limited() -> None:
    assert len(refused("a: 1\n" * 9000).splitlines()) == MAX_DIAGNOSTICS
    assert len(refused("\x00" * 9000).splitlines()) == MAX_DIAGNOSTICS


def shapes(size: int) -> dict[str, str]:
    """Texts of at most this many bytes."""
    return {
        "brackets": "[" * size,
        "braces": "{" * size,
        "dashes": "- " * (size // 2),
        "question marks": "? " * (size // 2),
        "questions in lists": "[? " * (size // 3),
        "colons": ": " * (size // 2),
        "one long word": "a: " + "b" * (size - 3),
        "one long quote": 'a: "' + "x\n" * (size // 2 - 3) + '"',
        "one long key": '"' + "a" * (size - 6) + '": 1',
        "lines of words": "a\n" * (size // 2),
        "open words in lists": "[" * 30 + "a\n" * (size // 2 - 15),
        "many keys": "".join(f"k{i}: 1\n" for i in range(size // 12)),
        "keys, then a long text": "".join(f"k{i}: 1\n" for i in range(size // 27)) + "z: " + "a b\n " * (size // 9),
        "small lists": "a: [" + "[]," * (size // 3 - 3),
        "growing indentation": "".join(" " * i + "a:\n" for i in range(isqrt(2 * size) - 12)),
        "spaces": "a:\n" + (" " * 4000 + "- a\n") * (size // 4200),
        "line ends": "a: |+\n" + "\n" * (size - 6),
        "carriage returns": "\r" * size,
        "directives": "%a\n" * (size // 3),
        "comments": "#\n" * (size // 2),
        "documents": "---\n" * (size // 4),
        "tags": "a: !" + "%41" * (size // 3 - 2),
        "huge numbers": "a: [" + "1e400," * (size // 6 - 1),
        "digits": "a: " + "1" * (size - 3),
    }


ALIKE = ("braces", "many keys", "open words in lists", "carriage returns")  # brackets, keys, lines of words, line ends


@pytest.mark.parametrize(
    ("size", "seconds"), [(SIZE // 4, SECONDS / 4), pytest.param(SIZE, SECONDS, marks=pytest.mark.long)]
)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in ALIKE else ()) for name in shapes(SIZE)]
)
def test_hostile_structure_fails_fast(name: str, size: int, seconds: float) -> None:
    """In quick tests a quarter of the size in a quarter of the time, too little for what takes minutes in all."""
    text = shapes(size)[name]
    assert len(text) <= size
    said: list[str] = []
    with within(seconds):
        try:
            parse(text, "x").to_python()
        except ConfigError as mistakes:
            said = [str(mistake) for mistake in mistakes.diagnostics]
    assert all("KiB" not in line for line in said)  # rejected for its structure, not for its size
    assert all(len(line) < 300 for line in said)
