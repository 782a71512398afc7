"""Screens of jobs: their dead letters by reason and batch and one by one, a replay before and after it, and
an audit.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import fields
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from selectroute.job_output import ReplayedBatch
from selectroute.selector.sentences import counted
from selectroute.service.console.page import ApiError, PageError, api_of, form, page, redirect

_ON_A_PAGE: Final = 25
_HEX_BYTES: Final = 256
_MOST_DIGITS: Final = 18

_NUMBERS: Final = {"batch": "batches", "partition": "partitions", "offset": "offsets"}
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_TEXTS: Final = {"stage": "stages", "reason": "reasons", "subscription": "subscriptions", "source": "sources"}
_COUNTS: Final = [field.name for field in fields(ReplayedBatch) if field.name not in ("batch", "missing")]
FILTERS: Final = (*_TEXTS, *_NUMBERS)
"""Parameters of the URL, and fields of the form, that name dead letters."""


async def jobs(request: Request) -> Response:
    """Show the jobs with their dead letters by reason and batch."""
    answer = await api_of(request).get("/v1/jobs")
    return await page(request, "jobs.html", {"jobs": answer["items"]})


async def audited(request: Request) -> Response:
    """Audit a job, and show what the audit says."""
    job = request.path_params["job"]
    totals = await api_of(request).post(f"{_of(job)}/audits")
    return await page(request, "audit.html", {"job": job, "found": totals})


async def listed(request: Request) -> Response:
    """Show the dead letters of a job that the filters in the URL find: those that are left, or all."""
    job, query = request.path_params["job"], request.query_params
    asked = _asked(query)
    for name in _NUMBERS:
        _number(name, query.get(name), HTTPStatus.BAD_REQUEST)
    is_all = bool(query.get("all"))
    params: dict[str, Any] = {**asked, "left": "" if is_all else "true", "limit": _ON_A_PAGE}
    params["cursor"] = query.get("cursor")
    answer = await api_of(request).get(f"{_of(job)}/dead-letters", params)
    data = {
        "job": job,
        "asked": asked,
        "all": is_all,
        "filtered": any(asked.values()),
        "continued": bool(query.get("cursor")),
        "next_cursor": answer["next_cursor"],
        "letters": [_shown(letter) for letter in answer["items"]],
    }
    return await page(request, "dead_letters.html", data)


async def raw_bytes(request: Request) -> Response:
    """Return the bytes of a dead letter, as a file to keep."""
    job, query = request.path_params["job"], request.query_params
    params = {name: query.get(name) for name in (*FILTERS, "part")}
    answer = await api_of(request).call("GET", f"{_of(job)}/dead-letters:bytes", params=params)
    headers = {name: answer.headers[name] for name in ("Content-Type", "Content-Disposition")}
    return Response(answer.body, headers=headers)


async def preview(request: Request) -> Response:
    """Show what a replay of the dead letters in the URL would do, and ask whether to do it."""
    return await _preview(request, _asked(request.query_params))


async def _preview(
    request: Request, asked: Mapping[str, str], error: str | None = None, status: HTTPStatus = HTTPStatus.OK
) -> Response:
    job = request.path_params["job"]
    previewed = await api_of(request).post(f"{_of(job)}/dead-letters:preview", _filter(asked))
    previewed["examples"] = [_shown(letter) for letter in previewed["examples"]]
    data = {"job": job, "asked": asked, "filtered": any(asked.values()), "found": previewed, "error": error}
    return await page(request, "replay_preview.html", data, status)


async def replay(request: Request) -> Response:
    """Have the previewed dead letters replayed; if their number has changed, show the preview again."""
    job, sent = request.path_params["job"], await form(request)
    asked = _asked(sent)
    expected = sent.get("expected", "")
    if not expected.isdecimal() or len(expected) > _MOST_DIGITS:
        raise PageError(
            HTTPStatus.UNPROCESSABLE_ENTITY, "the form does not say how many dead letters it means"
        )
    try:
        body = {**_filter(asked), "expected": int(expected)}
        made = await api_of(request).post(f"{_of(job)}/replays", body)
    except ApiError as error:
        if error.kind != "letters-changed":
            raise
        return await _preview(request, asked, str(error), HTTPStatus.CONFLICT)
    return redirect(f"/jobs/{quote(job, safe='')}/replays/{made['request']}")


async def replayed(request: Request) -> Response:
    """Show how far a replay is, and what came of it."""
    state = await _replay_of(request)
    data = {"job": request.path_params["job"], "replay": state, **_progress(state)}
    return await page(request, "replay.html", data)


async def progress(request: Request) -> Response:
    """Return how far a replay is, for the script of its page."""
    return JSONResponse(_progress(await _replay_of(request)))


async def _replay_of(request: Request) -> Any:
    job, id = request.path_params["job"], request.path_params["request"]
    return await api_of(request).get(f"{_of(job)}/replays/{quote(id, safe='')}")


def _progress(replay: Mapping[str, Any]) -> dict[str, Any]:
    """Return how far a replay is as a sentence, whether to ask again, and the texts of the table."""
    batches, taken, letters = replay["batches"], replay["taken"], replay["letters"]
    of_all = f"{taken:,} of {counted(letters, 'dead letter')}"
    if replay["state"] == "running":
        sentence = f"The job replays them, in batch {replay['batch']:,}. {of_all} taken before."
    elif replay["state"] == "waiting" and batches:
        sentence = f"{of_all} taken. The job goes on after its next batch."
    elif replay["state"] == "waiting":
        sentence = "It waits for the job, which carries it out between two batches or at its next start. "
        sentence += f"It asks for {counted(letters, 'dead letter')}."
    elif not batches:
        sentence = "It is done: no dead letters were left."
    else:
        sums = {name: sum(batch[name] for batch in batches) for name in _COUNTS}
        sentence = (
            f"It is done. {of_all} taken: {counted(sums['messages'], 'message')}, of which "
            f"{sums['routed']:,} routed, {sums['unrouted']:,} unrouted and {sums['dead_lettered']:,} failed "
            f"again; {counted(sums['deliveries'], 'delivery', 'deliveries')}, and "
            f"{sums['refused']:,} refused."
        )
        if taken < letters:
            sentence += " The others had been taken by another replay, or their inputs are gone."
    return {
        "sentence": sentence,
        "follow": not replay["done"],
        "rows": [[f"{batch[name]:,}" for name in ("batch", *_COUNTS)] for batch in batches],
        "missing": [why for batch in batches for why in batch["missing"]],
    }


def _asked(values: Mapping[str, str] | QueryParams) -> dict[str, str]:
    return {name: values.get(name, "") or "" for name in FILTERS}


def _filter(asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the filter of the API. Raises `PageError` for a text in the place of a number."""
    wanted: dict[str, Any] = {_TEXTS[name]: [asked[name]] for name in _TEXTS if asked[name]}
    for name, field in _NUMBERS.items():
        if asked[name]:
            wanted[field] = [_number(name, asked[name], HTTPStatus.UNPROCESSABLE_ENTITY)]
    return wanted


def _number(name: str, text: str | None, status: HTTPStatus) -> int:
    """Return a number of a URL or form, 0 for none. Raises `PageError` for anything else."""
    if not text:
        return 0
    if _NUMBER.fullmatch(text) is None:
        raise PageError(status, f"{name}: write a whole number")
    return int(text)


def _shown(letter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter with its bytes in hexadecimal digits, how many are shown as text, and the
    parameters that name it alone.
    """
    raw = _bytes(letter, "raw")
    names = ("batch", "stage", "reason", "source", "partition", "offset", "subscription")
    headers = [{**header, "hex": _bytes(header, "value").hex(" ")} for header in letter["headers"] or ()]
    return {
        **letter,
        "hex": raw[:_HEX_BYTES].hex(" "),
        "hex_bytes": min(len(raw), _HEX_BYTES),
        "shown": len(raw) if letter["raw"] is not None else 0,
        "key_hex": _bytes(letter, "key").hex(" "),
        "header_list": headers,
        "only": {name: letter[name] for name in names if letter[name] is not None},
    }


def _bytes(data: Mapping[str, Any], name: str) -> bytes:
    """Return the bytes of a member of the API, which are a text or in base64."""
    text, encoded = data[name], data[f"{name}_base64"]
    if encoded is not None:
        return base64.b64decode(encoded)
    return b"" if text is None else str(text).encode()


def _of(job: str) -> str:
    return f"/v1/jobs/{quote(job, safe='')}"


ROUTES: Final = (
    ("GET", "/jobs", jobs),
    ("GET", "/jobs/{job}/dead-letters", listed),
    ("GET", "/jobs/{job}/dead-letters/bytes", raw_bytes),
    ("POST", "/jobs/{job}/audit", audited),
    ("GET", "/jobs/{job}/replay", preview),
    ("POST", "/jobs/{job}/replay", replay),
    ("GET", "/jobs/{job}/replays/{request}", replayed),
    ("GET", "/jobs/{job}/replays/{request}/progress", progress),
)
"""Method, path and function of each screen."""
