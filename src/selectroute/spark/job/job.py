"""Job of a fan-out as data, with its options checked, and its errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from selectroute.index.destination import BY_DELIVERY, GROUPINGS
from selectroute.selector.arguments import check_argument
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.columns.binding import BY_NAME, Binding
from selectroute.spark.columns.frame_input import FrameInput
from selectroute.spark.job.unrouted import KEEP, PolicyError, Unrouted
from selectroute.spark.sources.files.stream import FORMATS
from selectroute.spark.sources.kafka.config import KafkaCluster, KafkaInput
from selectroute.storage import Location
from selectroute.storage.location import Where
from selectroute.topics.filter import InvalidTopicFilterError

DEAD_LETTER_MISSING, FAIL_MISSING = MISSING = ("dead-letter", "fail")
"""Policies for destinations that do not exist when a job starts."""

PARQUET, DELTA = TABLE_FORMATS = ("parquet", "delta")
"""Formats of the three outcomes: folders of Parquet files, or Delta tables."""

COMPACT_EVERY = 50
"""Default number of batches whose files are merged."""

TABLE_RETENTION_HOURS = 24
"""Default time for which files that were merged stay for readers of earlier versions."""

_MOST_HOURS = 24 * 365 * 10
MOST_SAMPLED = 200
"""Messages of a sample, which a service takes at once."""

MAX_NAME = 128
"""Characters of a stream's name."""

MAX_MESSAGE_BYTES = 4 << 20
"""Default limit of a JSON line's length: IBM MQ's own limit for a message."""


_UNKNOWN_TO_DELTA = re.compile(r"\\|%[0-9A-Fa-f]{2}")


class JobError(SelectRouteError):
    """Folders that do not belong together, or an option out of range. Nothing was changed."""


class JobNotFoundError(JobError):
    """Folder that is not the output folder of a job."""


class MessageNotFoundError(JobError):
    """Message that no committed batch has read, or that its source no longer has."""


class OtherJobError(JobError):
    """Output folder or checkpoint of another job, or one in use by another process."""


class DestinationNotFoundError(JobError):
    """Missing queues or topics to which subscriptions are delivered."""


class CommitError(SelectRouteError):
    """Batch that must not be committed, or whose commit and output do not belong together."""


def job_record(output: Where) -> dict[str, Any]:
    """Return the record of a job from its output folder. Raises JobNotFoundError, DamagedFileError."""
    folder = Location.of(output)
    record = (folder / "_job.json").read_json()
    if record is None:
        if not folder.is_folder():
            raise JobNotFoundError(f"there is no folder {output}")
        raise JobNotFoundError(f"{output} is not the output folder of a job: it has no _job.json")
    return record


@dataclass(frozen=True, slots=True)
class Job:
    """Fan-out as data.

    Attributes:
        input: folder of complete message files that do not change; or records of Kafka; or the rows of a
            streaming DataFrame.
        snapshots: folder in which revisions are published, on any storage.
        output: folder for deliveries, unrouted messages and dead letters, of this job only.
        checkpoint: Spark's checkpoint; ``_checkpoint`` in the output folder unless given.
        file_format: ``parquet``, ``json`` (JSON lines), or ``auto``: by the ending of each file's name.
        binding: columns of identifiers, in Parquet files, whose names or types differ.
        max_files: maximum number of files in a batch.
        unrouted: policy for messages without a match: ``keep`` lists them, ``drop`` only counts them,
            ``fail`` stops the job before the batch is committed.
        unrouted_topics: policies by topic, ``audit/#=fail``: the first filter that matches a topic applies.
        max_message_bytes: a longer line, record or row of texts is a dead letter. The default is IBM
            MQ's own limit for a message.
        kafka: the cluster of the topics to which subscriptions are delivered, if any are; that of the input
            unless given.
        kafka_grouping: ``delivery``: a topic gets a record for each delivery; or ``message``: one for each
            message, whose headers list the subscriptions. A subscription's destination may say another one
            for itself, ``kafka:TOPIC?grouping=message``.
        queues: URL of the database of the queues to which subscriptions are delivered, if any are.
        missing_destinations: policy for deliveries to queues and topics that do not exist or must not be
            written: ``dead-letter``, or ``fail``, with which the job does not start. If such a destination is
            added while the job runs, its deliveries are dead letters in either case.
        destination_wait: seconds for which an existing queue or topic that accepts nothing may hold the
            stream back before its deliveries become dead letters; ``inf`` for no limit.
        table_format: ``parquet``, the default on a mounted file system: deliveries, unrouted messages and
            dead letters are folders of Parquet files, one a batch; or ``delta``, the default elsewhere: they
            are Delta tables (extra ``delta``). A job keeps its format.
        compact_every: number of batches whose small files in a Delta table are merged, behind the stream; 0
            for never.
        table_retention_hours: time for which a Delta table keeps merged files for readers of its earlier
            versions, at least 1.
        name: name of the stream in the reports to its registry; the output folder's unless given.
        sample_messages: how many messages of a second go to the registry's sample of recent messages, without
            their bodies; 0 for none, at most 200. Not of a DataFrame, whose rows can't be read again.
    """

    input: Location | KafkaInput | FrameInput
    snapshots: Location
    output: Location
    checkpoint: Location
    file_format: str = "auto"
    max_files: int = 16
    unrouted: str = KEEP
    unrouted_topics: tuple[str, ...] = ()
    max_message_bytes: int = MAX_MESSAGE_BYTES
    kafka: KafkaCluster | None = None
    queues: str | None = field(default=None, repr=False)  # it may have a password
    missing_destinations: str = DEAD_LETTER_MISSING
    destination_wait: float = 30.0
    kafka_grouping: str = BY_DELIVERY
    binding: Binding = BY_NAME
    table_format: str = PARQUET
    compact_every: int = COMPACT_EVERY
    table_retention_hours: int = TABLE_RETENTION_HOURS
    sample_messages: int = 0
    name: str = ""

    @classmethod
    def of(
        cls,
        input: Where | KafkaInput | FrameInput,
        snapshots: Where,
        output: Where,
        checkpoint: Where | None = None,
        *,
        file_format: str = "auto",
        max_files: int = 16,
        unrouted: str = KEEP,
        unrouted_topics: Iterable[str] = (),
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        kafka: KafkaCluster | None = None,
        queues: str | None = None,
        missing_destinations: str = DEAD_LETTER_MISSING,
        destination_wait: float = 30.0,
        kafka_grouping: str = BY_DELIVERY,
        binding: Binding = BY_NAME,
        table_format: str | None = None,
        compact_every: int = COMPACT_EVERY,
        table_retention_hours: int = TABLE_RETENTION_HOURS,
        sample_messages: int = 0,
        name: str | None = None,
    ) -> Job:
        """Return a job with absolute paths and checked options, which are those of `Job`.

        Raises:
            JobError: an option is out of range, or the output folder is in the input folder.
            UnknownSchemeError: a URL of a folder can't be used.
        """
        out = Location.of(output)
        own = input if isinstance(input, KafkaInput | FrameInput) else Location.of(input)
        if isinstance(own, KafkaInput) and kafka is None:
            kafka = own.cluster
        job = cls(
            own,
            Location.of(snapshots),
            out,
            out / "_checkpoint" if checkpoint is None else Location.of(checkpoint),
            file_format=file_format,
            max_files=max_files,
            unrouted=unrouted,
            unrouted_topics=tuple(unrouted_topics),
            max_message_bytes=max_message_bytes,
            kafka=kafka,
            queues=queues,
            missing_destinations=missing_destinations,
            destination_wait=destination_wait,
            kafka_grouping=kafka_grouping,
            binding=binding,
            table_format=table_format or (PARQUET if out.is_local else DELTA),
            compact_every=compact_every,
            table_retention_hours=table_retention_hours,
            sample_messages=sample_messages,
            name=_name_of(out) if name is None else name,
        )
        check_argument(binding, Binding, "binding", "a Binding, such as Binding.of(['at:long=cast'])")
        if binding.columns and not isinstance(own, Location):
            noun = "KafkaInput" if isinstance(own, KafkaInput) else "FrameInput"
            raise JobError(f"binding is for Parquet files; give that of a {noun} to the {noun}")
        if job.file_format not in FORMATS:
            raise JobError(f"the format must be one of {', '.join(FORMATS)}, not {job.file_format!r}")
        try:
            _ = job.policy
        except (PolicyError, InvalidTopicFilterError) as error:
            raise JobError(str(error)) from error
        if job.missing_destinations not in MISSING:
            known = ", ".join(MISSING)
            raise JobError(f"missing_destinations must be one of {known}, not {job.missing_destinations!r}")
        if job.kafka_grouping not in GROUPINGS:
            known = ", ".join(GROUPINGS)
            raise JobError(f"kafka_grouping must be one of {known}, not {job.kafka_grouping!r}")
        if job.table_format not in TABLE_FORMATS:
            known = ", ".join(TABLE_FORMATS)
            raise JobError(f"table_format must be one of {known}, not {job.table_format!r}")
        if job.compact_every < 0 or not 1 <= job.table_retention_hours <= _MOST_HOURS:
            raise JobError(
                f"compact_every must be at least 0, and table_retention_hours from 1 to {_MOST_HOURS:,}"
            )
        if not 0 <= job.sample_messages <= MOST_SAMPLED:
            raise JobError(f"sample_messages must be from 0 to {MOST_SAMPLED}")
        if not 1 <= len(job.name) <= MAX_NAME or not job.name.isprintable():
            raise JobError(f"the name of a stream has 1 to {MAX_NAME} printable characters")
        if job.sample_messages and isinstance(own, FrameInput):
            raise JobError("the messages of a DataFrame cannot be sampled: its rows can't be read again")
        if job.table_format == DELTA and _UNKNOWN_TO_DELTA.search(str(out)):
            raise JobError(
                f"the output folder {out} cannot have Delta tables: its path has a backslash, or a % before "
                "two hexadecimal digits, which their library misreads; choose another folder"
            )
        if not job.destination_wait >= 0:  # false for NaN, too
            raise JobError("destination_wait must be 0 seconds or more, or inf")
        if job.max_files < 1 or job.max_message_bytes < 1:
            raise JobError("max_files and max_message_bytes must be at least 1")
        if job.table_format == PARQUET and not out.is_local:
            raise JobError(
                f"the output folder {out} is in remote storage, where outcomes are Delta tables: choose the "
                "table format delta"
            )
        if isinstance(own, Location) and out.is_in(own):
            raise JobError(f"the output folder {job.output} is in the input folder: choose one outside of it")
        return job

    @property
    def policy(self) -> Unrouted:
        """Policy for unrouted messages, by their topic."""
        return Unrouted.of(self.unrouted, self.unrouted_topics)

    @property
    def source(self) -> str:
        """Name of the input: the folder, the topics, or the name of the frame."""
        if isinstance(self.input, FrameInput):
            return self.input.source
        return self.input.name if isinstance(self.input, KafkaInput) else str(self.input)


def _name_of(output: Location) -> str:
    """Return the name of a stream that is given none; that of a bucket's root is not empty either."""
    return "".join(filter(str.isprintable, output.name))[:MAX_NAME] or "stream"
