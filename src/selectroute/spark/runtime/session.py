"""Spark session: a new one on this machine, or the one that ``spark-submit`` started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType

from pyspark import SparkContext
from pyspark.sql import SparkSession

from selectroute.selector.arguments import check_argument
from selectroute.spark.runtime.java import SHIELD, use_java

Session = SparkSession
"""Spark's session, named for modules that must not import PySpark."""

_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")

_LOCAL: dict[str, str] = {
    # A local run uses loopback only.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Its ports are open to all users of the machine, who could read tasks and their data there. The secret is
    # made by Spark itself.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The default, 200 shuffle partitions, is far too many for one machine.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Measured with `route`: smaller batches stay in the cores' caches on their way to the JVM.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    "spark.driver.memory": "2g",
    # Spark keeps these for its UI, even if that is disabled. The defaults are ten times as many and 100,000
    # tasks, which a stream takes hours to fill.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "100",
    # Spark caches the file list of each frame, even when the frame is gone. A stream makes frames of new
    # files in each batch, and fills the cache's 250 MB in hours.
    "spark.sql.hive.filesourcePartitionFileCacheSize": "0",
    # Python workers are started with `-m`, which would put the working directory first on their path.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}


def local_session(
    app: str,
    cores: int | None = None,
    *,
    log_level: str = "ERROR",
    **conf: str | int | bool,
) -> SparkSession:
    """Return a Spark session named ``app`` that runs on this machine, on loopback only, and logs little.

    Finds a Java first (`selectroute.spark.runtime.java.use_java`). A session that is already running, or that
    ``spark-submit`` started, is returned unchanged, with its own master, cores and logging.

    Args:
        app: the application's name.
        cores: number of concurrent tasks; all of the machine's cores unless given.
        log_level: Spark's own log level on standard error: ``ERROR``, or ``OFF`` for a program that reports
            errors itself, or a lower level.
        conf: more settings of Spark, ``**{"spark.driver.memory": "4g"}``; they override ours.

    Raises:
        JavaError: no Java of version 17 or later was found.
    """
    check_argument(app, str, "app", "the name of the application")
    check_argument(cores, (int, NoneType), "cores", "how many cores to use, or None for all")
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._active_spark_context is not None
    use_java()
    settings = {name: str(value) for name, value in conf.items()}
    builder: SparkSession.Builder = SparkSession.builder
    builder = builder.appName(app)
    if not submitted:
        # Spark would warn about a host name that resolves to a loopback address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        logging = (
            f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()} -Dselectroute.log.level={log_level}"
        )
        settings = {**_LOCAL, "spark.driver.extraJavaOptions": logging, **settings}
        builder = builder.master(f"local[{cores or '*'}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if not submitted:
        session.sparkContext.setLogLevel(log_level)
    return session


def end_java() -> None:
    """Kill the Java that PySpark has started, if any, so that it logs nothing; its temporary files stay."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


@contextmanager
def shielded() -> Iterator[None]:
    """Make Java ignore SIGTERM, which supervisors send to a whole process group, if started in the block.

    The caller handles the signal and exits when the running batch is done; Java ends with this process.
    """
    os.environ[SHIELD] = "1"
    try:
        yield
    finally:
        del os.environ[SHIELD]
