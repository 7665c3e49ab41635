"""Errors as JSON responses, alike in both servers."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from townlet.config.models import first_error
from townlet.errors import TownletError


def add_error_handlers(app: FastAPI, status_of: Callable[[TownletError], int]) -> None:
    """Answer a TownletError with its status, and an invalid body, path or query with 422."""

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, TownletError)
        return _response(error, status_of(error))

    app.add_exception_handler(TownletError, refuse)
    app.add_exception_handler(RequestValidationError, _refuse_invalid)


async def _refuse_invalid(_: Request, error: Exception) -> Response:
    """FastAPI would repeat the value, which may not be valid JSON, such as Infinity, or half of a surrogate pair."""
    assert isinstance(error, RequestValidationError)
    what = first_error(error.errors(), "request").encode(errors="backslashreplace").decode()
    return _response(TownletError(what, "see the documentation of this server"), 422)


def _response(error: TownletError, status: int) -> Response:
    first = error.diagnostics[0]
    return JSONResponse({"error": str(error), "what": first.what, "fix": first.fix}, status)
