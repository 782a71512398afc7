"""Rows of records as a worker reads them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from selectroute.kafka.record import Record
from selectroute.spark.messages import DeadLetterBatch

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


def all_of(reader, batch):
    """The messages and the dead letters by their offsets, each message as its values by their names."""
    messages, dead = {}, {}
    for records in reader.read(batch):
        seen = []
        for part in records.parts:
            for i, row in enumerate(part.rows.tolist()):
                seen.append(row)
                if isinstance(part, DeadLetterBatch):
                    dead[row] = part
                else:
                    assert len(part.ids) == part.columns.num_rows == len(part.rows)
                    (messages[row],) = part.columns.slice(i, 1).to_pylist()
                    messages[row].pop("@none", None)
        assert sorted(seen) == records.rows.column("offset").to_pylist()
    return messages, dead
