"""Explanation of one message and one subscription of a job: whether it got the message, and why."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from selectroute.index.errors import SnapshotNotFoundError, UnknownSubscriptionError
from selectroute.index.match_report import SnapshotMatcher, SnapshotRow
from selectroute.index.snapshot import Snapshot
from selectroute.job_output import DeadLetter
from selectroute.kafka.binding import KafkaBinding, KafkaBindingError
from selectroute.kafka.errors import RecordError
from selectroute.kafka.record import message_of
from selectroute.selector.message import Message
from selectroute.spark.audit.outcomes import Fetch, MessageOutcome, Place, newest_outcomes, record_place
from selectroute.spark.batch.commits import Commits
from selectroute.spark.columns.binding import BY_NAME, Binding
from selectroute.spark.job import Commit, JobError, MessageNotFoundError, job_record
from selectroute.spark.messages import DeadLetterBatch, MessageBatch
from selectroute.spark.replay.letters import wanted_letters
from selectroute.spark.replay.request import ReplayFilterSpec
from selectroute.spark.sources.checkpoint import FRAME
from selectroute.spark.sources.files.reader import Bound, read
from selectroute.spark.sources.files.source import bound_by, read_files
from selectroute.spark.sources.files.splits import plan_in
from selectroute.spark.sources.kafka.config import PREFIX
from selectroute.spark.tables.schemas import DELIVERIES, as_written
from selectroute.storage import Location
from selectroute.storage.location import Where

_ANY_BYTES: Final = 1 << 30
"""Maximum bytes of a message that is read again: the job has already refused longer ones."""


@dataclass(frozen=True, slots=True)
class Why:
    """Explanation of a message and a subscription.

    ``batch`` read the message and judged it by ``revision``. ``deliveries`` and ``letters`` are what became
    of it for the subscription, those of backfills and replays included; a letter without a subscription is of
    the message itself. ``replays`` has the revision of each replay that took a letter, by its batch.
    ``message`` is None if it could not be read, for the reason ``unread``.

    ``subscription`` and ``verdict`` are those of the revision, see `SnapshotMatcher.explain`; None if the
    message was not read, or there was no such subscription. ``newest`` is True if the revision is no longer
    kept, and the newest one took its place.
    """

    batch: int
    revision: int
    deliveries: list[MessageOutcome]
    letters: list[DeadLetter]
    replays: dict[int, int]
    message: Message | None
    unread: str | None
    subscription: SnapshotRow | None
    verdict: dict[str, Any] | None
    newest: bool


def why(
    output: Where,
    subscription: str,
    place: Place,
    *,
    file_format: str = "auto",
    binding: Binding = BY_NAME,
    fetch: Fetch | None = None,
) -> Why:
    """Explain why a subscription got a message or not.

    Args:
        output: the job's output folder.
        subscription: its id.
        place: the message; all of its parts.
        file_format: the format of the files, as in the job's options.
        binding: columns of identifiers in Parquet, as in the job's options.
        fetch: reads records of Kafka.

    Raises:
        MessageNotFoundError: no committed batch has read the message, or it is no longer where it was.
        JobError: the folder is not a job's, or the message is in a source that cannot be read here.
        SnapshotError: the snapshots of the job can't be read.
    """
    assert place.source is not None and place.offset is not None, "a message has a source and an offset"
    record = job_record(output)
    commits = Commits(output)
    commit = _commit_of(commits, place)
    delivered = newest_outcomes(output, DELIVERIES, 100, place=place, subscription=subscription)
    wanted = ReplayFilterSpec(
        sources=(place.source,), partitions=(place.partition or 0,), offsets=(place.offset,)
    )
    letters = [
        letter for letter in wanted_letters(output, wanted) if letter.subscription in (None, subscription)
    ]
    took = {letter.replay for letter in letters if letter.replay is not None}
    replays = {batch: int((commits.read(batch) or {})["revision"]) for batch in sorted(took, reverse=True)}
    if record["input"].startswith(PREFIX):
        message = _of_record(record, commit, place, fetch)
    elif record["input"].startswith(FRAME):
        raise JobError("rows of a DataFrame can be read only while their batch is routed")
    else:
        message = _of_file(record["input"], commit, place, file_format, bound_by(binding))
    revision = int(commit["revision"])
    try:
        snapshot, newest = Snapshot.open(record["snapshots"], revision), False
    except SnapshotNotFoundError:
        snapshot, newest = Snapshot.open(record["snapshots"]), True
    row = verdict = None
    if isinstance(message, Message):
        matcher = SnapshotMatcher(snapshot, snapshot.revision)
        with suppress(UnknownSubscriptionError):
            row, verdict = matcher.get(subscription), matcher.explain(subscription, message)
    unread = message if isinstance(message, str) else None
    known = None if isinstance(message, str) else message
    return Why(commit["batch"], revision, delivered, letters, replays, known, unread, row, verdict, newest)


def _commit_of(commits: Commits, place: Place) -> Commit:
    """Return the commit of the batch of the stream that read a message."""
    for batch in reversed(commits.batches()):
        commit = commits.read(batch)
        if commit is not None and place.may_be_in(commit):
            return commit
    raise MessageNotFoundError(f"no committed batch has read {place}")


def _of_record(record: Mapping[str, Any], commit: Commit, place: Place, fetch: Fetch | None) -> Message | str:
    if fetch is None:
        raise JobError("the message is a record of Kafka: say with --kafka-servers where to read it")
    position = record_place(commit, place._replace(partition=place.partition or 0))
    kafka_record = None if position is None else fetch([position]).get(position)
    if kafka_record is None:
        raise MessageNotFoundError(f"{place} is no longer in Kafka")
    try:
        binding = KafkaBinding.recorded(record.get("kafka_binding"))
    except KafkaBindingError as error:
        raise JobError(f"{place} cannot be judged without the job: {error}") from error
    try:
        return message_of(kafka_record, binding)
    except RecordError as error:
        return str(error)


def _of_file(input: str, commit: Commit, place: Place, file_format: str, bound: Bound) -> Message | str:
    folder = Location.of(input)
    (file,) = (read_file for read_file in read_files(commit) if as_written(read_file.source) == place.source)
    path = folder / file.source
    if not file.is_same(entry := path.entry()):
        change = "it is gone" if entry is None else file.change(entry) or "its size was not recorded"
        raise MessageNotFoundError(f"{path} is not as batch {file.batch} read it: {change}")
    assert entry is not None, "a file that is the same exists"
    tasks = plan_in(folder, [(path, entry.size)], file_format, 1)
    for split in (split for splits in tasks for split in splits):
        for part in read(split, (), _ANY_BYTES, True, bound):
            match part:
                case DeadLetterBatch(rows=None):
                    return part.message
                case DeadLetterBatch(rows=rows) if rows is not None and place.offset in rows:
                    return part.message
                case MessageBatch(full=full) if full is not None and place.offset in part.rows:
                    return next(full.messages(np.flatnonzero(part.rows == place.offset)))
    raise MessageNotFoundError(f"{path} has no line or row {place.offset}, counted from 0")
