"""Strict YAML: values, their locations, and rejected files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from townlet.config.scalar import HIDDEN
from townlet.config.yaml import Node, parse, parse_value, read
from townlet.errors import ConfigError, Diagnostic, SourceLocation

words = st.text(max_size=20).filter(lambda t: not HIDDEN.search(t))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18) + 1, 10**18 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4), max_leaves=20
)


def tuples(value: Any) -> Any:
    """Plain data with tuples for lists, as `plain` returns it."""
    if isinstance(value, dict):
        return {key: tuples(item) for key, item in value.items()}
    return tuple(tuples(item) for item in value) if isinstance(value, list) else value


def messages(text: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "w.yaml")
    return [str(mistake) for mistake in caught.value.diagnostics]


@given(st.dictionaries(words, trees, min_size=1, max_size=5))
def test_plain_data_comes_back_as_written(data: dict[str, Any]) -> None:
    """JSON is a subset of YAML 1.2, so Python's JSON writer is an independent implementation."""
    read_back = parse(json.dumps(data, ensure_ascii=False), "x").to_python()
    assert read_back == tuples(data)
    assert repr(read_back) == repr(tuples(data))  # distinguishes 1, 1.0 and True


@given(st.binary(max_size=200) | st.text("ab:-[]{}?,&*!|>'\"%@`#\n\t 01.~\\<=", max_size=120))
def test_any_bytes_give_node_or_errors(text: bytes | str) -> None:
    said: tuple[Diagnostic, ...] = ()
    try:
        plain = parse(text, "x").to_python()
    except ConfigError as mistakes:
        said = mistakes.diagnostics
    assert said or isinstance(plain, dict)
    assert all(m.where is not None and m.where.source == "x" and m.what and m.fix for m in said)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("", None), ("~", None), ("null", None), ("NULL", None), ("nULL", "nULL"),
        ("true", True), ("False", False), ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"),
        ("0", 0), ("-7", -7), ("+7", 7), ("010", 10), ("0o17", 15), ("0xFf", 255), ("1_000", "1_000"), ("0b1", "0b1"),
        ("12:30", "12:30"), ("2024-01-02", "2024-01-02"), ("1.2.3", "1.2.3"),
        (".5", 0.5), ("5.", 5.0), ("-.5", -0.5), ("1e-4", 1e-4), ("1E3", 1000.0), ("1e", "1e"), (".", "."),
        ("'1'", "1"), ('"true"', "true"), ("''", ""), ('"a\\nb"', "a\nb"), ("NaN", "NaN"), ("a->b", "a->b"),
        ("[1, [2, x], {y: }]", (1, (2, "x"), {"y": None})), ("{}", {}), ("[]", ()), ("|\n  a\n  b\n", "a\nb\n"),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema(written: str, value: object) -> None:
    found = parse(f"key: {written}", "x").to_python()["key"]
    assert found == value
    assert type(found) is type(value)


def test_every_value_has_its_location() -> None:
    text = "map:\n  size: [8, 9]\nmeters:\n  - name: energy\n    decay: .1\n  - {name: mood}\n"
    node = parse(text, "w.yaml")
    assert node.location_of("map", "size") == SourceLocation("w.yaml", 2, 3)
    assert node.location_of("map", "size", 1) == SourceLocation("w.yaml", 2, 13)
    assert node.location_of("meters", 0, "decay") == SourceLocation("w.yaml", 5, 5)
    assert node.location_of("meters", 1) == SourceLocation("w.yaml", 6, 5)
    assert node.location_of("meters", 1, "decay", "deeper") == node.location_of("meters", 1)
    assert node.location_of("meters", 7) == node.location_of("meters") == SourceLocation("w.yaml", 3, 1)
    assert node.location_of() == SourceLocation("w.yaml", 1, 1)
    assert node.location_of("map", 0) == node.location_of("map")


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_line_ends_and_bom_do_not_shift_locations(end: str, bom: str) -> None:
    text = f"{bom}a: 1{end}b: 2{end}b: 3{end}"
    assert messages(text.encode()) == ["w.yaml:3:1: key 'b' is repeated, first in line 2; keep one of them"]


def test_all_errors_of_a_file_are_reported_at_once() -> None:
    text = "a: &x 1\nb: *x\na: .nan\nc: !!int 5\n1: x\n<<: {d: 1}\ne: [99999999999999999999, 1e999]\nf: {g: 1"
    found = messages(text)
    assert [line.split(": ", 1)[0] for line in found] == [
        "w.yaml:1:4", "w.yaml:2:4", "w.yaml:3:1", "w.yaml:3:4", "w.yaml:4:4", "w.yaml:5:1", "w.yaml:6:1",
        "w.yaml:7:5", "w.yaml:7:27", "w.yaml:8:4",
    ]  # fmt: skip


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "duplicate keys": ("a: 1\nb: {c: 1, c: 2}", "w.yaml:2:11: key 'c' is repeated, first in line 2; keep one"),
    "quoted duplicates": ("a: 1\n'a': 2", "w.yaml:2:1: key 'a' is repeated"),
    "anchors": ("a: &name 1", "w.yaml:1:4: anchors are not accepted (&name)"),
    "aliases": ("a: *name", "w.yaml:1:4: aliases are not accepted (*name); write the value out"),
    "merge keys": ("a: {<<: {b: 1}}", "w.yaml:1:5: merge keys are not accepted (<<)"),
    "python tags": ("a: !!python/object/apply:os.system [ls]", "w.yaml:1:4: tags are not accepted (!!python/object"),
    "own tags": ("a: !foo 1", "w.yaml:1:4: tags are not accepted (!foo)"),
    "empty tags": ("a: ! 1", "w.yaml:1:4: tags are not accepted (!)"),
    "unknown tag handles": ("a: !e!x 1", "w.yaml:1:4: tags are not accepted"),
    "number keys": ("1: a", "w.yaml:1:1: key 1 is not a string; put a word before the ':', or quote it"),
    "null keys": (": a", "w.yaml:1:1: key null is not a string"),
    "list keys": ("? [a]\n: b", "w.yaml:1:3: this key is not a string"),
    "second documents": ("a: 1\n---\nb: 1", "w.yaml:2:1: a second document begins here"),
    "infinity": ("a: -.inf", "w.yaml:1:4: -.inf is not a finite number"),
    "nan": ("a: .NaN", "w.yaml:1:4: .NaN is not a finite number"),
    "float overflow": ("a: 1e400", "w.yaml:1:4: 1e400 is too large or too long for a number"),
    "endless floats": ("a: ." + "1" * 5000, "w.yaml:1:4: .11111"),
    "19 digits": ("a: 1000000000000000000", "w.yaml:1:4: 1000000000000000000 is too large for an integer"),
    "5000 digits": ("a: -" + "9" * 5000, "w.yaml:1:4: -9999"),
    "long hexadecimals": ("a: 0xde0b6b3a7640000", "w.yaml:1:4: 0xde0b6b3a7640000 is too large for an integer"),
    "nothing": ("", "w.yaml:1:1: the file is empty; write at least one 'key: value'"),
    "only comments": ("# later\n", "w.yaml:1:1: the file is empty"),
    "a list on top": ("- a", "w.yaml:1:1: the top level is not a mapping"),
    "a word on top": ("word", "w.yaml:1:1: the top level is not a mapping"),
    "control characters": ("a: 1\nbc: \x07", "w.yaml:2:5: hidden character U+0007; delete it"),
    "turned text": ("a: \u202eb", "w.yaml:1:4: hidden character U+202E"),
    "escaped control characters": ('a: "\\e[2J"', "w.yaml:1:4: hidden character U+001B in a string"),
    "escaped half characters": ('a: "\\ud800"', "w.yaml:1:4: hidden character U+D800 in a string"),
    "impossible characters": ('a: "\\U00110000"', "w.yaml: this is not valid YAML"),
    "old versions": ("%YAML 1.1\n---\na: yes", "w.yaml:2:1: this is not YAML 1.2"),
    "bytes that are not UTF-8": (b"a: 1\nb: \xc3\xa9\xff", "w.yaml:2:5: byte 0xff is not UTF-8 text; save the file"),
    "UTF-16": ("a: 1".encode("utf-16"), "w.yaml:1:1: byte 0xff is not UTF-8 text"),
    "tabs": ("a:\n\t- b", "w.yaml:2:1: a tab where only spaces are allowed; indent with spaces"),
    "two colons": ("a: b: c", "w.yaml:1:5: a ':' where no key is allowed"),
    "open lists": ("a: 1\nb: [1, 2", "w.yaml:2:4: a list in [ ] lacks a comma or its ]; write [a, b, c]"),
    "open mappings": ("b: {c: 1", "w.yaml:1:4: a mapping in { } lacks a comma or its }"),
    "open quotes": ('a: 1\nb: "x', "w.yaml:2:4: a quoted string is never closed"),
    "reserved characters": ("a: @x", "w.yaml:1:4: an unquoted string cannot begin with this character; quote the"),
    "lists on a key's line": ("a: - b", "w.yaml:1:4: a '- ' where no list can begin"),
    "unknown escapes": ('a: "\\q"', "w.yaml:1:6: this escape is unknown"),
    "wrong indentation": ("a:\n  b: 1\n c: 2", "w.yaml:3:2: this does not fit the lines above it"),
    "lost brackets": ("a: ]", "w.yaml:1:4: a value is missing here"),
    "trailing brackets": ("{a: 1}}", "w.yaml:1:7: text after the end of the content"),
    "keys without colons": ("a: 1\nb\nc: 2", "w.yaml:2:1: this line has no ':' after its key; write 'key: value'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_yaml_is_refused_at_its_location(name: str) -> None:
    text, begins = REFUSED[name]
    assert messages(text)[0].startswith(begins)


def test_a_value_of_the_command_line_is_typed() -> None:
    node = parse_value("[1, a, {b: .5}]", "command line: x=…")
    assert node.to_python() == (1, "a", {"b": 0.5})
    assert node.location_of(2, "b") == SourceLocation("command line: x=…")
    assert isinstance(node.value, list)
    assert all(isinstance(entry, Node) for entry in node.value)


@pytest.mark.parametrize("text", ["", " ", "#x", "a: b", "- a", "[1", "*a", "!!str a", "1e400", "a\nb: c", "\x00", '"'])
def test_empty_value_is_refused_without_line(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value(text, "here")
    assert all(str(mistake).startswith("here: ") for mistake in caught.value.diagnostics)


def test_a_file_is_read_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "world.yaml"
    path.write_text("icon: 🛏\n", encoding="utf-8")
    assert read(path).to_python() == {"icon": "🛏"}
    assert read(path).location_of("icon") == SourceLocation(str(path), 1, 1)


def test_a_missing_file_suggests_its_siblings(tmp_path: Path) -> None:
    (tmp_path / "town.yaml").write_text("a: 1")
    (tmp_path / "notes.txt").write_text("a: 1")
    for name, fix in (("twon.yaml", "did you mean 'town.yaml'?"), ("x", "known: town.yaml")):
        with pytest.raises(ConfigError, match="there is no such file") as caught:
            read(tmp_path / name)
        assert caught.value.diagnostics[0].fix == fix
        assert caught.value.diagnostics[0].where == SourceLocation(str(tmp_path / name))
    with pytest.raises(ConfigError, match="there is no folder"):
        read(tmp_path / "nowhere" / "town.yaml")


def test_non_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this is a folder"):
        read(tmp_path)
    for name in ("x" * 5000, "nul\0byte"):
        with pytest.raises(ConfigError, match="cannot be read"):
            read(tmp_path / name)
