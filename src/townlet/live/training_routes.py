"""HTTP routes about trainings that are started on the page."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from townlet.live.training_jobs import MAX_STEPS, TrainingJobs, TrainRequest, training_choices
from townlet.town.world.load import shipped
from townlet.web.guard import role_of
from townlet.web.tokens import OPERATOR


def training_router(jobs: TrainingJobs) -> APIRouter:
    """Routes that list, start and stop trainings."""
    router = APIRouter(prefix="/api/trainings")

    @router.get("")
    def trainings(request: Request, world: str = "town") -> dict[str, Any]:
        """Trainings that were started on this page, and the recipes for a world and those that extend it."""
        choices = training_choices(world if world in shipped() else "town")
        listed = jobs.list(with_errors=role_of(request) == OPERATOR)
        return {"jobs": listed, "choices": choices, "max_steps": MAX_STEPS}

    @router.post("")
    def train(request: TrainRequest) -> dict[str, Any]:
        """Start a training."""
        return jobs.start(request).as_json()

    @router.post("/{id}/stop")
    def stop(id: str) -> dict[str, Any]:
        """Stop a training and save its run."""
        jobs.stop(id)
        return {}

    return router
