"""The source of a job, in the hands of a Spark session."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from selectroute.spark.file_intake import FileSource
from selectroute.spark.intake import Source
from selectroute.spark.job import Job
from selectroute.spark.kafka_input import KafkaInput
from selectroute.spark.kafka_source import KafkaSource
from selectroute.spark.plan import Split
from selectroute.spark.worker import Work, fan_out, run_tasks


def source_of(spark: SparkSession, job: Job) -> Source:
    """Return what a job reads; its tasks run where this session runs them."""
    if isinstance(job.input, KafkaInput):
        return KafkaSource(spark, job.input)
    tasks = spark.sparkContext.defaultParallelism
    return FileSource(job.input, job.file_format, job.max_files, partial(_run, spark), tasks, spark)


def _run(spark: SparkSession, tasks: list[list[Split]], work: Work) -> list[dict[str, Any]]:
    rows = run_tasks(spark, tasks, fan_out(tasks, work), "report string").collect()
    return [json.loads(row["report"]) for row in rows]
