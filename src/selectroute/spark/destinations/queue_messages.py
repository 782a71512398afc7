"""Messages as a worker stages them for queues: all that a queue will hold of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.destination import QUEUE
from selectroute.queues.errors import REASONS, MQError
from selectroute.queues.message.from_stream import Routed, routed_of
from selectroute.spark.destinations.staging import Codes, Contents, Ints, Mask
from selectroute.spark.sources.files.readers import Messages

UNKNOWN_QUEUE: Final = "unknown-queue"
"""The reason of a delivery to a queue that is not there."""

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
        ("body", pa.large_binary()),  # those of a block may be more than 2 GiB
    ]
)
"""The fields of `Routed`, in its order."""

assert tuple(_COLUMNS.names) == Routed._fields


class QueueMessages:
    """Format of what is staged for queues; see `DestinationFormat`.

    Args:
        names: the queues that the subscriptions name.
        lengths: the queues that there are, and how many bytes a body has in each at most; None if the job has
            no database of queues.
    """

    name = QUEUE
    unfit = "not-for-queues"
    columns = _COLUMNS

    def __init__(self, names: Sequence[str], lengths: Mapping[str, int] | None) -> None:
        self._names = names
        self._has_queues = lengths is not None
        self._lengths = np.array([(lengths or {}).get(name, -1) for name in names], np.int64)

    def block(self, messages: Messages) -> int:
        """Return few: the driver reads them one by one, with bodies of megabytes."""
        return 256

    def contents(self, messages: Messages, places: Ints) -> Contents:
        """Return what queues will hold of the messages in these places."""
        assert messages.full is not None
        found: list[Routed] = []
        fit = np.ones(len(places), np.bool_)
        reasons: list[str] = []
        for place, message in enumerate(messages.full.messages(places)):
            if isinstance(message, str):
                reason = message
            else:
                try:
                    found.append(routed_of(message))
                    continue
                except MQError as error:
                    reason = sentence(error)
            fit[place] = False
            reasons.append(reason)
        columns = list(zip(*found, strict=True)) or [()] * len(_COLUMNS)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _COLUMNS, strict=True)]
        return Contents(pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS), fit, reasons)

    def partitions(self, contents: Contents, rows: Ints, offsets: Ints, codes: Codes) -> None:
        """Return None: queues have no partitions."""

    def refused(self, contents: Contents, rows: Ints, codes: Codes) -> Iterator[tuple[Mask, str, str]]:
        """Yield the deliveries to queues that are not there, or that hold no message of this length."""
        limits = self._lengths[codes]
        sizes = pc.binary_length(contents.columns.column("body")).to_numpy(zero_copy_only=False)[rows]
        too_large = (limits >= 0) & (sizes > limits)
        for code in np.unique(codes[limits < 0]).tolist():
            yield codes == code, UNKNOWN_QUEUE, self._unknown(code)
        for code in np.unique(codes[too_large]).tolist():
            text = f"the queue {self._names[code]} holds messages of {self._lengths[code]:,} bytes at most"
            yield too_large & (codes == code), "too-large", text

    def _unknown(self, code: int) -> str:
        if not self._has_queues:
            return f"the job has no database of queues, and so no queue {self._names[code]}: see --queues"
        return f"there is no queue {self._names[code]} in the job's database of queues"


def sentence(error: MQError) -> str:
    """Return what is wrong with a message in one line."""
    reason = f"MQRC_{REASONS.get(error.reason, 'UNEXPECTED_ERROR')} ({error.reason})"
    return reason if error.detail is None else f"{reason}: {error.detail}"
