"""Cross-origin resource sharing: which responses pages of the configured origins may read.

Applies to the HTTP API of games alone. The token is in a header, so credentials of the browser are never allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

METHODS: Final = "POST"
MAX_AGE: Final = 7200  # seconds that a browser may keep the answer to a preflight; more is ignored by Chromium
EXPOSED: Final = "Retry-After"  # sent with some refusals


class Sharing:
    """Response headers for pages of some origins, on paths with a prefix; an empty prefix shares nothing."""

    def __init__(self, prefix: str, origins: frozenset[str], request_headers: Iterable[str]) -> None:
        self._prefix, self._origins = prefix, origins
        self._request_headers = ", ".join(("Authorization", "Content-Type", *request_headers))

    def _shares(self, scope: Scope, origin: str) -> bool:
        return bool(self._prefix) and scope["path"].startswith(self._prefix) and origin.lower() in self._origins

    def response_headers(self, scope: Scope, headers: Headers) -> dict[str, str]:
        """Headers of every response to such a page, refusals included, so that the page can read the reason."""
        origin = headers.get("origin", "")
        if not self._shares(scope, origin):
            return {}
        return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED, "Vary": "Origin"}

    def preflight_headers(self, scope: Scope, headers: Headers) -> dict[str, str] | None:
        """Headers of the answer to a preflight request, which carries no token; None for other requests."""
        asks = scope.get("method") == "OPTIONS" and "access-control-request-method" in headers
        if not (asks and self._shares(scope, headers.get("origin", ""))):
            return None
        return {
            "Access-Control-Allow-Methods": METHODS,
            "Access-Control-Allow-Headers": self._request_headers,
            "Access-Control-Max-Age": str(MAX_AGE),
        }
