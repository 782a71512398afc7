"""Entry point of the job's image: driver and executor as Spark starts them on Kubernetes, else `selectroute`.

Spark names what to start by the first argument, and gives an executor the rest in variables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
EXECUTOR = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Arguments of an executor, and the variables that have their values."""

JAVA_OPTION = "SPARK_JAVA_OPT_"
"""Beginning of the variables with the options of an executor's Java; a number follows."""


def command(given: Sequence[str], environment: Mapping[str, str], spark: Path) -> list[str]:
    """Return the command to become.

    Args:
        given: the arguments of the container.
        environment: its variables; `JAVA_HOME` among them for an executor.
        spark: Spark's folder.
    """
    kind, rest = (given[0] if given else ""), list(given[1:])
    if kind == "driver":
        address = f"spark.driver.bindAddress={environment['SPARK_DRIVER_BIND_ADDRESS']}"
        return [f"{spark}/bin/spark-submit", "--deploy-mode", "client", "--conf", address, *rest]
    if kind == "executor":
        memory = environment["SPARK_EXECUTOR_MEMORY"]
        return [
            f"{environment['JAVA_HOME']}/bin/java",
            *_java_options(environment),
            f"-Xms{memory}",
            f"-Xmx{memory}",
            "-cp",
            os.pathsep.join(_class_path(environment, spark)),
            BACKEND,
            *(word for option, name in EXECUTOR.items() for word in (option, environment[name])),
        ]
    return [f"{Path(sys.executable).parent}/selectroute", *given]


def _java_options(environment: Mapping[str, str]) -> list[str]:
    names = [name for name in environment if name.removeprefix(JAVA_OPTION).isdigit()]
    return [environment[name] for name in sorted(names, key=lambda name: int(name.removeprefix(JAVA_OPTION)))]


def _class_path(environment: Mapping[str, str], spark: Path) -> list[str]:
    own = [environment.get("SPARK_CONF_DIR"), environment.get("HADOOP_CONF_DIR"), f"{spark}/jars/*"]
    added = [environment.get("SPARK_EXTRA_CLASSPATH"), environment.get("SPARK_DIST_CLASSPATH")]
    return [one for one in (*own, *added) if one]


def main() -> None:
    """Become the command."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        sys.exit("entrypoint: PySpark is not installed")
    spark = Path(found.origin).parent
    if sys.argv[1:2] in (["driver"], ["executor"]):
        from selectroute.spark.session import use_java

        use_java()
        os.environ["SPARK_HOME"] = str(spark)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    words = command(sys.argv[1:], os.environ, spark)
    os.execv(words[0], words)


if __name__ == "__main__":
    main()
