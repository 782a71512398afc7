"""What is staged of messages that go to topics of Kafka: key, value and headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.destination import KAFKA
from selectroute.kafka.produced import Produced, record_of
from selectroute.spark.kafka_partitions import key_hashes
from selectroute.spark.outgoing import Codes, Contents, Ints, Mask
from selectroute.spark.readers import Messages
from selectroute.spark.whole_records import WholeRecords

UNKNOWN_TOPIC: Final = "unknown-topic"
INPUT_TOPIC: Final = "input-topic"
"""The reasons of deliveries to a topic that is not there, and to one that the job reads."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_COLUMNS = pa.schema([("key", pa.binary()), ("value", pa.large_binary()), ("headers", HEADERS)])

_RECORD_BYTES = 128
_HEADER_BYTES = 10
"""What a record and each of its headers take besides their bytes, at most (Kafka's record format v2)."""

_OURS_BYTES = 1_024
"""Bytes of the headers that each delivery gets: names, subscription, delivery id, revision and batch."""


_BLOCK = 8_192
_BLOCK_BYTES = 16 << 20


class Topic(NamedTuple):
    """A topic as a job writes to it: the most bytes of a record, how many partitions it has, and whether the
    job reads it, so that nothing may go there.
    """

    longest: int
    partitions: int
    is_input: bool = False


_UNKNOWN = Topic(-1, 1)


class KafkaMessages:
    """See `Kind`.

    Args:
        names: the topics that the subscriptions name.
        topics: those that there are; None if the job writes to no cluster.
    """

    name = KAFKA
    unfit = "not-for-kafka"
    columns = _COLUMNS

    def __init__(self, names: Sequence[str], topics: Mapping[str, Topic] | None) -> None:
        self._names = names
        self._has_cluster = topics is not None
        known = [(topics or {}).get(name, _UNKNOWN) for name in names]
        self._longest = np.array([one.longest for one in known], np.int64)
        self._counts = np.array([one.partitions for one in known], np.int64)
        self._is_input = np.array([one.is_input for one in known], np.bool_)

    def block(self, messages: Messages) -> int:
        """As many as have some megabytes."""
        whole = messages.whole
        if not isinstance(whole, WholeRecords):
            return 256
        size: int = whole.rows.nbytes
        return max(1, min(_BLOCK, _BLOCK_BYTES * len(whole.rows) // max(1, size)))

    def contents(self, messages: Messages, places: Ints) -> Contents:
        """The records that go out: as they came from Kafka, or made of the messages in these places."""
        whole = messages.whole
        assert whole is not None
        if isinstance(whole, WholeRecords):
            rows = whole.rows.select(_COLUMNS.names)
            if len(places) < len(rows):
                rows = rows.take(pa.array(places))
            arrays = [rows.column(name).cast(_COLUMNS.field(name).type) for name in _COLUMNS.names]
            return Contents(
                pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS), np.ones(len(places), np.bool_), []
            )
        found: list[Produced] = []
        fit = np.ones(len(places), np.bool_)
        reasons: list[str] = []
        for place, message in enumerate(whole.messages(places)):
            if isinstance(message, str):
                fit[place] = False
                reasons.append(message)
            else:
                found.append(record_of(message))
        columns = {
            "key": [one.key for one in found],
            "value": [one.value for one in found],
            "headers": [[{"key": name, "value": text} for name, text in one.headers] for one in found],
        }
        return Contents(pa.RecordBatch.from_pydict(columns, _COLUMNS), fit, reasons)

    def partitions(self, contents: Contents, rows: Ints, offsets: Ints, codes: Codes) -> Codes:
        """Where a producer sends a record of this key; those without one are spread by their offsets."""
        hashes = key_hashes(contents.columns.column("key"))
        keyed = np.asarray(pc.is_valid(hashes))[rows]
        found = np.where(keyed, pc.fill_null(hashes, 0).to_numpy(zero_copy_only=False)[rows], offsets)
        return (found % self._counts[codes]).astype(np.int32)

    def refused(self, contents: Contents, rows: Ints, codes: Codes) -> Iterator[tuple[Mask, str, str]]:
        """Yield the deliveries to topics that are not there, that the job reads, or that take no record of
        this length.
        """
        limits, is_input = self._longest[codes], self._is_input[codes]
        too_large = (limits >= 0) & ~is_input & (_sizes(contents.columns)[rows] > limits)
        for code in np.unique(codes[limits < 0]).tolist():
            yield codes == code, UNKNOWN_TOPIC, self._unknown(code)
        for code in np.unique(codes[is_input]).tolist():
            text = f"the job reads the topic {self._names[code]}: the delivery would come in again, for ever"
            yield codes == code, INPUT_TOPIC, text
        for code in np.unique(codes[too_large]).tolist():
            text = f"the topic {self._names[code]} takes records of {self._longest[code]:,} bytes at most"
            yield too_large & (codes == code), "too-large", text

    def _unknown(self, code: int) -> str:
        if not self._has_cluster:
            return f"the job writes to no Kafka, and so to no topic {self._names[code]}: see --kafka-servers"
        return f"there is no topic {self._names[code]} in the Kafka that the job writes to"


def _sizes(records: pa.RecordBatch) -> Ints:
    """The bytes of each record as a producer counts them, rather too many than too few."""
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
