"""HTTP routes about tournaments."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from townlet.live.messages import RunName
from townlet.live.tournament import TournamentRequest, Tournaments


def tournament_router(tournaments: Tournaments) -> APIRouter:
    """Routes that start tournaments and show their tables."""
    router = APIRouter(prefix="/api/tournaments")

    @router.post("")
    def start(request: TournamentRequest) -> dict[str, Any]:
        """Let all agents play in one world."""
        return tournaments.start(request).as_json()

    @router.get("")
    async def newest(run: RunName) -> dict[str, Any] | None:
        """The newest tournament in the world of a run; null if there is none."""
        found = tournaments.newest(run)
        return None if found is None else found.as_json()

    @router.get("/{id}")
    def tournament(id: str) -> dict[str, Any]:
        """The table of a tournament so far."""
        return tournaments.find(id).as_json()

    return router
