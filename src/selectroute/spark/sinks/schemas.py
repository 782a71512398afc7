"""Columns of the three tables that a job writes, and of what workers stage for other destinations.

The number of a batch is no column of the files: it is in the name of their folder, ``batch=<n>``, which every
reader of such folders turns into the column ``batch`` (and which most of them refuse to see a second time
inside).
"""

from __future__ import annotations

import pyarrow as pa

DELIVERIES, UNROUTED, DEAD_LETTERS = SINKS = ("deliveries", "unrouted", "dead-letters")
"""The three tables, by the names of their folders."""

TEXT = pa.dictionary(pa.int32(), pa.string())

PLACE = [("source", TEXT), ("partition", pa.int32()), ("offset", pa.int64())]
"""Where a message stands: file and row (the partition is 0), or topic, partition and offset."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The headers of a record of Kafka."""

RAW = pa.schema([("raw", pa.binary()), ("key", pa.binary()), ("headers", HEADERS)])
"""Of a dead letter, its bytes as they came: a line, or value, key and headers of a record of Kafka."""

SCHEMAS: dict[str, pa.Schema] = {
    DELIVERIES: pa.schema([("subscription", TEXT), ("revision", pa.int64()), *PLACE, ("message_id", TEXT)]),
    UNROUTED: pa.schema([("revision", pa.int64()), *PLACE, ("message_id", pa.string())]),
    DEAD_LETTERS: pa.schema(
        [
            ("stage", TEXT),
            ("reason", TEXT),
            ("message", TEXT),
            *PLACE,
            ("revision", pa.int64()),
            ("subscription", TEXT),
            *RAW,
        ]
    ),
}
"""The columns of the files of each sink."""

REPEATING = {sink: [field.name for field in schema if field.type == TEXT] for sink, schema in SCHEMAS.items()}
"""Those of them whose values repeat."""

DELIVERY_LIST = pa.list_(
    pa.struct([("destination", pa.string()), ("subscription", pa.string()), ("partition", pa.int32())])
)
"""The deliveries of one staged message; ``partition`` is the destination's, where that has any."""


def as_written(text: str) -> str:
    """Return a file's name as outputs have it: bytes that are not text are question marks."""
    return text.encode("utf-8", "replace").decode()
