"""What a fan-out job is, and whose its output folder is.

The output folder, the checkpoint and the input belong together for life: batch numbers come from the
checkpoint, and a number that the output folder has committed is never routed again. With another checkpoint
the numbers would start anew and new messages be taken for old ones. ``_job.json`` in the output folder holds
the three together; whatever does not fit is refused before anything is touched.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selectroute.selector.errors import SelectRouteError
from selectroute.spark import durable
from selectroute.spark.checkpoint import clear_begun, flush, is_empty, mend
from selectroute.spark.kafka_input import KafkaCluster, KafkaInput
from selectroute.spark.sources import FORMATS, local_folder
from selectroute.spark.unrouted import KEEP, PolicyError, Unrouted
from selectroute.topics.filter import InvalidTopicFilterError

_FORMAT = 1
DEAD_LETTER_MISSING, FAIL_MISSING = MISSING = ("dead-letter", "fail")
"""What a job may do about destinations that are not there when it starts."""

MAX_MESSAGE_BYTES = 4 << 20
"""The longest JSON line that is read: IBM MQ's own limit for a message."""


class JobError(SelectRouteError):
    """The folders of a job do not belong together, or an option is out of range. Nothing was touched."""


class JobNotFoundError(JobError):
    """A folder is not the output folder of any job."""


class OtherJobError(JobError):
    """The output folder, or the checkpoint, is another job's, or another process has it in its hands."""


class DestinationNotFoundError(JobError):
    """Queues or topics to which subscriptions are delivered are not there."""


def job_record(output: Path) -> dict[str, Any]:
    """Return what the output folder of a job says of it. Raises JobNotFoundError, DamagedFileError."""
    record = durable.read_json(output / "_job.json")
    if record is None:
        if not output.is_dir():
            raise JobNotFoundError(f"there is no folder {output}")
        raise JobNotFoundError(f"{output} is not the output folder of a job: it has no _job.json")
    return record


@dataclass(frozen=True, slots=True)
class Job:
    """A fan-out as data.

    Attributes:
        input: folder in which message files arrive, whole and for good; or records of Kafka.
        snapshots: folder in which revisions are published.
        output: folder for deliveries, unrouted messages and dead letters; this job's alone.
        checkpoint: Spark's memory of what it has read; ``_checkpoint`` in the output folder unless given.
        file_format: ``parquet``, ``json`` (JSON lines), or ``auto``: by the ending of each file's name.
        max_files: files a batch takes at most.
        unrouted: what becomes of messages that nobody wants: ``keep`` lists them, ``drop`` only counts them,
            ``fail`` stops the job before the batch is committed.
        unrouted_topics: the same for topics, ``audit/#=fail``: the first filter that takes a topic counts.
        max_message_bytes: a longer line, record or row of texts is a dead letter. The default is IBM
            MQ's own limit for a message.
        kafka: the cluster of the topics to which subscriptions are delivered, if any are; that of the input
            unless given.
        queues: URL of the database of the queues to which subscriptions are delivered, if any are.
        missing_destinations: what becomes of deliveries to queues and topics that are not there, or to which
            nothing may go: ``dead-letter``, or ``fail``, which starts no job as long as there are any. Where
            one is named while the job runs, its deliveries are dead letters in either case.
        destination_wait: seconds for which a queue or topic that is there, and takes nothing, may hold the
            stream back before its deliveries become dead letters; ``inf`` for as long as it takes.
    """

    input: Path | KafkaInput
    snapshots: Path
    output: Path
    checkpoint: Path
    file_format: str = "auto"
    max_files: int = 16
    unrouted: str = KEEP
    unrouted_topics: tuple[str, ...] = ()
    max_message_bytes: int = MAX_MESSAGE_BYTES
    kafka: KafkaCluster | None = None
    queues: str | None = field(default=None, repr=False)  # it may have a password
    missing_destinations: str = DEAD_LETTER_MISSING
    destination_wait: float = 30.0

    @classmethod
    def of(
        cls,
        input: str | os.PathLike[str] | KafkaInput,
        snapshots: str | os.PathLike[str],
        output: str | os.PathLike[str],
        checkpoint: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Job:
        """Return a job, its folders as absolute paths, its options checked.

        Raises:
            JobError: an option is out of range, or a folder lies in another where it must not.
            SourceError: a folder is not on a mounted file system.
        """
        out = local_folder(output)
        at = out / "_checkpoint" if checkpoint is None else local_folder(checkpoint)
        own: Path | KafkaInput = input if isinstance(input, KafkaInput) else local_folder(input)
        if isinstance(own, KafkaInput) and options.get("kafka") is None:
            options["kafka"] = own.cluster
        job = cls(own, local_folder(snapshots), out, at, **options)
        if job.file_format not in FORMATS:
            raise JobError(f"the format is one of {', '.join(FORMATS)}, not {job.file_format!r}")
        try:
            _ = job.policy
        except (PolicyError, InvalidTopicFilterError) as error:
            raise JobError(str(error)) from error
        if job.missing_destinations not in MISSING:
            known = ", ".join(MISSING)
            raise JobError(f"missing destinations are one of {known}, not {job.missing_destinations!r}")
        if not job.destination_wait >= 0:  # NaN is not
            raise JobError("a destination is waited for 0 seconds or more, or inf")
        if job.max_files < 1 or job.max_message_bytes < 1:
            raise JobError("a batch takes at least one file, a message at least one byte")
        if isinstance(own, Path) and job.output.is_relative_to(own):
            raise JobError(f"the output folder {job.output} lies in the input folder, which would read it")
        return job

    @property
    def policy(self) -> Unrouted:
        """What becomes of messages that nobody wants, by their topic."""
        return Unrouted.of(self.unrouted, self.unrouted_topics)

    @property
    def source(self) -> str:
        """What tells its input from others: the folder, or the topics."""
        return self.input.name if isinstance(self.input, KafkaInput) else str(self.input)


class OutputFolder:
    """The output folder in this process's hands: from `claim` to `release` no other process may run a job on
    it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._record = job.output / "_job.json"
        self._locks: list[int] = []

    def check(self) -> None:
        """Refuse, touching nothing, what `claim` would refuse; needs no Spark.

        Raises:
            OtherJobError: it is another job's or no job's, or its checkpoint is gone or another's.
            JobError: it is no folder, or of a release that this one does not know.
        """
        output = self.job.output
        if output.exists() and not output.is_dir():
            raise JobError(f"the output {output} is no folder")
        record = durable.read_json(self._record) if output.is_dir() else None
        if record is None:
            self._refuse_foreign()
        else:
            self._refuse_other(record)

    def claim(self) -> list[Path]:
        """Take the folder for this job, or refuse without touching anything. Returns the files of Spark's
        checkpoint that were found empty and removed.

        Raises:
            JobError: as `check`.
            OtherJobError: another process runs a job on it.
            SourceError: Spark's checkpoint is damaged.
        """
        self.check()
        # The checkpoint first: whoever is refused that leaves no new output folder behind.
        for folder, noun in ((self.job.checkpoint, "checkpoint"), (self.job.output, "output folder")):
            durable.make_folder(folder)
            self._take_lock(folder, noun)
        mended = mend(self.job.checkpoint, self._has_begun)
        if self.query() is None:
            clear_begun(self.job.checkpoint)
            durable.write_json(self._record, self._own(query=None))
        return mended

    def query(self) -> str | None:
        """Return the query's id, None before the first batch."""
        record = durable.read_json(self._record)
        return None if record is None else record["query"]

    def bind(self) -> str:
        """Write down, before the first batch is routed, whose checkpoint this is; return the query's id."""
        query = self._checkpoint_query()
        if query is None:
            raise JobError(f"Spark made no checkpoint in {self.job.checkpoint}")
        record = durable.read_json(self._record)
        if record is None:
            raise JobError(f"{self._record} is gone: the job can't know whose folder this is")
        if record["query"] is None:
            flush(self.job.checkpoint / "metadata")
            durable.write_json(self._record, record | {"query": query})
        elif record["query"] != query:
            raise OtherJobError(self._other_checkpoint())
        return query

    def belong(self, system: str | None) -> None:
        """Write down from which system the input is, such as a Kafka cluster, or refuse another one.

        Raises:
            OtherJobError: it was another one before, whose offsets mean other records.
        """
        record = durable.read_json(self._record)
        if system is None or record is None:
            return
        if record.get("system") is None:
            durable.write_json(self._record, record | {"system": system})
        elif record["system"] != system:
            raise OtherJobError(
                f"the output folder {self.job.output} belongs to a job on the Kafka cluster "
                f"{record['system']}, and this is {system}: offsets there are of other records; choose a new "
                "output folder"
            )

    def release(self) -> None:
        """Let other processes use the folder."""
        while self._locks:
            os.close(self._locks.pop())

    def _own(self, query: str | None) -> dict[str, Any]:
        job = self.job
        return {
            "format": _FORMAT,
            "input": job.source,
            "snapshots": str(job.snapshots),
            "checkpoint": str(job.checkpoint),
            "query": query,
        }

    def _refuse_foreign(self) -> None:
        job = self.job
        # What `claim` makes before the record is no sign of somebody else: it may have been killed there.
        begun = {"_lock", f".{self._record.name}.tmp"}
        held = sorted(set(os.listdir(job.output)) - begun) if job.output.is_dir() else []
        if held == [job.checkpoint.name] and job.checkpoint.parent == job.output:
            held = sorted(set(os.listdir(job.checkpoint)) - begun)
        if held:
            raise OtherJobError(
                f"the output folder {job.output} is not empty and no job's (it holds {held[0]!r}): "
                "choose another"
            )
        if self._has("commits") or self._has("offsets"):
            raise OtherJobError(
                f"the checkpoint {job.checkpoint} has run batches, but the output folder {job.output} "
                "is new: what those "
                "batches delivered would be missing; name the output folder that belongs to it, or a "
                "new checkpoint"
            )

    def _refuse_other(self, record: dict[str, Any]) -> None:
        job = self.job
        if record.get("format") != _FORMAT:
            raise JobError(
                f"{self._record} has format {record.get('format')!r}; this release knows format {_FORMAT}"
            )
        for name, mine in (("input", job.source), ("snapshots", str(job.snapshots))):
            # One that never came to a batch may have had a slip in it.
            if record["query"] is not None and record[name] != mine:
                raise OtherJobError(
                    f"the output folder {job.output} belongs to another job: its {name} is "
                    f"{record[name]}, not "
                    f"{mine}; choose another output folder"
                )
        query = self._checkpoint_query()
        if record["query"] is not None and query is None:
            raise OtherJobError(
                f"the checkpoint {job.checkpoint} of the output folder {job.output} is gone: batches "
                "would be numbered from "
                "0 again and taken for repeats; put the checkpoint back, or choose a new output folder"
            )
        if query != record["query"] and (record["query"] is not None or self._has("commits")):
            raise OtherJobError(self._other_checkpoint())

    def _other_checkpoint(self) -> str:
        return (
            f"the checkpoint {self.job.checkpoint} is not the one that the output folder "
            f"{self.job.output} was written "
            "with: name that one, or choose a new output folder"
        )

    def _has(self, log: str) -> bool:
        folder = self.job.checkpoint / log
        return folder.is_dir() and any(folder.iterdir())

    def _has_begun(self, batch: int) -> bool:
        return any((self.job.output / folder / f"{batch}.json").exists() for folder in ("pins", "_commits"))

    def _checkpoint_query(self) -> str | None:
        """Return whose checkpoint it is; None if there is none, or nothing in it, see `checkpoint`."""
        path = self.job.checkpoint / "metadata"
        metadata = None if path.is_file() and is_empty(path) else durable.read_json(path)
        return None if metadata is None else str(metadata["id"])

    def _take_lock(self, folder: Path, noun: str) -> None:
        self._locks.append(os.open(folder / "_lock", os.O_RDWR | os.O_CREAT, 0o644))
        try:
            fcntl.flock(self._locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise OtherJobError(f"another process runs a job on the {noun} {folder}") from error
