"""Spark's own Kafka connector, to compare with.

The connector of PySpark's own version is fetched by name, with those of its dependencies that PySpark lacks.
Registries lag behind releases: if that version is not available, the jars of `STAND_IN` take its place, which
were seen to run on PySpark 4.2.1 and 4.3.0.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from selectroute import SelectRouteError
from selectroute.testing.jars import JarError, Module, fetch, forget, kept, spark_jars

SPARK_VERSION: Final = version("pyspark")

_NAME: Final = "spark-sql-kafka-0-10_2.13"
_OWN: Final = Module("org.apache.spark", _NAME, SPARK_VERSION)
_STAND_IN_FOLDER: Final = "kafka-connector-stand-in"

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
"""Jars for a PySpark whose own connector is not available, each with its SHA-256."""


class ConnectorError(SelectRouteError):
    """Missing Kafka connector of Spark. The text has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Connector:
    """Jars that Spark needs for Kafka, and the connector's version, which may differ from PySpark's."""

    jars: tuple[Path, ...]
    version: str

    def conf(self) -> dict[str, str]:
        """Return the setting for a new session, for `local_session`."""
        return {"spark.jars": ",".join(str(jar) for jar in self.jars)}


def find_connector() -> Connector:
    """Return the connector for this PySpark: from the cache, or fetched (some seconds, once).

    Raises:
        ConnectorError: the connector is neither cached nor available; one sentence.
        JavaError: there is no Java to fetch it with.
    """
    name = f"kafka-connector-{SPARK_VERSION}"
    shipped = {_artifact(jar) for jar in spark_jars().glob("*.jar")}
    lacking = {module: digest for module, digest in STAND_IN.items() if module.name not in shipped}
    if not kept(name) and kept(_STAND_IN_FOLDER):
        return _stand_in(lacking)
    try:
        jars = fetch(name, [_OWN], transitive=True)
    except JarError:
        return _stand_in(lacking)
    return Connector(tuple(jar for jar in jars if _artifact(jar) not in shipped), SPARK_VERSION)


def _stand_in(lacking: Mapping[Module, str]) -> Connector:
    try:
        jars = fetch(_STAND_IN_FOLDER, lacking)
    except JarError as error:
        raise ConnectorError(
            f"Spark's Kafka connector is missing: neither {_OWN} nor its substitute was found: {error}"
        ) from error
    wanted = {module.file: digest for module, digest in lacking.items()}
    for jar in jars:
        if hashlib.sha256(jar.read_bytes()).hexdigest() != wanted.get(jar.name):
            forget(_STAND_IN_FOLDER)
            raise ConnectorError(
                f"{jar.name} does not have the SHA-256 of the published file, and was removed: start again"
            )
    return Connector(jars, next(iter(STAND_IN)).version)


def _artifact(jar: Path) -> str:
    """Return the name of a jar without version and classifier."""
    return re.sub(r"-\d[^-]*(-[A-Za-z].*)?$", "", jar.stem)
