"""Mutated world files: each gives a world or readable errors, quickly; 500 mutations in the long tests."""

from __future__ import annotations

import random
import time

import pytest

from townlet.errors import ConfigError
from townlet.town.world.load import FOLDER, from_text, shipped
from townlet.town.world.tables import World

FILES = 500
PARTS = 10
ODD = (
    "-1", "0", "1e400", ".nan", "-.inf", "99999999999999999999", "1e-320", "null", "true", "''", "[]", "{}", "[1]",
    "{a: 1}", "!!python/object:os.system x", "&a x", "*a", "<<", "x", "0x7fffffff", "65536", "-0.0", "'1'", "1_000",
)  # fmt: skip
GLYPHS = "{}[]:,-#&*!|>'\"%@`?\t \n\0\\é🛏\u2028"


def _number(rng: random.Random, text: str) -> str:
    """Replace one number."""
    digits = [i for i, c in enumerate(text) if c.isdigit()]
    at = rng.choice(digits or [0])
    return text[:at] + rng.choice(ODD) + text[at + 1 :]


def _word(rng: random.Random, text: str) -> str:
    """Misspell or replace one word."""
    words = [i for i, c in enumerate(text) if c.isalpha()]
    at = rng.choice(words or [0])
    return text[:at] + rng.choice(["", "x", *ODD]) + text[at + 1 :]


def _glyph(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text))
    return text[:at] + rng.choice(GLYPHS) + text[at + rng.randrange(2) :]


def _lines(rng: random.Random, text: str) -> str:
    """Drop, double, move or indent a line."""
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    line = lines.pop(at)
    match rng.randrange(4):
        case 1:
            lines[at:at] = [line, line]
        case 2:
            lines.insert(rng.randrange(len(lines) + 1), line)
        case 3:
            lines.insert(at, " " * rng.randrange(1, 4) + line)
    return "".join(lines)


def _cut(rng: random.Random, text: str) -> str:
    return text[: rng.randrange(len(text))]


def _broken(rng: random.Random) -> bytes:
    name = rng.choice(["town", rng.choice(shipped())])
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        text = rng.choice([_number, _number, _word, _glyph, _lines, _cut])(rng, text or "\n")
    raw = bytearray(text.encode("utf-8", "replace"))
    if raw and rng.random() < 0.1:
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw)


def _outcome(raw: bytes) -> World | ConfigError:
    try:
        return from_text(raw, "broken.yaml")
    except ConfigError as mistakes:
        return mistakes


@pytest.mark.parametrize("part", [pytest.param(p, marks=pytest.mark.long if p > 2 else ()) for p in range(PARTS)])
def test_broken_files_give_a_world_or_readable_errors(part: int) -> None:
    rng = random.Random(part)
    compiled = refused = 0
    for _ in range(FILES // PARTS):
        raw = _broken(rng)
        began = time.process_time()
        outcome = _outcome(raw)
        assert time.process_time() - began < 2.0, raw
        if isinstance(outcome, World):
            compiled += 1
            continue
        refused += 1
        assert outcome.diagnostics
        for mistake in outcome.diagnostics:
            assert mistake.where is not None, str(outcome)
            assert mistake.where.line > 0, str(outcome)
            assert mistake.where.source.endswith(".yaml"), str(outcome)
            assert mistake.what, raw
            assert mistake.fix, str(outcome)
            assert len(str(mistake)) < 600, str(outcome)
    assert compiled >= 2
    assert refused >= 10
