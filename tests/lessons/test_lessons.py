"""Lessons: each is a failure and a cure that are measured, and its text contains measured numbers only."""

from __future__ import annotations

from pathlib import Path

import pytest

from townlet.lessons.measures import failed_expectations, read_value, wrong_intervals
from townlet.lessons.results import lesson_table, read_results, results_table, unsupported_numbers, with_table
from townlet.lessons.schema import Lesson, find_lesson, shipped_lessons
from townlet.lessons.training import LEAN, train_lesson
from townlet.live.lessons import lesson_title
from townlet.recipes.load import load_recipe
from townlet.tasks.experiment import LoadedExperiment, load_experiment
from townlet.train.session import start

ROOT = Path(__file__).parents[2]
LESSONS = [pytest.param(lesson, id=lesson.name) for lesson in shipped_lessons()]
BRIEF = 0.1  # of the steps of a short form; enough for every measure to be recorded
SECTIONS = ("## What you will see", "## Your prediction", "## What happened", "## Why", "## The cure", "## Questions")


@pytest.mark.parametrize("lesson", LESSONS)
def test_stored_results_meet_the_expectations(lesson: Lesson) -> None:
    results = read_results(lesson)
    assert results is not None, "measure it: python benchmarks/lessons.py"
    assert len(results.seeds) == 5
    assert failed_expectations(lesson, results.values) == []
    assert wrong_intervals(lesson, results.values) == []
    assert results.lesson_seconds <= 120


@pytest.mark.parametrize("lesson", LESSONS)
def test_texts_contain_measured_numbers_only(lesson: Lesson) -> None:
    results = read_results(lesson)
    assert results is not None
    text = lesson.text_file.read_text(encoding="utf-8")
    assert unsupported_numbers(lesson, results) == []
    assert text == with_table(text, results_table(lesson, results))
    assert text.startswith(f"# {lesson.title}\n")
    assert [line for line in text.splitlines() if line in SECTIONS] == list(SECTIONS)
    assert "(figure.svg)" in text
    assert (lesson.folder / "figure.svg").is_file()


@pytest.mark.parametrize("lesson", LESSONS)
def test_arms_are_the_variants_of_the_recipe(lesson: Lesson) -> None:
    for arm in lesson.arms:
        assert load_recipe(lesson.recipe(arm)).recipe.variant == arm


def short_training(lesson: Lesson, arm: str) -> LoadedExperiment:
    """The short form of an arm. If nothing is expected of it, it only has to record its measures, and is shorter."""
    expectations = lesson.quick.expect or lesson.expect
    compared = {value for e in expectations for value in (e.arm, e.above, e.below)}
    words = ["seed=1", *LEAN, *lesson.quick.overrides]
    loaded = load_experiment(lesson.recipe(arm), words)
    if arm in compared:
        return loaded
    steps = loaded.recipe.budget.env_steps
    assert steps is not None
    return load_experiment(lesson.recipe(arm), [*words, f"budget.env_steps={BRIEF * steps}"])


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_short_form_shows_the_same(lesson: Lesson, tmp_path: Path) -> None:
    values = {}
    for arm in lesson.arms:  # in this process, because starting one takes longer than most of these trainings
        run = start(short_training(lesson, arm), tmp_path).run
        values[arm] = {name: [read_value(run, measure)] for name, measure in lesson.measures.items()}
    assert failed_expectations(lesson, values, quick=True) == []


@pytest.mark.long
@pytest.mark.parametrize("lesson", LESSONS)
def test_five_seeds_show_the_same(lesson: Lesson, tmp_path: Path) -> None:
    trained = train_lesson(lesson, tmp_path, [1, 2, 3, 4, 5], processes=2)
    assert failed_expectations(lesson, trained.values) == []
    assert wrong_intervals(lesson, trained.values) == []


def test_every_lesson_is_listed_in_the_documentation() -> None:
    text = (ROOT / "docs" / "lessons.md").read_text(encoding="utf-8")
    assert lesson_table() in text, lesson_table()


def test_runs_of_a_lesson_are_listed_by_its_title() -> None:
    lesson = find_lesson("hoverer")
    assert lesson_title({"recipe_argument": lesson.recipe("cured")}) == "The hoverer: reward for survival"
    for argument in (None, "town:dqn", "my/hoverer/recipe.yaml:cured", f"{lesson.recipe('cured')}-not"):
        assert lesson_title({"recipe": "town:cured", "recipe_argument": argument}) is None
