"""Records for Kafka topics: key, value and headers of each message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.destination import KAFKA
from selectroute.kafka.record import record_of
from selectroute.spark.destinations.outgoing import Codes, Contents, Ints, Refused, converted
from selectroute.spark.sinks.schemas import HEADERS
from selectroute.spark.sources.files.readers import Messages
from selectroute.spark.sources.kafka.reader import FullRecords

UNKNOWN_TOPIC: Final = "unknown-topic"
INPUT_TOPIC: Final = "input-topic"
"""Reasons of dead letters for a topic that does not exist, and for one that the job reads."""

_COLUMNS = pa.schema(
    [("key", pa.binary()), ("value", pa.large_binary()), ("headers", HEADERS), ("timestamp", pa.int64())]
)

_RECORD_BYTES = 128
_HEADER_BYTES = 10
"""Maximum overhead in bytes of a record and of each header (Kafka's record format v2)."""

_OURS_BYTES = 1_024
"""Bytes of the headers added to each delivery: names, subscription, delivery id, revision and batch."""


_BLOCK = 8_192
_BLOCK_BYTES = 16 << 20


class Topic(NamedTuple):
    """Topic to write to: its maximum record size in bytes, its number of partitions, and whether it is also
    an input of the job, and so must not be written; and the milliseconds by which the time stamp of a record
    may be before and after the broker's clock (KIP-937).
    """

    longest: int
    partitions: int
    is_input: bool = False
    before_ms: int = (1 << 63) - 1
    after_ms: int = (1 << 63) - 1


_UNKNOWN = Topic(-1, 1)


class KafkaMessages:
    """Format for Kafka topics; see `DestinationFormat`.

    Args:
        names: the topics that the subscriptions name.
        topics: the existing topics; None if the job writes to no cluster.
    """

    name = KAFKA
    unfit = "not-for-kafka"

    def __init__(self, names: Sequence[str], topics: Mapping[str, Topic] | None) -> None:
        self._names = names
        self._has_cluster = topics is not None
        known = [(topics or {}).get(name, _UNKNOWN) for name in names]
        self._longest = np.array([one.longest for one in known], np.int64)
        self._counts = np.array([one.partitions for one in known], np.int64)
        self._is_input = np.array([one.is_input for one in known], np.bool_)

    def block(self, messages: Messages) -> int:
        """Return a number of messages that has some megabytes."""
        full = messages.full
        if not isinstance(full, FullRecords):
            return 256
        size: int = full.rows.nbytes
        return max(1, min(_BLOCK, _BLOCK_BYTES * len(full.rows) // max(1, size)))

    def contents(self, messages: Messages, places: Ints) -> Contents:
        """Return the records to send: the original Kafka records, or records made of the messages."""
        full = messages.full
        if isinstance(full, FullRecords):
            rows = full.rows.select(_COLUMNS.names)
            if len(places) < len(rows):
                rows = rows.take(pa.array(places))
            arrays = [rows.column(name).cast(_COLUMNS.field(name).type) for name in _COLUMNS.names]
            return Contents(
                pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS), np.ones(len(places), np.bool_), []
            )
        found, fit, reasons = converted(messages, places, record_of)
        columns = {
            "key": [one.key for one in found],
            "value": [one.value for one in found],
            "headers": [[{"key": name, "value": text} for name, text in one.headers] for one in found],
            "timestamp": [None] * len(found),
        }
        return Contents(pa.RecordBatch.from_pydict(columns, _COLUMNS), fit, reasons)

    def refused(self, contents: Contents, rows: Ints, codes: Codes) -> Iterator[Refused]:
        """Yield the deliveries to topics that do not exist, that the job reads, or whose size limit the
        record exceeds.
        """
        limits, is_input = self._longest[codes], self._is_input[codes]
        too_large = (limits >= 0) & ~is_input & (sizes_of(contents.columns)[rows] > limits)
        for code in np.unique(codes[limits < 0]).tolist():
            yield Refused(codes == code, UNKNOWN_TOPIC, self._unknown(code))
        for code in np.unique(codes[is_input]).tolist():
            text = f"the job reads the topic {self._names[code]}: the delivery would return endlessly"
            yield Refused(codes == code, INPUT_TOPIC, text)
        for code in np.unique(codes[too_large]).tolist():
            text = f"the topic {self._names[code]} accepts records of at most {self._longest[code]:,} bytes"
            yield Refused(too_large & (codes == code), "too-large", text)

    def _unknown(self, code: int) -> str:
        if not self._has_cluster:
            return f"the job has no Kafka cluster for the topic {self._names[code]}: see --kafka-servers"
        return f"there is no topic {self._names[code]} in the Kafka cluster that the job writes to"


def sizes_of(records: pa.RecordBatch) -> Ints:
    """Return an upper bound of the bytes of each record as counted by a producer."""
    headers = records.column("headers")
    flat = headers.flatten()
    of_header = sum(
        pc.fill_null(pc.binary_length(flat.field(name)), 0).to_numpy(zero_copy_only=False)
        for name in ("key", "value")
    )
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(of_header + _HEADER_BYTES, dtype=np.int64)))
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    sizes = ends[bounds[1:]] - ends[bounds[:-1]] + _RECORD_BYTES + _OURS_BYTES
    for name in ("key", "value"):
        sizes += pc.fill_null(pc.binary_length(records.column(name)), 0).to_numpy(zero_copy_only=False)
    return sizes  # type: ignore[no-any-return]
