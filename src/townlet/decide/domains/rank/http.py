"""HTTP routes in the shapes of the Personalizer API, so that its clients need only another address and key."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic_core import from_json

from townlet.decide.domain import DecisionPort, HttpApi
from townlet.web.tokens import ANONYMOUS, Identity

PREFIX: Final = "/personalizer/"
API: Final = f"{PREFIX}v1.0"
CLIENT_KEY: Final = "http"  # all requests with one token come from one client
STATUSES: Final = {  # of the errors of the service; 500 for all others
    "INVALID_OBSERVATION": 400, "INVALID_REPORT": 400, "INVALID_JSON": 400, "INVALID_MESSAGE": 400,
    "UNKNOWN_DECISION": 404, "INACTIVE_DECISION": 409, "FOREIGN_TERRITORY": 403, "FOREIGN_DECISION": 403,
    "RATE_LIMITED": 429, "OVERLOADED": 503, "LOG_STOPPED": 503,
}  # fmt: skip
CODES: Final = {
    400: "BadRequest", 401: "401", 403: "Forbidden", 404: "ResourceNotFound", 409: "EventNotActive",
    413: "RequestTooLarge", 429: "429", 500: "InternalServerError", 503: "ServiceUnavailable",
}  # fmt: skip
LATER_REPORT: Final = "CONTRADICTING_REPORT"  # the first reward counts; as there, a later one is accepted and ignored
SHOWN: Final = ("ranking", "eventId", "rewardActionId")  # fields of a ranking


def error(status: int, text: str) -> dict[str, Any]:
    """The body of an error."""
    return {"error": {"code": CODES.get(status, str(status)), "message": text}}


def make_router(port: DecisionPort) -> APIRouter:
    """Routes to rank, reward and activate."""
    router = APIRouter()

    async def send(request: Request, message: dict[str, Any]) -> dict[str, Any]:
        identity: Identity = request.scope.get("identity") or ANONYMOUS
        return await port.send(message, len(await request.body()), identity.name, CLIENT_KEY)

    @router.post(f"{API}/rank", status_code=201)
    async def rank(request: Request) -> Response:
        """Rank actions; without an eventId, the service chooses one."""
        body = await _read(request)
        if isinstance(body, Response):
            return body
        reply = await send(request, {"eventId": str(uuid4()), **body, "type": "rank_request"})
        if reply["type"] == "error":
            return _refusal(reply)
        return JSONResponse({name: reply[name] for name in SHOWN}, 201)

    @router.post(f"{API}/events/{{event_id:path}}/reward", status_code=204)
    async def reward(event_id: str, request: Request) -> Response:
        """Report the reward of an event; the first one counts."""
        body = await _read(request)
        if isinstance(body, Response):
            return body
        return _done(await send(request, {**body, "type": "reward", "eventId": event_id}))

    @router.post(f"{API}/events/{{event_id:path}}/activate", status_code=204)
    async def activate(event_id: str, request: Request) -> Response:
        """Activate an event whose activation was deferred."""
        return _done(await send(request, {"type": "activate", "eventId": event_id}))

    @router.api_route(f"{PREFIX}{{path:path}}", methods=["GET", "POST", "PUT", "DELETE"], include_in_schema=False)
    async def other(path: str) -> Response:
        return JSONResponse(error(404, "no such operation; there are rank, and reward and activate of an event"), 404)

    return router


async def _read(request: Request) -> dict[str, Any] | Response:
    """The fields of the body that are not null, or a refusal."""
    try:
        body = from_json(await request.body(), allow_inf_nan=False)
    except ValueError as problem:
        return JSONResponse(error(400, f"the body is not JSON: {problem}"[:200]), 400)
    if not isinstance(body, dict):
        return JSONResponse(error(400, "the body must be a JSON object"), 400)
    return {name: value for name, value in body.items() if value is not None}


def _done(reply: dict[str, Any]) -> Response:
    accepted = reply["type"] != "error" or reply["code"] == LATER_REPORT
    return Response(status_code=204) if accepted else _refusal(reply)


def _refusal(reply: dict[str, Any]) -> Response:
    status = STATUSES.get(reply["code"], 500)
    return JSONResponse(error(status, reply["message"]), status)


HTTP: Final = HttpApi(PREFIX, ("Ocp-Apim-Subscription-Key",), make_router, error)
