"""The lessons on the page: their questions, and the measured results of each with its figure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse

from townlet.lessons.measures import summarize
from townlet.lessons.results import read_results
from townlet.lessons.schema import FOLDER, Lesson, find_lesson, shipped_lessons


def lessons_router() -> APIRouter:
    """Routes about lessons."""
    router = APIRouter(prefix="/api/lessons")

    @router.get("")
    def lessons() -> list[dict[str, Any]]:
        """All lessons, in the order of the course."""
        return [lesson_json(lesson) for lesson in shipped_lessons()]

    @router.get("/{name}/figure.svg")
    def figure(name: str) -> FileResponse:
        """The figure of a lesson: the measured curves over several seeds."""
        return FileResponse(find_lesson(name).folder / "figure.svg", media_type="image/svg+xml")

    return router


def lesson_title(meta: Mapping[str, Any]) -> str | None:
    """The lesson that trained a run, with the agent of it; None for runs of other recipes."""
    path, _, arm = str(meta.get("recipe_argument") or "").rpartition(":")
    folder = Path(path).parent
    if folder.parent.name != FOLDER.name:
        return None
    lesson = next((one for one in shipped_lessons() if one.name == folder.name and arm in one.arms), None)
    return None if lesson is None else f"{lesson.title}: {lesson.arms[arm].label}"


def lesson_json(lesson: Lesson) -> dict[str, Any]:
    """Question and result of a lesson; `results` is null if it was never measured."""
    results = read_results(lesson)
    arms = [
        {
            "label": arm.label,
            "values": [
                None if results is None else measure.text(summarize(results.values[name][measured]).iqm)
                for measured, measure in lesson.measures.items()
            ],
        }
        for name, arm in lesson.arms.items()
    ]
    return {
        "number": lesson.number,
        "name": lesson.name,
        "title": lesson.title,
        "question": lesson.question,
        "conclusion": lesson.conclusion,
        "measures": [measure.label for measure in lesson.measures.values()],
        "arms": arms,
        "seeds": len(results.seeds) if results else 0,
        "seconds": results.lesson_seconds if results else None,
    }
