"""Validation against models: messages with location, value and fix."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BeforeValidator, Field, ValidationError, field_validator

from townlet.config.merge import apply_overrides
from townlet.config.models import StrictModel
from townlet.config.validate import validate_model
from townlet.config.yaml import MAX_DIAGNOSTICS, parse
from townlet.errors import ConfigError, Diagnostic

Word = Annotated[str, Field(min_length=1, max_length=8, pattern="^[a-z]+$")]
Share = Annotated[float, Field(ge=0, le=1)]


class Circle(StrictModel):
    name: Literal["circle"]
    radius: float = Field(1.0, gt=0, le=9)
    even: int = 2

    @field_validator("even")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("the number must be even")
        return value


class Square(StrictModel):
    name: Literal["square"]
    side: float = 1.0


Shape = Annotated[
    Circle | Square,
    Field(discriminator="name"),
    BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value),
]


class Inner(StrictModel):
    depth: int = Field(1, ge=1)
    loud: bool = False


class Thing(StrictModel):
    name: Word
    share: Share = 0.5
    pair: tuple[int, int] | None = None
    inner: Inner = Inner()
    effects: dict[Word, Share] = Field(default_factory=dict)


class Top(StrictModel):
    mode: Literal["fast", "slow"] = "fast"
    size: tuple[Annotated[int, Field(ge=1)], ...] = Field((1,), min_length=1, max_length=3)
    start: Literal["random"] | Annotated[int, Field(ge=0)] | tuple[int, ...] = 0
    view: Literal["full", "partial"] | tuple[Inner, ...] = "full"
    things: tuple[Thing, ...] = Field((), max_length=5)
    shapes: tuple[Shape, ...] = Field((), min_length=0)
    note: str = Field("", max_length=10)
    must: int = Field(1, lt=10)


class Strict(StrictModel):
    must: int
    also: tuple[Thing, ...] = Field(min_length=1)


def messages(text: str, model: type[StrictModel] = Top, **options: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate_model(model, parse(text, "w.yaml"), **options)
    return [str(mistake) for mistake in caught.value.diagnostics]


def test_valid_file_becomes_a_frozen_model() -> None:
    text = "size: [2, 3]\nthings: [{name: a, pair: [1, 2], share: 1}]\nshapes: [circle, {name: square, side: 2}]"
    top = validate_model(Top, parse(text, "x"))
    assert top.size == (2, 3)
    assert top.things[0].pair == (1, 2)
    assert top.shapes == (Circle(name="circle"), Square(name="square", side=2.0))
    with pytest.raises(ValidationError, match="frozen"):
        top.mode = "slow"  # type: ignore[misc]


WRONG = {
    "mode: fats": "1:1: mode cannot be 'fats'; did you mean 'fast'?",
    "mode: 5": "1:1: mode cannot be 5; write one of fast, slow",
    "mode: xyzzy": "1:1: mode cannot be 'xyzzy'; write one of fast, slow",
    "mdoe: fast": "1:1: unknown key 'mdoe'; did you mean 'mode'?",
    "note: 5": "1:1: note cannot be 5; write a string of at most 10 characters",
    "note: abcdefghijklmnop": "1:1: note cannot be 'abcdefghijklmnop'; write a string of at most 10 characters",
    "must: 10": "1:1: must cannot be 10; write a whole number below 10",
    "must: 5.0": "1:1: must cannot be 5.0; write a whole number below 10",
    "must: true": "1:1: must cannot be true; write a whole number below 10",
    "must: '5'": "1:1: must cannot be the string '5'; write a whole number below 10",
    "must:": "1:1: must cannot be empty (null); write a whole number below 10",
    "must: {a: 1}": "1:1: must cannot be a mapping; write a whole number below 10",
    "size: 5": "1:1: size cannot be 5; write a list of whole numbers, 1 to 3 of them",
    "size: []": "1:1: size has 0 entries; write a list of whole numbers, 1 to 3 of them",
    "size: [1, 2, 3, 4]": "1:1: size has 4 entries; write a list of whole numbers, 1 to 3 of them",
    "size: [1, 0]": "1:11: size[1] cannot be 0; write a whole number of at least 1",
    "size: [x]": "1:8: size[0] cannot be the string 'x'; write a whole number of at least 1",
    "start: rndom": "1:1: start cannot be 'rndom'; did you mean 'random'?",
    "start: -1": "1:1: start cannot be -1; write a whole number of at least 0",
    "start: .5": "1:1: start cannot be 0.5; write random or a whole number of at least 0 or a list of whole numbers",
    "start: [1, x]": "1:12: start[1] cannot be the string 'x'; write a whole number",
    "view: ful": "1:1: view cannot be 'ful'; did you mean 'full'?",
    "view: 7": "1:1: view cannot be 7; write one of full, partial or a list of mappings",
    "view: [{dept: 1}]": "1:9: unknown key 'dept' in view[0]; did you mean 'depth'?",
    "view: [{depth: 0}]": "1:9: view[0].depth cannot be 0; write a whole number of at least 1",
    "view: [7]": "1:8: view[0] cannot be 7; write a mapping with the keys depth, loud",
    "things: [{name: a}, {name: b, shre: 1}]": "1:31: unknown key 'shre' in things.b; did you mean 'share'?",
    "things:\n  - name: a\n    share: 1.5": "3:5: things.a.share cannot be 1.5; write a number from 0 to 1",
    "things: [{share: 1}]": "1:10: things[0] has no 'name'; add name: a string of 1 to 8 characters that matches ^",
    "things: [{name: A}]": "1:11: things[0].name cannot be 'A'; write a string of 1 to 8 characters that matches ^",
    "things: [5]": "1:10: things[0] cannot be 5; write a mapping with the keys name, share, pair, inner, effects",
    "things: {a: 1}": "1:1: things cannot be a mapping; write a list of mappings, at most 5 of them",
    "things: [{name: a, pair: [1]}]": "1:20: things.a.pair has 1 entry; write a list of 2 whole numbers",
    "things: [{name: a, pair: [1, 2, 3]}]": "1:20: things.a.pair has 3 entries; write a list of 2 whole numbers",
    "things: [{name: a, inner: {loud: yes}}]": "1:28: things.a.inner.loud cannot be the string 'yes'; write true or",
    "things: [{name: a, inner: {luod: true}}]": "1:28: unknown key 'luod' in things.a.inner; did you mean 'loud'?",
    "things: [{name: a, effects: {b: 2}}]": "1:30: things.a.effects.b cannot be 2; write a number from 0 to 1",
    "things: [{name: a, effects: {B: 1}}]": "1:30: things.a.effects cannot have a key 'B'; write a string of 1 to 8",
    "things: [{name: a, effects: [1]}]": "1:20: things.a.effects cannot be a list of 1; write a mapping {key: value}",
    "shapes: [circel]": "1:10: shapes[0] cannot be 'circel'; did you mean 'circle'?",
    "shapes: [{name: circel}]": "1:11: shapes[0].name cannot be 'circel'; did you mean 'circle'?",
    "shapes: [{radius: 1}]": "1:10: shapes[0] has no 'name'; add name: one of circle, square",
    "shapes: [{name: circle, radus: 1}]": "1:25: unknown key 'radus' in shapes.circle; did you mean 'radius'?",
    "shapes: [{name: circle, circle: 1}]": "1:25: unknown key 'circle' in shapes.circle; known: name, radius, even",
    "shapes: [{name: circle, radius: 0}]": "1:25: shapes.circle.radius cannot be 0; write a number above 0 and up to 9",
    "shapes: [{name: circle, even: 3}]": "1:25: shapes.circle.even: the number must be even",
    "shapes: [7]": "1:10: shapes[0] cannot be 7; write a mapping whose name is one of circle, square",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_one_error_gives_one_message(text: str) -> None:
    found = messages(text)
    assert len(found) == 1
    assert found[0].startswith("w.yaml:" + WRONG[text])


def test_missing_key_is_named_with_its_type() -> None:
    assert messages("must: 1", Strict) == [
        "w.yaml:1:1: the file has no 'also'; add also: a list of mappings, at least 1 of them"
    ]
    # One bad entry is one error: the list is not also reported as too short.
    assert len(messages("must: 1\nalso: [{name: a, share: 2}]", Strict)) == 1


def test_errors_are_in_line_order() -> None:
    text = "zzz: 1\nmust: x\nthings:\n  - {name: a, share: 2, wrong: 1}\n  - {}\nmode: 1\n"
    assert [line.split(": ")[0] for line in messages(text)] == [
        "w.yaml:1:1", "w.yaml:2:1", "w.yaml:4:15", "w.yaml:4:25", "w.yaml:5:5", "w.yaml:6:1",
    ]  # fmt: skip


pieces = st.sampled_from(
    ("a", "circle", "square", "full", "name", "depth", "share", "pair", "effects", "radius", "random", "[key]", "0", "")
)
trees = st.recursive(
    pieces | st.integers(-2, 12) | st.floats(-2, 2) | st.booleans() | st.none(),
    lambda tree: st.lists(tree, max_size=4) | st.dictionaries(pieces, tree, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from((*Top.model_fields, "other")), trees, min_size=1, max_size=4))
def test_any_values_give_model_or_located_errors(data: dict[str, Any]) -> None:
    said: tuple[Diagnostic, ...] = ()
    try:
        validate_model(Top, parse(json.dumps(data), "w.yaml"))
    except ConfigError as mistakes:
        said = mistakes.diagnostics
    assert all(m.where is not None and m.where.line and (m.fix or "even" in m.what) for m in said)
    assert "other" not in data or any(m.what == "unknown key 'other'" for m in said)


def test_additional_keys_are_suggested() -> None:
    assert messages("extend: town", extra=("extends", "remove")) == [
        "w.yaml:1:1: unknown key 'extend'; did you mean 'extends'?"
    ]
    assert "did you mean 'extends'" not in messages("things: [{name: a, extend: 1}]", extra=("extends",))[0]


def test_wrong_override_is_located_on_command_line() -> None:
    node = apply_overrides(
        parse("things: [{name: a}]", "w.yaml"), ["things.a.shar=1", "things.a.inner.depth=0", "mdoe=fast"]
    )
    with pytest.raises(ConfigError) as caught:
        validate_model(Top, node)
    assert {str(mistake) for mistake in caught.value.diagnostics} == {
        "command line: mdoe=fast: unknown key 'mdoe'; did you mean 'mode'?",
        "command line: things.a.inner.depth=0: things.a.inner.depth cannot be 0; write a whole number of at least 1",
        "command line: things.a.shar=1: unknown key 'shar' in things.a; did you mean 'share'?",
    }


def test_long_values_and_many_errors_are_truncated() -> None:
    assert all(len(line) < 250 for line in messages(f"must: {'x' * 5000}\n{'k' * 900}: 1"))
    assert len(messages("".join(f"k{i}: 1\n" for i in range(500)))) == MAX_DIAGNOSTICS
