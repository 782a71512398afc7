"""Columns of the three tables that a job writes.

In plain Parquet folders the number of a batch is not a column of the files: it is in the name of their
folder, ``batch=<n>``, from which readers make the column ``batch`` (and most reject files that have that
column as well). In Delta tables it is a column, since files of many batches are merged (`WITH_BATCH`).
"""

from __future__ import annotations

import pyarrow as pa

DELIVERIES, UNROUTED, DEAD_LETTERS = SINKS = ("deliveries", "unrouted", "dead-letters")
"""Names of the three tables and of their folders."""

TEXT = pa.dictionary(pa.int32(), pa.string())

PLACE = [("source", TEXT), ("partition", pa.int32()), ("offset", pa.int64())]
"""Position of a message: file and row (the partition is 0), or topic, partition and offset."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Headers of a Kafka record."""

RAW = pa.schema([("raw", pa.binary()), ("key", pa.binary()), ("headers", HEADERS)])
"""Original bytes of a dead letter: a line, or value, key and headers of a Kafka record."""

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
"""Columns of the files of each sink."""

BATCH = pa.field("batch", pa.int64())
"""Number of the batch of a row; negative for backfills and replays."""

WITH_BATCH = {sink: pa.schema([BATCH, *schema]) for sink, schema in SCHEMAS.items()}
"""Columns of the files of each sink in a table."""

REPEATING = {sink: [field.name for field in schema if field.type == TEXT] for sink, schema in SCHEMAS.items()}
"""Columns of each sink whose values repeat."""


def decoded(schema: pa.Schema) -> pa.Schema:
    """Return a schema with plain strings in the place of dictionaries."""
    return pa.schema(field.with_type(pa.string()) if field.type == TEXT else field for field in schema)


def as_written(text: str) -> str:
    """Return a file's name as text for the outputs; undecodable bytes become question marks."""
    return text.encode("utf-8", "replace").decode()
