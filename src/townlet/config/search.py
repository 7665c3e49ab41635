"""Values that a search over settings may try for one key."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field, model_validator

from townlet.config.model import Model

WIDE: Final = 100  # from this ratio of the ends on, a factor counts as a step


class Searched(Model):
    """The values that one key may take: a stretch from `low` to `high`, or some `choices`."""

    low: int | float | None = Field(
        None, description="The least value. Between whole numbers a key that is one stays one."
    )
    high: int | float | None = Field(None, description="The largest value.")
    log: bool | None = Field(
        None,
        description="Whether equal factors are equally likely; left out, where high is 100 times low or more.",
    )
    choices: tuple[Any, ...] = Field((), description="The values to choose from, of any kind: [16, 32, 64].")

    @model_validator(mode="after")
    def _makes_sense(self) -> Searched:
        if self.choices:
            if (self.low, self.high, self.log) != (None, None, None):
                raise ValueError("`choices` stand alone; leave out low, high and log")
            return self
        if self.low is None or self.high is None:
            raise ValueError("give `low` and `high`, or `choices`")
        if self.low >= self.high:
            raise ValueError(f"`low` ({self.low:g}) must be below `high` ({self.high:g})")
        if self.log and self.low <= 0:
            raise ValueError("by factors one cannot leave 0; give a `low` above 0")
        return self

    @property
    def by_factors(self) -> bool:
        """Whether equal factors are equally likely, also where nothing is said."""
        if self.log is not None or self.low is None or self.high is None:
            return bool(self.log)
        return self.low > 0 and self.high >= WIDE * self.low

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that must go with the recipe, or none between them does."""
        return self.choices or (self.low, self.high)
