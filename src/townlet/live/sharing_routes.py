"""HTTP routes for sharing: the link by which others join."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter
from fastapi.responses import Response

from townlet.live.watched_run import NotFound
from townlet.web.guard import LOOPBACK_HOSTS


def sharing_router(join_link: str | None) -> APIRouter:
    """Routes for joining; `join_link` is the link for viewers, if there is one."""
    router = APIRouter(prefix="/api")

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
