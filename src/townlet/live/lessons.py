"""The lessons on the page: their questions, and the measured results of each with its figure."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse

from townlet.lessons.measures import summarize
from townlet.lessons.results import read_results
from townlet.lessons.schema import Lesson, find_lesson, shipped_lessons


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
