"""Hostile YAML: every file is rejected or read, in little time and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from time_limit import within
from townlet.config.yaml import MAX_BYTES, MAX_DEPTH, MAX_DIAGNOSTICS, MAX_NODES, parse, read
from townlet.errors import ConfigError

SECONDS = 4.0
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


SHAPES = {
    "brackets": "[" * SIZE,
    "braces": "{" * SIZE,
    "dashes": "- " * (SIZE // 2),
    "question marks": "? " * (SIZE // 2),
    "questions in lists": "[? " * (SIZE // 3),
    "colons": ": " * (SIZE // 2),
    "one long word": "a: " + "b" * (SIZE - 3),
    "one long quote": 'a: "' + "x\n" * (SIZE // 2 - 3) + '"',
    "one long key": '"' + "a" * (SIZE - 6) + '": 1',
    "lines of words": "a\n" * (SIZE // 2),
    "open words in lists": "[" * 30 + "a\n" * (SIZE // 2 - 15),
    "many keys": "".join(f"k{i}: 1\n" for i in range(SIZE // 12)),
    "keys, then a long text": "".join(f"k{i}: 1\n" for i in range(MAX_NODES // 2 - 3)) + "z: " + "a b\n " * 15_000,
    "small lists": "a: [" + "[]," * (SIZE // 3 - 3),
    "growing indentation": "".join(" " * i + "a:\n" for i in range(500)),
    "spaces": "a:\n" + (" " * 4000 + "- a\n") * 30,
    "line ends": "a: |+\n" + "\n" * (SIZE - 6),
    "carriage returns": "\r" * SIZE,
    "directives": "%a\n" * (SIZE // 3),
    "comments": "#\n" * (SIZE // 2),
    "documents": "---\n" * (SIZE // 4),
    "tags": "a: !" + "%41" * (SIZE // 3 - 2),
    "huge numbers": "a: [" + "1e400," * (SIZE // 6 - 1),
    "digits": "a: " + "1" * (SIZE - 3),
}


ALIKE = ("braces", "many keys", "open words in lists", "carriage returns")  # brackets, keys, lines of words, line ends


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in ALIKE else ()) for name in SHAPES]
)
def test_hostile_structure_fails_fast(name: str) -> None:
    text = SHAPES[name]
    assert len(text) <= SIZE
    said: list[str] = []
    with within(SECONDS):
        try:
            parse(text, "x").to_python()
        except ConfigError as mistakes:
            said = [str(mistake) for mistake in mistakes.diagnostics]
    assert all("KiB" not in line for line in said)  # rejected for its structure, not for its size
    assert all(len(line) < 300 for line in said)
