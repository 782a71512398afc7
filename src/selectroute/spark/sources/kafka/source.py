"""Kafka records as the input of a batch: ranges of offsets, distributed to tasks, read by the workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from selectroute.kafka.record import Range
from selectroute.kafka.schemas.registry import open_schemas
from selectroute.selector.message import Message
from selectroute.selector.sentences import counted
from selectroute.spark.job import Commit, CommitError
from selectroute.spark.session import Runner, Work
from selectroute.spark.sources.checkpoint import SourceNotFoundError
from selectroute.spark.sources.kafka.config import KafkaInput
from selectroute.spark.sources.kafka.convert import FullRecords, Unlike, rows_of
from selectroute.spark.sources.kafka.offsets import (
    batch_ranges,
    first_offsets,
    has_first_offsets,
    ranges_digest,
    ranges_of,
    ranges_record,
    write_first_offsets,
)
from selectroute.spark.sources.kafka.reader import route_ranges
from selectroute.spark.sources.planner import planned_stream
from selectroute.spark.sources.source import Mask, Outcome, ReplayableInput, TaskAttempts
from selectroute.spark.task.task import TaskSettings

_FEW_RECORDS = 2_000
"""Records for which a further task is worth its fixed cost."""


class KafkaSource:
    """Source of the records of topics; see `Source`.

    Args:
        input: the topics.
        run: runs tasks.
        tasks: maximum number of tasks of a batch, unless the input asks for more.
        spark: for `stream`.
    """

    def __init__(self, input: KafkaInput, run: Runner, tasks: int, spark: SparkSession | None = None) -> None:
        self.input = input
        self.limit = input.max_offsets
        self.run = run
        self.tasks = tasks
        self._spark = spark

    def connect(self) -> str:
        """Check that the cluster answers, and has the topics for this client to read; return its id."""
        with self.input.cluster.wire() as wire:
            cluster = wire.cluster_id()
            topics = wire.topics()
            wire.check_rights(self.input.topics or self.input.matching(topics), "Read")
            missing = sorted(set(self.input.topics) - topics)
        if missing:
            raise SourceNotFoundError(
                f"Kafka at {self.input.cluster.servers} has no topic {', '.join(missing[:3])}: create it "
                "first, or correct the name"
            )
        return cluster

    def stream(self, checkpoint: Path) -> DataFrame:
        """Return the stream that plans the batches. A new checkpoint gets the start of the first one."""
        from selectroute.spark.sources.kafka.planner import NAME, KafkaPlanner, first_of  # extra `kafka`

        assert self._spark is not None, "a stream needs Spark"
        if not has_first_offsets(checkpoint):
            with self.input.cluster.wire() as wire:
                write_first_offsets(checkpoint, first_of(wire, self.input))
        planner = partial(KafkaPlanner, self.input, first_offsets(checkpoint))
        return planned_stream(self._spark, NAME, planner)

    def planned(self, checkpoint: Path, batch: int, frame: DataFrame | None = None) -> list[Range]:
        """Return the ranges of a batch from Spark's offset log."""
        return batch_ranges(checkpoint, batch)

    def batch_input(self, inputs: Sequence[Range], again: bool = False) -> KafkaBatchInput:
        """Return these records as the input of a batch."""
        return KafkaBatchInput(inputs, self, again)

    def reread(self, commits: Iterable[Commit]) -> list[ReplayableInput]:
        """Return the ranges of each batch that Kafka still has."""
        from selectroute.kafka.reading import kept  # needs the extra `kafka`

        of_batch = {commit["batch"]: ranges_of(commit["inputs"]) for commit in commits}
        with self.input.cluster.wire() as wire:
            there = kept(wire, (range_ for ranges in of_batch.values() for range_ in ranges))
        return [_left(batch, ranges, there) for batch, ranges in of_batch.items()]

    def narrow(self, inputs: Sequence[Range], letters: pa.Table) -> tuple[list[Range], Mask]:
        """Return the part of each range between its first and last letter, and which letters are in them."""
        narrowed, mask = [], np.zeros(len(letters), np.bool_)
        offsets = letters["offset"].to_numpy()
        for range_ in inputs:
            own = pc.and_(
                pc.equal(letters["source"], range_.source), pc.equal(letters["partition"], range_.partition)
            )
            inside = own.to_numpy() & (offsets >= range_.start) & (offsets < range_.end)
            if inside.any():
                mask |= inside
                start, last = int(offsets[inside].min()), int(offsets[inside].max())
                narrowed.append(range_._replace(start=start, end=last + 1, skipped=0))
        return narrowed, mask

    def weight(self, letters: pa.Table) -> int:
        """Return the number of offsets between the first and the last letter of each partition."""
        spans = letters.group_by(["source", "partition"]).aggregate([("offset", "min"), ("offset", "max")])
        if not len(spans):
            return 0
        return int(pc.sum(pc.subtract(spans["offset_max"], spans["offset_min"])).as_py()) + len(spans)

    def sample(self, inputs: Sequence[Range], count: int) -> list[Message]:
        """Return the newest messages of the partition with most records."""
        from selectroute.kafka.reading import read  # needs the extra `kafka`

        if not inputs:
            return []
        most = max(inputs, key=_size)
        newest = most._replace(start=max(most.start, most.end - count))
        input, binding = self.input, self.input.binding
        schemas = None if input.schemas is None else open_schemas(input.schemas)
        messages: list[Message] = []
        with input.cluster.wire() as wire:
            for part in read(wire, [newest], committed=input.cluster.reads_committed, may_lack=True):
                rows = rows_of(part)
                full = FullRecords(rows, binding, schemas).messages(np.arange(len(rows)))
                messages += [message for message in full if isinstance(message, Message)]
        return messages


class KafkaBatchInput:
    """Ranges of records; see `BatchInput`."""

    remedy = "restore the topics as they were"

    def __init__(
        self,
        ranges: Sequence[Range],
        source: KafkaSource,
        again: bool,
        tasks: list[list[Range]] | None = None,
    ) -> None:
        self._ranges = sorted(ranges)
        self._source = source
        self._again = again
        self._tasks = tasks

    def plan(self, tasks: int) -> dict[str, Any]:
        """Return the ranges of each task."""
        planned = distribute(self._ranges, tasks, self._source.input.min_partitions)
        return {"ranges": [[list(range_) for range_ in task] for task in planned]}

    def follows(self, plan: Mapping[str, Any]) -> bool:
        """Return True: what Kafka no longer has is a gap."""
        return True

    def by(self, plan: Mapping[str, Any]) -> KafkaBatchInput:
        """Return the input in the tasks of this plan."""
        tasks = [[Range(*fields) for fields in task] for task in plan["ranges"]]
        ranges = [range_ for task in tasks for range_ in task]
        return KafkaBatchInput(ranges, self._source, self._again, tasks)

    def record(self) -> dict[str, Any]:
        """Return the number of offsets, their start and end in each partition, and what the topics are."""
        return {
            "count": sum(map(_size, self._ranges)),
            "sha256": ranges_digest(self._ranges),
            **ranges_record(self._ranges),
        }

    def route(self, batch: int, settings: TaskSettings, attempts: TaskAttempts) -> Outcome:
        """Route the records, in tasks. Raises `CommitError`."""
        source, input, tasks = self._source, self._source.input, self._tasks
        if tasks is None:
            tasks = distribute(self._ranges, source.tasks, input.min_partitions)

        def work_of(settings: TaskSettings) -> Work:
            return partial(route_ranges, tasks, input, self._again, settings)

        reports = attempts.complete(source.run, work_of, settings, len(tasks))
        came: Counter[tuple[str, int]] = Counter()
        topics: Counter[str] = Counter()
        unlike: dict[str, Unlike] = {}
        for report in reports:
            for name, of_task in report["unlike"].items():
                values = Unlike(*of_task)
                unlike[name] = unlike[name].plus(values) if name in unlike else values
            for topic, partition, rows, first, last in report["came"]:
                came[topic, partition] += rows
                topics[topic] += rows
                self._check(batch, topic, partition, first, last)
        gaps = {}
        spans: Counter[tuple[str, int]] = Counter()
        for range_ in self._ranges:
            spans[range_.topic, range_.partition] += range_.end - range_.start
        for (topic, partition), span in spans.items():
            missing = span - came[topic, partition]
            if missing < 0:
                raise CommitError(
                    f"batch {batch}: {counted(-missing, 'record')} of {topic}/{partition} were read twice"
                )
            if missing:
                gaps[f"{topic}/{partition}"] = missing
        field = input.binding.field
        sentences = {name: (values.sentence(name, field(name)), False) for name, values in unlike.items()}
        additions, warnings = {"gaps": gaps} if gaps else {}, self._warnings()
        return Outcome.of(reports, additions=additions, topics=topics, unlike=sentences, warnings=warnings)

    def _warnings(self) -> dict[str, str]:
        """Return a sentence for each partition that begins late, and each topic that is another one."""
        warnings = {
            f"skipped {range_.source}/{range_.partition}": (
                f"{range_.source}/{range_.partition}, which is new, begins at offset {range_.start}: "
                f"{counted(range_.skipped, 'record')} before it had been dropped, and are not read"
            )
            for range_ in self._ranges
            if range_.skipped
        }
        return warnings | {
            f"history {range_.source}": (
                f"the topic {range_.topic} was created again, or lost records: what is read of it since "
                f"then is {range_.source} in the output"
            )
            for range_ in self._ranges
            if range_.history > 1
        }

    def _check(self, batch: int, topic: str, partition: int, first: int, last: int) -> None:
        """Check that these records are in the batch's ranges."""
        own = [range_ for range_ in self._ranges if (range_.topic, range_.partition) == (topic, partition)]
        if not own or first < own[0].start or last >= own[-1].end:
            raise CommitError(
                f"batch {batch}: records {first} to {last} of {topic}/{partition} belong to another batch"
            )


def distribute(ranges: Sequence[Range], most_tasks: int, least_tasks: int | None = None) -> list[list[Range]]:
    """Distribute ranges over tasks, the larger ones first, each to the task with the fewest offsets so far.

    The records of a partition stay in one task, which keeps their order, unless there must be more tasks than
    partitions: then the largest ranges are cut. The same arguments give the same plan.

    Args:
        ranges: the ranges, sorted.
        most_tasks: the largest number of tasks, unless ``least_tasks`` is larger.
        least_tasks: the smallest number of tasks, as far as there are records.
    """
    cut = [range_ for range_ in ranges if range_.start < range_.end]
    while len(cut) < (least_tasks or 0):
        largest = max(cut, key=_size)
        if _size(largest) < 2:
            break
        middle = largest.start + _size(largest) // 2
        at = cut.index(largest)
        cut[at : at + 1] = [largest._replace(end=middle), largest._replace(start=middle, skipped=0)]
    total = sum(map(_size, cut))
    count = max(min(len(cut), most_tasks, -(-total // _FEW_RECORDS)), min(len(cut), least_tasks or 0))
    tasks: list[list[Range]] = [[] for _ in range(count)]
    sizes = [0] * count
    for range_ in sorted(cut, key=lambda range_: (-_size(range_), range_)):
        chosen = sizes.index(min(sizes))
        tasks[chosen].append(range_)
        sizes[chosen] += _size(range_)
    # A task reads each partition once; of several parts of a range they would be in one task.
    return [sorted(task) for task in tasks]


def _size(range_: Range) -> int:
    return range_.end - range_.start


def _left(batch: int, ranges: Sequence[Range], kept: Mapping[Range, Range]) -> ReplayableInput:
    """Return the ranges of a batch that Kafka still has; ``kept`` has the part of each that is there."""
    left, gone = [], []
    for range_ in (range_ for range_ in ranges if range_.start < range_.end):
        there = kept[range_]
        gone += [
            range_._replace(start=start, end=end)
            for start, end in ((range_.start, there.start), (there.end, range_.end))
            if start < end
        ]
        if there.start < there.end:
            left.append(there._replace(skipped=0))
    return ReplayableInput(
        batch,
        tuple(left),
        tuple(map(str, gone)),
        noun="no longer kept by Kafka",
        sources=tuple(range_.source for range_ in gone),
    )
