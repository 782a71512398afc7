"""Kafka records as the input of a batch: ranges of offsets, read by Spark's own connector."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from selectroute.selector.explain.sentences import counted
from selectroute.spark.inputs.source import Outcome, ReplayableInput
from selectroute.spark.job.job import CommitError
from selectroute.spark.sinks.counts import Counts
from selectroute.spark.sources.files.stream import SourceNotFoundError
from selectroute.spark.sources.kafka.admin import KafkaAdmin
from selectroute.spark.sources.kafka.config import KafkaInput
from selectroute.spark.sources.kafka.offsets import Range, as_offsets, batch_ranges, ranges_digest, ranges_of
from selectroute.spark.sources.kafka.reader import COLUMNS, Unlike
from selectroute.spark.worker.task import TaskSettings, route_records


class KafkaSource:
    """Source of the records of topics; see `Source`."""

    def __init__(self, spark: SparkSession, input: KafkaInput) -> None:
        self._spark = spark
        self._input = input
        self.limit = input.max_offsets

    def connect(self) -> str:
        """Check that the cluster answers and has the topics; return its id."""
        with KafkaAdmin(self._spark, self._input.cluster) as admin:
            cluster = admin.cluster_id()
            missing = sorted(set(self._input.topics) - admin.topics())
        if missing:
            raise SourceNotFoundError(
                f"Kafka at {self._input.cluster.servers} has no topic {', '.join(missing[:3])}: create it "
                "first, or correct the name"
            )
        return cluster

    def stream(self) -> DataFrame:
        """Return the stream of the records."""
        input = self._input
        options = {
            "startingOffsets": input.starting,
            "includeHeaders": True,
            # Records that Kafka dropped before they were read fail the job instead of being skipped.
            "failOnDataLoss": True,
            "subscribe" if input.topics else "subscribePattern": ",".join(input.topics) or input.pattern,
            "maxOffsetsPerTrigger": input.max_offsets,
            "minPartitions": input.min_partitions,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return self._spark.readStream.format("kafka").options(**input.cluster.for_source(), **given).load()

    def planned(self, checkpoint: Path, batch: int) -> list[Range]:
        """Return the ranges of a batch from Spark's offset log."""
        return batch_ranges(checkpoint, batch)

    def is_full(self, inputs: Sequence[Range]) -> bool:
        """Return whether more records may be waiting. Spark rounds each partition's share of `limit` down, so
        that a full batch may have up to one record per partition less.
        """
        records = sum(one.end - one.start for one in inputs)
        return self.limit is not None and records + len(inputs) > self.limit

    def batch_input(self, inputs: Sequence[Range], frame: DataFrame | None = None) -> KafkaBatchInput:
        """Return these records as the input of a batch."""
        if frame is None and inputs:
            frame = self._frame(inputs)
        return KafkaBatchInput(inputs, frame, self._input)

    def reread(self, commits: Iterable[Mapping[str, Any]], checkpoint: Path) -> list[ReplayableInput]:
        """Return the ranges of each batch that Kafka still has."""
        of_batch = {commit["batch"]: ranges_of(commit["inputs"]) for commit in commits}
        asked = {(one.topic, one.partition) for ranges in of_batch.values() for one in ranges}
        with KafkaAdmin(self._spark, self._input.cluster) as admin:
            kept = admin.kept(asked)
        return [_left(batch, ranges, kept) for batch, ranges in of_batch.items()]

    def narrow(self, inputs: Sequence[Range], letters: pa.Table) -> tuple[list[Range], npt.NDArray[np.bool_]]:
        """Return the part of each range between its first and last letter, and which letters are in them."""
        found, mask = [], np.zeros(len(letters), np.bool_)
        offsets = letters["offset"].to_numpy()
        for one in inputs:
            own = pc.and_(
                pc.equal(letters["source"], one.topic), pc.equal(letters["partition"], one.partition)
            )
            inside = own.to_numpy() & (offsets >= one.start) & (offsets < one.end)
            if inside.any():
                mask |= inside
                start, last = int(offsets[inside].min()), int(offsets[inside].max())
                found.append(one._replace(start=start, end=last + 1))
        return found, mask

    def weight(self, letters: pa.Table) -> int:
        """Return the number of offsets between the first and the last letter of each partition."""
        spans = letters.group_by(["source", "partition"]).aggregate([("offset", "min"), ("offset", "max")])
        if not len(spans):
            return 0
        return int(pc.sum(pc.subtract(spans["offset_max"], spans["offset_min"])).as_py()) + len(spans)

    def _frame(self, ranges: Sequence[Range]) -> DataFrame:
        """Return a frame of the records of committed batches."""
        frames = []
        for layer in _layers(ranges):
            partitions: dict[str, list[int]] = {}
            for one in layer:
                partitions.setdefault(one.topic, []).append(one.partition)
            reader = self._spark.read.format("kafka").options(
                **self._input.cluster.for_source(),
                includeHeaders=True,
                failOnDataLoss=False,
                assign=json.dumps(partitions),
                startingOffsets=json.dumps(as_offsets(layer, end=False)),
                endingOffsets=json.dumps(as_offsets(layer, end=True)),
            )
            frames.append(reader.load())
        return reduce(DataFrame.union, frames)


class KafkaBatchInput:
    """Ranges of records, and the frame with their rows; see `BatchInput`."""

    def __init__(self, ranges: Sequence[Range], frame: DataFrame | None, input: KafkaInput) -> None:
        self._ranges = sorted(ranges)
        self._frame = frame
        self._input = input

    def record(self) -> dict[str, Any]:
        """Return the number of offsets, and their start and end in each partition."""
        return {
            "count": sum(one.end - one.start for one in self._ranges),
            "sha256": ranges_digest(self._ranges),
            "start": as_offsets(self._ranges, end=False),
            "end": as_offsets(self._ranges, end=True),
        }

    def route(self, batch: int, settings: TaskSettings) -> Outcome:
        """Route the records, one Spark task per partition. Raises `CommitError`."""
        if not self._ranges or self._frame is None:
            return Outcome(Counts(), [], {})
        # Expressions as text need fewer calls from Python to the JVM than columns.
        frame = self._frame.selectExpr(*(f"`{name}`" for name in COLUMNS))
        routed = frame.mapInArrow(
            route_records(settings, self._input.binding, self._input.schemas), "report string"
        )
        # Tasks end in any order; sorted, a repeat of the batch has the same order of files.
        reports = [json.loads(row["report"]) for row in routed.collect()]
        reports.sort(key=lambda report: sorted(report["came"]))
        counts = Counts()
        files: list[dict[str, Any]] = []
        came: Counter[tuple[str, int]] = Counter()
        unlike: dict[str, Unlike] = {}
        for report in reports:
            counts.add(Counts(**report["counts"]))
            files += report["files"]
            for name, of_task in report["unlike"].items():
                found = Unlike(*of_task)
                unlike[name] = unlike[name].plus(found) if name in unlike else found
            for topic, partition, rows, first, last in report["came"]:
                came[topic, partition] += rows
                self._check(batch, topic, partition, first, last)
        gaps = {}
        spans: Counter[tuple[str, int]] = Counter()
        for one in self._ranges:
            spans[one.topic, one.partition] += one.end - one.start
        for (topic, partition), span in spans.items():
            missing = span - came[topic, partition]
            if missing < 0:
                raise CommitError(
                    f"batch {batch}: {counted(-missing, 'record')} of {topic}/{partition} were read twice"
                )
            if missing:
                gaps[f"{topic}/{partition}"] = missing
        topics: Counter[str] = Counter()
        for (topic, _), rows in came.items():
            topics[topic] += rows
        binding = self._input.binding
        sentences = {name: (one.sentence(name, binding.field(name)), False) for name, one in unlike.items()}
        return Outcome(counts, files, {"gaps": gaps} if gaps else {}, topics, sentences)

    def _check(self, batch: int, topic: str, partition: int, first: int, last: int) -> None:
        """Check that these records are in the batch's ranges."""
        own = [one for one in self._ranges if (one.topic, one.partition) == (topic, partition)]
        if not own or first < own[0].start or last >= own[-1].end:
            raise CommitError(
                f"batch {batch}: records {first} to {last} of {topic}/{partition} belong to another batch"
            )


def _layers(ranges: Sequence[Range]) -> list[list[Range]]:
    """Group ranges into the fewest lists with each partition at most once; adjacent ranges are joined."""
    joined: list[Range] = []
    for one in sorted(ranges):
        before = joined[-1] if joined else None
        if before is not None and before[:2] == one[:2] and before.end == one.start:
            joined[-1] = before._replace(end=one.end)
        else:
            joined.append(one)
    layers: list[list[Range]] = []
    seen: Counter[tuple[str, int]] = Counter()
    for one in joined:
        depth = seen[one.topic, one.partition]
        seen[one.topic, one.partition] += 1
        if depth == len(layers):
            layers.append([])
        layers[depth].append(one)
    return layers


def _left(
    batch: int, ranges: Sequence[Range], kept: Mapping[tuple[str, int], tuple[int, int]]
) -> ReplayableInput:
    """Return the ranges of a batch that Kafka still has; ``kept`` has first and next offset by partition."""
    left, gone = [], []
    for one in ranges:
        first, after = kept.get((one.topic, one.partition), (one.end, one.end))
        # A topic that ends before the range was created again: its records are different ones.
        start = one.end if after < one.end else min(max(one.start, first), one.end)
        if start > one.start:
            gone.append(one._replace(end=start))
        if start < one.end:
            left.append(one._replace(start=start))
    return ReplayableInput(
        batch,
        tuple(left),
        tuple(map(str, gone)),
        noun="no longer kept by Kafka",
        sources=tuple(one.topic for one in gone),
    )
