"""Functions over task numbers: a Spark job with one partition per task, with the plan in the function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

Batches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def run_tasks(
    spark: SparkSession, tasks: Sequence[object], function: Batches, schema: StructType | str
) -> DataFrame:
    """Return the batches that ``function`` yields over the task numbers, one partition per task."""
    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(function, schema)


def task_numbers(batch: pa.RecordBatch) -> list[int]:
    """Return the task numbers of one partition."""
    return [int(number) for number in batch.column(0).to_numpy(zero_copy_only=False)]
