"""Schedules: values that change during a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from townlet.config.merge import apply_overrides
from townlet.config.models import StrictModel
from townlet.config.schedule import FloatOrSchedule, Schedule, value_at
from townlet.config.validate import validate_model
from townlet.config.yaml import parse
from townlet.errors import ConfigError


@dataclass
class Moment:
    env_steps: int
    budget: int = 1000


class Settings(StrictModel):
    lr: FloatOrSchedule = Field(1e-3, description="A rate.")
    clip: FloatOrSchedule | None = None


def read(text: str, *overrides: str) -> Settings:
    return validate_model(Settings, apply_overrides(parse(text, "r.yaml"), overrides))


def way(text: str) -> Schedule:
    found = read(f"lr: {text}").lr
    assert isinstance(found, Schedule)
    return found


def test_a_number_is_constant() -> None:
    setting = read("lr: 5e-4").lr
    assert setting == 5e-4
    assert value_at(setting, Moment(0)) == value_at(setting, Moment(999)) == 5e-4


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{start: 1, end: 0}", [1, 0.75, 0.5, 0.25, 0]),
        ("{start: 1, end: 3}", [1, 1.5, 2, 2.5, 3]),
        ("{start: 1, end: 0, from: .5}", [1, 1, 1, 0.5, 0]),
        ("{start: 1, end: 0, to: .5}", [1, 0.5, 0, 0, 0]),
        ("{start: 1, end: 0, from: 250, to: 750}", [1, 1, 0.5, 0, 0]),
        ("{start: 1, end: 0, from: 500, to: 1}", [1, 1, 1, 0.5, 0]),
        ("{start: 1, end: 0, shape: cosine}", [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0]),
        ("{start: 1, end: 1e-4, shape: exponential}", [1, 0.1, 0.01, 0.001, 0.0001]),
        ("{start: 1, end: 1, warmup: .5}", [0, 0.5, 1, 1, 1]),
        ("{start: 1, end: 1, warmup: 250}", [0, 1, 1, 1, 1]),
        ("{start: 1, end: 1e-4, shape: exponential, warmup: .5}", [0, 0.05, 0.01, 0.001, 0.0001]),
        ("lin_2", [2, 1.5, 1, 0.5, 0]),
        ("exp_1e-2", [0.01, 0.01 * 0.01**0.25, 1e-3, 0.01 * 0.01**0.75, 1e-4]),
    ],
)
def test_schedules_match_hand_computed_values(text: str, values: list[float]) -> None:
    found = way(text)
    assert [found.at(Moment(steps)) for steps in (0, 250, 500, 750, 1000)] == pytest.approx(values)
    assert found.at(Moment(5000)) == pytest.approx(values[-1])


def test_warmup_is_continuous_with_schedule() -> None:
    found = way("{start: 1, end: 0, warmup: 500}")
    assert found.at(Moment(499)) == pytest.approx(found.at(Moment(500)), abs=0.01)


numbers = st.floats(1e-6, 10)
shares = st.floats(0, 1)


@given(numbers, numbers, shares, shares, st.sampled_from(["linear", "cosine", "exponential"]), st.integers(0, 2000))
def test_a_value_stays_between_its_ends(a: float, b: float, f: float, t: float, shape: str, steps: int) -> None:
    if t <= f:
        return
    found = Schedule.model_validate({"start": a, "end": b, "from": f, "to": t, "shape": shape})
    slack = 1e-9
    assert min(a, b) * (1 - slack) <= found.at(Moment(steps)) <= max(a, b) * (1 + slack)
    assert found.at(Moment(0)) == pytest.approx(a)
    assert found.at(Moment(1000)) == pytest.approx(b)


def test_fractions_without_budget_never_begin() -> None:
    found = way("{start: 1, end: 0}")
    assert found.at(Moment(10**9, budget=0)) == 1
    assert found.uses_fractions
    assert not way("{start: 1, from: 10, to: 20}").uses_fractions
    assert way("{start: 1, from: 10, to: 20, warmup: .1}").uses_fractions


def test_from_is_a_key_in_a_file_and_on_the_command_line() -> None:
    found = read("lr: {start: 1, from: .2}", "lr.from=.4", "lr.end=.5").lr
    assert isinstance(found, Schedule)
    assert (found.from_, found.end) == (0.4, 0.5)


def test_dump_round_trips() -> None:
    settings = read("lr: {start: 1, from: .2}\nclip: cos_.3")
    assert settings.model_dump()["lr"]["from"] == 0.2
    assert Settings.model_validate(settings.model_dump()) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lin_fast", "'fast' is not a number; write it like lin_0.001"),
        ("{start: 1, end: 0, shape: exponential}", "an exponential schedule needs `start` and `end` above 0"),
        ("{start: 1, from: .6, to: .5}", "`to` (0.5) must come after `from` (0.6)"),
        ("{start: 1, from: 60, to: 50}", "`to` (50) must come after `from` (60)"),
        ("{end: 1}", "lr has no 'start'"),
        ("{start: 1, ends: 1}", "unknown key 'ends' in lr; did you mean 'end'?"),
        ("{start: 1, from: -1}", "lr.from cannot be -1"),
        ("fast", "lr cannot be the string 'fast'; write a number or a mapping with the keys start"),
        ("true", "lr cannot be true"),
    ],
)
def test_invalid_schedule_is_refused_at_its_location(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"lr: {text}")
    assert message in str(caught.value)
    assert str(caught.value).startswith("r.yaml:1:")


def test_from_is_accepted_only_by_its_alias() -> None:
    with pytest.raises(ValidationError, match="from_"):
        Schedule.model_validate({"start": 1, "from_": 0.5})


def test_shorthand_is_in_json_schema() -> None:
    kinds = Settings.model_json_schema()["properties"]["lr"]["anyOf"]
    assert {kind.get("type") for kind in kinds} == {"number", "string", None}
