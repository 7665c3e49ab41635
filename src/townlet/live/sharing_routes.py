"""HTTP routes for sharing: an episode as an animated picture, and the link by which others join."""

from __future__ import annotations

from io import BytesIO
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Header
from fastapi import Path as PathParam
from fastapi.responses import PlainTextResponse, Response

from townlet.live.hub import Hub
from townlet.live.watched_run import NotFound
from townlet.web.guard import LOOPBACK_HOSTS

EpisodeId = Annotated[int, PathParam(ge=1, lt=2**63)]
OWN_SITES: Final = (None, "same-origin", "none")  # Sec-Fetch-Site of this page, the address bar and older browsers


def sharing_router(hub: Hub, join_link: str | None) -> APIRouter:
    """Routes for what viewers watch, and for joining; `join_link` is the link for viewers, if there is one."""
    router = APIRouter(prefix="/api")

    @router.get("/watched/{id}.gif")
    def gif(id: EpisodeId, sec_fetch_site: Annotated[str | None, Header()] = None) -> Response:
        """An episode that is on a viewer's screen, as far as it was played; pages of other sites cannot embed it."""
        if sec_fetch_site not in OWN_SITES:
            return PlainTextResponse("only this server's own page may do that", 403)
        episode = hub.episodes.get(id)
        if episode is None:
            raise NotFound("this episode is no longer on screen", "watch it again")
        disposition = f'attachment; filename="{episode.name.lower()}.gif"'
        return Response(hub.gifs.gif(episode), media_type="image/gif", headers={"Content-Disposition": disposition})

    @router.get("/join")
    def join() -> dict[str, Any]:
        """The link for viewers; null if the server has none. `local`: only this machine can open it."""
        host = None if join_link is None else urlsplit(join_link).hostname
        return {"link": join_link, "local": host in LOOPBACK_HOSTS}

    @router.get("/join.svg")
    def join_code() -> Response:
        """The link for viewers as a QR code."""
        if join_link is None:
            raise NotFound("this server has no link for viewers", "start it without --no-token")
        import segno  # lazily: few pages need it

        out = BytesIO()
        segno.make(join_link, error="m").save(out, kind="svg", scale=8, border=2, xmldecl=False)
        return Response(out.getvalue(), media_type="image/svg+xml")

    return router
