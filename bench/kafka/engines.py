"""Jobs from Kafka to Kafka: the fan-out, and the same job with a no-op in its place.

The no-op is Spark's own way from topic to topic: its source, an `arrow_udf` of what decides that returns an
array as long as the true matches of each record, `explode`, the headers that a delivery gets, Spark's sink.
It knows neither of commits nor of dead letters, and sends again what it sent before a crash under new places.
Both read the same topic in batches of the same records, and write as many records of the same sizes with the
same settings of the producer.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from bench.definition import Size
from bench.engine import Engine, Timed
from bench.kafka.streamed import DELIVERED, PARTITIONS, Streamed
from bench.spark.cores import processor_seconds
from bench.workloads.oracle import Expected
from bench.workloads.plain import Ints
from selectroute.spark import Job, KafkaCluster, KafkaInput, kafka_binding, start_fanout

BATCH: Final = 400_000
"""The records of a batch."""

_FEW: Final = 40_000
"""Records of which each of Spark's cores gets some."""

UNDECIDED: Final = "undecided"
"""The topic to which the no-op writes."""


class KafkaEngine(Engine):
    """A job from topic to topic, run anew each time until it has read all that there is."""

    to: str
    """The topic to which it writes."""
    by_message: bool = False
    """Whether a record stands for all deliveries of a message."""
    transactional: bool = False
    """Whether it writes in transactions, so that not every offset of its topic is a delivery."""
    triggered: bool = True
    """Whether it works batch by batch, and so can be told when a batch begins."""

    def __init__(self, streamed: Streamed, count: int) -> None:
        self.messages = count
        self.streamed = streamed
        streamed.create(self.to, **{"message.timestamp.type": "LogAppendTime"})

    @abstractmethod
    def start(self, topic: str, count: int, trigger_seconds: float | None) -> Query:
        """Start the job on a topic that has the first so many messages, again and again; without a trigger it
        ends when it has read what there is.
        """

    def judge(self) -> Expected:
        """See `Engine`."""
        size = self.streamed.size
        before = self.streamed.ends(self.to)
        self.start(self.streamed.topic(size.checked), size.checked, None).wait()
        found = self.counted(size, self.delivered(before))
        self.streamed.clear(self.to)
        return found

    def counted(self, size: Size, written: int) -> Expected:
        """Count what the topic has of the checked messages, which are so many records."""
        return self.streamed.found(self.to)

    def delivered(self, before: Sequence[int]) -> int:
        """Count the deliveries that its topic has since it ended there."""
        if self.transactional:
            return self.streamed.committed(self.to, before, self.by_message)
        return sum(self.streamed.ends(self.to)) - sum(before)

    def warm_up(self) -> None:
        """Start what a job that runs has running, and what may have ended while other engines were timed."""

    def run(self) -> Timed:
        """Route all messages: timed from the beginning of the first batch to the end of the last one."""
        self.warm_up()
        topic = self.streamed.topic(self.messages)
        before = self.streamed.ends(self.to)
        used = processor_seconds()
        query = self.start(topic, self.messages, None)
        query.wait()
        used = processor_seconds() - used
        written = self.delivered(before)
        self.streamed.clear(self.to)
        return Timed(written, query.seconds, processor_seconds=used)


class Query(ABC):
    """A job that runs."""

    @abstractmethod
    def wait(self) -> object:
        """Wait until it has read all that there is."""

    @abstractmethod
    def stop(self) -> object:
        """Stop it, and wait until it has."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """From the beginning of the first batch that had records to the end of the last one, all of whose
        deliveries are acknowledged then.
        """


class SparkQuery(Query):
    """A query of Spark's, of ours or not.

    ``done`` has when each batch was done, by the clock, where that is after Spark has it for done.
    """

    def __init__(
        self, query: Any, wait: Callable[[], object], stop: Callable[[], object], done: Sequence[float] = ()
    ) -> None:
        self._query = query
        self._wait = wait
        self._stop = stop
        self._done = done

    def wait(self) -> object:
        """See `Query`."""
        return self._wait()

    def stop(self) -> object:
        """See `Query`."""
        return self._stop()

    @property
    def seconds(self) -> float:
        """See `Query`."""
        found = [json.loads(one.json) for one in self._query.recentProgress]
        batches = [one for one in found if _has_input(one)]
        first, last = (datetime.fromisoformat(batches[place]["timestamp"]).timestamp() for place in (0, -1))
        length = float(batches[-1]["durationMs"]["triggerExecution"])
        return max([last + length / 1_000, *self._done[-1:]]) - first


def _has_input(progress: Mapping[str, Any]) -> bool:
    """Return whether a trigger had records, which Spark counts only where they pass through it."""
    return any(one["startOffset"] != one["endOffset"] for one in progress["sources"])


class SparkEngine(KafkaEngine):
    """A job of Spark's."""

    def __init__(self, spark: SparkSession, streamed: Streamed, count: int) -> None:
        super().__init__(streamed, count)
        self.spark = spark

    def warm_up(self) -> None:
        """See `KafkaEngine`. Spark ends Python workers that are idle for a minute."""
        few = min(self.messages, _FEW)
        self.start(self.streamed.topic(few), few, None).wait()
        self.streamed.clear(self.to)


class FanOutEngine(SparkEngine):
    """`start_fanout`, in transactions."""

    name = "fan-out"
    to = DELIVERED
    transactional = True

    def job(self, topic: str, folder: Path) -> Job:
        """The job on a topic, in a folder of its own."""
        cluster = KafkaCluster(self.streamed.broker.address)
        binding = kafka_binding(["weight:int"])
        read = KafkaInput(cluster, (topic,), binding=binding, max_offsets=BATCH)
        grouping = "message" if self.by_message else "delivery"
        return Job.of(read, self.streamed.snapshots, folder / "output", kafka_grouping=grouping)

    def start(self, topic: str, count: int, trigger_seconds: float | None) -> Query:
        """See `KafkaEngine`."""
        done: list[float] = []
        fan = start_fanout(
            self.spark,
            self.job(topic, self.streamed.job_folder()),
            available_now=trigger_seconds is None,
            trigger_seconds=trigger_seconds or 0.0,
            on_batch=lambda _: done.append(time.time()),
        )

        def stop() -> None:
            fan.stop()
            fan.wait()

        return SparkQuery(fan.query, fan.wait, stop, done)


class ByMessageEngine(FanOutEngine):
    """`start_fanout`, with one record for the deliveries of a message."""

    name = "fan-out-by-message"
    by_message = True


class NoOpEngine(SparkEngine):
    """Spark's own source and sink, and an `arrow_udf` that knows the lengths of the answers, no more."""

    name = "no-op"
    to = UNDECIDED

    def start(self, topic: str, count: int, trigger_seconds: float | None) -> Query:
        """See `KafkaEngine`."""
        job = self.streamed.job_folder()
        servers = {"kafka.bootstrap.servers": self.streamed.broker.address}
        # Kafka's own half a second would delay each batch that has the newest record of a partition.
        reader = self.spark.readStream.format("kafka").options(**servers, **{"kafka.fetch.max.wait.ms": "10"})
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        reader = reader.option("includeHeaders", True).option("maxOffsetsPerTrigger", BATCH)
        written = self._deliveries(reader.load(), count, job.name).writeStream.format("kafka")
        written = written.options(**servers, **{"kafka.acks": "all", "kafka.enable.idempotence": "true"})
        written = written.option("includeHeaders", True)
        written = written.option("checkpointLocation", str(job / "checkpoint"))
        if trigger_seconds is None:
            query = written.trigger(availableNow=True).start()
        else:
            query = written.trigger(processingTime=f"{int(trigger_seconds * 1000)} milliseconds").start()
        return SparkQuery(query, query.awaitTermination, query.stop)

    def counted(self, size: Size, written: int) -> Expected:
        """It matches nothing; that there are as many records as deliveries is all there is to check."""
        return size.check if written == size.check.matches else Expected(written, -1)

    def _deliveries(self, records: DataFrame, count: int, job: str) -> DataFrame:
        nothing: Any = _arrays(self.streamed.lengths(count), self.streamed.size.rules)
        kind: Any = "array<int>"
        arrays: Any = arrow_udf(nothing, kind)
        found = records.withColumn("found", arrays("partition", "offset", "headers"))
        one = found.select("*", F.explode("found").alias("ordinal"))
        subscription = F.concat(F.lit("r"), F.col("ordinal").cast("string"))
        place = (F.lit(job.ljust(36, "-")), F.lit("/1/"), F.col("partition"), F.lit("/"), F.col("offset"))
        added = F.array(
            _header("selectroute-subscription", subscription),
            _header(
                "selectroute-delivery-id", F.concat_ws("/", "topic", "partition", "offset", subscription)
            ),
            _header("selectroute-revision", F.lit("1")),
            _header("selectroute-batch", F.concat(*place)),
        )
        headers = F.concat("headers", added)
        return one.select(F.lit(self.to).alias("topic"), "key", "value", headers.alias("headers"))


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), F.encode(text, "UTF-8").alias("value"))


def _arrays(lengths: Ints, rules: int) -> Callable[[pa.Array, pa.Array, pa.Array], pa.Array]:
    """Return the no-op: arrays of the true lengths, of ordinals that are as long as the true ones."""

    def arrays(partitions: pa.Array, offsets: pa.Array, _headers: pa.Array) -> pa.Array:
        numbers = offsets.to_numpy() * PARTITIONS + partitions.to_numpy()
        ends = np.zeros(len(numbers) + 1, np.int32)
        np.cumsum(lengths[numbers % len(lengths)], out=ends[1:])
        ordinals = np.arange(ends[-1], dtype=np.int32) % np.int32(rules)
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(ordinals))

    return arrays


def makers(spark: SparkSession, streamed: Streamed) -> Mapping[str, Callable[[int], KafkaEngine]]:
    """Return how to make each engine for a number of messages."""
    return {
        one.name: lambda count, one=one: one(spark, streamed, count)  # type: ignore[misc]
        for one in (FanOutEngine, ByMessageEngine, NoOpEngine)
    }
