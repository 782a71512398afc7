"""Sender to queues: puts what a committed batch has staged, each delivery once; see `queues.sql.deliveries`.

::

    commit ─→ how far is the batch? ─→ chunk by chunk, put in one transaction each ─→ all put ─→ publish
                                            └ a queue is full: the rest goes on, and its deliveries wait
                                                 └ no longer than they may: given up ─→ dead letters

A chunk that was put stays put, and one that was not is put at the next start. `QueueDeliveries.give_up`
decides, in a transaction, that the rest of a queue is given up: the dead letters are made of its answer, the
same ones at the next start. A database out of reach holds the stream back, and changes nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from selectroute.spark.senders.late_dead_letters import LateDelivery, bury_late
from selectroute.spark.senders.patience import Waiting
from selectroute.spark.senders.sender import StoppingError, patient, staged_file
from selectroute.spark.sources.files.readers import SourcePartition
from selectroute.store.errors import UnavailableError

if TYPE_CHECKING:  # wants the extra `service`
    from selectroute.queues.sql.deliveries import Delivery, Progress, QueueDeliveries, Room


FULL: Final = "destination-full"
"""The reason of a delivery to a queue that had no room for too long."""

_CHUNK = 2_000
"""Deliveries of a transaction: others who put wait for it a tenth of a second at most."""

_CHUNK_BYTES = 16 << 20
_BATCH_ROWS = 256

_Result = TypeVar("_Result")


class QueueSender:
    """Sender to queues; see `Sender`. Safe for the two threads that take turns.

    Args:
        url: of the database of queues.
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
        """Return the queues that there are, and how long a message each holds, in bytes; at once."""
        return self._queues().lengths()

    def begin(self, job: str, batch: int) -> dict[str, int]:
        """Return the same for a batch that is about to be routed, when the database can be reached.

        Raises:
            JobError: the queues have got something of this batch: it was committed before, and forgotten.
        """
        progress = self._patient(partial(self._progress, job, batch))
        if progress is None or not progress.is_fresh:
            raise JobError(
                f"batch {batch} is not committed, and the queues in {self.name} have got messages of it, or "
                "of a later one: the output folder is older than they are; put the newest one back, or "
                "choose a new output folder and checkpoint"
            )
        return self._patient(self.known)

    def outgoing(self, job: str, puts: int) -> dict[str, Any]:
        """Return what a commit says of what it has for queues, besides the files."""
        return {"job": job, "queues": self.name, "puts": puts}

    def send(
        self, batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path
    ) -> list[dict[str, Any]]:
        """Put what a batch has staged. See `Sender.send`."""
        name = self._patient(lambda: self.name)
        if outgoing["queues"] != name:
            raise JobError(
                f"batch {batch} is committed, and its messages are for the queues in {outgoing['queues']}, "
                f"not in {name}: start the job with those once more"
            )
        progress = self._patient(partial(self._progress, outgoing["job"], batch))
        if progress is None:
            return []
        done = progress.done >= outgoing["puts"] and not progress.held
        if done and not progress.gone and not progress.full:
            return []
        staged = _Staged(outgoing, staging, revision)
        if not done:
            progress = self._put(outgoing["job"], progress, outgoing["puts"], staged)
        return bury_late(QUEUE, batch, revision, staging, partial(_late, staged, progress))

    def close(self) -> None:
        """Give the database back."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # ---- inside

    def _queues(self) -> QueueDeliveries:
        if self._opened is None:
            from selectroute.queues.sql.deliveries import QueueDeliveries  # wants the extra `service`

            self._opened = QueueDeliveries(self._url)
        return self._opened

    def _progress(self, job: str, batch: int) -> Progress | None:
        return self._queues().progress(job, batch)

    def _put(self, job: str, progress: Progress, puts: int, staged: _Staged) -> Progress:
        """Put what is not yet put: first whatever there is room for, then what full queues have held back,
        until there is room or the queue may be waited for no longer.
        """
        named: set[str] = set()
        for chunk in _chunks(staged.numbered(progress.done)):
            named.update(one.queue for _, one in chunk)
            deliveries = [one for _, one in chunk]
            progress = self._patient(partial(self._put_some, job, progress, deliveries))
        assert progress.done == puts, "every delivery that was counted is in the files"
        while progress.held:
            progress = self._put_held(job, progress, staged)
        for name in named - progress.gone.keys() - progress.full.keys():
            self.waiting.took(name)
        return progress

    def _put_held(self, job: str, progress: Progress, staged: _Staged) -> Progress:
        """Put what there is room for now of what is held, or wait, or give up."""
        started = time.monotonic()
        names = set(progress.held)
        rooms = self._patient(partial(self._rooms, names))
        going = {name for name in names if (room := rooms.get(name)) is None or room.left > 0}
        if going:
            progress = self._put_pass(job, progress, staged, going)
        still = progress.held.keys() & names
        given_up = [name for name in still if self.waiting.left(name) <= 0]
        if given_up:
            progress = self._patient(partial(self._give_up, job, progress, given_up))
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
        """Put what these queues have held back, each as far as there is room."""
        first = min(progress.held[name] for name in going)
        held = ((number, one) for number, one in staged.numbered(first) if one.queue in going)
        for chunk in _chunks(held):
            # One that has no room any more puts nothing that comes later, so that its order stays.
            mine = [(number, one) for number, one in chunk if one.queue in going]
            progress = self._patient(partial(self._put_some_held, job, progress, mine))
            behind = {one.queue: number + 1 for number, one in mine}
            going -= {name for name, number in behind.items() if progress.held.get(name) != number}
        return self._patient(partial(self._put_some_held, job, progress, [], going)) if going else progress

    # Whatever is called more than once gets the newest client: `patient` may come back much later.

    def _put_some(self, job: str, progress: Progress, chunk: list[Delivery]) -> Progress:
        return self._queues().put(job, progress, chunk)

    def _put_some_held(
        self, job: str, progress: Progress, chunk: list[tuple[int, Delivery]], finished: Collection[str] = ()
    ) -> Progress:
        return self._queues().put_held(job, progress, chunk, finished)

    def _give_up(self, job: str, progress: Progress, names: Collection[str]) -> Progress:
        return self._queues().give_up(job, progress, names)

    def _rooms(self, names: Collection[str]) -> dict[str, Room | None]:
        return self._queues().rooms(names)

    def _patient(self, call: Callable[[], _Result]) -> _Result:
        """Call until the database can be reached. Raises `StoppingError`."""
        return patient(call, _why, self._warn, self._pause)


def _why(error: Exception) -> str | None:
    """Return why the stream waits, None for what no waiting mends."""
    return str(error) if isinstance(error, UnavailableError) else None


def _is_full(name: str, room: Room | None) -> str:
    return f"the queue {name} is full" + ("" if room is None else f": it holds {room.max_depth:,}")


def check_queues(job: Job) -> None:
    """Make sure that the database of queues is there and, where the job is to fail otherwise, the queues to
    which the newest snapshot's subscriptions are delivered.

    Raises:
        DestinationNotFoundError: they are not.
        JobError: the job does not say where they are.
        StoreError: there is no database, or none of queues, or it can't be reached.
    """
    to = destinations(Snapshot.open(job.snapshots), QUEUE)
    names = () if to is None or job.missing_destinations != FAIL_MISSING else to.names
    if job.queues is None:
        if names:
            raise JobError(
                f"subscriptions are delivered to queues ({_shown(names)}): say in which database these are "
                "(--queues)"
            )
        return
    sender = QueueSender(job.queues)
    try:
        missing = sorted(set(names) - set(sender.known()))
        if missing:
            raise DestinationNotFoundError(
                f"subscriptions are delivered to queues that are not in {sender.name}: {_shown(missing)}; "
                "create them first"
            )
    finally:
        sender.close()


def _shown(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(sorted(names)[:3]) + (f" and {more:,} more" if more > 0 else "")


class _Staged:
    """Deliveries that a batch has staged for queues, numbered from 0, always in the same order.

    Raises DamagedFileError if a file is not what was committed.
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
        """Yield the deliveries from one on, with their numbers. Reads nothing of the row groups before it."""
        from selectroute.queues.sql.deliveries import Delivery  # wants the extra `service`

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
    """Yield them in lists of as many as a transaction takes."""
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
    """Yield the deliveries to queues that went away after the commit, or had no room for too long."""
    without = {**progress.gone, **progress.full}
    if not without:
        return
    for number, one in staged.numbered(min(without.values())):
        if number < without.get(one.queue, number + 1):
            continue
        source, partition, offset = one.delivery_id.removesuffix(f"/{one.subscription}").rsplit("/", 2)
        if one.queue in progress.full:
            reason, text = FULL, f"the queue {one.queue} was full, and stayed so for too long"
        else:
            reason = UNKNOWN_QUEUE
            text = (
                f"the queue {one.queue} was deleted, or made anew for shorter messages, after the batch was "
                "committed"
            )
        yield LateDelivery(
            SourcePartition(source, int(partition)), int(offset), one.subscription, reason, text
        )
