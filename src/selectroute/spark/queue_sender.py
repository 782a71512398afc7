"""Putting what committed batches have staged for queues, each delivery once; see ``queues.deliveries``.

::

    commit ─→ how far is the batch? ─→ the next chunk, put in one transaction ─→ … ─→ all put ─→ publish
                                              └ a queue is full: wait, and try again

A chunk that was put stays put, and one that was not is put at the next start; so a crash, a full queue or a
database out of reach holds the stream back, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from selectroute.index.destination import QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.kafka.headers import delivery_id
from selectroute.queues.errors import MQRC_Q_FULL, MQError
from selectroute.queues.routed import Routed
from selectroute.spark import durable
from selectroute.spark.destinations import destinations
from selectroute.spark.job import DestinationNotFoundError, Job, JobError
from selectroute.spark.readers import Dead, Place
from selectroute.spark.sender import patient, staged_file
from selectroute.spark.sinks import DEAD_LETTERS, Sinks
from selectroute.spark.unrouted import Unrouted
from selectroute.store.errors import UnavailableError

if TYPE_CHECKING:
    from selectroute.queues.deliveries import Delivery, Progress, QueueDeliveries

_CHUNK = 2_000
"""Deliveries of a transaction: others who put wait for it a tenth of a second at most."""

_CHUNK_BYTES = 16 << 20
_BATCH_ROWS = 256

_Result = TypeVar("_Result")


class QueueSender:
    """See `Sender`. Safe for the two threads that take turns.

    Args:
        url: of the database of queues.
        warn: called with a sentence when something holds the stream back.
        pause: waits some time; returns whether the job is to stop.
    """

    def __init__(
        self,
        url: str,
        warn: Callable[[str], None] = lambda _: None,
        pause: Callable[[], bool] = lambda: True,
    ) -> None:
        self._url = url
        self._warn = warn
        self._pause = pause
        self._opened: QueueDeliveries | None = None

    @property
    def name(self) -> str:
        """The database, without its password."""
        return self._queues().name

    def known(self) -> dict[str, int]:
        """Return the queues that there are, and how long a message each holds, in bytes; at once."""
        return self._queues().lengths()

    def begin(self, job: str, batch: int) -> dict[str, int]:
        """Return the same for a batch that is about to be routed, when the database can be reached.

        Raises:
            JobError: the queues have got something of this batch: it was committed before, and forgotten.
        """
        if self._patient(partial(self._progress, job, batch)) != (batch, 0, {}):
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
        if progress.done < outgoing["puts"]:
            progress = self._put(progress, revision, outgoing, staging)
        if not progress.gone:
            return []
        return _bury(batch, revision, outgoing, staging, progress)

    def close(self) -> None:
        """Give the database back."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # ---- inside

    def _queues(self) -> QueueDeliveries:
        if self._opened is None:
            from selectroute.queues.deliveries import QueueDeliveries  # wants the extra `service`

            self._opened = QueueDeliveries(self._url)
        return self._opened

    def _progress(self, job: str, batch: int) -> Progress | None:
        return self._queues().progress(job, batch)

    def _put(self, progress: Progress, revision: int, outgoing: Mapping[str, Any], staging: Path) -> Progress:
        """Put what is not yet put, chunk by chunk."""
        job = outgoing["job"]
        chunk: list[Delivery] = []
        size = 0
        for delivery in islice(_deliveries(outgoing, staging, revision), progress.done, None):
            chunk.append(delivery)
            size += len(delivery.message.body)
            if len(chunk) >= _CHUNK or size >= _CHUNK_BYTES:
                progress = self._put_chunk(job, progress, chunk)
                chunk, size = [], 0
        progress = self._put_chunk(job, progress, chunk)
        assert progress.done == outgoing["puts"], "every delivery that was counted is in the files"
        return progress

    def _put_chunk(self, job: str, progress: Progress, chunk: list[Delivery]) -> Progress:
        """Put a chunk, in as many transactions as it takes until there is room for all of it."""
        while chunk:
            after = self._patient(partial(self._put_some, job, progress, chunk))
            chunk, progress = chunk[after.done - progress.done :], after
        return progress

    def _put_some(self, job: str, progress: Progress, chunk: list[Delivery]) -> Progress:
        return self._queues().put(job, progress, chunk)

    def _patient(self, call: Callable[[], _Result]) -> _Result:
        """Call until the database can be reached and no queue is full. Raises `StoppingError`."""
        return patient(call, _why, self._warn, self._pause)


def _why(error: Exception) -> str | None:
    """Return why the stream waits, None for what no waiting mends."""
    if isinstance(error, MQError):
        return (error.detail or "") if error.reason == MQRC_Q_FULL else None
    return str(error) if isinstance(error, UnavailableError) else None


def check_queues(job: Job) -> None:
    """Make sure that the queues to which the newest snapshot's subscriptions are delivered are there.

    Raises:
        DestinationNotFoundError: they are not.
        JobError: the job does not say where they are.
        StoreError: there is no database, or none of queues, or it can't be reached.
    """
    to = destinations(Snapshot.open(job.snapshots), QUEUE)
    names = () if to is None else to.names
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


def _deliveries(outgoing: Mapping[str, Any], staging: Path, revision: int) -> Iterator[Delivery]:
    """All deliveries that a batch has for queues, always in the same order."""
    from selectroute.queues.deliveries import Delivery

    for file in outgoing["files"]:
        for batch in pq.ParquetFile(staged_file(staging, file)).iter_batches(_BATCH_ROWS, use_threads=False):
            columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
            messages = map(Routed, *(columns[name] for name in Routed._fields))
            places = zip(columns["source"], columns["partition"], columns["offset"], strict=True)
            for message, place, deliveries in zip(messages, places, columns["deliveries"], strict=True):
                source, partition, offset = place
                for one in deliveries:
                    subscription = one["subscription"]
                    id = delivery_id(source, partition, offset, subscription)
                    yield Delivery(one["destination"], subscription, id, revision, message)


def _bury(
    batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path, progress: Progress
) -> list[dict[str, Any]]:
    """Add dead letters for the deliveries to queues that went away after the commit; return their file."""
    found: dict[tuple[Place, str], list[tuple[int, str]]] = {}
    for number, one in enumerate(_deliveries(outgoing, staging, revision)):
        if number >= progress.gone.get(one.queue, number + 1):
            source, partition, offset = one.delivery_id.removesuffix(f"/{one.subscription}").rsplit("/", 2)
            place = Place(source, int(partition))
            found.setdefault((place, one.queue), []).append((int(offset), one.subscription))
    ids = sorted({subscription for rows in found.values() for _, subscription in rows})
    ordinals = {subscription: ordinal for ordinal, subscription in enumerate(ids)}
    folder = staging / "publish" / DEAD_LETTERS / f"batch={batch}"
    durable.make_folder(folder)
    sinks = Sinks(staging, pa.array(ids, pa.string()), revision, Unrouted())
    for (place, queue), rows in found.items():
        text = (
            f"the queue {queue} was deleted, or made anew for shorter messages, after the batch was committed"
        )
        dead = Dead("deliver", "unknown-queue", text, np.array([offset for offset, _ in rows], np.int64))
        sinks.refuse(place, dead, np.array([ordinals[one] for _, one in rows], np.int32))
    (file,) = sinks.close()
    # Under one name, so that doing it again after a crash leaves one file.
    name = f"part-late-{staging.name[-8:]}.parquet"
    durable.rename(staging / file.pop("path"), folder / name)
    return [{"path": f"{file.pop('sink')}/{folder.name}/{name}", **file}]
