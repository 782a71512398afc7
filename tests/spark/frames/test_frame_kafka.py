"""Frame jobs and Kafka: records read by Spark's own connector, and deliveries to topics."""

from collections import Counter

import pytest

from selectroute.spark import FrameInput, Job, Position, start_fanout
from selectroute.spark.audit.audit import audit
from selectroute.spark.stream.fan_out import StreamError
from tests.spark.kafka_world import cars, headers_of
from tests.support.components import KAFKA, after_first

pytestmark = [pytest.mark.spark, *KAFKA]


@pytest.fixture
def frame(spark, pipe):
    """The records of the topic, as rows."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", pipe.broker.address)
    records = reader.option("subscribe", pipe.name).option("startingOffsets", "earliest").load()
    return records.selectExpr("topic", "partition", "offset", "string(value) AS `@body`")


def run(spark, pipe, frame, **options):
    input = FrameInput(frame, position=Position("topic", "partition", "offset"))
    more = {name: options.pop(name) for name in ("on_warning",) if name in options}
    job = Job.of(input, pipe.world.snapshots, pipe.world.output, kafka=pipe.cluster, **options)
    reports = []
    start_fanout(spark, job, available_now=True, on_batch=reports.append, **more).wait()
    return reports


def ids(pipe, topic):
    records = (one for one in pipe.broker.records(topic) if one.headers())
    return Counter(headers_of(one)["selectroute-delivery-id"] for one in records)


def expected(pipe, count, subscription):
    places = (f"{n % 3}/{n // 3}" for n in range(count))
    return Counter(f"{pipe.name}/{place}/{subscription}" for place in places)


def die(*_):
    raise KeyboardInterrupt("the process dies")


@pytest.mark.parametrize("shuffled", after_first(pytest.mark.nightly, True, False))
def test_records_of_spark_s_connector_are_sent_once(spark, pipe, frame, monkeypatch, shuffled):
    out = pipe.broker.create(f"{pipe.name}-out", 2)
    pipe.publish(1, all=("", out))
    pipe.broker.produce(pipe.name, cars(60))
    frame = frame.repartition(3) if shuffled else frame
    with monkeypatch.context() as patched:
        patched.setattr("selectroute.spark.batch.commits.Commits.commit", die)
        with pytest.raises(StreamError):
            run(spark, pipe, frame)
    (report,) = run(spark, pipe, frame)
    assert report.counts.sent == 60
    assert ids(pipe, out) == expected(pipe, 60, "all")
    assert {one.value() for one in pipe.broker.records(out) if one.headers()} == {
        f"body {n}".encode() for n in range(60)
    }
    assert audit(pipe.world.output).findings == []
