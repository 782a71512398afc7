"""What a job reads of Kafka and where it writes to, as data: what is refused, and what clients are told."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from selectroute.spark.sources.files.stream import SourceError
from selectroute.spark.sources.kafka.config import KafkaCluster, KafkaInput, kafka_cluster

CLUSTER = KafkaCluster("host:9092")


@pytest.mark.parametrize(
    "options",
    [
        {"acks": "all"},
        {"kafka.group.id": "mine"},
        {"kafka.bootstrap.servers": "other:9092"},
        {"kafka.key.serializer": "mine"},
        {"kafka.auto.offset.reset": "earliest"},
    ],
)
def test_a_setting_that_is_not_the_users_is_refused_by_name(options):
    with pytest.raises(SourceError, match=next(iter(options))):
        KafkaCluster("host:9092", options)


@pytest.mark.parametrize(
    ("name", "value"), [("acks", "1"), ("acks", "0"), ("enable.idempotence", "false"), ("acks", "")]
)
def test_a_producer_that_may_lose_records_is_refused(name, value):
    with pytest.raises(SourceError, match=f"^{name} must be"):
        KafkaCluster("host:9092", {f"kafka.{name}": value})


@pytest.mark.parametrize("options", [{}, {"kafka.acks": "-1", "kafka.enable.idempotence": "TRUE"}])
def test_a_sink_waits_for_all_replicas_and_writes_nothing_twice_by_itself(options):
    cluster = KafkaCluster("host:9092", {**options, "kafka.linger.ms": "5"})
    assert cluster.for_sink() == {
        "kafka.bootstrap.servers": "host:9092",
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.linger.ms": "5",
    }
    assert cluster.for_producers()["acks"] == "all"


def test_a_source_does_not_wait_long_for_what_is_not_there_unless_it_is_told_to():
    wait = "kafka.fetch.max.wait.ms"
    assert int(KafkaCluster("host:9092").for_source()[wait]) < 100
    assert KafkaCluster("host:9092", {wait: "500"}).for_source()[wait] == "500"
    assert wait not in KafkaCluster("host:9092").for_sink()


def test_settings_are_not_shown():
    assert "secret" not in repr(KafkaCluster("host:9092", {"kafka.sasl.jaas.config": "secret"}))


def test_a_file_of_settings_is_read_as_kafkas_tools_read_it(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(
        "# of the whole company\n"
        "bootstrap.servers=other:9092\ngroup.id: g\n"
        'sasl.jaas.config=org.example.PlainLoginModule required \\\n username="u" \\\n password="a\\\\"b";\n'
    )
    assert kafka_cluster("host:9092", str(file)) == KafkaCluster(
        "host:9092",
        {"kafka.sasl.jaas.config": 'org.example.PlainLoginModule required username="u" password="a\\"b";'},
    )
    file.write_text("linger.ms=5\nsecret\n")
    with pytest.raises(SourceError, match=r"client\.properties, line 2 is not name=value$"):
        kafka_cluster("host:9092", str(file))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topics": ("a",), "pattern": "a.*"},
        {"topics": ("a b",)},
        {"topics": ("a",), "starting": "now"},
        {"topics": ("a",), "starting": '{"a": {"0": "x"}}'},
        {"topics": ("a",), "max_offsets": 0},
        {"topics": ("a",), "min_partitions": 0},
    ],
)
def test_an_input_that_says_something_impossible_is_refused(options):
    with pytest.raises(SourceError):
        KafkaInput(CLUSTER, **options)
