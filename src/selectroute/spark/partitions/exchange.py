"""Choice between the two ways of routing in partitions.

With an exchange, Spark sends each message to tasks that serve one partition each (``route``, ``steps``): no
machine needs all of them. Without one, each worker maps all partitions and matches its own messages
(``mapped``), which is faster as long as the partitions fit the memory that the machine has for mapped files.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from pyspark.sql import SparkSession

from selectroute.spark.partitions.snapshot import PartitionedSnapshot

Exchange: TypeAlias = Literal["auto", "always", "never"]
"""Whether the messages are sent to the partitions by an exchange of Spark."""

MOST_MAPPED: Final = 128
"""Partitions that ``auto`` matches without an exchange. A mapped one takes two file descriptors in each
process, and those of the revision before may still be open: so half of the usual 1,024.
"""

_SHARE: Final = 0.5
"""Share of the memory for mapped files that partitions may fill: matching is not the only work there."""

_ORDINAL: Final = 4
"""Bytes of memory for each subscription in each worker process."""

_CGROUPS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Limits of a container, in versions 2 and 1; a number too large for any machine, or a word, is none."""

_LOGGER: Final = logging.getLogger("selectroute")


def check_exchange(exchange: object) -> None:
    """Raise ValueError for a value that is not one of `Exchange`."""
    if not isinstance(exchange, str) or exchange not in get_args(Exchange):
        raise ValueError(f"exchange is {exchange!r}: give 'auto', 'always' or 'never'")


def needs_exchange(spark: SparkSession, snapshot: PartitionedSnapshot, exchange: Exchange) -> bool:
    """Return whether messages are to be sent to the partitions.

    ``auto`` sends them if there are more than `MOST_MAPPED` partitions, or if the files of all partitions and
    the ordinals of all worker processes take more than half of the memory for them. In local mode this is the
    memory of this machine, or of its container. On a cluster the driver does not see the machines: it is what
    an executor has beside its JVM, ``spark.executor.memoryOverhead``, which is small by default. Whoever
    knows that the machines have more says ``never``.
    """
    if exchange != "auto":
        return exchange == "always"
    needed = sum(snapshot.bytes) + _tasks(spark) * _ORDINAL * sum(snapshot.rows)
    memory = _memory(spark)
    sends = snapshot.partitions > MOST_MAPPED or needed > _SHARE * memory
    _LOGGER.info(
        "messages are %s: %d partitions take %d bytes in memory, and half of %d may be used",
        "sent to the partitions by an exchange" if sends else "matched in each worker with all partitions",
        snapshot.partitions,
        needed,
        memory,
    )
    return sends


def _is_local(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).partition("[")[0] == "local"


def _tasks(spark: SparkSession) -> int:
    """Return the number of worker processes of a machine."""
    if _is_local(spark):
        return spark.sparkContext.defaultParallelism
    cores, each = (int(spark.conf.get(f"spark.{name}", "1") or 1) for name in ("executor.cores", "task.cpus"))
    return max(1, cores // each)


def _memory(spark: SparkSession) -> int:
    """Return the bytes of memory where the workers run."""
    if _is_local(spark):
        return machine_memory()
    conf = spark.sparkContext._jsc.sc().conf()  # the only one that reads sizes such as 1g
    heap = int(conf.getSizeAsMb("spark.executor.memory", "1g"))
    factor = float(conf.get("spark.executor.memoryOverheadFactor", "0.1"))
    least = int(conf.getSizeAsMb("spark.executor.minMemoryOverhead", "384m"))
    overhead = int(conf.getSizeAsMb("spark.executor.memoryOverhead", f"{max(least, int(factor * heap))}m"))
    return overhead << 20


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container of this process if that has fewer."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in map(Path, _CGROUPS):
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            memory = min(memory, int(text))
    return memory
