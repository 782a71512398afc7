"""Rows of records as a worker reads them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from selectroute.kafka.record import Record

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS),
    ]
)


def rows(records: Sequence[Record], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Records as one batch; a record without headers has NULL for them."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": one.key,
                "value": one.value,
                "topic": one.topic,
                "partition": one.partition,
                "offset": one.offset,
                "timestamp": one.timestamp,
                "headers": [{"key": key, "value": value} for key, value in one.headers] or None,
            }
            for one in records
        ],
        schema,
    )
