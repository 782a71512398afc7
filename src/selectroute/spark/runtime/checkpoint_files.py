"""Settings by which Spark writes a checkpoint on a local disk without starting a process for each file.

By default Spark writes its two files of a batch with checksums beside them, and Hadoop starts ``chmod`` for
each of these four: some 70 ms a batch, more than all else that a small batch costs Spark. Here Hadoop's
plain local file system writes them, by the same two steps: another name, then a rename.

The log of a source of files is written so, too. Spark lists this log again and again, and keeps what it has
replaced for ten minutes, because some storage shows new files late: six hundred files at one batch a second.
A local disk shows them at once, so here only those of the last hundred batches stay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

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
    """Wait until a query of local files has its sources, or has ended."""
    until = time.monotonic() + _LONGEST_START
    while time.monotonic() < until and query.isActive and query.status["message"] in _STARTING:
        time.sleep(_LOOK_SECONDS)
