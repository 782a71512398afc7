"""Routing of a DataFrame with a registry in partitions.

::

    columns that selectors read ─address→ blocks by partition ─shuffle→ match ─shuffle by message→ the frame

A message is identified by the SHA-256 of the values that selectors read: two messages with the same values go
to the same subscriptions, and unlike a row number the digest does not depend on how often, and in which
order, Spark computes the frame. Messages are sent to their partitions as Arrow blocks, one Spark row per
block. Every message gets an answer, possibly empty: a missing answer means that the frame was not computed
identically, and the job fails instead of losing a delivery.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType

from selectroute.selector.errors import SelectRouteError
from selectroute.spark.columns.binding import Binding, by_position, is_mixed
from selectroute.spark.columns.deliveries import list_array, list_offsets
from selectroute.spark.columns.read_columns import read_columns
from selectroute.spark.partitions.snapshot import (
    PartitionedSnapshot,
    PartitionsRef,
    open_partitions,
    ordinals_of,
)
from selectroute.spark.runtime.tasks import Batches

_KEY, _REST = "@key", "@rest"
"""Additional columns of a block: the message's digest, and its matches in the rest."""

_NOT_THE_SAME = (
    "a message has no answer: the frame is not the same each time that Spark computes it (a random number, "
    "the time, an unordered limit, …); write or cache it before routing it in partitions"
)


class PartitionError(SelectRouteError):
    """Frame that can't be routed in partitions."""


def route_partitioned(
    df: DataFrame,
    snapshot: PartitionedSnapshot,
    binding: Binding | None,
    column: str,
    strict: bool = False,
) -> DataFrame:
    """Route a frame like `selectroute.spark.frames.route.route`; ``column`` is the name of the result.

    Raises:
        PartitionError: the frame is a streaming frame.
        ColumnTypeError, BindingError: as `route`.
    """
    if df.isStreaming:
        raise PartitionError(
            "a stream can't be routed in partitions, because grouping the answers by message would be "
            "state: route the frames of foreachBatch"
        )
    exact, columns = by_position(df)
    read = read_columns(df.schema, columns, snapshot, binding, strict)
    values = [one.alias(f"c{i}") for i, (_, one) in enumerate(read)]
    types = [field.dataType for field in exact.select(*values).schema]
    key = F.unhex(F.sha2(_octets([one for _, one in read], types), 256))
    # The key comes last: for each alias after it, Spark's inference of constraints would duplicate those of
    # the key. Twenty columns would be a million constraints, more than fits its memory.
    narrow = exact.select(*values, key.alias("key"))
    # With fewer partitions than cores, several tasks serve one partition.
    tasks_each = max(1, df.sparkSession.sparkContext.defaultParallelism // snapshot.partitions)
    names = [name for name, _ in read]
    blocks = narrow.mapInArrow(_address(snapshot.ref, names, tasks_each), "task int, block binary")
    placed = blocks.repartitionById(snapshot.partitions * tasks_each, F.col("task"))
    answers = placed.mapInArrow(_match(snapshot.ref, tasks_each), "key binary, found array<int>")
    found = answers.groupBy("key").agg(F.collect_list("found").alias("found"))
    lists = F.col("found")
    one_list = F.when(F.size(lists) == 1, lists.getItem(0)).otherwise(F.array_distinct(F.flatten(lists)))
    kept = [f"c{i}" for i in range(len(columns))]
    whole = exact.select(
        *(one.alias(name) for one, name in zip(columns, kept, strict=True)), key.alias("key")
    )
    # A merge join, not a broadcast: Spark can't estimate the size of the answers.
    answered = found.select(F.col("key").alias("answer_key"), one_list.alias("answer")).hint("merge")
    together = whole.join(answered, F.col("key") == F.col("answer_key"), "left")
    missing = F.raise_error(F.lit(_NOT_THE_SAME)).cast("array<int>")
    answer = F.when(F.col("answer").isNull(), missing).otherwise(F.col("answer"))
    return together.select(*kept, answer.alias(column)).toDF(*df.columns, column)


def _octets(columns: Sequence[Column], types: Sequence[DataType]) -> Column:
    """Return the values that selectors read as one byte string: each value after its length."""
    parts: list[Column] = []
    for column, type_ in zip(columns, types, strict=True):
        if is_mixed(type_):
            parts += [_netstring(column.getField(name), StringType()) for name in ("tag", "bits", "text")]
        else:
            parts.append(_netstring(column, type_))
    return F.concat(*parts) if parts else F.lit(b"")


def _netstring(column: Column, type_: DataType) -> Column:
    octets = column if isinstance(type_, BinaryType) else column.cast("string").cast("binary")
    length = F.concat(F.octet_length(octets).cast("string"), F.lit(":")).cast("binary")
    return F.coalesce(F.concat(length, octets), F.lit(b"-"))


def _address(ref: PartitionsRef, names: list[str], tasks_each: int) -> Batches:
    """Return the function that sends messages, in blocks, to the tasks of the partitions that can match them.

    A block has each message's key and the values that selectors read; the first block of a message also has
    its matches in the rest. A message that no partition can match is sent to any partition, for its answer.
    """

    def address(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = open_partitions(ref)
        rest = snapshot.rest()
        for turn, batch in enumerate(batches):
            messages = pa.RecordBatch.from_arrays(_different(batch).columns, names=[*names, _KEY])
            rows, partitions = snapshot.addresses(messages)
            nowhere = np.setdiff1d(np.arange(messages.num_rows), rows)
            rows = np.concatenate((rows, nowhere))
            partitions = np.concatenate((partitions, nowhere % snapshot.partitions))
            first = np.zeros(len(rows), np.bool_)
            first[np.unique(rows, return_index=True)[1]] = True
            lists = pa.nulls(messages.num_rows, pa.list_(pa.int32()))
            if rest is not None:
                matches = rest.match(messages, missing="ignore")
                lists = list_array(matches.offsets, ordinals_of(snapshot.refs[-1])[matches.ordinals])
            blocks = []
            used = np.unique(partitions)
            for partition in used:
                chosen = np.flatnonzero(partitions == partition)
                block = messages.take(pa.array(rows[chosen]))
                met = lists.take(pa.array(rows[chosen], mask=~first[chosen]))
                blocks.append(_packed(block.append_column(_REST, met)))
            tasks = used * tasks_each + turn % tasks_each
            yield pa.RecordBatch.from_arrays(
                [pa.array(tasks, pa.int32()), pa.array(blocks, pa.binary())], names=["task", "block"]
            )

    return address


def _different(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the distinct messages of a batch, one of each key."""
    encoded = pc.dictionary_encode(batch.column(batch.num_columns - 1))
    if len(encoded.dictionary) == batch.num_rows:
        return batch
    return batch.take(pa.array(np.unique(encoded.indices.to_numpy(), return_index=True)[1]))


def _packed(block: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, block.schema) as writer:
        writer.write_batch(block)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _match(ref: PartitionsRef, tasks_each: int) -> Batches:
    """Return the function that matches blocks in the task of their partition, with an answer per message."""

    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = open_partitions(ref)
        for batch in batches:
            for task, block in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                partition = task // tasks_each
                messages = pa.ipc.open_stream(block.as_buffer()).read_next_batch()
                matches = snapshot.part(partition).match(messages, missing="ignore")
                ordinals = ordinals_of(snapshot.refs[partition])[matches.ordinals]
                offsets, ordinals = _together(
                    (matches.offsets, ordinals), list_offsets(messages.column(_REST))
                )
                yield pa.RecordBatch.from_arrays(
                    [messages.column(_KEY), list_array(offsets, ordinals)], names=["key", "found"]
                )

    return match


Lists = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]


def _together(one: Lists, other: Lists) -> Lists:
    """Concatenate the lists of both, row by row; return offsets and ordinals."""
    if not len(other[1]):
        return one
    offsets = one[0] + other[0]
    ordinals = np.empty(int(offsets[-1]), np.int32)
    for (own, values), before in ((one, other[0][:-1]), (other, one[0][1:])):
        ordinals[np.arange(len(values)) + np.repeat(before, np.diff(own))] = values
    return offsets, ordinals
