"""Seeded subscriptions with realistic selectors.

Each subscription is about a real flight drawn at random: its tail number, its number, its route, its carrier.
So popular routes have many subscribers and rare planes few. ``random.Random`` draws the same numbers from the
same seed in every version of Python, so a seed determines the set of subscriptions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

Flight = dict[str, Any]
Wish = tuple[str, str | None]
"""A selector, empty for none, and a topic filter or None."""


@dataclass(frozen=True, slots=True)
class DemoSubscription:
    """Row of ``subscriptions.jsonl``; ``selector`` is empty for "every message of the topic"."""

    id: str
    selector: str
    topic: str | None = None


WATCHED: Final = DemoSubscription("watch-jfk-lax", "origin = 'JFK' AND dest = 'LAX' AND dep_delay > 60")
"""The subscription that is changed while the stream runs."""

WATCHED_CHANGED: Final = DemoSubscription(WATCHED.id, "origin = 'JFK' AND dest = 'LAX' AND dep_delay > 15")
"""The same subscription after the change: it matches more messages."""

_COLUMNS: Final = ("carrier", "flight", "tailnum", "origin", "dest", "month", "day", "hour", "distance")


def generate(flights: pa.Table, count: int, seed: int) -> list[DemoSubscription]:
    """Return ``count`` subscriptions (1 or more) about ``flights``; the first is always `WATCHED`."""
    rng = Random(seed)
    drawn = [rng.randrange(flights.num_rows) for _ in range(count - 1)]
    about = flights.select(list(_COLUMNS)).take(pa.array(drawn, pa.int64())).to_pylist()
    kinds = rng.choices(_KINDS, weights=[kind.weight for kind in _KINDS], k=count - 1)
    subscriptions = [WATCHED]
    for number, (kind, flight) in enumerate(zip(kinds, about, strict=True), start=1):
        selector, topic = kind.wish(rng, flight)
        subscriptions.append(DemoSubscription(f"{kind.name}-{number:06d}", selector, topic))
    return subscriptions


def write_jsonl(path: Path, rows: Iterable[tuple[DemoSubscription, int, int | None]]) -> None:
    """Write ``subscriptions.jsonl``: each subscription with its range of revisions ``[from, to)``."""
    with path.open("w", encoding="utf-8") as file:
        for subscription, start, end in rows:
            row = {
                "id": subscription.id,
                "topic": subscription.topic,
                "selector": subscription.selector,
                "dialect": "jms",
                "from": start,
                "to": end,
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_jsonl(path: Path) -> Iterator[tuple[DemoSubscription, int, int | None]]:
    """Read what `write_jsonl` wrote, row by row."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            yield DemoSubscription(row["id"], row["selector"], row["topic"]), row["from"], row["to"]


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    weight: float  # share of all subscriptions, in per cent
    wish: Callable[[Random, Flight], Wish]


def _plane(rng: Random, flight: Flight) -> Wish:
    tail = flight["tailnum"]
    if tail is None:
        return f"tailnum IS NULL AND carrier = '{flight['carrier']}' AND origin = '{flight['origin']}'", None
    name = rng.choice(("JMSCorrelationID", "JMSCorrelationID", "tailnum"))
    about = f"{name} = '{tail}'"
    rest = rng.choice(
        (
            "",
            f" AND dest = '{flight['dest']}'",
            f" AND arr_delay > {rng.randrange(15, 180, 5)}",
            f" AND month BETWEEN {flight['month']} AND {min(12, flight['month'] + 2)}",
            " AND JMSType <> 'arrived'",
            f" AND NOT (origin = '{flight['origin']}' OR dep_delay < {rng.randrange(10, 60)})",
        )
    )
    return about + rest, None


def _fleet(rng: Random, flight: Flight) -> Wish:
    # A tail number and similar ones, as a plane spotter subscribes to.
    tail = flight["tailnum"] or "N14228"
    if rng.random() < 0.5:
        pattern = f"{tail[:-2]}__" if rng.random() < 0.5 else f"{tail[:-1]}%"
        return (
            f"carrier = '{flight['carrier']}' AND tailnum LIKE '{pattern}' AND dest = '{flight['dest']}'",
            None,
        )
    other = f"{tail[:-1]}{'WNUAB'[rng.randrange(5)]}"
    return f"tailnum = '{tail}' OR tailnum = '{other}' AND dep_delay IS NOT NULL", None


def _number(rng: Random, flight: Flight) -> Wish:
    about = f"carrier = '{flight['carrier']}' AND flight = {flight['flight']}"
    rest = rng.choice(
        (
            "",
            f" AND dep_delay > {rng.randrange(10, 120, 5)}",
            f" AND origin = '{flight['origin']}'",
            f" AND month = {flight['month']}",
            f" AND month = {flight['month']} AND day BETWEEN {flight['day'] - 3} AND {flight['day'] + 3}",
            " AND (JMSType = 'cancelled' OR JMSType = 'diverted')",
        )
    )
    return about + rest, None


def _route(rng: Random, flight: Flight) -> Wish:
    about = f"origin = '{flight['origin']}' AND dest = '{flight['dest']}'"
    delay = rng.randrange(60, 240, 5)
    rest = rng.choice(
        (
            f"dep_delay > {delay + 30}",
            f"dep_delay > {delay} AND carrier = '{flight['carrier']}'",
            f"carrier = '{flight['carrier']}' AND month = {flight['month']} AND day = {flight['day']}",
            f"hour = {flight['hour']} AND month = {flight['month']} AND arr_delay >= {delay // 2}",
            f"month = {flight['month']} AND day = {flight['day']} AND hour BETWEEN {flight['hour'] - 1} "
            f"AND {flight['hour'] + 1}",
            f"JMSPriority >= {rng.choice((7, 8, 9))} AND hour < {rng.randrange(7, 12)}",
        )
    )
    return f"{about} AND {rest}", None


def _carriers(rng: Random, flight: Flight) -> Wish:
    others = rng.sample([code for code in _CARRIERS if code != flight["carrier"]], rng.randrange(1, 4))
    codes = ", ".join(f"'{code}'" for code in (flight["carrier"], *others))
    about = f"carrier IN ({codes}) AND dest = '{flight['dest']}'"
    rest = rng.choice(
        (
            f"flight BETWEEN {flight['flight'] - 2} AND {flight['flight'] + 2}",
            f"month = {flight['month']} AND day = {flight['day']}",
            f"dep_delay BETWEEN {flight['day'] + 150} AND {flight['day'] + 165}",
            f"dep_delay NOT BETWEEN -30 AND {rng.randrange(150, 400, 10)}",
        )
    )
    return f"{about} AND {rest}", None


def _cancelled(rng: Random, flight: Flight) -> Wish:
    carrier, origin, dest = flight["carrier"], flight["origin"], flight["dest"]
    return rng.choice(
        (
            f"dep_time IS NULL AND carrier = '{carrier}' AND dest = '{dest}'",
            f"JMSType = 'cancelled' AND origin = '{origin}' AND dest = '{dest}'",
            f"dep_time IS NOT NULL AND air_time IS NULL AND carrier = '{carrier}' AND dest = '{dest}'",
            f"carrier = '{carrier}' AND flight = {flight['flight']} AND dep_delay IS NULL",
        )
    ), None


def _speed(rng: Random, flight: Flight) -> Wish:
    route = f"origin = '{flight['origin']}' AND dest = '{flight['dest']}'"
    carrier = flight["carrier"]
    return rng.choice(
        (
            f"{route} AND arr_delay - dep_delay > {rng.randrange(40, 90, 5)}",
            f"{route} AND dep_delay - arr_delay >= {rng.randrange(30, 45)} AND dep_delay > 30",
            f"{route} AND carrier = '{carrier}' AND distance * 60.0 / air_time > {rng.randrange(510, 560)}",
            f"{route} AND (arr_delay + dep_delay) / 2 > {rng.randrange(120, 300, 10)}",
        )
    ), None


def _exclude(rng: Random, flight: Flight) -> Wish:
    carrier, dest, month = flight["carrier"], flight["dest"], flight["month"]
    delay = rng.randrange(300, 700, 10)
    return rng.choice(
        (
            f"carrier = '{carrier}' AND NOT dest IN ('{dest}', 'ATL') AND dep_delay > {delay}",
            f"dest = '{dest}' AND carrier NOT IN ('{carrier}', 'UA') AND JMSPriority > 8 AND month = {month}",
            f"NOT (dep_delay <= {delay}) AND dest = '{dest}' AND origin <> '{flight['origin']}'",
            f"(dest = '{dest}' OR dest = 'HNL') AND carrier = '{carrier}' AND day = {flight['day']} AND "
            f"month = {month}",
        )
    ), None


def _by_topic(rng: Random, flight: Flight) -> Wish:
    carrier, origin, dest = flight["carrier"], flight["origin"], flight["dest"]
    delay = rng.randrange(120, 360, 10)
    return rng.choice(
        (
            (f"carrier = '{carrier}' AND flight = {flight['flight']}", f"flights/{origin}/+"),
            (f"carrier = '{carrier}' AND dep_delay > {delay}", f"flights/+/{dest}"),
            (f"dep_delay > {delay}", f"flights/{origin}/{dest}"),
            (f"tailnum = '{flight['tailnum'] or 'N14228'}'", "flights/#"),
            (f"JMSType = 'cancelled' AND carrier = '{carrier}' AND month = {flight['month']}", f"#/{dest}"),
        )
    )


def _everything(rng: Random, flight: Flight) -> Wish:
    # No selector, for archives and dashboards: few, and by far the busiest.
    if rng.random() < 0.03:
        return "", rng.choice((f"flights/{flight['origin']}/+", f"flights/+/{flight['dest']}"))
    return "", f"flights/{flight['origin']}/{flight['dest']}"


def _anywhere(rng: Random, flight: Flight) -> Wish:
    # No equality, so no access key: each of these is evaluated against every message.
    tail = (flight["tailnum"] or "N14228")[-3:]
    return rng.choice(
        (
            f"dep_delay > {rng.randrange(480, 1000, 10)}",
            f"arr_delay - dep_delay > {rng.randrange(120, 180, 5)}",
            f"tailnum LIKE '%{tail}' AND arr_delay > {rng.randrange(60, 240, 10)}",
            f"distance * 60.0 / air_time > {rng.randrange(600, 700, 10)}",
            f"NOT JMSType LIKE 'd%' AND distance < {rng.randrange(50, 100)}",
        )
    ), None


_CARRIERS: Final = (
    "9E",
    "AA",
    "AS",
    "B6",
    "DL",
    "EV",
    "F9",
    "FL",
    "HA",
    "MQ",
    "OO",
    "UA",
    "US",
    "VX",
    "WN",
    "YV",
)

_KINDS: Final = (
    _Kind("plane", 24, _plane),
    _Kind("fleet", 4, _fleet),
    _Kind("number", 20, _number),
    _Kind("route", 20, _route),
    _Kind("carriers", 9, _carriers),
    _Kind("cancelled", 6, _cancelled),
    _Kind("speed", 5, _speed),
    _Kind("except", 4, _exclude),
    _Kind("topic", 7.6, _by_topic),
    _Kind("archive", 0.2, _everything),
    _Kind("anywhere", 0.2, _anywhere),
)
