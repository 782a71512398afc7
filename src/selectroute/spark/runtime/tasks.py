"""Tasks by their numbers: a Spark job with one partition for each, with the plan in the function."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

Batches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

Work: TypeAlias = Callable[[int], dict[str, Any]]
"""Work of the task of a number; returns its report, as data for JSON."""

Runner: TypeAlias = Callable[[Work, Sequence[int]], list[dict[str, Any]]]
"""Function that runs the tasks of these numbers, and returns their reports in any order."""


def run_tasks(
    spark: SparkSession, tasks: Sequence[object], function: Batches, schema: StructType | str
) -> DataFrame:
    """Return the batches that ``function`` yields over the task numbers, one partition per task."""
    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(function, schema)


def task_numbers(batch: pa.RecordBatch) -> list[int]:
    """Return the task numbers of one partition."""
    return [int(number) for number in batch.column(0).to_numpy(zero_copy_only=False)]


def runner_of(spark: SparkSession) -> Runner:
    """Return the function that runs tasks as one Spark job.

    It is a job of an RDD: to plan one of a DataFrame takes as long as a small batch.
    """
    context = spark.sparkContext

    def run(work: Work, numbers: Sequence[int]) -> list[dict[str, Any]]:
        texts = context.parallelize(numbers, len(numbers)).map(partial(_report, work)).collect()
        return list(map(json.loads, texts))

    return run


def arrow_runner_of(spark: SparkSession) -> Runner:
    """Return the function that runs tasks in the workers of ``mapInArrow``; an RDD has workers of its own."""

    def run(work: Work, numbers: Sequence[int]) -> list[dict[str, Any]]:
        def report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                reports = [_report(work, numbers[place]) for place in task_numbers(batch)]
                yield pa.RecordBatch.from_pydict({"report": reports})

        rows = run_tasks(spark, numbers, report, "report string").collect()
        return [json.loads(row.report) for row in rows]

    return run


def _report(work: Work, number: int) -> str:
    return json.dumps({"task": number, **work(number)})
