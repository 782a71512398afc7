"""Opening of a job's source in a Spark session."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from selectroute.spark.inputs.files import FileSource
from selectroute.spark.inputs.kafka import KafkaSource
from selectroute.spark.inputs.source import Source
from selectroute.spark.job.job import Job
from selectroute.spark.runtime.tasks import run_tasks
from selectroute.spark.sources.files.splits import Split
from selectroute.spark.sources.kafka.config import KafkaInput
from selectroute.spark.worker.task import TaskSettings, route_tasks


def source_of(spark: SparkSession, job: Job) -> Source:
    """Return the source of a job; its tasks run in this session."""
    if isinstance(job.input, KafkaInput):
        return KafkaSource(spark, job.input)
    tasks = spark.sparkContext.defaultParallelism
    return FileSource(job.input, job.file_format, job.max_files, partial(_run, spark), tasks, spark)


def _run(spark: SparkSession, tasks: list[list[Split]], settings: TaskSettings) -> list[dict[str, Any]]:
    rows = run_tasks(spark, tasks, route_tasks(tasks, settings), "report string").collect()
    return [json.loads(row["report"]) for row in rows]
