"""Queues as a destination: what the driver of a job knows of them, and the target of each batch.

The tasks put (see ``writer``). Here are the existing queues, and which batches were put.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from selectroute.durable.settings_file import url_by_reference
from selectroute.extras import importing
from selectroute.index.destination import QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.spark.destinations.destination import Waiting, names_of, patient, refuse_missing, shown
from selectroute.spark.destinations.queues.writer import QueueTarget
from selectroute.spark.job import FAIL_MISSING, Job, JobError
from selectroute.store.errors import NoDatabaseError, UnavailableError

if TYPE_CHECKING:  # needs the extra `service`
    from selectroute.queues.sql.deliveries import QueueDeliveries

_Result = TypeVar("_Result")


class JobQueues:
    """Queues that a job's subscriptions are delivered to. Safe for two threads that take turns.

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
        self.pause = pause
        self._opened: QueueDeliveries | None = None
        self.waiting = Waiting("the queue", wait_seconds, warn)

    @property
    def name(self) -> str:
        """URL of the database, without its password."""
        return self._queues().name

    def known(self) -> dict[str, int]:
        """Return the existing queues with their maximum message length in bytes, without waiting."""
        return self._queues().lengths()

    def lengths(self, names: frozenset[str]) -> dict[str, int]:
        """Return the maximum message length in bytes of each of these queues that exists, waiting until the
        database answers. Raises `StoppingError`.
        """
        existing = self.patient(lambda queues: queues.lengths())
        return {name: existing[name] for name in sorted(names & existing.keys())}

    def begun(self, job: str, batch: int) -> set[str]:
        """Return the digests of the plans by which a batch was put in part, waiting until the database
        answers.

        Raises:
            JobError: the queues have messages of a later batch: the output folder is an old copy.
        """
        plans = self.patient(lambda queues: queues.begun(job, batch))
        if plans is None:
            raise self.older(batch)
        return plans

    def older(self, batch: int) -> JobError:
        """Return the error about an output folder that is an old copy."""
        return JobError(
            f"batch {batch} is not committed, but the queues in {self.name} already have messages of it, "
            "or of a later one: the output folder is older than the queues; restore the newest one, or "
            "choose a new output folder and checkpoint"
        )

    def target(self, job: str, batch: int, lengths: Mapping[str, int], plan_sha256: str) -> QueueTarget:
        """Return the target of a batch.

        Args:
            job: the id of the query.
            batch: the number of the batch.
            lengths: the existing queues with their maximum message length in bytes.
            plan_sha256: digest of the batch's plan.
        """
        url = url_by_reference(self.patient(lambda queues: queues.url))
        return QueueTarget(url, lengths, job, batch, plan_sha256)

    def patient(self, call: Callable[[QueueDeliveries], _Result]) -> _Result:
        """Call until the database answers. Raises `StoppingError`."""
        # Each retry gets the newest client: it may come much later.
        return patient(lambda: call(self._queues()), UnavailableError, self._warn, self.pause)

    def close(self) -> None:
        """Close the database."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _queues(self) -> QueueDeliveries:
        if self._opened is None:
            with importing():
                from selectroute.queues.sql.deliveries import QueueDeliveries

            self._opened = QueueDeliveries(self._url)
        return self._opened


def check_queues(job: Job) -> None:
    """Check that the database of queues exists and, if missing destinations fail the job, that it has the
    queues of the newest snapshot's subscriptions.

    Raises:
        DestinationNotFoundError: a queue does not exist.
        JobError: the job has no database of queues.
        StoreError: there is no database, or it has no queues, or does not answer.
    """
    names = frozenset[str]()
    if job.missing_destinations == FAIL_MISSING:
        names = names_of(Snapshot.open(job.snapshots), QUEUE)
    if job.queues is None:
        if names:
            raise JobError(
                f"subscriptions are delivered to queues ({shown(names)}): name their database with --queues"
            )
        return
    database = JobQueues(job.queues)
    try:
        refuse_missing(names, database.known(), f"queues that are not in {database.name}")
    except NoDatabaseError as error:
        raise NoDatabaseError(f"{error}; `selectroute queue create NAME --queues URL` makes it") from error
    finally:
        database.close()
