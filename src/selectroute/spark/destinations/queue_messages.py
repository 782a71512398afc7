"""Messages for queues: all fields that a queue stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.destination import QUEUE
from selectroute.queues.errors import REASONS, MQError
from selectroute.queues.message.from_stream import Routed, routed_of
from selectroute.selector.message import Message
from selectroute.spark.destinations.outgoing import Codes, Contents, Ints, Refused, converted
from selectroute.spark.sources.files.readers import Messages

UNKNOWN_QUEUE: Final = "unknown-queue"
"""Reason of a dead letter for a queue that does not exist."""

_COLUMNS = pa.schema(
    [
        ("msg_id", pa.binary()),
        ("correl_id", pa.binary()),
        ("group_id", pa.binary()),
        ("msg_seq_number", pa.int32()),
        ("priority", pa.int32()),
        ("persistence", pa.bool_()),
        ("timestamp", pa.int64()),
        ("expiration", pa.int64()),
        ("properties", pa.string()),
        ("body", pa.large_binary()),  # the bodies of a block may exceed 2 GiB
    ]
)
"""Fields of `Routed`, in its order."""

assert tuple(_COLUMNS.names) == Routed._fields


class QueueMessages:
    """Format for queues; see `DestinationFormat`.

    Args:
        names: the queues that the subscriptions name.
        lengths: the existing queues with their maximum body length in bytes; None if the job has no database
            of queues.
    """

    name = QUEUE
    unfit = "not-for-queues"

    def __init__(self, names: Sequence[str], lengths: Mapping[str, int] | None) -> None:
        self._names = names
        self._has_queues = lengths is not None
        self._lengths = np.array([(lengths or {}).get(name, -1) for name in names], np.int64)

    def block(self, messages: Messages) -> int:
        """Return a small number: a body may have megabytes."""
        return 256

    def contents(self, messages: Messages, places: Ints) -> Contents:
        """Return the fields that queues store of the messages at these rows."""
        found, fit, reasons = converted(messages, places, _routed)
        columns = list(zip(*found, strict=True)) or [()] * len(_COLUMNS)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _COLUMNS, strict=True)]
        return Contents(pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS), fit, reasons)

    def refused(self, contents: Contents, rows: Ints, codes: Codes) -> Iterator[Refused]:
        """Yield the deliveries to queues that do not exist, or whose size limit the message exceeds."""
        limits = self._lengths[codes]
        sizes = pc.binary_length(contents.columns.column("body")).to_numpy(zero_copy_only=False)[rows]
        too_large = (limits >= 0) & (sizes > limits)
        for code in np.unique(codes[limits < 0]).tolist():
            yield Refused(codes == code, UNKNOWN_QUEUE, self._unknown(code))
        for code in np.unique(codes[too_large]).tolist():
            text = f"the queue {self._names[code]} accepts messages of at most {self._lengths[code]:,} bytes"
            yield Refused(too_large & (codes == code), "too-large", text)

    def _unknown(self, code: int) -> str:
        if not self._has_queues:
            return f"the job has no database of queues for the queue {self._names[code]}: see --queues"
        return f"there is no queue {self._names[code]} in the job's database of queues"


def _routed(message: Message) -> Routed | str:
    try:
        return routed_of(message)
    except MQError as error:
        return sentence(error)


def sentence(error: MQError) -> str:
    """Return the error of a message in one line."""
    reason = f"MQRC_{REASONS.get(error.reason, 'UNEXPECTED_ERROR')} ({error.reason})"
    return reason if error.detail is None else f"{reason}: {error.detail}"
