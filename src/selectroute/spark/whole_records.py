"""Whole records of Kafka in a worker, for destinations that hand them on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.kafka.binding import KafkaBinding
from selectroute.kafka.record import Record, RecordError, message_of
from selectroute.selector.message import Message


class WholeRecords:
    """See `Whole`: rows as Spark's Kafka source has them, one for each message."""

    def __init__(self, rows: pa.RecordBatch, binding: KafkaBinding) -> None:
        self.rows = rows
        self._binding = binding

    def slice(self, start: int, length: int) -> WholeRecords:
        """Some of them."""
        return WholeRecords(self.rows.slice(start, length), self._binding)

    def take(self, rows: npt.NDArray[np.int64]) -> WholeRecords:
        """Those in these places."""
        return WholeRecords(self.rows.take(pa.array(rows)), self._binding)

    def messages(self, rows: npt.NDArray[np.int64]) -> Iterator[Message | str]:
        """The messages in these places; of one that can't be one as a whole, the sentence that says why."""
        for row in self.rows.take(pa.array(rows)).to_pylist():
            timestamp = row.pop("timestamp")
            row.pop("timestampType", None)
            headers = tuple((one["key"], one["value"]) for one in row.pop("headers") or ())
            since = None if timestamp is None else round(timestamp.timestamp() * 1000)
            try:
                yield message_of(Record(**row, timestamp=since, headers=headers), self._binding)
            except RecordError as error:
                yield str(error)
