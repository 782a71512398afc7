"""Writer of one task's deliveries to queues: puts, in transactions that also move the task's progress.

A task that runs again finds in its progress what was put, and puts the rest. A queue that is full is *held*:
the attempt goes on with all others and reports it, and a later one puts the rest, or, once the queue is
*excluded*, gives it up. Deliveries that are given up, or whose queue is gone, are refused in every attempt.

A delivery's number is its place in the input of the task: part, offset (for rows of a DataFrame, the row's
number), and which of its message it is. So it is the same in every attempt, also if the input has lost other
messages since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.destination import QUEUE
from selectroute.kafka.record import delivery_id
from selectroute.queues.errors import REASONS, MQError
from selectroute.queues.message.from_stream import Routed, routed_of
from selectroute.selector.message import Message
from selectroute.spark.destinations.destination import (
    UNKNOWN_QUEUE,
    Block,
    Codes,
    Contents,
    Ints,
    Refusal,
    converted,
    refuse,
)
from selectroute.spark.messages import MessageBatch
from selectroute.spark.tables.schemas import as_written

if TYPE_CHECKING:
    from selectroute.queues.sql.deliveries import Delivery, QueueDeliveries

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

    def block(self, messages: MessageBatch) -> int:
        """Return a small number: a body may have megabytes."""
        return 256

    def contents(self, messages: MessageBatch, places: Ints) -> Contents:
        """Return the fields that queues store of the messages at these rows."""
        routed, fit, reasons = converted(messages, places, _routed)
        columns = list(zip(*routed, strict=True)) or [()] * len(_COLUMNS)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _COLUMNS, strict=True)]
        return Contents(pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS), fit, reasons)

    def refused(self, contents: Contents, rows: Ints, codes: Codes) -> Iterator[Refusal]:
        """Yield the deliveries to queues that do not exist, or whose size limit the message exceeds."""
        limits = self._lengths[codes]
        sizes = pc.binary_length(contents.columns.column("body")).to_numpy(zero_copy_only=False)[rows]
        too_large = (limits >= 0) & (sizes > limits)
        yield from refuse(limits < 0, codes, UNKNOWN_QUEUE, self._unknown)
        yield from refuse(too_large, codes, "too-large", self._too_large)

    def _too_large(self, code: int) -> str:
        return f"the queue {self._names[code]} accepts messages of at most {self._lengths[code]:,} bytes"

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


FULL: Final = "destination-full"
"""Reason of a dead letter for a queue that was full for too long."""

_OFFSET_BITS: Final = 64
_NTH_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """Target of a batch's deliveries to queues, the same for all of its tasks.

    Attributes:
        url: URL of the database of queues; by reference if it has a password.
        lengths: the existing queues with their maximum body length in bytes.
        job: the id of the query.
        batch: the number of the batch.
        plan_sha256: digest of the batch's plan.
        excluded: queues that were full for too long: deliveries that do not fit are dead letters.
    """

    url: str
    lengths: Mapping[str, int]
    job: str
    batch: int
    plan_sha256: str
    excluded: Collection[str] = ()


class QueueWriter:
    """Writer of deliveries to queues; see `OutgoingWriter`.

    Args:
        target: the target of the batch.
        database: its database.
        task: the number of the task.
        names: the queues, by code.
        ids: the snapshot's ids.
        revision: the snapshot's revision.
        others_held: whether topics of the task are held in this attempt.

    Calls raise `OvertakenError` if another attempt of the task goes on, `UnavailableError` if the database
    does not answer.
    """

    def __init__(
        self,
        target: QueueTarget,
        database: QueueDeliveries,
        task: int,
        names: Sequence[str],
        ids: Any,
        revision: int,
        others_held: bool = False,
    ) -> None:
        from selectroute.queues.sql.deliveries import (
            TaskKey,  # needs the extra `service`
            TaskPuts,
        )

        key = TaskKey(target.job, target.batch, task, target.plan_sha256)
        self._puts = TaskPuts(database, key, target.excluded)
        self._names = names
        self._ids = ids
        self._revision = revision
        self._others_held = others_held
        self._named: set[int] = set()

    @property
    def is_rest_done(self) -> bool:
        """True if only deliveries to full queues are left of the task."""
        return self._puts.is_rest_done

    def is_held_up(self) -> bool:
        """Return whether only full queues are left of the task: then its input need not be read again."""
        return self._puts.is_held_up()

    def report(self) -> dict[str, Any]:
        """Return the queues to which deliveries were ``sent``, the queues that ``refused`` some, and the
        queues that are ``held``, with the reason.
        """
        progress = self._puts.progress
        return {
            "sent": sorted({self._names[code] for code in self._named}),
            "refused": sorted({*progress.gone, *progress.full}),
            "held": {name: f"it holds {depth:,}" for name, depth in sorted(self._puts.closed.items())},
        }

    def write(self, block: Block) -> list[Refusal]:
        """Put the deliveries of a block, unless they were put before, or their queue is full or gone."""
        codes = np.unique(block.codes).tolist()
        if not self._named:
            self._puts.take_over()
        self._named.update(codes)
        numbers = _numbers(block)
        self._puts.put(self._pending(block, numbers))
        refused = []
        progress = self._puts.progress
        for code in codes:
            name = self._names[code]
            first = progress.gone.get(name, progress.full.get(name))
            if first is None:
                continue
            late = np.fromiter((number >= first for number in numbers), np.bool_, len(numbers))
            without = late & (block.codes == code)
            if np.any(without):
                refused.append(Refusal(without, *_why(name, name in progress.gone)))
        return refused

    def close(self) -> None:
        """Record that the task is done, but for the queues that are held; with topics held, it is not."""
        if not self._others_held:
            self._puts.finish()

    def _pending(self, block: Block, numbers: Sequence[int]) -> Iterator[tuple[int, Delivery]]:
        """Yield the deliveries that are still to be put when their turn comes."""
        from selectroute.queues.sql.deliveries import Delivery  # needs the extra `service`

        messages: list[Routed] | None = None
        source = as_written(block.place.source)
        each = zip(numbers, block.rows.tolist(), block.codes.tolist(), block.ordinals.tolist(), strict=True)
        for number, row, code, ordinal in each:
            name = self._names[code]
            if not self._puts.waits(number, name):
                continue
            if messages is None:
                messages = list(map(Routed, *(column.to_pylist() for column in block.contents.columns)))
            subscription = self._ids[ordinal].as_py()
            id = delivery_id(source, block.place.partition, int(block.offsets[row]), subscription)
            yield number, Delivery(name, subscription, id, self._revision, messages[row])


def _numbers(block: Block) -> list[int]:
    """Return the number of each delivery."""
    of_message = np.diff(block.rows, prepend=-1) != 0
    positions = np.arange(len(block.rows))
    nth = positions - np.maximum.accumulate(np.where(of_message, positions, 0))
    part = block.part << _OFFSET_BITS
    return [
        (part + offset << _NTH_BITS) + delivery
        for offset, delivery in zip(block.numbers[block.rows].tolist(), nth.tolist(), strict=True)
    ]


def _why(name: str, is_gone: bool) -> tuple[str, str]:
    if is_gone:
        return (
            UNKNOWN_QUEUE,
            f"the queue {name} was deleted, or created again for shorter messages, while the batch was put",
        )
    return FULL, f"the queue {name} was full for too long"
