"""Cross-origin resource sharing: pages of configured origins may use what games alone may use, and read the answers.

The token is in a header or in the URL, so credentials of the browser are never allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from townlet.errors import TownletError
from townlet.web.tokens import GAME, Access

METHODS: Final = "POST"
MAX_AGE: Final = 7200  # seconds that a browser may keep the answer to a preflight; more is ignored by Chromium
EXPOSED: Final = "Retry-After"  # sent with some refusals
ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d+)?", re.I)
ONLY_GAMES: Final = frozenset({GAME})


def check_origin(origin: str) -> str:
    """An origin in the form in which browsers send it; raises TownletError for other texts."""
    if not ORIGIN.fullmatch(stripped := origin.rstrip("/")):
        what = f"'{origin[:100]}' is not the origin of a web page"
        raise TownletError(what, "write scheme://host or scheme://host:port, such as https://play.example")
    return stripped.lower()


class Sharing:
    """What pages of some origins may use, and the response headers that they need."""

    def __init__(self, origins: Iterable[str], access: Access, request_headers: Iterable[str]) -> None:
        self.origins, self._access = frozenset(origins), access
        self._request_headers = ", ".join(("Authorization", "Content-Type", *request_headers))

    def allows(self, scope: Scope, origin: str) -> bool:
        """Whether a page of this origin may make this request."""
        known = origin.lower() in self.origins
        return known and self._access(scope.get("method", "WEBSOCKET"), scope["path"]) == ONLY_GAMES

    def response_headers(self, scope: Scope, headers: Headers) -> dict[str, str]:
        """Headers of every response to such a page, refusals included, so that the page can read the reason."""
        origin = headers.get("origin", "")
        if not self.allows(scope, origin):
            return {}
        return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED, "Vary": "Origin"}

    def preflight_headers(self, scope: Scope, headers: Headers) -> dict[str, str] | None:
        """Headers of the answer to a preflight request, which carries no token; None for other requests."""
        asks = scope.get("method") == "OPTIONS" and "access-control-request-method" in headers
        if not (asks and self.allows(scope, headers.get("origin", ""))):
            return None
        return {
            "Access-Control-Allow-Methods": METHODS,
            "Access-Control-Allow-Headers": self._request_headers,
            "Access-Control-Max-Age": str(MAX_AGE),
        }
