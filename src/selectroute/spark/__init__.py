"""Routing with Spark: messages in DataFrames, files or Kafka, as a batch or a stream.

``route`` and ``deliveries`` take a DataFrame. For files and Kafka there is a faster way, the *fan-out*: the
workers read the messages themselves, so that only what selectors read is decoded, and no message of a file
crosses between the JVM and Python. ``start_fanout`` does this as a stream, for the rows of a streaming
DataFrame, too: each delivery is written exactly once to its folder, its queues and its topics of Kafka.
``match_files`` does it without a stream or output. The way of a batch through the rooms::

                 sources/ plan ──tasks──▶ task/: read ─▶ match ─▶ write ─▶ destinations/: queues, Kafka
                    ▲                                              └─────▶ tables/: three tables
    stream/ ─▶ batch/ ─ pins: revision and plan of a batch
                 ├─ destinations/: the queues and topics that exist
                 └─ commits: the batch is done ─▶ tables/: Parquet folders or Delta tables
    side batches:      replay/                    without a stream:   frames/  partitions/
    read-only checks:  audit/                     used by all:        job  folder  session  messages  columns/
    for a service:     job_administration

Rooms import only those below them, as ``pyproject.toml`` lists. Read ``batch/router.py`` first: one batch
from pin to commit. Only this package imports pyspark.
"""

from selectroute.extras import importing, look_up

with importing():
    import pyspark  # noqa: F401  (first, so that its absence is told by the extra that brings it)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from selectroute.spark.audit.rerun import Rerun, rerun
    from selectroute.spark.batch.router import BatchReport
    from selectroute.spark.cluster import KafkaCluster, kafka_cluster
    from selectroute.spark.columns.binding import Binding, BindingError, Cast
    from selectroute.spark.columns.frame_input import FrameInput, Position
    from selectroute.spark.columns.matches import Output, OutputChoice, OutputError, explain_output, unpack
    from selectroute.spark.columns.snapshot_ref import distribute
    from selectroute.spark.frames.match_files import match_files
    from selectroute.spark.frames.route import deliveries, route
    from selectroute.spark.job import DestinationNotFoundError, Job, JobError, OtherJobError
    from selectroute.spark.partitions.publish import publish_partitions
    from selectroute.spark.partitions.route import Exchange
    from selectroute.spark.partitions.snapshot import PartitionedSnapshot
    from selectroute.spark.partitions.steps import PartitionError
    from selectroute.spark.session import JavaError, local_session
    from selectroute.spark.sources.checkpoint import SourceError, SourceNotFoundError
    from selectroute.spark.sources.kafka.config import KafkaInput, kafka_binding, schema_registry
    from selectroute.spark.stream.fan_out import FanOut, check, start_fanout

# Each of Spark's processes of Python begins with this package, and needs a part of it.
_LATER = {
    "audit.rerun": "Rerun rerun",
    "batch.router": "BatchReport",
    "columns.binding": "Binding BindingError Cast",
    "columns.frame_input": "FrameInput Position",
    "columns.matches": "Output OutputChoice OutputError explain_output unpack",
    "columns.snapshot_ref": "distribute",
    "frames.match_files": "match_files",
    "frames.route": "deliveries route",
    "job": "DestinationNotFoundError Job JobError OtherJobError",
    "partitions.publish": "publish_partitions",
    "partitions.snapshot": "PartitionedSnapshot",
    "partitions.route": "Exchange",
    "partitions.steps": "PartitionError",
    "session": "JavaError local_session",
    "sources.checkpoint": "SourceError SourceNotFoundError",
    "cluster": "KafkaCluster kafka_cluster",
    "sources.kafka.config": "KafkaInput kafka_binding schema_registry",
    "stream.fan_out": "FanOut check start_fanout",
}

__all__ = [
    "BatchReport",
    "Binding",
    "BindingError",
    "Cast",
    "DestinationNotFoundError",
    "Exchange",
    "FanOut",
    "FrameInput",
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
    "Position",
    "Rerun",
    "SourceError",
    "SourceNotFoundError",
    "check",
    "deliveries",
    "distribute",
    "explain_output",
    "kafka_binding",
    "kafka_cluster",
    "local_session",
    "match_files",
    "publish_partitions",
    "rerun",
    "route",
    "schema_registry",
    "start_fanout",
    "unpack",
]


if not TYPE_CHECKING:  # a type checker would take any name

    def __getattr__(name: str) -> object:
        return look_up(__name__, _LATER, name)


def __dir__() -> list[str]:
    return sorted(__all__)
