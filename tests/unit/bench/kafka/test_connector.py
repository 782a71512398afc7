from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from bench.kafka import connector
from bench.kafka.connector import SPARK_VERSION, STAND_IN, ConnectorError, find_connector
from selectroute.testing.jars import JarError

OWN = f"kafka-connector-{SPARK_VERSION}"


class Registry:
    """What can be fetched, and what lies in the cache."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.has = set(names)
        self.kept_names: set[str] = set()
        self.asked: list[str] = []

    def kept(self, name):
        return tuple(sorted((self.folder / name).glob("*.jar"))) if name in self.kept_names else ()

    def fetch(self, name, modules, transitive=False):
        self.asked.append(name)
        if name in self.kept_names:
            return self.kept(name)
        if name not in self.has:
            raise JarError(f"{next(iter(modules))} could not be fetched")
        files = [module.file for module in modules]
        if transitive:
            files += ["kafka-clients-3.9.1.jar", "scala-library-2.13.18.jar", "lz4-java-1.8.0-linux.jar"]
        for file in files:
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / file).write_bytes(file.encode())
        self.kept_names.add(name)
        return self.kept(name)

    def forget(self, name):
        self.kept_names.discard(name)


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """A function that makes the registry; PySpark ships scala-library and lz4-java, of some version."""
    (tmp_path / "pyspark").mkdir()
    for name in ("scala-library-2.13.17", "lz4-java-1.11.0", "scala-parallel-collections_2.13-1.2.0"):
        (tmp_path / "pyspark" / f"{name}.jar").touch()
    monkeypatch.setattr(connector, "spark_jars", lambda: tmp_path / "pyspark")
    digests = {module: hashlib.sha256(module.file.encode()).hexdigest() for module in STAND_IN}
    monkeypatch.setattr(connector, "STAND_IN", digests)

    def made(*names: str) -> Registry:
        found = Registry(tmp_path, *names)
        for verb in ("kept", "fetch", "forget"):
            monkeypatch.setattr(connector, verb, getattr(found, verb))
        return found

    return made


def test_the_connector_of_pysparks_own_version_comes_with_what_pyspark_lacks(registry):
    registry(OWN)
    found = find_connector()
    assert found.version == SPARK_VERSION
    names = ["kafka-clients-3.9.1.jar", f"spark-sql-kafka-0-10_2.13-{SPARK_VERSION}.jar"]
    assert [jar.name for jar in found.jars] == names


def test_where_that_version_is_not_to_be_had_known_jars_take_its_place(registry):
    had = registry("kafka-connector-stand-in")
    found = find_connector()
    assert found.version == "4.2.0"
    assert len(found.jars) == 4  # of the five PySpark ships one
    assert found.conf() == {"spark.jars": ",".join(map(str, found.jars))}
    assert find_connector() == found
    assert had.asked == [OWN, "kafka-connector-stand-in", "kafka-connector-stand-in"]  # own only once


def test_jars_other_than_those_published_are_not_loaded(registry):
    had = registry("kafka-connector-stand-in")
    find_connector().jars[0].write_bytes(b"something else")
    with pytest.raises(ConnectorError, match="does not have the SHA-256 of the published file"):
        find_connector()
    assert had.kept_names == set()


def test_without_a_network_the_sentence_names_what_is_missing(registry):
    registry()
    with pytest.raises(ConnectorError) as error:
        find_connector()
    text = str(error.value)
    assert f"spark-sql-kafka-0-10_2.13:{SPARK_VERSION}" in text
    assert "could not be fetched" in text and "\n" not in text


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_from_a_broker_what_was_written_to_it(spark, kafka):
    topic = kafka.create("connector", 2)
    kafka.produce(topic, [(i % 2, b"k", b"%d" % i, [("n", b"%d" % i), ("n", None)]) for i in range(10)])
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.address)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
        .collect()
    )
    assert sorted((row.partition, row.offset, bytes(row.value)) for row in rows) == [
        (i % 2, i // 2, b"%d" % i) for i in sorted(range(10), key=lambda i: (i % 2, i))
    ]
    assert {tuple((one.key, one.value and bytes(one.value)) for one in row.headers) for row in rows} == {
        (("n", b"%d" % i), ("n", None)) for i in range(10)
    }
