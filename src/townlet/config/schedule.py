"""Settings that change during training: a number, or a schedule from one number to another."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from townlet.config.models import StrictModel

SHORTHAND: Final = re.compile(r"(lin|cos|exp)_(.+)")
SHAPES: Final = {"lin": "linear", "cos": "cosine", "exp": "exponential"}


class ScheduleClock(Protocol):
    """The part of `townlet.interfaces.counters.Counters` that a schedule needs."""

    env_steps: int
    budget: int


class Schedule(StrictModel):
    """A value that moves from `start` to `end` between two moments and is constant before and after."""

    model_config = ConfigDict(serialize_by_alias=True)  # writes `from`, which cannot name an attribute

    start: float = Field(description="Value until `from`. Raise it for larger values early in training.")
    end: float = Field(0.0, description="Value after `to`. Raise it for larger values late in training.")
    from_: float = Field(
        0.0,
        ge=0,
        alias="from",
        description="When the change begins: a fraction of the budget if at most 1, else env_steps. Raise it to hold "
        "`start` longer.",
    )
    to: float = Field(
        1.0,
        ge=0,
        description="When the change ends, in the units of `from`. Lower it to reach `end` earlier.",
    )
    shape: Literal["linear", "cosine", "exponential"] = Field(
        "linear",
        description="Shape of the change: linear, cosine (slow at both ends) or exponential (constant factor).",
    )
    warmup: float = Field(
        0.0,
        ge=0,
        description="Linear warm-up from 0 until this moment, in the units of `from`. Raise it to start more gently.",
    )

    @model_validator(mode="after")
    def _check(self) -> Schedule:
        if self.shape == "exponential" and min(self.start, self.end) <= 0:
            raise ValueError("an exponential schedule needs `start` and `end` above 0")
        if (self.from_ <= 1) == (self.to <= 1) and self.to <= self.from_:
            raise ValueError(f"`to` ({self.to:g}) must come after `from` ({self.from_:g})")
        return self

    @property
    def uses_fractions(self) -> bool:
        """Whether it needs a budget in env_steps, because it begins or ends at a fraction of the budget."""
        return 0 < self.from_ <= 1 or self.to <= 1 or 0 < self.warmup <= 1

    def at(self, clock: ScheduleClock) -> float:
        """The value at the current env_steps."""
        warmup_end = _moment(self.warmup, clock.budget)
        gain = clock.env_steps / warmup_end if clock.env_steps < warmup_end else 1.0
        begin, end = _moment(self.from_, clock.budget), _moment(self.to, clock.budget)
        fraction = min(1.0, max(0.0, (clock.env_steps - begin) / (end - begin))) if end > begin else 0.0
        if self.shape == "exponential":
            return float(gain * self.start * (self.end / self.start) ** fraction)
        if self.shape == "cosine":
            fraction = (1 - math.cos(math.pi * fraction)) / 2
        return gain * (self.start * (1 - fraction) + self.end * fraction)


def _moment(value: float, budget: int) -> float:
    """A moment in env_steps, given in env_steps or as a fraction of the budget (0 without a budget)."""
    return value * budget if value <= 1 else value


def expand_shorthand(value: Any) -> Any:
    """`lin_0.001` as a mapping: linear from 0.001 to 0. Other values are returned unchanged."""
    match = SHORTHAND.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    try:
        start = float(match[2])
    except ValueError:
        raise ValueError(f"'{match[2]}' is not a number; write it like lin_0.001") from None
    # An exponential schedule cannot end at 0, so it ends at a hundredth of its start.
    return {"start": start, "shape": SHAPES[match[1]], "end": start * 0.01 if match[1] == "exp" else 0.0}


FloatOrSchedule = Annotated[
    float | Schedule,
    BeforeValidator(
        expand_shorthand, json_schema_input_type=float | Schedule | Annotated[str, Field(pattern=SHORTHAND.pattern)]
    ),
]


def value_at(value: float | Schedule, clock: ScheduleClock) -> float:
    """The current value of a setting that may be scheduled."""
    return value.at(clock) if isinstance(value, Schedule) else value


def endpoints(value: float | Schedule) -> tuple[float, ...]:
    """The extreme values of a setting: one number, or both ends of its schedule."""
    return (value.start, value.end) if isinstance(value, Schedule) else (value,)


def validate_positive(value: float | Schedule | None) -> float | Schedule | None:
    """Validate that a setting is above 0; a schedule may reach 0 only at its end."""
    validate_non_negative(value)
    if value is not None and endpoints(value)[0] <= 0:
        raise ValueError("it must be greater than 0")
    return value


def validate_non_negative(value: float | Schedule | None) -> float | Schedule | None:
    """Validate that a setting is never below 0."""
    if value is not None and min(endpoints(value)) < 0:
        raise ValueError("it must not be negative")
    return value
