"""Routing of a DataFrame, or a stream, with a registry in partitions, by an exchange.

::

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

from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from selectroute.spark.columns.binding import Binding, by_position
from selectroute.spark.columns.matches import TYPES, Form
from selectroute.spark.columns.read_columns import read_columns
from selectroute.spark.partitions.snapshot import PartitionedSnapshot
from selectroute.spark.partitions.steps import (
    ANSWERED,
    FOUND,
    SENT,
    PartitionError,
    Tasks,
    address,
    gather,
    match,
)


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
    for name, one in read_columns(df.schema, columns, snapshot, binding, strict):
        place = next((i for i, own in enumerate(columns) if own is one), len(sent))
        if place == len(sent):
            sent.append(one)
        read.append((name, place))
    spark = df.sparkSession
    tasks = Tasks(
        # With fewer partitions than cores, several tasks serve one partition.
        max(1, spark.sparkContext.defaultParallelism // snapshot.partitions),
        snapshot.partitions,
        int(spark.conf.get("spark.sql.shuffle.partitions") or 1),
    )
    wide = exact.select(*(one.alias(f"c{i}") for i, one in enumerate(sent or [F.lit(False)])))
    blocks = wide.mapInArrow(address(snapshot.ref, read, len(columns), tasks), SENT)
    placed = blocks.repartitionById(tasks.count, F.col("task"))
    answers = placed.mapInArrow(match(snapshot.ref, tasks), ANSWERED)
    fields = [StructField(f"c{i}", one.dataType, True, one.metadata) for i, one in enumerate(df.schema)]
    schema = StructType([*fields, StructField(FOUND, TYPES[form], False)])
    gathered = answers.repartition(tasks.homes, F.col("batch")).mapInArrow(gather(snapshot.ref, form), schema)
    return gathered.toDF(*df.columns, column)


def _check_columns(schema: StructType) -> None:
    for one in schema:
        try:
            to_arrow_type(one.dataType, timezone="UTC")
        except PySparkTypeError as error:
            raise PartitionError(
                f"column {one.name!r} has type {one.dataType.simpleString()}, which Spark can't send to "
                "Python: drop it, or cast it, before routing in partitions"
            ) from error
