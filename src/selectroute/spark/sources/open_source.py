"""Opening of a job's source in a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from selectroute.spark.columns.frame_input import FrameInput
from selectroute.spark.job import Job
from selectroute.spark.session import arrow_runner_of, runner_of
from selectroute.spark.sources.files.source import FileSource
from selectroute.spark.sources.frame.source import FrameSource
from selectroute.spark.sources.kafka.config import KafkaInput
from selectroute.spark.sources.kafka.source import KafkaSource
from selectroute.spark.sources.source import Source


def source_of(spark: SparkSession, job: Job) -> Source:
    """Return the source of a job; its tasks run in this session."""
    run, tasks = runner_of(spark), spark.sparkContext.defaultParallelism
    if isinstance(job.input, FrameInput):
        return FrameSource(job.input, arrow_runner_of(spark), tasks)
    if isinstance(job.input, KafkaInput):
        return KafkaSource(job.input, run, tasks, spark)
    return FileSource(job, run, tasks, spark)
