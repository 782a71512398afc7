"""Run by `test_cluster` in a process of its own: routes on a cluster and prints what came out as JSON.

``python -m tests.spark.cluster_job MASTER SNAPSHOTS PARTITIONS MESSAGES`` with folders of a published
snapshot, of the same in partitions, and of message files.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import selectroute as sr
from selectroute.spark import PartitionedSnapshot, deliveries, distribute, match_files, route
from selectroute.spark.session import use_java


def session(master: str) -> SparkSession:
    use_java()
    builder: SparkSession.Builder = SparkSession.builder
    builder = builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    # The checkout's packages, as an installation on every machine would have them.
    path = os.pathsep.join(filter(None, sys.path))
    builder = builder.config("spark.executorEnv.PYTHONPATH", path).config("spark.sql.shuffle.partitions", "4")
    # Not before both executors are there.
    builder = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    builder = builder.config("spark.scheduler.maxRegisteredResourcesWaitingTime", "300s")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def answers(routed: DataFrame) -> list[Any]:
    return sorted([row["@id"], sorted(row["subscriptions"])] for row in routed.collect())


def executors(spark: SparkSession) -> list[str]:
    """Where the tasks of a wide stage ran, by the folder that each executor works in."""

    def where(batches: Any) -> Any:
        import os
        import time

        for _ in batches:
            time.sleep(0.5)  # long enough for each executor to get some
            yield pa.RecordBatch.from_pydict({"folder": [os.getcwd()]})

    return sorted(
        {row.folder for row in spark.range(0, 8, 1, 8).mapInArrow(where, "folder string").collect()}
    )


def main(master: str, snapshots: str, partitions: str, messages: str) -> dict[str, Any]:
    spark = session(master)
    snapshot, parts = sr.Snapshot.open(snapshots), PartitionedSnapshot.open(partitions)
    df = spark.read.parquet(messages).repartition(4)
    result = {
        "executors": len(executors(spark)),
        "shared folder": answers(route(df, snapshot)),
        "partitions": answers(route(df, parts, exchange="always")),
        "partitions in each worker": answers(route(df, parts, exchange="never")),
    }
    paths = sorted(Path(messages).glob("*.parquet"))
    result["files"] = sorted(sorted(r.subscriptions) for r in match_files(spark, paths, snapshot).collect())
    distribute(spark, snapshot)
    # Now nobody can open the folder that was shared.
    Path(snapshots).rename(Path(snapshots).with_name("gone"))
    result["Spark's files"] = answers(route(df, snapshot))
    result["deliveries"] = sorted([r.message_id, r.subscription] for r in deliveries(df, snapshot).collect())
    spark.stop()
    return result


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
