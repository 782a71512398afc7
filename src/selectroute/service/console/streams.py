"""Screens of streams: what runs and whether all is well, and the newest batches of one stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from selectroute.service.console.page import Api, ApiError, api_of, page, redirect

_ON_A_PAGE: Final = 100

_BUSIEST: Final = 20
"""Subscriptions of a stream that are listed."""

_STEPS: Final = ("pin", "plan", "match", "commit", "publish")
"""Steps of a batch in their order; others come last."""

_WIDTH, _HEIGHT = 1_000, 160
"""Size of a chart, in its own units."""


class Bar(NamedTuple):
    """Bar of a chart in the chart's units, the number of its part, and its text."""

    x: float
    y: float
    width: float
    height: float
    part: int
    text: str


async def overview(request: Request) -> Response:
    """Show the verdict with its evidence, and the streams with their rates."""
    api = api_of(request)
    try:
        health = await api.get("/v1/health")
    except ApiError as error:
        if error.kind != "forbidden":
            raise
        # Counts of streams are of all topics: a token for some has none of them.
        return await page(request, "overview.html", {"health": None, "why": str(error), "streams": []})
    streams = (await api.get("/v1/streams"))["items"]
    data = {"health": health, "why": None, "streams": streams}
    data["names"] = {stream["query"]: stream["name"] for stream in streams}
    return await page(request, "overview.html", data)


async def newest(request: Request) -> Response:
    """Go to the batches of the stream that was heard of last; to the overview if there is none."""
    streams = await _streams(api_of(request))
    if not streams:
        return redirect("/overview")
    return redirect(f"/streams/{quote(max(streams, key=lambda stream: stream['heard'])['query'], safe='')}")


async def shown(request: Request) -> Response:
    """Show the newest batches of a stream, as charts and as a table, and their busiest subscriptions; with
    ``do=remove`` in the URL, ask whether to remove it.
    """
    api, query = api_of(request), request.path_params["query"]
    streams = await _streams(api)
    params = {"limit": _ON_A_PAGE, "cursor": request.query_params.get("cursor")}
    answer = await api.get(f"{_of(query)}/reports", params)
    batches = answer["batches"]
    found_steps = dict.fromkeys(step for batch in batches for step in batch["seconds"])
    steps = sorted(found_steps, key=lambda step: _STEPS.index(step) if step in _STEPS else len(_STEPS))
    stream = next((listed for listed in streams if listed["query"] == query), None)
    data = {
        "query": query,
        "name": query if stream is None else stream["name"],
        "stream": stream,
        "others": [other for other in streams if other["query"] != query],
        "removes": stream is not None and request.query_params.get("do") == "remove",
        "batches": batches,
        "next_cursor": answer["next_cursor"],
        "steps": steps,
        "size": (_WIDTH, _HEIGHT),
        "messages": bars(batches, lambda batch: {0: batch["messages"]}, "{:,.0f} messages"),
        "deliveries": bars(batches, lambda batch: {0: batch["deliveries"]}, "{:,.0f} deliveries"),
        "seconds": bars(batches, partial(_seconds_of, steps), "{:.3f} seconds", steps),
        "busiest": busiest(batches),
    }
    return await page(request, "stream.html", data)


async def removed(request: Request) -> Response:
    """Remove a stream that has ended or vanished."""
    query = request.path_params["query"]
    await api_of(request).call("DELETE", f"/v1/streams/{quote(query, safe='')}")
    return redirect("/overview")


def _seconds_of(steps: list[str], batch: dict[str, Any]) -> dict[int, float]:
    """Return the seconds of each step of a batch, by the step's place among all steps."""
    return {steps.index(step): seconds for step, seconds in batch["seconds"].items()}


async def _streams(api: Api) -> list[dict[str, Any]]:
    """Return the streams; none for a caller who may not see streams."""
    try:
        return [*(await api.get("/v1/streams"))["items"]]
    except ApiError as error:
        if error.kind != "forbidden":
            raise
        return []


async def names(api: Api) -> dict[str, str]:
    """Return the names of streams by their queries; none for a caller who may not see streams."""
    return {stream["query"]: stream["name"] for stream in await _streams(api)}


def busiest(batches: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Return the subscriptions with most deliveries in these batches; a batch names only its busiest.

    >>> busiest([{"busiest": {"a": 1, "b": 5}}, {"busiest": {"a": 7}}, {}])
    [('a', 8), ('b', 5)]
    """
    total: Counter[str] = Counter()
    for batch in batches:
        total.update(batch.get("busiest", {}))
    return total.most_common(_BUSIEST)


def bars(
    batches: list[dict[str, Any]],
    values: Callable[[dict[str, Any]], Mapping[int, float]],
    text: str,
    parts: Sequence[str] = (),
) -> list[Bar]:
    """Return a bar for each value of each batch, the oldest batch first, and the values of a batch one upon
    another; the highest batch has the whole height. Values have their number among the ``parts``.

    >>> batches = [{"batch": 1, "seconds": {0: 1.0, 1: 3.0}}]
    >>> found = bars(batches, lambda one: one["seconds"], "{:.0f} s", ["pin", "match"])
    >>> [(bar.y, bar.height, bar.part, bar.text) for bar in found]
    [(120.0, 40.0, 0, 'batch 1: pin 1 s'), (0.0, 120.0, 1, 'batch 1: match 3 s')]
    """
    totals = [values(batch) for batch in reversed(batches)]
    most = max((sum(total.values()) for total in totals), default=0.0) or 1.0
    width = _WIDTH / max(len(totals), 20)
    made = []
    for number, (batch, of_batch) in enumerate(zip(reversed(batches), totals, strict=True)):
        below = 0.0
        for part, value in sorted(of_batch.items()):
            below += value
            name = f"{parts[part]} " if parts else ""
            made.append(
                Bar(
                    round(number * width, 2),
                    round(_HEIGHT * (1 - below / most), 2),
                    round(width * 0.8, 2),
                    round(_HEIGHT * value / most, 2),
                    part,
                    f"batch {batch['batch']}: {name}{text.format(value)}",
                )
            )
    return made


def _of(name: str) -> str:
    return f"/v1/queries/{quote(name, safe='')}"


ROUTES: Final = (
    ("GET", "/overview", overview),
    ("GET", "/streams", newest),
    ("GET", "/streams/{query}", shown),
    ("POST", "/streams/{query}/remove", removed),
)
"""Method, path and function of each screen."""
