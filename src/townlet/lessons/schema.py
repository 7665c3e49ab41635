"""The schema of `lesson.yaml`, and the catalog of shipped lessons."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, model_validator

from townlet.config.models import StrictModel
from townlet.config.validate import validate_model
from townlet.config.yaml import read
from townlet.errors import TownletError, did_you_mean

FOLDER: Final = Path(__file__).resolve().parent
Name = Annotated[str, Field(pattern=r"^[a-z][a-z_]*$", max_length=20)]
Line = Annotated[str, Field(min_length=1, max_length=110, pattern=r"^[^\n]*$")]


class Measure(StrictModel):
    """A number read from a finished run: exactly one of `evaluation`, `training` and `metric` says which."""

    label: Line = Field(description="What it is, with its unit, for tables and the axis of the figure.")
    evaluation: str | None = Field(None, description="A column of the last evaluation: length, return, earns_money …")
    training: str | None = Field(None, description="`length` or `return` of training episodes, at the end.")
    metric: str | None = Field(None, description="A metric of updates, such as mean_q, at the end of the training.")
    last: float = Field(0.1, gt=0, le=1, description="The end of the training, as a fraction of its steps.")
    percent: bool = Field(False, description="Show fractions as percentages.")
    log: bool = Field(False, description="Draw it on a logarithmic axis, for values of very different sizes.")

    @model_validator(mode="after")
    def _has_one_source(self) -> Measure:
        if sum(source is not None for source in (self.evaluation, self.training, self.metric)) != 1:
            raise ValueError("give exactly one of evaluation, training and metric")
        return self

    def text(self, value: float) -> str:
        """A value as it is shown in tables and sentences."""
        if self.percent:
            return f"{value * 100:.0f}%"
        return f"{value:z.0f}" if abs(value) >= 99.5 else f"{value:z.1f}" if abs(value) >= 9.95 else f"{value:z.2f}"


class Arm(StrictModel):
    """One of the agents that are compared: a variant of the lesson's recipe."""

    label: Line = Field(description="What distinguishes it, for tables and the legend of the figure.")
    sentence: Line = Field(description="Its result. {lifetime} stands for the value of the measure `lifetime`.")


class Expectation(StrictModel):
    """A comparison that must hold: `measure` of `arm` is above or below a number, or `times` that of another arm."""

    measure: Name
    arm: Name
    above: float | int | Name | None = None
    below: float | int | Name | None = None
    times: float = Field(1.0, gt=0, description="Factor on the other side of the comparison.")

    @model_validator(mode="after")
    def _has_one_bound(self) -> Expectation:
        if (self.above is None) == (self.below is None):
            raise ValueError("give either above or below")
        return self


class Demonstration(StrictModel):
    """The short form of a lesson, for `--quick`."""

    overrides: tuple[str, ...] = Field((), description="Changes to the recipe of every arm, as on the command line.")
    expect: tuple[Expectation, ...] = Field((), description="What must hold, in place of the lesson's expectations.")


class LessonSpec(StrictModel):
    """What a lesson shows and what must be true of it."""

    number: int = Field(ge=1, description="Position in the course.")
    title: Line
    question: Line = Field(description="The question to answer before the agents are trained.")
    seeds: int = Field(1, ge=1, le=10, description="Runs of each arm that `townlet lesson` trains.")
    arms: dict[Name, Arm] = Field(min_length=2, max_length=4, description="Variants of recipe.yaml, in order.")
    measures: dict[Name, Measure] = Field(min_length=1, description="By name; the figure has a panel for each.")
    expect: tuple[Expectation, ...] = Field(min_length=1, description="What must hold for every seed.")
    apart: tuple[Name, ...] = Field(
        (), description="Measures whose 95% intervals over five seeds do not overlap between the first and last arm."
    )
    overlap: tuple[Name, ...] = Field(
        (), description="Measures whose 95% intervals over five seeds overlap between the first and second arm."
    )
    quick: Demonstration = Demonstration()
    conclusion: Line = Field(description="The lesson in one sentence.")

    @model_validator(mode="after")
    def _names_exist(self) -> LessonSpec:
        expectations = (*self.expect, *self.quick.expect)
        arms = [e.arm for e in expectations]
        arms += [bound for e in expectations for bound in (e.above, e.below) if isinstance(bound, str)]
        for kind, names, known in (
            ("arm", arms, self.arms),
            ("measure", [*self.apart, *self.overlap, *(e.measure for e in expectations)], self.measures),
        ):
            if unknown := next((name for name in names if name not in known), None):
                raise ValueError(f"there is no {kind} '{unknown}'; use one of {', '.join(known)}")
        return self


class Lesson(LessonSpec):
    """A lesson and its folder."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def text_file(self) -> Path:
        return self.folder / "README.md"

    @property
    def results_file(self) -> Path:
        return self.folder / "results.json"

    def recipe(self, arm: str) -> str:
        """The recipe of an arm, as `townlet train` accepts it."""
        return f"{self.folder / 'recipe.yaml'}:{arm}"


@lru_cache(maxsize=1)
def shipped_lessons() -> tuple[Lesson, ...]:
    """All lessons, in the order of the course."""
    lessons = (load_lesson(file.parent) for file in FOLDER.glob("*/lesson.yaml"))
    return tuple(sorted(lessons, key=lambda lesson: lesson.number))


def load_lesson(folder: Path) -> Lesson:
    """Read the lesson in a folder; raises ConfigError with everything that is wrong."""
    spec = validate_model(LessonSpec, read(folder / "lesson.yaml"))
    return Lesson(folder=folder, **{name: getattr(spec, name) for name in LessonSpec.model_fields})


def find_lesson(name: str) -> Lesson:
    """A lesson by its name or number; raises TownletError."""
    lessons = shipped_lessons()
    for lesson in lessons:
        if name in (lesson.name, str(lesson.number)):
            return lesson
    names = [lesson.name for lesson in lessons]
    raise TownletError(f"there is no lesson '{name[:60]}'", f"{did_you_mean(name, names)} (`townlet lesson` lists all)")
