"""Screen that answers who gets a message: the subscriptions that match, and those that nearly do, and why."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from selectroute.selector.strict_json import JsonError, parse_json
from selectroute.service.console.api import ApiError
from selectroute.service.console.page import api_of, form, page, redirect

EXAMPLE: Final = """{
  "topic": "cars/eu",
  "headers": {"JMSType": "car"},
  "properties": {"weight": {"type": "int", "value": 3000}}
}"""

_SHOWN: Final = 100
"""Subscriptions that are listed at most, of each kind."""

_RECENT: Final = 10
"""Recent messages that are offered."""

_IN_URL: Final = 6_000
"""Characters that a message may have in the URL, where it stands so that the page can be kept and sent on."""


async def asked(request: Request) -> Response:
    """Show who gets the message in the URL; without one, ask for it."""
    query = request.query_params
    return await _answered(request, query.get("message", ""), query.get("explain", ""))


async def sent(request: Request) -> Response:
    """Take a message: into the URL, if it is short enough."""
    fields = await form(request)
    message, explain = fields.get("message", ""), fields.get("explain", "")
    if len(quote(message)) <= _IN_URL:
        part = "why" if explain else ""
        return redirect("/who-gets", part=part, message=message, explain=explain)
    return await _answered(request, message, explain)


async def _answered(request: Request, text: str, explain: str) -> Response:
    data: dict[str, Any] = {"text": text or EXAMPLE, "asked": explain, "found": None, "why": None}
    data |= {"error": None, "faults": [], "shown": _SHOWN}
    api = api_of(request)
    data["recent"] = (await api.get("/v1/messages", {"limit": _RECENT}))["items"]
    if not text.strip():
        return await page(request, "who_gets.html", data)
    try:
        message = parse_json(text)
    except JsonError as error:
        data["error"] = f"the message is {error}"
        return await page(request, "who_gets.html", data, HTTPStatus.UNPROCESSABLE_ENTITY)
    try:
        body = {"message": message, "near": True, "limit": _SHOWN}
        data["found"] = await api.post("/v1/messages:match", body)
        if explain:
            asked = {"message": message, "subscriptions": [explain]}
            (data["why"],) = (await api.post("/v1/messages:explain", asked))["explanations"]
    except ApiError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        data |= {"error": str(error), "faults": error.faults}
        return await page(request, "who_gets.html", data, HTTPStatus(error.status))
    return await page(request, "who_gets.html", data)


ROUTES: Final = (("GET", "/who-gets", asked), ("POST", "/who-gets", sent))
"""Method, path and function of each screen."""
