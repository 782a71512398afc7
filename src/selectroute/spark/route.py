"""Route a DataFrame: which subscriptions does each message go to?

`route` adds the ordinals, `deliveries` gives a row for each delivery. Only the columns that selectors read,
and those of the frame that a delivery names, cross from the JVM to Python; a message's body stays where it
is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from selectroute.index.extended import GROUP, provider
from selectroute.index.snapshot import Snapshot
from selectroute.spark.binding import Binding, BindingError, bind, by_position, column_at, is_mixed
from selectroute.spark.explode import Pairs, pairs
from selectroute.spark.frame import read_columns
from selectroute.spark.job import MAX_MESSAGE_BYTES
from selectroute.spark.output import ORDINALS, PACKED, Output, form_of, is_ordinals, written
from selectroute.spark.output import read as read_ordinals
from selectroute.spark.partition import PartitionedSnapshot, PartitionsRef, open_partitions
from selectroute.spark.partition_publish import partitioned
from selectroute.spark.partition_route import PartitionError, route_partitioned
from selectroute.spark.plan import plan
from selectroute.spark.snapshots import SnapshotRef, open_once, refer
from selectroute.spark.sources import local_folder
from selectroute.spark.worker import found_in, run_tasks

SUBSCRIPTIONS = "subscriptions"
"""The column that `route` adds."""

_PLACE = (StructField("source", StringType()), StructField("offset", LongType()))

_DELIVERY_SCHEMA = pa.schema(
    [
        pa.field("subscription", pa.string()),
        pa.field("batch", pa.int64()),
        pa.field("revision", pa.int64()),
        pa.field("source", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("message_id", pa.string()),
    ]
)

_FRAME = {
    "source": ("@source", "string"),
    "partition": ("@partition", "int"),
    "offset": ("@offset", "bigint"),
}


def route(
    df: DataFrame,
    snapshot: Snapshot | PartitionedSnapshot,
    binding: Binding | None = None,
    *,
    partitions: int | None = None,
    output: Output = "array",
) -> DataFrame:
    """Return the messages of ``df`` with a column ``subscriptions array<int>``: the ordinals of those it
    goes to.

    ``snapshot.ids[ordinal]`` is the subscription's id; ordinals hold within this revision only. Works on
    batch and streaming frames. Where a filter and an explode both read the column, it is computed once.
    What no extended selection provider can judge (MQRC 2551) is left out; a warning says so where none is
    installed. For selectors with rules on property names, all columns of the frame that are no header and no
    ``@`` column count as properties; a boolean column ``@invalid-names`` says instead who breaks a rule.

    Args:
        df: one message a row. A column is the identifier of exactly its name, field ``b`` of a struct column
            ``a`` is ``a.b``; its type is the property's type, NULL is NULL, and an identifier without a
            column is NULL. Names that begin with ``@`` are the frame.
        snapshot: what to route against; one never saved is published to a temporary folder of this machine.
            One that `publish_partitions` wrote is never loaded whole, see `partition`: its partitions are
            mapped where they are matched. Then the frame must be a batch frame (in a stream, that of
            foreachBatch), and what selectors read of it the same each time it is computed; rows come in any
            order.
        binding: which column holds which identifier, where names differ.
        partitions: cut the snapshot in so many partitions first, in a temporary folder of this machine.
        output: ``packed`` adds ``subscriptions binary`` instead, four little-endian bytes an ordinal: cheaper
            from some 32 a message on. ``auto`` takes what is expected to be cheaper for the snapshot;
            `explain_output` says which, and why. `deliveries` reads both, `unpack` makes an array.

    Raises:
        ColumnTypeError: a column that selectors read has a type that no property can have.
        BindingError: a column is missing, ambiguous, or already named ``subscriptions``.
    """
    if SUBSCRIPTIONS in df.columns:
        raise BindingError(
            f"the frame has a column {SUBSCRIPTIONS!r} already: rename or drop it before routing"
        )
    if partitions is not None:
        snapshot = partitioned(snapshot, partitions)
    _warn_of_extended(snapshot)
    if isinstance(snapshot, PartitionedSnapshot):
        if output == "packed":
            raise PartitionError("what partitions answer is gathered as arrays: pack it where it is written")
        return route_partitioned(df, snapshot, binding, SUBSCRIPTIONS)
    form = form_of(output, snapshot)
    exact, columns = by_position(df)
    read = read_columns(df.schema, columns, snapshot, binding)
    function: Any = _judge(refer(snapshot), [identifier for identifier, _ in read], form)
    judge: Any = arrow_udf(function, ORDINALS if form == "array" else PACKED)  # type: ignore[call-overload]  # wants no kind
    # Not deterministic, for Spark only: it computes such a column once instead of wherever it is used.
    judge = judge.asNondeterministic()
    # An arrow_udf without arguments is refused: a registry that reads no column gets one that says nothing.
    arguments = [column for _, column in read] or [F.lit(False)]
    routed = exact.select("*", judge(*arguments).alias(SUBSCRIPTIONS))
    return routed if exact is df else routed.toDF(*df.columns, SUBSCRIPTIONS)


def deliveries(
    df: DataFrame, snapshot: Snapshot | PartitionedSnapshot, binding: Binding | None = None
) -> DataFrame:
    """Return one row for each delivery: subscription, batch, revision, source, partition, offset, message_id.

    ``source``, ``partition`` and ``offset`` come from the columns ``@source``, ``@partition``, ``@offset``,
    ``message_id`` from ``@id``, or ``JMSMessageID`` without it; what the frame does not have is NULL, and so
    is ``batch``. If ``df`` has the column ``subscriptions`` of `route` (by this same snapshot) it is used as
    it is; otherwise messages are matched and spelled out in one crossing to Python, or in partitions where
    the snapshot is in partitions.

    Raises:
        ColumnTypeError, BindingError: as `route`.
    """
    if isinstance(snapshot, PartitionedSnapshot) and SUBSCRIPTIONS not in df.columns:
        df = route(df, snapshot, binding)
    routed = SUBSCRIPTIONS in df.columns
    exact, columns = by_position(df)
    chosen: list[tuple[str, Column]] = []
    if routed:
        position = df.columns.index(SUBSCRIPTIONS)
        found = df.schema.fields[position].dataType
        if not is_ordinals(found):
            raise BindingError(
                f"column {SUBSCRIPTIONS!r} is {found.simpleString()}, not the array<int> that route "
                "adds: rename it"
            )
        chosen.append((SUBSCRIPTIONS, columns[position]))
    else:
        chosen += read_columns(df.schema, columns, snapshot, binding)
        _warn_of_extended(snapshot)
    frame: dict[str, int] = {}
    for name, (identifier, spark_type) in _FRAME.items():
        for one in bind(df.schema, (identifier,), binding):
            frame[name] = len(chosen)
            chosen.append((identifier, column_at(df.schema, columns, one.path).cast(spark_type)))
    for one in bind(df.schema, ("@id", "JMSMessageID"), binding)[:1]:
        frame["message_id"] = len(chosen)
        chosen.append(("@id", _id_text(column_at(df.schema, columns, one.path), one.type)))
    narrow = exact.select(
        *[column.alias(f"c{i}") for i, (_, column) in enumerate(chosen)] or [F.lit(False).alias("c0")]
    )
    ref = snapshot.ref if isinstance(snapshot, PartitionedSnapshot) else refer(snapshot)
    spell = _spell(ref, [name for name, _ in chosen], frame, routed)
    return narrow.mapInArrow(spell, from_arrow_schema(_DELIVERY_SCHEMA))


def match_files(
    spark: SparkSession,
    paths: Sequence[str | Path],
    snapshot: Snapshot,
    *,
    file_format: str = "auto",
    place: bool = True,
    output: Output = "array",
) -> DataFrame:
    """Return the matches of message files, a message a row, by the fan-out's reading path: ``subscriptions
    array<int>``.

    The workers read, only the columns that selectors need; nothing but the result crosses to the JVM, about
    a megabyte at once however many subscriptions a message goes to. What can't be read or judged is left out.

    Args:
        spark: the session.
        paths: message files, as the fan-out takes them; rows come in any order.
        snapshot: what to match; `route` says how the workers get it.
        file_format: ``parquet``, ``json``, or by each file's name (``auto``).
        place: also give ``source string, offset bigint``: the file's path, and the row in it from 0.
        output: ``array``, ``packed`` or ``auto``, as `route` has it, and to the same effect.

    Raises:
        OutputError: a form that there is not.
        SourceError: a path that is not on a mounted file system.
    """
    form = form_of(output, snapshot)
    _warn_of_extended(snapshot)
    tasks = plan(
        [local_folder(path) for path in paths], None, file_format, spark.sparkContext.defaultParallelism
    )
    schema = StructType([StructField(SUBSCRIPTIONS, ORDINALS if form == "array" else PACKED)])
    if place:
        schema = StructType([*_PLACE, *schema])
    return run_tasks(spark, tasks, found_in(tasks, refer(snapshot), MAX_MESSAGE_BYTES, place, form), schema)


def _warn_of_extended(snapshot: Snapshot | PartitionedSnapshot) -> None:
    count = int(np.sum(snapshot.extended if snapshot.extended is not None else 0))
    if count and provider() is None:
        warnings.warn(
            f"{count} of the subscriptions {'is' if count == 1 else 'are'} EXTENDED and get nothing: no "
            "extended selection provider is installed (MQRC_SELECTION_NOT_AVAILABLE, 2551). Install one, "
            f"with an entry point {GROUP}, here and where the workers run",
            stacklevel=3,
        )


def _id_text(column: Column, spark_type: DataType) -> Column:
    """JMSMessageID may come as its 24 bytes: ``ID:`` and hex in capitals, as the matcher has it."""
    if isinstance(spark_type, BinaryType):
        return F.concat(F.lit("ID:"), F.hex(column))
    if is_mixed(spark_type):
        return column.getField("text")
    return column.cast("string")


def _judge(ref: SnapshotRef, identifiers: list[str], form: str) -> Callable[..., Any]:
    # Spark reads these hints when the function is wrapped.
    def judge(*columns: pa.Array) -> pa.Array:
        names = identifiers or ["@none"]
        matches = open_once(ref).match(pa.RecordBatch.from_arrays(list(columns), names=names))
        return written(form, matches.offsets, matches.ordinals)

    return judge


def _spell(
    ref: SnapshotRef | PartitionsRef, names: list[str], frame: dict[str, int], routed: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def spell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = open_partitions(ref) if isinstance(ref, PartitionsRef) else open_once(ref)
        for batch in batches:
            if routed or isinstance(snapshot, PartitionedSnapshot):
                offsets, ordinals = read_ordinals(batch.column(0))
            else:
                matches = snapshot.match(pa.RecordBatch.from_arrays(batch.columns, names=names or ["@none"]))
                offsets, ordinals = matches.offsets, matches.ordinals
            for part in pairs(offsets, ordinals):
                yield _rows(batch, part, snapshot.ids, ref.revision, frame)

    return spell


def _rows(
    batch: pa.RecordBatch, part: Pairs, ids: pa.Array, revision: int, frame: dict[str, int]
) -> pa.RecordBatch:
    """Spell out some deliveries of a batch; ``frame`` holds where each column of the frame stands in it."""
    rows: Any = pa.array(part.rows)
    columns: list[Any] = []
    for field in _DELIVERY_SCHEMA:
        if field.name == "subscription":
            columns.append(ids.take(pa.array(part.ordinals, pa.int32())))
        elif field.name == "revision":
            columns.append(pa.repeat(pa.scalar(revision, pa.int64()), len(rows)))
        elif field.name in frame:
            columns.append(batch.column(frame[field.name]).take(rows))
        else:
            columns.append(pa.repeat(pa.scalar(None, field.type), len(rows)))
    return pa.RecordBatch.from_arrays(columns, schema=_DELIVERY_SCHEMA)
