"""Spark: messages in columns or files, batch or stream, routed to their subscriptions.

``route`` and ``deliveries`` take a DataFrame. For files there is a faster way, the *fan-out*: the workers
read the files themselves, so that only what selectors read is decoded and nothing crosses between the JVM
and Python. ``start_fanout`` is that as a stream with exactly-once output, ``match_files`` the same reading
path without a stream or output.

Read `batches` first: one batch from pin to commit. Then `plan` (files → splits), `worker` with `readers` and
`sinks` (what a task does), `pins` and `commits` (what survives a crash). What a stream on a live registry
does beside its batches is in `follower`: it writes back from where changes hold (`cutoffs`), and gives
resumed subscriptions what they missed (`backfill`); `replay` judges dead letters once more. A registry beyond
one machine's memory is cut in partitions: `partition` says how. This is the only folder that imports pyspark.
"""

from selectroute.spark.batches import BatchReport
from selectroute.spark.binding import Binding, BindingError
from selectroute.spark.connector import Connector, ConnectorError, find_connector
from selectroute.spark.java import JavaError
from selectroute.spark.job import DestinationNotFoundError, Job, JobError, OtherJobError
from selectroute.spark.kafka_input import KafkaCluster, KafkaInput
from selectroute.spark.kafka_options import kafka_binding, kafka_cluster
from selectroute.spark.output import Output, OutputChoice, OutputError, explain_output, unpack
from selectroute.spark.partition import PartitionedSnapshot
from selectroute.spark.partition_publish import publish_partitions
from selectroute.spark.partition_route import PartitionError
from selectroute.spark.query import FanOut, check, start_fanout
from selectroute.spark.rerun import Rerun, rerun
from selectroute.spark.route import deliveries, match_files, route
from selectroute.spark.session import local_session
from selectroute.spark.snapshots import distribute
from selectroute.spark.sources import SourceError, SourceNotFoundError

__all__ = [
    "BatchReport",
    "Binding",
    "BindingError",
    "Connector",
    "ConnectorError",
    "DestinationNotFoundError",
    "FanOut",
    "JavaError",
    "Job",
    "JobError",
    "KafkaCluster",
    "KafkaInput",
    "OtherJobError",
    "Output",
    "OutputChoice",
    "OutputError",
    "PartitionError",
    "PartitionedSnapshot",
    "Rerun",
    "SourceError",
    "SourceNotFoundError",
    "check",
    "deliveries",
    "distribute",
    "explain_output",
    "find_connector",
    "kafka_binding",
    "kafka_cluster",
    "local_session",
    "match_files",
    "publish_partitions",
    "rerun",
    "route",
    "start_fanout",
    "unpack",
]
