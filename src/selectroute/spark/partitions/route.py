"""Routing of a DataFrame or stream with a registry in partitions: by an exchange, or mapped in each worker.

With an exchange, Spark sends each message to tasks that serve one partition each: no machine needs all of
them. Without one, each worker maps all partitions and matches its own messages, which is faster as long as
the partitions fit the memory that the machine has for mapped files; its processes share them. Either way a
message is matched with the partitions that its values name, and ``merge`` joins what they find. An
exchange::

                ┌──→ a block for each partition ──shuffle──→ match ──→ answers ──┐
    messages ───┤                                                             shuffle──→ gather ──→ messages
                └──→ home block: the rows themselves ────────────────────────────┘       with their lists

Messages are sent as Arrow blocks, one Spark row per block (``steps``). The messages of an Arrow batch that
can match in a partition are one block for it. The rows of the batch, with all of their columns, are its home
block, which waits for the answers. No state is kept between the batches of a stream.

A batch is named by its place and the SHA-256 of its rows. If Spark has to compute a part of the frame again,
and it is another one then, its answers and home blocks do not fit each other, and the job fails instead of
losing a delivery.
"""

from __future__ import annotations

import logging
import os
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from selectroute.arrays import tables as t
from selectroute.index.snapshot import Snapshot
from selectroute.match.columns.batch import ColumnBatch
from selectroute.match.encoding.lanes import AttributeLanes
from selectroute.match.extended import judge_extended
from selectroute.match.match import match_lanes
from selectroute.spark.columns.binding import Binding, by_position
from selectroute.spark.columns.column_types import read_columns
from selectroute.spark.columns.matches import TYPES, Form
from selectroute.spark.columns.snapshot_ref import keep_opened, open_snapshot
from selectroute.spark.partitions.snapshot import (
    PartitionedSnapshot,
    PartitionsRef,
    open_partitions,
    whole_ordinals,
)
from selectroute.spark.partitions.steps import (
    ANSWERED,
    FOUND,
    SENT,
    Lists,
    PartitionError,
    Tasks,
    address,
    gather,
    match,
    merge,
)

Exchange: TypeAlias = Literal["auto", "always", "never"]
"""Whether the messages are sent to the partitions by an exchange of Spark."""

MOST_MAPPED: Final = 128
"""Partitions that ``auto`` matches without an exchange. A mapped one takes two file descriptors in each
process, and those of the revision before may still be open: so half of the usual 1,024.
"""

_SHARE: Final = 0.5
"""Share of the memory for mapped files that partitions may fill: matching is not the only work there."""

_ORDINAL: Final = 4
"""Bytes of memory for each subscription in each worker process."""

_CGROUPS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Limits of a container, in versions 2 and 1; a number too large for any machine, or a word, is none."""

_LOGGER: Final = logging.getLogger("selectroute")


def check_exchange(exchange: object) -> None:
    """Raise ValueError for a value that is not one of `Exchange`."""
    if not isinstance(exchange, str) or exchange not in get_args(Exchange):
        raise ValueError(f"exchange is {exchange!r}: give 'auto', 'always' or 'never'")


def needs_exchange(spark: SparkSession, snapshot: PartitionedSnapshot, exchange: Exchange) -> bool:
    """Return whether messages are to be sent to the partitions.

    ``auto`` sends them if there are more than `MOST_MAPPED` partitions, or if the files of all partitions and
    the ordinals of all worker processes take more than half of the memory for them. In local mode this is the
    memory of this machine, or of its container. On a cluster the driver does not see the machines: it is what
    an executor has beside its JVM, ``spark.executor.memoryOverhead``, which is small by default. Whoever
    knows that the machines have more says ``never``.
    """
    if exchange != "auto":
        return exchange == "always"
    needed = sum(snapshot.bytes) + _tasks(spark) * _ORDINAL * sum(snapshot.rows)
    memory = _memory(spark)
    sends = snapshot.partitions > MOST_MAPPED or needed > _SHARE * memory
    _LOGGER.info(
        "messages are %s: %d partitions take %d bytes in memory, and half of %d may be used",
        "sent to the partitions by an exchange" if sends else "matched in each worker with all partitions",
        snapshot.partitions,
        needed,
        memory,
    )
    return sends


def _has_local_master(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).partition("[")[0] == "local"


def _tasks(spark: SparkSession) -> int:
    """Return the number of worker processes of a machine."""
    if _has_local_master(spark):
        return spark.sparkContext.defaultParallelism
    cores, each = (int(spark.conf.get(f"spark.{name}", "1") or 1) for name in ("executor.cores", "task.cpus"))
    return max(1, cores // each)


def _memory(spark: SparkSession) -> int:
    """Return the bytes of memory where the workers run."""
    if _has_local_master(spark):
        return machine_memory()
    conf = spark.sparkContext._jsc.sc().conf()  # the only one that reads sizes such as 1g
    heap = int(conf.getSizeAsMb("spark.executor.memory", "1g"))
    factor = float(conf.get("spark.executor.memoryOverheadFactor", "0.1"))
    least = int(conf.getSizeAsMb("spark.executor.minMemoryOverhead", "384m"))
    overhead = int(conf.getSizeAsMb("spark.executor.memoryOverhead", f"{max(least, int(factor * heap))}m"))
    return overhead << 20


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container of this process if that has fewer."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in map(Path, _CGROUPS):
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            memory = min(memory, int(text))
    return memory


_NEARLY_ALL = 0.75
"""Share of a batch from which all of it is matched with a partition: the choice of rows takes up to a quarter
of the time of matching them (measured on workload M, 58 columns).
"""


class MappedPartitions:
    """Partitions of a snapshot for matching in this process, mapped at the first match.

    All stay mapped as long as the object. Beside the mapped files it takes four bytes for each subscription
    and partition of it.
    """

    def __init__(self, snapshot: PartitionedSnapshot) -> None:
        self._snapshot = snapshot

    @property
    def ids(self) -> pa.Array:
        """Ids by ordinal of the whole registry, strings."""
        return self._snapshot.ids

    def match(self, messages: pa.RecordBatch) -> tuple[t.Array, t.Array]:
        """Return the subscriptions of each message: offsets int64[rows + 1], and ordinals of the whole
        registry, int32[total], distinct and in any order.

        Raises:
            SnapshotError: a partition is gone or damaged.
            ColumnTypeError: as `Snapshot.match`.
        """
        batch = ColumnBatch(messages)
        lanes, everyone = AttributeLanes(batch), np.arange(batch.rows)
        addressed, partitions = self._snapshot.addresses(lanes)
        firsts = np.searchsorted(partitions, np.arange(self._snapshot.partitions + 1))
        lists: list[Lists] = []
        for partition, (part, whole) in self._parts.items():
            if partition == self._snapshot.partitions:
                offsets, ordinals, _ = match_lanes(part, lanes)
                offsets, ordinals, _ = judge_extended(part, batch, offsets, ordinals)
                lists.append(Lists(everyone, offsets, ordinals, whole))
                continue
            numbers = addressed[firsts[partition] : firsts[partition + 1]]
            if len(numbers) >= _NEARLY_ALL * batch.rows:
                numbers = everyone
            if len(numbers):
                some = lanes if numbers is everyone else lanes.some(numbers)
                lists.append(Lists(numbers, *match_lanes(part, some)[:2], whole))
        return merge(batch.rows, lists, self._marked)

    @cached_property
    def _marked(self) -> bool:
        return any(bool(np.any(whole < 0)) for _, whole in self._parts.values())

    @cached_property
    def _parts(self) -> dict[int, tuple[Snapshot, t.Array]]:
        """Partitions with subscriptions by their numbers, and then the rest; each with the ordinals in the
        whole registry, marked as in ``merge``.
        """
        opened = {
            number: open_snapshot(ref)
            for number, (ref, rows) in enumerate(zip(self._snapshot.refs, self._snapshot.rows, strict=True))
            if rows
        }
        ordinals = {number: whole_ordinals(part) for number, part in opened.items()}
        _mark(list(ordinals.values()))
        return {number: (part, ordinals[number]) for number, part in opened.items()}


def _mark(parts: list[t.Array]) -> None:
    """Mark the ordinals that are in several parts."""
    seen = np.zeros(max((int(part.max()) for part in parts), default=-1) + 1, np.bool_)
    several = np.zeros_like(seen)
    for part in parts:
        several[part[seen[part]]] = True
        seen[part] = True
    for part in parts:
        np.invert(part, out=part, where=several[part])


_mapped: dict[PartitionsRef, MappedPartitions] = {}


def map_once(ref: PartitionsRef) -> MappedPartitions:
    """Return the partitions, mapped at most once in this process while they are the newest or those before,
    which a batch may still use.

    Raises:
        SnapshotError: as `open_partitions`.
    """
    return keep_opened(_mapped, ref, lambda ref: MappedPartitions(open_partitions(ref)))


def route_partitioned(
    df: DataFrame,
    snapshot: PartitionedSnapshot,
    binding: Binding | None,
    column: str,
    form: Form = "array",
    strict: bool = False,
) -> DataFrame:
    """Route a frame like `selectroute.spark.frames.route.route`; ``column`` is the name of the result.

    Raises:
        PartitionError: Spark can't send a column of the frame to Python.
        ColumnTypeError, BindingError: as `route`.
    """
    _check_columns(df.schema)
    exact, columns = by_position(df)
    sent, read = list(columns), []
    for name, value in read_columns(df.schema, columns, snapshot, binding, strict):
        place = next((i for i, own in enumerate(columns) if own is value), len(sent))
        if place == len(sent):
            sent.append(value)
        read.append((name, place))
    spark = df.sparkSession
    tasks = Tasks(
        # With fewer partitions than cores, several tasks serve one partition.
        max(1, spark.sparkContext.defaultParallelism // snapshot.partitions),
        snapshot.partitions,
        int(spark.conf.get("spark.sql.shuffle.partitions") or 1),
    )
    wide = exact.select(*(value.alias(f"c{i}") for i, value in enumerate(sent or [F.lit(False)])))
    blocks = wide.mapInArrow(address(snapshot.ref, read, len(columns), tasks), SENT)
    placed = blocks.repartitionById(tasks.count, F.col("task"))
    answers = placed.mapInArrow(match(snapshot.ref, tasks), ANSWERED)
    fields = [StructField(f"c{i}", field.dataType, True, field.metadata) for i, field in enumerate(df.schema)]
    schema = StructType([*fields, StructField(FOUND, TYPES[form], False)])
    gathered = answers.repartition(tasks.homes, F.col("batch")).mapInArrow(gather(snapshot.ref, form), schema)
    return gathered.toDF(*df.columns, column)


def _check_columns(schema: StructType) -> None:
    for field in schema:
        try:
            to_arrow_type(field.dataType, timezone="UTC")
        except PySparkTypeError as error:
            raise PartitionError(
                f"column {field.name!r} has type {field.dataType.simpleString()}, which Spark can't send to "
                "Python: drop it, or cast it, before routing in partitions"
            ) from error
