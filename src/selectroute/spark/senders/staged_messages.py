"""Sender of messages that an earlier release staged for queues, and did not put before it ended.

Earlier releases committed a batch first, and put its staged messages afterwards. Such a batch is put here,
each delivery once, as it would have been then: as task 0, with its deliveries numbered from 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from selectroute.index.destination import QUEUE
from selectroute.kafka.headers import delivery_id
from selectroute.queues.message.from_stream import Routed
from selectroute.spark.destinations.queue_messages import UNKNOWN_QUEUE
from selectroute.spark.destinations.queue_writer import FULL
from selectroute.spark.job.job import JobError
from selectroute.spark.senders.late_dead_letters import LateDelivery, write_late_letters
from selectroute.spark.senders.queues import JobQueues
from selectroute.spark.senders.sender import StoppingError, staged_file
from selectroute.spark.sources.files.readers import SourcePartition

if TYPE_CHECKING:  # needs the extra `service`
    from selectroute.queues.sql.deliveries import Delivery, Progress, QueueDeliveries, TaskKey

_BATCH_ROWS: Final = 256


class StagedMessages:
    """Sender of an earlier release's staged messages; see `Sender`."""

    def __init__(self, queues: JobQueues) -> None:
        self._queues = queues

    def send(
        self, batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path
    ) -> list[dict[str, Any]]:
        """Put the staged deliveries of a batch. See `Sender.send`."""
        from selectroute.queues.sql.deliveries import TaskKey  # needs the extra `service`

        name = self._queues.patient(lambda queues: queues.name)
        if outgoing["queues"] != name:
            raise JobError(
                f"batch {batch} is committed for the queues in {outgoing['queues']}, not in {name}: start "
                "the job with the former once more, to put it"
            )
        if self._queues.patient(lambda queues: queues.begun(outgoing["job"], batch)) is None:
            return []
        task = TaskKey(outgoing["job"], batch)
        staged = _Staged(outgoing, staging, revision)
        progress = self._put(task, staged, outgoing["puts"])
        return write_late_letters(QUEUE, batch, revision, staging, partial(_late, staged, progress))

    def _put(self, task: TaskKey, staged: _Staged, puts: int) -> Progress:
        """Put the remaining deliveries, waiting for full queues as long as they have time left."""
        waiting = self._queues.waiting
        looked = time.monotonic()
        while True:
            progress, closed = self._queues.patient(partial(self._pass, task, staged, puts))
            since, looked = looked, time.monotonic()
            for name, depth in closed.items():
                waiting.waited([name], looked - since)
                waiting.waits(name, f"the queue {name} is full: it holds {depth:,}")
            if not closed:
                return progress
            if waiting.tripped.isdisjoint(closed) and self._queues.pause():
                raise StoppingError(f"the job stopped while it waited: the queue {min(closed)} is full")

    def _pass(
        self, task: TaskKey, staged: _Staged, puts: int, database: QueueDeliveries
    ) -> tuple[Progress, dict[str, int]]:
        """Put what there is room for; return the progress, and the queues without room."""
        from selectroute.queues.sql.task_puts import TaskPuts  # needs the extra `service`

        attempt = TaskPuts(database, task, self._queues.waiting.tripped)
        progress = attempt.progress
        if not attempt.is_held_up() and (progress.next < puts or progress.held):
            attempt.put(staged.numbered(min([progress.next, *progress.held.values()])))
            attempt.finish()
        return attempt.progress, attempt.closed


class _Staged:
    """Staged deliveries of a batch for queues, numbered from 0, always in the same order.

    Raises DamagedFileError if a file does not have the digest of the commit.
    """

    def __init__(self, outgoing: Mapping[str, Any], staging: Path, revision: int) -> None:
        self._revision = revision
        self._paths = [staged_file(staging, file) for file in outgoing["files"]]

    def numbered(self, start: int = 0) -> Iterator[tuple[int, Delivery]]:
        """Yield the deliveries from a number on, with their numbers."""
        from selectroute.queues.sql.deliveries import Delivery  # needs the extra `service`

        number = 0
        for path in self._paths:
            for batch in pq.ParquetFile(path).iter_batches(_BATCH_ROWS, use_threads=False):
                columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
                messages = map(Routed, *(columns[name] for name in Routed._fields))
                places = zip(columns["source"], columns["partition"], columns["offset"], strict=True)
                for message, place, deliveries in zip(messages, places, columns["deliveries"], strict=True):
                    for one in deliveries:
                        if number >= start:
                            name, subscription = one["destination"], one["subscription"]
                            id = delivery_id(*place, subscription)
                            yield number, Delivery(name, subscription, id, self._revision, message)
                        number += 1


def _late(staged: _Staged, progress: Progress) -> Iterator[LateDelivery]:
    """Yield the deliveries to queues that were deleted after the commit, or were full for too long."""
    without = {**progress.gone, **progress.full}
    if not without:
        return
    for number, one in staged.numbered(min(without.values())):
        if number < without.get(one.queue, number + 1):
            continue
        source, partition, offset = one.delivery_id.removesuffix(f"/{one.subscription}").rsplit("/", 2)
        if one.queue in progress.full:
            reason, text = FULL, f"the queue {one.queue} was full for too long"
        else:
            reason = UNKNOWN_QUEUE
            text = (
                f"the queue {one.queue} was deleted, or created again for shorter messages, after the batch "
                "was committed"
            )
        yield LateDelivery(
            SourcePartition(source, int(partition)), int(offset), one.subscription, reason, text
        )
