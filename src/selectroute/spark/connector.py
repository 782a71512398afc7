"""Spark's own Kafka connector, which PySpark does not ship: which jars it is, and where they come from.

The connector of PySpark's own version is fetched by name, as ``--packages`` would, with what it depends on
and PySpark lacks. Registries lag behind releases: where that version is not to be had, the jars of `STAND_IN`
take its place, which were seen to run on PySpark 4.2.1 and 4.3.0.

Under ``spark-submit`` the JVM runs before we do, and its jars are what the command line says:
``spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION …``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import __version__ as SPARK_VERSION
from pyspark.sql import SparkSession

from selectroute.selector.errors import SelectRouteError
from selectroute.spark.jars import JarError, Module, fetch, forget, kept, spark_jars

_NAME: Final = "spark-sql-kafka-0-10_2.13"
_STAND_IN_FOLDER: Final = "kafka-connector-stand-in"
_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"

STAND_IN: Final = {
    Module("org.apache.spark", _NAME, "4.2.0"): (
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
    ),
    Module("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"): (
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
    ),
    Module("org.apache.kafka", "kafka-clients", "3.9.1"): (
        "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9"
    ),
    Module("org.apache.commons", "commons-pool2", "2.12.1"): (
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef"
    ),
    Module("org.scala-lang.modules", "scala-parallel-collections_2.13", "1.2.0"): (
        "4eae6e68cf44e9f709970355590ae981883edf6484608d747376a56cbb285432"
    ),
}
"""Jars for a PySpark whose own connector is not to be had, each with its SHA-256."""


class ConnectorError(SelectRouteError):
    """Spark has no Kafka connector. The text says why, and how to give it one."""


@dataclass(frozen=True, slots=True)
class Connector:
    """The jars that Spark needs for Kafka, and the connector's version, which need not be PySpark's."""

    jars: tuple[Path, ...]
    version: str

    def conf(self) -> dict[str, str]:
        """Return the setting of a session that is yet to start, for `local_session`."""
        return {"spark.jars": ",".join(str(jar) for jar in self.jars)}


def find_connector() -> Connector:
    """Return the connector for this PySpark: from the cache, or fetched (some seconds, once).

    Raises:
        ConnectorError: neither can be had; one sentence.
        JavaError: there is no Java to fetch it with.
    """
    own, name = _module(SPARK_VERSION), f"kafka-connector-{SPARK_VERSION}"
    shipped = {_artifact(jar) for jar in spark_jars().glob("*.jar")}
    lacking = {module: digest for module, digest in STAND_IN.items() if module.name not in shipped}
    if not kept(name) and kept(_STAND_IN_FOLDER):
        return _stand_in(lacking)
    try:
        jars = fetch(name, [own], transitive=True)
    except JarError:
        return _stand_in(lacking)
    return Connector(tuple(jar for jar in jars if _artifact(jar) not in shipped), SPARK_VERSION)


def _stand_in(lacking: Mapping[Module, str]) -> Connector:
    own = _module(SPARK_VERSION)
    try:
        jars = fetch(_STAND_IN_FOLDER, lacking)
    except JarError as error:
        raise ConnectorError(
            f"Spark's Kafka connector is not here, neither {own} nor what can take its place: {error}; start "
            f"the job with spark-submit --packages {own}, or --jars with the files"
        ) from error
    wanted = {module.file: digest for module, digest in lacking.items()}
    for jar in jars:
        if hashlib.sha256(jar.read_bytes()).hexdigest() != wanted.get(jar.name):
            forget(_STAND_IN_FOLDER)
            raise ConnectorError(
                f"{jar.name} is not the file that was published by that name, and was removed: start again "
                "to fetch it anew"
            )
    return Connector(jars, next(iter(STAND_IN)).version)


def _module(version: str) -> Module:
    return Module("org.apache.spark", _NAME, version)


def require_connector(spark: SparkSession) -> None:
    """Make sure that a running session has a Kafka connector.

    Raises:
        ConnectorError: it has none; one sentence.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        # Where Spark itself looks for sources: jars of `--packages` are in the loader of the thread only.
        jvm.org.apache.spark.util.Utils.classForName(_PROVIDER, False, False)
    except (Py4JError, TypeError) as error:
        raise ConnectorError(
            "this Spark session has no Kafka connector: start it with spark-submit --packages "
            f"{_module(SPARK_VERSION)}"
        ) from error


def _artifact(jar: Path) -> str:
    """The name of a module, of its jar's name: without version and classifier."""
    return re.sub(r"-\d[^-]*(-[A-Za-z].*)?$", "", jar.stem)
