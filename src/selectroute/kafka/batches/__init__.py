"""Record batches, the form in which Kafka stores and sends records, from bytes to Arrow columns and back.

A fetch response has for each partition the bytes of record batches, and a produce request one batch for each
partition. Everything else of Kafka's protocol is a client's::

    fetched bytes ─→ decode ─→ offset, timestamp, key, value, headers (Arrow)
    key, value, headers (Arrow) + own headers, a row each ─→ encode ─→ a batch for a produce request

`decode` and `encode` are the two doors. `layout` has the format's numbers, `codecs` the four codecs. No
Python object is made for a record or a header, and no byte of what a broker sent is trusted: lengths are
checked against the bytes that are there, and anything else that is wrong is a `RecordBatchError`.

Only magic 2 is read, Kafka's format since version 0.11 (2017).
"""

from __future__ import annotations

from selectroute.selector.errors import SelectRouteError


class RecordBatchError(SelectRouteError):
    """Bytes that are not valid record batches, or records that do not fit into one.

    Attributes:
        problem: what is wrong, a sentence without its end.
        topic, partition: where it was read; None if the error is not of what was read.
        offset: offset of the batch or record; None if it is not known.
    """

    def __init__(
        self, problem: str, topic: str | None = None, partition: int | None = None, offset: int | None = None
    ) -> None:
        super().__init__(problem, topic, partition, offset)
        self.problem = problem
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        if self.topic is None:
            return self.problem
        where = f"{self.topic}-{self.partition}"
        return f"{where}: {self.problem}" if self.offset is None else f"{where}@{self.offset}: {self.problem}"
