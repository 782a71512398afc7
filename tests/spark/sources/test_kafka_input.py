"""What a job reads of Kafka and where it writes to, as data: what is refused, and what clients are told."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from selectroute.kafka import SchemaRegistry, SchemaSettingsError
from selectroute.spark.sources.files.stream import SourceError
from selectroute.spark.sources.kafka.config import KafkaCluster, KafkaInput, kafka_cluster, schema_registry

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
    with pytest.raises(SourceError, match=next(iter(options)).removeprefix("kafka.")):
        KafkaCluster("host:9092", options)


@pytest.mark.parametrize(
    ("name", "value"), [("acks", "1"), ("acks", "0"), ("enable.idempotence", "false"), ("acks", "")]
)
def test_a_producer_that_may_lose_records_is_refused(name, value):
    with pytest.raises(SourceError, match=f"^{name} must be"):
        KafkaCluster("host:9092", {f"kafka.{name}": value})


def test_settings_are_not_shown():
    assert "secret" not in repr(KafkaCluster("host:9092", {"kafka.sasl.jaas.config": "secret"}))


def test_offsets_of_a_checkpoint_say_where_a_job_starts():
    logged = '{"a": {"0": 3}, "@": {"a": {"id": "x", "epochs": {"0": 1}}}}'
    given = KafkaInput(KafkaCluster("host:9092"), ("a",), starting=logged)
    assert given.starting == {"a": {"0": 3}}


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
        {"pattern": "a("},
    ],
)
def test_an_input_that_says_something_impossible_is_refused(options):
    with pytest.raises(SourceError):
        KafkaInput(CLUSTER, **options)


def test_a_schema_registry_has_the_settings_of_its_file(tmp_path):
    pytest.importorskip("confluent_kafka.schema_registry")
    file = tmp_path / "registry.properties"
    file.write_text("# ours\nurl=http://other\nbasic.auth.user.info = me:a=b\n\ntimeout=5\n")
    registry = schema_registry("http://host:8081", str(file), "dead-letter")
    options = {"basic.auth.user.info": "me:a=b", "timeout": "5"}
    assert registry == SchemaRegistry("http://host:8081", options, "dead-letter")
    assert KafkaInput(CLUSTER, ("t",), schemas=registry).schemas == registry
    assert "me:a=b" not in repr(KafkaInput(CLUSTER, ("t",), schemas=registry))
    assert schema_registry("") is None


def test_a_wrong_setting_of_a_schema_registry_is_named_before_anything_is_read(tmp_path):
    pytest.importorskip("confluent_kafka.schema_registry")
    file = tmp_path / "registry.properties"
    for text, error, said in (
        ("schema.registry.url=x", SchemaSettingsError, "no setting 'schema.registry.url'"),
        ("ssl.ca.location=/no/such", SchemaSettingsError, "the file of ssl.ca.location does not exist"),
        ("hunter2", SourceError, "line 1 is not name=value"),
    ):
        file.write_text(text)
        with pytest.raises(error, match=said) as found:
            schema_registry("http://host:8081", str(file))
        assert "hunter2" not in str(found.value)


def test_settings_of_clients_are_those_of_the_file_without_those_of_the_job(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("! ours\nbootstrap.servers=other:1\ngroup.id=mine\nsasl.mechanism = PLAIN\n")
    assert kafka_cluster("host:1", str(file)).options == {"kafka.sasl.mechanism": "PLAIN"}
