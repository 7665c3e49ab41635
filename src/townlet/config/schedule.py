"""Values that change while a run goes on: a number, or a way from one number to another."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from townlet.config.models import StrictModel

SHORT: Final = re.compile(r"(lin|cos|exp)_(.+)")
SHAPES: Final = {"lin": "linear", "cos": "cosine", "exp": "exponential"}


class ScheduleClock(Protocol):
    """What a schedule reads: see `townlet.interfaces.counters.Counters`."""

    env_steps: int
    budget: int


class Schedule(StrictModel):
    """From `start` to `end` between two moments; constant before and after."""

    model_config = ConfigDict(serialize_by_alias=True)  # `from` is a word of Python, so only the attribute differs

    start: float = Field(description="Value at `from` and before. Raise it for more at the beginning.")
    end: float = Field(0.0, description="Value at `to` and after. Raise it for more in the long run.")
    from_: float = Field(
        0.0,
        ge=0,
        alias="from",
        description="When the way begins: up to 1 a share of the budget, above it env_steps. Raise it to hold `start`.",
    )
    to: float = Field(
        1.0,
        ge=0,
        description="When the way ends, counted as `from`. Lower it to be at `end` early.",
    )
    shape: Literal["linear", "cosine", "exponential"] = Field(
        "linear", description="The way: straight, slow at both ends, or by the same factor in equal times."
    )
    warmup: float = Field(
        0.0,
        ge=0,
        description="Until this moment, counted as `from`, the value rises from 0. Raise it to begin gently.",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Schedule:
        if self.shape == "exponential" and min(self.start, self.end) <= 0:
            raise ValueError("an exponential schedule cannot reach or leave 0; give both `start` and `end` above 0")
        if (self.from_ <= 1) == (self.to <= 1) and self.to <= self.from_:
            raise ValueError(f"`to` ({self.to:g}) must come after `from` ({self.from_:g})")
        return self

    @property
    def uses_fractions(self) -> bool:
        """Whether a moment is a share of the budget, so that a budget in steps is needed."""
        return 0 < self.from_ <= 1 or self.to <= 1 or 0 < self.warmup <= 1

    def at(self, clock: ScheduleClock) -> float:
        """The value at this moment."""
        warm = _moment(self.warmup, clock.budget)
        gain = clock.env_steps / warm if clock.env_steps < warm else 1.0
        begin, end = _moment(self.from_, clock.budget), _moment(self.to, clock.budget)
        share = min(1.0, max(0.0, (clock.env_steps - begin) / (end - begin))) if end > begin else 0.0
        if self.shape == "exponential":
            return float(gain * self.start * (self.end / self.start) ** share)
        if self.shape == "cosine":
            share = (1 - math.cos(math.pi * share)) / 2
        return gain * (self.start * (1 - share) + self.end * share)


def _moment(value: float, budget: int) -> float:
    """A moment in env_steps. Shares of a budget that is not given in steps never begin."""
    return value * budget if value <= 1 else value


def expand_shorthand(given: Any) -> Any:
    """`lin_0.001` is a way from .001 to 0; all else is left as it is."""
    found = SHORT.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        return given
    try:
        start = float(found[2])
    except ValueError:
        raise ValueError(f"'{found[2]}' is not a number; write it like lin_0.001") from None
    # An exponential way cannot end at 0; a hundredth is where such a value hardly matters any more.
    return {"start": start, "shape": SHAPES[found[1]], "end": start * 0.01 if found[1] == "exp" else 0.0}


FloatOrSchedule = Annotated[
    float | Schedule,
    BeforeValidator(
        expand_shorthand, json_schema_input_type=float | Schedule | Annotated[str, Field(pattern=SHORT.pattern)]
    ),
]


def value_at(value: float | Schedule, clock: ScheduleClock) -> float:
    """The value of a setting that may be scheduled, at this moment."""
    return value.at(clock) if isinstance(value, Schedule) else value
