"""Sender to queues: puts the staged deliveries of a committed batch, each once; see `queues.sql.deliveries`.

::

    commit ─→ read progress ─→ chunk by chunk, put in one transaction each ─→ all put ─→ publish
                                    └ a queue is full: the rest goes on, and its deliveries wait
                                         └ out of time: given up ─→ dead letters

A chunk is put once: the next start continues after the last one. `QueueDeliveries.give_up` decides, in a
transaction, which deliveries to a queue are given up; the dead letters are made from its answer, and are the
same at the next start. A database that does not answer holds the stream back, and changes nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow.parquet as pq

from selectroute.index.destination import QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.kafka.headers import delivery_id
from selectroute.queues.message.from_stream import Routed
from selectroute.spark.destinations.codes import destinations
from selectroute.spark.destinations.queue_messages import UNKNOWN_QUEUE
from selectroute.spark.job.job import FAIL_MISSING, DestinationNotFoundError, Job, JobError
from selectroute.spark.senders.late_dead_letters import LateDelivery, write_late_letters
from selectroute.spark.senders.patience import Waiting
from selectroute.spark.senders.sender import StoppingError, patient, shown, staged_file
from selectroute.spark.sources.files.readers import SourcePartition
from selectroute.store.errors import UnavailableError

if TYPE_CHECKING:  # needs the extra `service`
    from selectroute.queues.sql.deliveries import Delivery, Progress, QueueDeliveries, Room


FULL: Final = "destination-full"
"""Reason of a dead letter for a queue that was full for too long."""

_CHUNK = 2_000
"""Deliveries per transaction: other writers wait at most a tenth of a second for it."""

_CHUNK_BYTES = 16 << 20
_BATCH_ROWS = 256

_Result = TypeVar("_Result")


class QueueSender:
    """Sender to queues; see `Sender`. Safe for two threads that take turns.

    Args:
        url: URL of the database of queues.
        warn: called with a sentence when something holds the stream back.
        pause: waits some time; returns whether the job is to stop.
        wait_seconds: how long a queue that is full may hold the stream back; see `Waiting`.
    """

    def __init__(
        self,
        url: str,
        warn: Callable[[str], None] = lambda _: None,
        pause: Callable[[], bool] = lambda: True,
        wait_seconds: float = float("inf"),
    ) -> None:
        self._url = url
        self._warn = warn
        self._pause = pause
        self._opened: QueueDeliveries | None = None
        self.waiting = Waiting("the queue", wait_seconds, warn)

    @property
    def name(self) -> str:
        """URL of the database, without its password."""
        return self._queues().name

    def known(self) -> dict[str, int]:
        """Return the existing queues with their maximum message length in bytes, without waiting."""
        return self._queues().lengths()

    def begin(self, job: str, batch: int) -> dict[str, int]:
        """Return `known` for a batch to be routed, waiting until the database answers.

        Raises:
            JobError: the queues already have messages of this batch: the output folder is an old copy.
        """
        progress = self._patient(lambda queues: queues.progress(job, batch))
        if progress is None or not progress.is_fresh:
            raise JobError(
                f"batch {batch} is not committed, but the queues in {self.name} already have messages of it, "
                "or of a later one: the output folder is older than the queues; restore the newest one, or "
                "choose a new output folder and checkpoint"
            )
        return self._patient(lambda queues: queues.lengths())

    def outgoing(self, job: str, puts: int) -> dict[str, Any]:
        """Return the record of a commit's queue deliveries, without the files."""
        return {"job": job, "queues": self.name, "puts": puts}

    def send(
        self, batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path
    ) -> list[dict[str, Any]]:
        """Put the staged deliveries of a batch. See `Sender.send`."""
        name = self._patient(lambda queues: queues.name)
        if outgoing["queues"] != name:
            raise JobError(
                f"batch {batch} is committed for the queues in {outgoing['queues']}, not in {name}: start "
                "the job with the former once more, to put it"
            )
        progress = self._patient(lambda queues: queues.progress(outgoing["job"], batch))
        if progress is None:
            return []
        done = progress.done >= outgoing["puts"] and not progress.held
        if done and not progress.gone and not progress.full:
            return []
        staged = _Staged(outgoing, staging, revision)
        if not done:
            progress = self._put(outgoing["job"], progress, outgoing["puts"], staged)
        return write_late_letters(QUEUE, batch, revision, staging, partial(_late, staged, progress))

    def close(self) -> None:
        """Close the database."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # ---- inside

    def _queues(self) -> QueueDeliveries:
        if self._opened is None:
            from selectroute.queues.sql.deliveries import QueueDeliveries  # needs the extra `service`

            self._opened = QueueDeliveries(self._url)
        return self._opened

    def _put(self, job: str, progress: Progress, puts: int, staged: _Staged) -> Progress:
        """Put the remaining deliveries: first those with room, then those that full queues have held back,
        until there is room or a queue has no time left.
        """
        named: set[str] = set()
        for chunk in _chunks(staged.numbered(progress.done)):
            named.update(one.queue for _, one in chunk)
            progress = self._put_some(job, progress, [one for _, one in chunk])
        assert progress.done == puts, "every delivery that was counted is in the files"
        while progress.held:
            progress = self._put_held(job, progress, staged)
        for name in named - progress.gone.keys() - progress.full.keys():
            self.waiting.took(name)
        return progress

    def _put_held(self, job: str, progress: Progress, staged: _Staged) -> Progress:
        """Put those of the held deliveries that there is room for; otherwise wait, or give up."""
        started = time.monotonic()
        names = set(progress.held)
        rooms = self._patient(lambda queues: queues.rooms(names))
        going = {name for name in names if (room := rooms.get(name)) is None or room.left > 0}
        if going:
            progress = self._put_pass(job, progress, staged, going)
        still = progress.held.keys() & names
        given_up = [name for name in still if self.waiting.left(name) <= 0]
        if given_up:
            progress = self._patient(lambda queues: queues.give_up(job, progress, given_up))
            for name in given_up:
                self.waiting.trip(name, _is_full(name, rooms.get(name)))
        elif still and not going:
            for name in sorted(still):
                self.waiting.begin(name, _is_full(name, rooms.get(name)))
            if self._pause():
                why = _is_full(min(still), rooms.get(min(still)))
                raise StoppingError(f"the job stopped while it waited: {why}")
        self.waiting.waited(still, time.monotonic() - started)
        return progress

    def _put_pass(self, job: str, progress: Progress, staged: _Staged, going: set[str]) -> Progress:
        """Put the held deliveries of these queues, each as far as there is room."""
        first = min(progress.held[name] for name in going)
        held = ((number, one) for number, one in staged.numbered(first) if one.queue in going)
        for chunk in _chunks(held):
            # A queue without room gets no later delivery, to keep its order.
            mine = [(number, one) for number, one in chunk if one.queue in going]
            progress = self._put_some_held(job, progress, mine)
            after = {one.queue: number + 1 for number, one in mine}
            going -= {name for name, number in after.items() if progress.held.get(name) != number}
        return self._put_some_held(job, progress, [], going) if going else progress

    def _put_some(self, job: str, progress: Progress, chunk: list[Delivery]) -> Progress:
        return self._patient(lambda queues: queues.put(job, progress, chunk))

    def _put_some_held(
        self, job: str, progress: Progress, chunk: list[tuple[int, Delivery]], finished: Collection[str] = ()
    ) -> Progress:
        return self._patient(lambda queues: queues.put_held(job, progress, chunk, finished))

    def _patient(self, call: Callable[[QueueDeliveries], _Result]) -> _Result:
        """Call until the database answers. Raises `StoppingError`."""
        # Each retry gets the newest client: it may come much later.
        return patient(lambda: call(self._queues()), _why, self._warn, self._pause)


def _why(error: Exception) -> str | None:
    """Return why the stream waits; None for an error that waiting does not resolve."""
    return str(error) if isinstance(error, UnavailableError) else None


def _is_full(name: str, room: Room | None) -> str:
    return f"the queue {name} is full" + ("" if room is None else f": it holds {room.max_depth:,}")


def check_queues(job: Job) -> None:
    """Check that the database of queues exists and, if missing destinations fail the job, that it has the
    queues of the newest snapshot's subscriptions.

    Raises:
        DestinationNotFoundError: a queue does not exist.
        JobError: the job has no database of queues.
        StoreError: there is no database, or it has no queues, or does not answer.
    """
    to = destinations(Snapshot.open(job.snapshots), QUEUE)
    names = () if to is None or job.missing_destinations != FAIL_MISSING else to.names
    if job.queues is None:
        if names:
            raise JobError(
                f"subscriptions are delivered to queues ({shown(names)}): name their database with --queues"
            )
        return
    sender = QueueSender(job.queues)
    try:
        missing = sorted(set(names) - set(sender.known()))
        if missing:
            raise DestinationNotFoundError(
                f"subscriptions are delivered to queues that are not in {sender.name}: {shown(missing)}; "
                "create them first"
            )
    finally:
        sender.close()


class _Staged:
    """Staged deliveries of a batch for queues, numbered from 0, always in the same order.

    Raises DamagedFileError if a file does not have the digest of the commit.
    """

    def __init__(self, outgoing: Mapping[str, Any], staging: Path, revision: int) -> None:
        self._revision = revision
        self._files: list[tuple[Path, int, Any]] = []
        before = 0
        for file in outgoing["files"]:
            path = staged_file(staging, file)
            parquet = pq.ParquetFile(path)
            rows = [parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)]
            firsts = parquet.read(["first"]).column(0).to_numpy()
            last = parquet.read_row_group(len(rows) - 1, ["deliveries"]).column(0)
            self._files.append((path, before, firsts[np.cumsum([0, *rows[:-1]])]))
            before += int(firsts[-1]) + len(last[-1])

    def numbered(self, start: int = 0) -> Iterator[tuple[int, Delivery]]:
        """Yield the deliveries from a number on, with their numbers. Skips earlier row groups."""
        from selectroute.queues.sql.deliveries import Delivery  # needs the extra `service`

        ends = [before for _, before, _ in self._files[1:]]
        for (path, before, firsts), end in zip(self._files, [*ends, float("inf")], strict=True):
            if end <= start:
                continue
            group = max(0, int(np.searchsorted(firsts, start - before, "right")) - 1)
            number = before + int(firsts[group])
            groups = range(group, len(firsts))
            for batch in pq.ParquetFile(path).iter_batches(_BATCH_ROWS, groups, use_threads=False):
                columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
                messages = map(Routed, *(columns[name] for name in Routed._fields))
                places = zip(columns["source"], columns["partition"], columns["offset"], strict=True)
                for message, place, deliveries in zip(messages, places, columns["deliveries"], strict=True):
                    for one in deliveries:
                        if number >= start:
                            subscription = one["subscription"]
                            id = delivery_id(*place, subscription)
                            yield (
                                number,
                                Delivery(one["destination"], subscription, id, self._revision, message),
                            )
                        number += 1


def _chunks(deliveries: Iterator[tuple[int, Delivery]]) -> Iterator[list[tuple[int, Delivery]]]:
    """Group deliveries into lists, one per transaction."""
    chunk: list[tuple[int, Delivery]] = []
    size = 0
    for number, delivery in deliveries:
        chunk.append((number, delivery))
        size += len(delivery.message.body)
        if len(chunk) >= _CHUNK or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


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
