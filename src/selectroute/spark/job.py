"""Job of a fan-out as data, with its options checked, its policy for unrouted messages, and its errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.job_options import MISSING_DESTINATIONS, POLICIES, TABLE_FORMATS, JobOptions, options_of
from selectroute.match.columns.columns import bounded_topics
from selectroute.selector.arguments import check_argument
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.cluster import KafkaCluster
from selectroute.spark.columns.binding import BY_NAME, Binding
from selectroute.spark.columns.frame_input import FrameInput
from selectroute.spark.sources.kafka.config import KafkaInput
from selectroute.storage import Location
from selectroute.storage.location import Where
from selectroute.topics.filter import TOPIC, InvalidTopicFilterError, TopicFilter

KEEP, DROP, FAIL = POLICIES

Ints = npt.NDArray[np.int64]


class PolicyError(SelectRouteError):
    """Policy that is not one of `POLICIES`, or a rule that is not FILTER=POLICY."""


@dataclass(frozen=True, slots=True)
class Unrouted:
    """Policy for each topic: that of the first filter that matches the topic, or the default."""

    default: str = KEEP
    by_topic: tuple[tuple[TopicFilter, str], ...] = ()

    @classmethod
    def of(cls, default: str, rules: Iterable[str] = ()) -> Unrouted:
        """Parse a default policy and rules such as ``audit/#=fail``.

        Raises:
            PolicyError: a rule or a policy is not valid.
            InvalidTopicFilterError: a topic filter is not valid.

        >>> Unrouted.of("drop", ["audit/#=fail"]).policy("audit/eu")
        'fail'
        """
        by_topic = []
        for rule in rules:
            text, _, policy = rule.rpartition("=")
            if not text:
                raise PolicyError(f"a policy for unrouted messages by topic is FILTER=POLICY, not {rule!r}")
            by_topic.append((TopicFilter.parse(text), _known(policy)))
        return cls(_known(default), tuple(by_topic))

    @property
    def reads(self) -> tuple[str, ...]:
        """Identifiers to read in addition to those of selectors."""
        return (TOPIC,) if self.by_topic else ()

    @property
    def may_fail(self) -> bool:
        """True if an unrouted message can fail a batch."""
        return FAIL in (self.default, *(policy for _, policy in self.by_topic))

    def never_failing(self) -> Unrouted:
        """Return the same policies with `KEEP` for `FAIL`, for batches that must not fail the job."""
        kept = tuple((topics, KEEP if policy == FAIL else policy) for topics, policy in self.by_topic)
        return Unrouted(KEEP if self.default == FAIL else self.default, kept)

    def policy(self, topic: str | None) -> str:
        """Return the policy for a topic. O(filters)."""
        return next((policy for topics, policy in self.by_topic if topics.matches(topic)), self.default)

    def sort(self, columns: pa.RecordBatch, rows: Ints) -> Iterator[tuple[str, Ints]]:
        """Group these rows of messages by their policy. O(rows + distinct topics x filters)."""
        index = columns.schema.get_field_index(TOPIC)  # -1 for two columns of that name, too
        if not self.by_topic or index < 0 or not _is_text(columns.schema.field(index).type):
            yield self.default, rows
            return
        topics = bounded_topics(columns.column(index).take(pa.array(rows)))
        if not pa.types.is_dictionary(topics.type):
            topics = topics.dictionary_encode()
        of_topic = [POLICIES.index(self.policy(topic)) for topic in topics.dictionary.to_pylist()]
        # The last entry is for messages without a topic.
        policies = np.array([*of_topic, POLICIES.index(self.default)], np.int8)
        codes = policies[topics.indices.fill_null(len(of_topic)).to_numpy(zero_copy_only=False)]
        for code in np.unique(codes).tolist():
            yield POLICIES[code], rows[codes == code]


def _known(policy: str) -> str:
    if policy not in POLICIES:
        raise PolicyError(f"the policy for unrouted messages is one of {', '.join(POLICIES)}, not {policy!r}")
    return policy


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


_, FAIL_MISSING = MISSING_DESTINATIONS
PARQUET, DELTA = TABLE_FORMATS


def formats_in(output: Location) -> tuple[str, ...]:
    """Return the formats that tables in a folder can have, the default first: those of Parquet files are
    renamed into place.
    """
    return (PARQUET, DELTA) if output.is_local else (DELTA,)


_DEFAULTS: Final = JobOptions()
COMPACT_EVERY: Final = _DEFAULTS.compact_every
TABLE_RETENTION_HOURS: Final = _DEFAULTS.table_retention_hours
MAX_MESSAGE_BYTES: Final = _DEFAULTS.max_message_bytes

MAX_NAME: Final = 128
"""Characters of a stream's name."""

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


Commit: TypeAlias = Mapping[str, Any]
"""Commit of a batch, as JSON."""


def job_record(output: Where) -> dict[str, Any]:
    """Return the record of a job from its output folder. Raises JobNotFoundError, DamagedFileError."""
    folder = Location.of(output)
    record = (folder / "_job.json").read_json()
    if record is None:
        if not folder.is_folder():
            raise JobNotFoundError(f"there is no folder {output}")
        raise JobNotFoundError(f"{output} is not the output folder of a job: it has no _job.json")
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(JobOptions):
    """Fan-out as data. Its options, with their texts, are those of `selectroute.job_options.JobOptions`.

    An unrouted message whose policy is ``fail`` stops the job before its batch is committed. The destination
    of a subscription may have a grouping of its own, ``kafka:TOPIC?grouping=message``. If a missing queue or
    topic becomes a destination while the job runs, its deliveries are dead letters in any case. Rows of a
    DataFrame can't be read again, and so not sampled.

    Attributes:
        input: folder of complete message files that do not change; or records of Kafka; or the rows of a
            streaming DataFrame.
        snapshots: folder in which revisions are published, on any storage.
        output: folder for deliveries, unrouted messages and dead letters, of this job only.
        checkpoint: Spark's checkpoint; ``_checkpoint`` in the output folder unless given.
        kafka: the cluster of the topics to which subscriptions are delivered, if any are; that of the input
            unless given.
        binding: columns of identifiers, in Parquet files, whose names or types differ.
    """

    input: Location | KafkaInput | FrameInput
    snapshots: Location
    output: Location
    checkpoint: Location
    kafka: KafkaCluster | None = None
    binding: Binding = BY_NAME
    table_format: str
    name: str

    @classmethod
    def of(
        cls,
        input: Where | KafkaInput | FrameInput,
        snapshots: Where,
        output: Where,
        checkpoint: Where | None = None,
        *,
        kafka: KafkaCluster | None = None,
        binding: Binding = BY_NAME,
        **options: Any,
    ) -> Job:
        """Return a job with absolute paths and checked options, by the names that they have in `JobOptions`.

        Raises:
            JobError: an option is out of range, or the output folder is in the input folder.
            UnknownSchemeError: a URL of a folder can't be used.
        """
        out = Location.of(output)
        own = input if isinstance(input, KafkaInput | FrameInput) else Location.of(input)
        if isinstance(own, KafkaInput) and kafka is None:
            kafka = own.cluster
        options["unrouted_topics"] = tuple(options.get("unrouted_topics", ()))
        if options.get("table_format") is None:
            options["table_format"] = formats_in(out)[0]
        if options.get("name") is None:
            options["name"] = _name_of(out)
        job = cls(
            input=own,
            snapshots=Location.of(snapshots),
            output=out,
            checkpoint=out / "_checkpoint" if checkpoint is None else Location.of(checkpoint),
            kafka=kafka,
            binding=binding,
            **options,
        )
        job._check()
        return job

    def _check(self) -> None:
        for option in options_of(JobOptions).values():
            value = getattr(self, option.name)
            if option.choices and value not in option.choices:
                raise JobError(f"{option.name} must be one of {', '.join(option.choices)}, not {value!r}")
            least, most = option.range or (0, 0)
            if option.range and not least <= value <= most:  # true for NaN
                raise JobError(f"{option.name} must be from {least:,} to {most:,}, not {value}")
        check_argument(self.binding, Binding, "binding", "a Binding, such as Binding.of(['at:long=cast'])")
        if self.binding.columns and not isinstance(self.input, Location):
            noun = "KafkaInput" if isinstance(self.input, KafkaInput) else "FrameInput"
            raise JobError(f"binding is for Parquet files; give that of a {noun} to the {noun}")
        try:
            _ = self.policy
        except (PolicyError, InvalidTopicFilterError) as error:
            raise JobError(str(error)) from error
        if not 1 <= len(self.name) <= MAX_NAME or not self.name.isprintable():
            raise JobError(f"the name of a stream has 1 to {MAX_NAME} printable characters")
        if self.sample_messages and isinstance(self.input, FrameInput):
            raise JobError("the messages of a DataFrame cannot be sampled: its rows can't be read again")
        if self.table_format == DELTA and _UNKNOWN_TO_DELTA.search(str(self.output)):
            raise JobError(
                f"the output folder {self.output} cannot have Delta tables: its path has a backslash, or a % "
                "before two hexadecimal digits, which their library misreads; choose another folder"
            )
        if self.table_format not in formats_in(self.output):
            raise JobError(
                f"the output folder {self.output} is in remote storage, where outcomes are Delta tables: "
                "choose the table format delta"
            )
        if isinstance(self.input, Location) and self.output.is_in(self.input):
            raise JobError(
                f"the output folder {self.output} is in the input folder: choose one outside of it"
            )

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
    """Return the default name of a stream; the root of a bucket, which has none, is called \"stream\"."""
    return "".join(filter(str.isprintable, output.name))[:MAX_NAME] or "stream"
