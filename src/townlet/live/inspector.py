"""Episodes of runs that are no towns, over HTTP: rolled out when asked for, then read as figures, pictures and a table.

To begin one costs time, so only our own page may: it is a POST, whose Origin is checked. All else only reads.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from fastapi.responses import PlainTextResponse, Response

from townlet.live.episode import Episode
from townlet.live.hub import House
from townlet.live.rollout_worker import Wish
from townlet.live.watched_run import Unknown, run_below

Key = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
Number = Annotated[int, Path(ge=0, le=10**6)]
STAYS: Final = {"Cache-Control": "private, max-age=3600, immutable"}  # the same key is the same episode


def inspector(house: House) -> APIRouter:
    """The routes."""
    ask = APIRouter(prefix="/api/runs/{name}/episodes")

    def episode(name: str, key: str) -> Episode:
        return house.studio.find(run_below(house.root, name).name, key)

    @ask.post("")
    def begin(name: str, wish: Wish) -> dict[str, str]:
        """Roll out an episode, or find one that was wished for before."""
        return {"episode": house.studio.begin(run_below(house.root, name), wish).key}

    @ask.get("/{key}")
    def part(name: str, key: Key, since: Annotated[int, Query(ge=0, le=10**6)] = 0) -> dict[str, Any]:
        """What is known of it by now, from one moment on; with the first also what never changes."""
        found = episode(name, key)
        return {**found.part(since), "about": found.about() if since == 0 else None}

    @ask.get("/{key}/frames/{moment}.jpg")
    def frame(name: str, key: Key, moment: Number) -> Response:
        """A moment as the environment draws it."""
        return _picture(episode(name, key).frames, moment, "image/jpeg")

    @ask.get("/{key}/seen/{block}/{moment}.png")
    def seen(name: str, key: Key, block: Number, moment: Number) -> Response:
        """A block of an observation that is a picture, by its place among those."""
        found = list(episode(name, key).seen.values())
        return _picture(found[block] if block < len(found) else [], moment, "image/png")

    @ask.get("/{key}/steps.csv")
    def table(name: str, key: Key) -> Response:
        """All that is known by now as a table, one line for each step."""
        found = episode(name, key)
        told = f'attachment; filename="{found.title}.csv"'
        return PlainTextResponse(found.as_csv(), media_type="text/csv", headers={"Content-Disposition": told})

    return ask


def _picture(among: list[bytes], moment: int, kind: str) -> Response:
    if moment >= len(among):
        raise Unknown(f"there is no picture of moment {moment}", "the episode says how many there are")
    return Response(among[moment], media_type=kind, headers=STAYS)
