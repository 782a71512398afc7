"""Settings by which Spark writes a checkpoint on a local disk without starting a process for each file.

By default Spark writes its two files of a batch with checksums beside them, and Hadoop starts ``chmod`` for
each of these four: some 70 ms a batch, more than all else that a small batch costs Spark. Here Hadoop's
plain local file system writes them, by the same two steps: another name, then a rename.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_SETTINGS: Final = {
    _MANAGER: ("org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"),
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # The file system that Spark has opened before is another one.
    "fs.file.impl.disable.cache": "true",
}


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
