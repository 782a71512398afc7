"""Screens of streams: what runs and whether all is well, and the newest batches of one stream."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from selectroute.service.console.api import Api, ApiError
from selectroute.service.console.page import api_of, page

_ON_A_PAGE: Final = 100
_RATED: Final = 20
"""Newest batches from which the rates of a stream are taken."""

_BUSIEST: Final = 20
"""Subscriptions of a stream that are listed."""

_WIDTH, _HEIGHT = 1_000, 160
"""Size of a chart, in its own units."""


class Bar(NamedTuple):
    """Bar of a chart, in its units, and what it says."""

    x: float
    y: float
    width: float
    height: float
    text: str


async def overview(request: Request) -> Response:
    """Show the verdict with its evidence, and the streams with their rates."""
    api = api_of(request)
    try:
        health = (await api.call("GET", "/v1/health")).data
    except ApiError as error:
        if error.kind != "forbidden":
            raise
        # Counts of streams are of all topics: a token for some has none of them.
        return await page(request, "overview.html", {"health": None, "why": str(error), "streams": []})
    found = (await api.call("GET", "/v1/streams")).data["items"]
    streams = [{**one, "rates": await _rates(api, one["query"])} for one in found]
    return await page(request, "overview.html", {"health": health, "why": None, "streams": streams})


async def shown(request: Request) -> Response:
    """Show the newest batches of a stream, as charts and as a table, and their busiest subscriptions."""
    api, query = api_of(request), request.path_params["query"]
    params = {"limit": _ON_A_PAGE, "cursor": request.query_params.get("cursor")}
    found = (await api.call("GET", f"{_of(query)}/reports", params=params)).data
    batches = found["batches"]
    steps = list(dict.fromkeys(step for one in batches for step in one["seconds"]))
    data = {
        "query": query,
        "name": (await names(api)).get(query, query),
        "batches": batches,
        "next_cursor": found["next_cursor"],
        "steps": steps,
        "size": (_WIDTH, _HEIGHT),
        "deliveries": bars(batches, lambda one: one["deliveries"], "{:,.0f} deliveries"),
        "busiest": busiest(batches),
        "seconds": bars(batches, lambda one: sum(one["seconds"].values()), "{:.3f} seconds"),
    }
    return await page(request, "stream.html", data)


async def names(api: Api) -> dict[str, str]:
    """Return the names of streams by their queries; none for a caller who may not see streams."""
    try:
        found = (await api.call("GET", "/v1/streams")).data["items"]
    except ApiError as error:
        if error.kind != "forbidden":
            raise
        return {}
    return {one["query"]: one["name"] for one in found}


async def _rates(api: Api, name: str) -> dict[str, float] | None:
    """Return messages and deliveries a second of the newest batches; None if there are too few."""
    found = (await api.call("GET", f"{_of(name)}/reports", params={"limit": _RATED})).data["batches"]
    return rates(found)


def rates(batches: list[dict[str, Any]]) -> dict[str, float] | None:
    """Return messages and deliveries a second from the end of the oldest of these batches to that of the
    newest; None for fewer than two.

    >>> one = {"messages": 50, "deliveries": 100, "ended": "2026-01-01T00:00:00Z"}
    >>> rates([{**one, "ended": "2026-01-01T00:00:10Z"}, one])
    {'messages': 5.0, 'deliveries': 10.0}
    """
    if len(batches) < 2:
        return None
    newest, oldest = (datetime.fromisoformat(batches[place]["ended"]).astimezone(UTC) for place in (0, -1))
    seconds = (newest - oldest).total_seconds()
    if seconds <= 0:
        return None
    return {name: sum(one[name] for one in batches[:-1]) / seconds for name in ("messages", "deliveries")}


def busiest(batches: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Return the subscriptions with most deliveries in these batches, as far as each names its busiest.

    >>> busiest([{"busiest": {"a": 1, "b": 5}}, {"busiest": {"a": 7}}, {}])
    [('a', 8), ('b', 5)]
    """
    total: Counter[str] = Counter()
    for one in batches:
        total.update(one.get("busiest", {}))
    return total.most_common(_BUSIEST)


def bars(batches: list[dict[str, Any]], value: Any, text: str) -> list[Bar]:
    """Return a bar for each batch, the oldest first; the largest has the whole height."""
    values = [float(value(one)) for one in reversed(batches)]
    most = max(values, default=0.0) or 1.0
    width = _WIDTH / max(len(values), 20)
    return [
        Bar(
            round(number * width, 2),
            round(_HEIGHT * (1 - found / most), 2),
            round(width * 0.8, 2),
            round(_HEIGHT * found / most, 2),
            f"batch {one['batch']}: {text.format(found)}",
        )
        for number, (one, found) in enumerate(zip(reversed(batches), values, strict=True))
    ]


def _of(name: str) -> str:
    return f"/v1/queries/{quote(name, safe='')}"


ROUTES: Final = (("GET", "/overview", overview), ("GET", "/streams/{query}", shown))
"""Method, path and function of each screen."""
