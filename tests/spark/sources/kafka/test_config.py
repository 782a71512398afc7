"""What a job reads of Kafka and where it writes to, as data: what is refused, and what clients are told."""

import re

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from pyspark.serializers import CloudPickleSerializer

from selectroute.kafka import SchemaRegistry, SchemaSettingsError
from selectroute.spark.cluster import KafkaCluster, kafka_cluster
from selectroute.spark.destinations.kafka.writer import KafkaTarget
from selectroute.spark.sources.checkpoint import SourceError
from selectroute.spark.sources.kafka.config import KafkaInput, schema_registry

CLUSTER = KafkaCluster("host:9092")


PASSWORD = {"sasl.password": "hunter2"}
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}


@pytest.mark.parametrize("name", ["acks", "kafka.group.id", "kafka.bootstrap.servers", "kafka.acks"])
def test_a_setting_that_is_not_the_users_is_refused_by_name(name):
    with pytest.raises(SourceError, match=name.removeprefix("kafka.")):
        KafkaCluster("host:9092", {name: "all"})


def test_offsets_of_a_checkpoint_say_where_a_job_starts():
    logged = '{"a": {"0": 3}, "@": {"a": {"id": "x", "epochs": {"0": 1}}}}'
    given = KafkaInput(KafkaCluster("host:9092"), ("a",), starting=logged)
    assert given.starting == {"a": {"0": 3}}


def test_a_file_of_settings_is_read_and_an_error_names_its_line(tmp_path):
    file = tmp_path / "client.properties"
    lines = [f"{name} = {value}" for name, value in {**LOGIN, "sasl.password": "a\\\\b=secret"}.items()]
    file.write_text(
        "\n".join(["# of the whole company", "bootstrap.servers=other:9092", "group.id=g", *lines])
    )
    cluster = kafka_cluster("host:9092", str(file))
    options = {f"kafka.{name}": value for name, value in LOGIN.items()}
    assert cluster == KafkaCluster("host:9092", {**options, "kafka.sasl.password": "a\\b=secret"})
    assert "secret" not in repr(cluster)
    for line, problem in {
        "secret": "not name=value, in one line, with",
        "sasl.paswd=secret": "sasl.paswd is not a setting of this client: did you mean `sasl.password`?",
        "batch.size=secret": "batch.size must be a whole number from 0",
    }.items():
        file.write_text(f"# ours\n{line}\n")
        with pytest.raises(SourceError, match=re.escape(f"{file}:2: {problem}")) as raised:
            kafka_cluster("host:9092", str(file))
        assert "secret" not in str(raised.value)


def test_what_tasks_get_has_the_place_of_secrets_and_no_secret():
    cluster = KafkaCluster("h:1", {f"kafka.{name}": value for name, value in {**LOGIN, **PASSWORD}.items()})
    schemas = SchemaRegistry("http://host:8081", {"basic.auth.user.info": "me:hunter2", "timeout": "5"})
    given = KafkaInput(cluster, ("t",), schemas=schemas), KafkaTarget(cluster, {}, "job", 1, "producer")
    pickled = CloudPickleSerializer().dumps(given)
    assert b"hunter2" not in pickled
    copied, target = CloudPickleSerializer().loads(pickled)
    assert (copied, target) == given and copied.schemas.options == schemas.options
    assert copied.cluster.settings.client["sasl_plain_password"] == "hunter2"


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"topics": ("a",), "pattern": "a.*"}, {"topics": ("a b",)}, {"pattern": "a("}),
        *({"topics": ("a",), "starting": "now"}, {"topics": ("a",), "starting": '{"a": {"0": "x"}}'}),
        *({"topics": ("a",), "max_offsets": 0}, {"topics": ("a",), "min_partitions": 0}),
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
        ("hunter2", SourceError, ":1: not name=value"),
    ):
        file.write_text(text)
        with pytest.raises(error, match=said) as found:
            schema_registry("http://host:8081", str(file))
        assert "hunter2" not in str(found.value)
