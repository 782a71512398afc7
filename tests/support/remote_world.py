"""A world whose folders are in remote storage, for tests that are the same on every storage."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from selectroute.match.compiled import cache_folder
from selectroute.spark import Job
from selectroute.spark.batch import pins
from selectroute.spark.job import DELTA
from selectroute.spark.tables.delta_table import table_options
from selectroute.storage import Location
from selectroute.storage.owned import begin, owned
from tests.support.servers.s3 import BUCKET, clients_of, environment
from tests.support.world import World


def numba_cache() -> str:
    """Where compiled code is kept, for processes with another cache of files: each would compile for long."""
    folder = cache_folder()
    return os.environ.get("NUMBA_CACHE_DIR", "" if folder is None else str(folder.parent))


@contextmanager
def remote_folder(request: pytest.FixtureRequest, storage: str) -> Iterator[Location]:
    """A folder of this test's own on S3 or HDFS, of which this process and Spark's workers are clients."""
    with ExitStack() as opened, pytest.MonkeyPatch.context() as patched:
        # One cache of files for all tests: with another environment Spark starts other workers.
        cache = request.getfixturevalue("tmp_path_factory").getbasetemp() / "remote-cache"
        patched.setenv("NUMBA_CACHE_DIR", numba_cache())
        patched.setenv("XDG_CACHE_HOME", str(cache))
        # What a test publishes is the newest revision at once, and not within a second or two.
        patched.setattr(pins, "_OLD_SECONDS", -1.0)
        name = uuid.uuid4().hex
        if storage == "s3":
            opened.enter_context(clients_of(request.getfixturevalue("s3")))
            root, names = f"s3://{BUCKET}/{name}", list(environment(""))
        else:
            hdfs = request.getfixturevalue("hdfs")
            patched.setenv("HADOOP_CONF_DIR", str(hdfs.conf))
            root, names = f"{hdfs.url}/{name}", ["HADOOP_CONF_DIR"]
        if request.node.get_closest_marker("spark"):
            names += ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"]
            for_workers(request.getfixturevalue("spark"), patched, names)
        yield Location.of(root)


def for_workers(spark: Any, patched: pytest.MonkeyPatch, names: Iterable[str]) -> None:
    """Give Spark's workers variables of the environment, of which they have what it was at the start."""
    for name in names:
        patched.setitem(spark.sparkContext.environment, name, os.environ[name])


@dataclass
class RemoteWorld(World):
    """World whose root is a location in remote storage. Tasks run in this process."""

    root: Any

    def __post_init__(self) -> None:
        self.table_format = DELTA

    def started(self, job: Job) -> Job:
        """Return the job as a start has it: its commits and pins are known without asking."""
        self.claim(job)
        job = replace(job, output=owned(job.output, "_commits", "pins"))
        begin(job.output)
        return job

    def drop_bytes(self, name: str, data: bytes) -> Any:
        """Put a file into the input folder."""
        (self.input / name).put(data)
        return self.input / name

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """Return all rows of a table."""
        from deltalake import DeltaTable

        folder = self.output / sink
        table = DeltaTable(str(folder), storage_options=table_options(folder))
        paths = pa.table(table.get_add_actions())["path"].to_pylist()
        files = [pq.ParquetFile(pa.BufferReader((folder / path).read())) for path in paths]
        return [row for file in files for row in file.read().to_pylist()]

    def accounting(self) -> list[dict[str, Any]]:
        """Return the rows of the accounting, one per batch."""
        return [json.loads(one) for one in (self.output / "accounting.jsonl").read().decode().splitlines()]
