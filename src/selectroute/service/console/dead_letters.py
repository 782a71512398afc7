"""Screens of jobs: their dead letters by reason and batch and one by one, a replay before and after it, and
an audit.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from selectroute.service.console.api import ApiError
from selectroute.service.console.page import PageError, api_of, form, page, redirect

_ON_A_PAGE: Final = 25
_HEX_BYTES: Final = 256

_NUMBERS: Final = {"batch": "batches", "partition": "partitions", "offset": "offsets"}
_TEXTS: Final = {"stage": "stages", "reason": "reasons", "subscription": "subscriptions", "source": "sources"}
FILTERS: Final = (*_TEXTS, *_NUMBERS)
"""Parameters of the URL, and fields of the form, that name dead letters."""


async def jobs(request: Request) -> Response:
    """Show the jobs with their dead letters by reason and batch."""
    return await page(
        request, "jobs.html", {"jobs": (await api_of(request).call("GET", "/v1/jobs")).data["items"]}
    )


async def audited(request: Request) -> Response:
    """Audit a job, and show what the audit says."""
    job = request.path_params["job"]
    found = (await api_of(request).call("POST", f"{_of(job)}/audits")).data
    return await page(request, "audit.html", {"job": job, "found": found})


async def listed(request: Request) -> Response:
    """Show the dead letters of a job that the filters in the URL find."""
    job, asked = request.path_params["job"], _asked(request.query_params)
    skip = request.query_params.get("skip") or "0"
    params = {**{name: value for name, value in asked.items() if value}, "limit": _ON_A_PAGE, "skip": skip}
    found = (await api_of(request).call("GET", f"{_of(job)}/dead-letters", params=params)).data
    first = int(skip)
    data = {
        "job": job,
        "asked": asked,
        "filtered": any(asked.values()),
        "more": found["more"],
        "first": first,
    }
    data |= {"letters": [_shown(one) for one in found["items"]], "next": first + _ON_A_PAGE}
    return await page(request, "dead_letters.html", data)


async def preview(request: Request) -> Response:
    """Show what a replay of the dead letters in the URL would do, and ask whether to do it."""
    return await _preview(request, _asked(request.query_params))


async def _preview(
    request: Request, asked: Mapping[str, str], error: str | None = None, status: HTTPStatus = HTTPStatus.OK
) -> Response:
    job = request.path_params["job"]
    found = (await api_of(request).call("POST", f"{_of(job)}/dead-letters:preview", body=_filter(asked))).data
    found["examples"] = [_shown(one) for one in found["examples"]]
    data = {"job": job, "asked": asked, "filtered": any(asked.values()), "found": found, "error": error}
    return await page(request, "replay_preview.html", data, status)


async def replay(request: Request) -> Response:
    """Have the previewed dead letters replayed; if their number has changed, show the preview again."""
    job, given = request.path_params["job"], await form(request)
    asked = _asked(given)
    expected = given.get("expected", "")
    if not expected.isdecimal():
        raise PageError(
            HTTPStatus.UNPROCESSABLE_ENTITY, "the form does not say how many dead letters it means"
        )
    try:
        body = {**_filter(asked), "expected": int(expected)}
        made = (await api_of(request).call("POST", f"{_of(job)}/replays", body=body)).data
    except ApiError as error:
        if error.kind != "letters-changed":
            raise
        return await _preview(request, asked, str(error), HTTPStatus.CONFLICT)
    return redirect(f"/jobs/{quote(job, safe='')}/replays/{made['request']}")


async def replayed(request: Request) -> Response:
    """Show whether a replay is done, and what came of it."""
    job, id = request.path_params["job"], request.path_params["request"]
    found = (await api_of(request).call("GET", f"{_of(job)}/replays/{quote(id, safe='')}")).data
    return await page(request, "replay.html", {"job": job, "replay": found})


def _asked(given: Mapping[str, str] | QueryParams) -> dict[str, str]:
    return {name: given.get(name, "") or "" for name in FILTERS}


def _filter(asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the filter of the API. Raises `PageError` for a text in the place of a number."""
    found: dict[str, Any] = {_TEXTS[name]: [asked[name]] for name in _TEXTS if asked[name]}
    for name, field in _NUMBERS.items():
        if asked[name]:
            try:
                found[field] = [int(asked[name])]
            except ValueError:
                raise PageError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{name}: write a number") from None
    return found


def _shown(letter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter with its bytes in hexadecimal digits, and the parameters that name it alone."""
    raw = b"" if letter["raw"] is None else letter["raw"].encode()
    if letter["raw_base64"] is not None:
        raw = base64.b64decode(letter["raw_base64"])
    only = {
        name: letter[name]
        for name in ("batch", "stage", "reason", "source", "partition", "offset", "subscription")
    }
    return {
        **letter,
        "hex": raw[:_HEX_BYTES].hex(" "),
        "only": {name: value for name, value in only.items() if value is not None},
    }


def _of(job: str) -> str:
    return f"/v1/jobs/{quote(job, safe='')}"


ROUTES: Final = (
    ("GET", "/jobs", jobs),
    ("GET", "/jobs/{job}/dead-letters", listed),
    ("POST", "/jobs/{job}/audit", audited),
    ("GET", "/jobs/{job}/replay", preview),
    ("POST", "/jobs/{job}/replay", replay),
    ("GET", "/jobs/{job}/replays/{request}", replayed),
)
"""Method, path and function of each screen."""
