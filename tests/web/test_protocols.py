"""The limits override methods of uvicorn that exist; a release without one of them is refused."""

from __future__ import annotations

from typing import Any

import pytest

from townlet.errors import TownletError
from townlet.web.protocols import LimitedHTTP, LimitedWebSocket, check_uvicorn


def test_uvicorn_has_every_method_that_the_limits_override() -> None:
    check_uvicorn(LimitedHTTP, LimitedWebSocket)
    for protocol, method in ((LimitedHTTP, "timeout_keep_alive_handler"), (LimitedWebSocket, "handle_cont")):
        (base,) = protocol.__bases__
        other = type(base.__name__, (), {name: None for name in public(base) if name != method})
        renamed = type(protocol.__name__, (other,), public(protocol))
        with pytest.raises(TownletError, match=f"this release of uvicorn has no {base.__name__}.{method}"):
            check_uvicorn(renamed)


def public(protocol: type) -> dict[str, Any]:
    return {name: getattr(protocol, name) for name in dir(protocol) if not name.startswith("_")}
