"""Spark's checkpoint, made durable: on a mounted file system where Spark writes it, in remote storage as a
copy of what Spark has on the driver's disk.

Spark reads and writes its checkpoint through Hadoop, which needs a connector for each remote storage. So
there its own files stay on the driver's disk, and those that matter are copied to where the job's checkpoint
is, in the form that Spark gives them::

    metadata            the query's id
    sources/<i>/<n>     the known input of each source
    offsets/<batch>     the plan of a batch: kept before anything is written for the batch
    commits/<batch>     that Spark is done with it: kept with the plan of the next one

On the next start, on any machine, the copy is made from them. A file is written once and never changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from selectroute.durable import disk
from selectroute.durable.private_folder import temporary_folder
from selectroute.spark.job import JobError
from selectroute.spark.sources.checkpoint import log_files, planned_batches, source_logs
from selectroute.storage import Location
from selectroute.storage.location import Where

_LOGS: Final = ("sources", "offsets", "commits")
_FIRST: Final = ("metadata", "sources")
"""What a plan refers to: with a plan and without these Spark does not start, or takes files twice."""
_THREADS: Final = 8

_copies: dict[tuple[int, str], Path] = {}
"""Folders of the copies, by process and checkpoint."""

_kept: dict[tuple[int, str], set[str]] = {}
"""Names of the files that are in the checkpoint."""


def _is_in_place(checkpoint: Location) -> bool:
    """Return whether Spark works in the checkpoint itself."""
    return checkpoint.is_local


def working_copy(checkpoint: Location) -> Path:
    """Return the folder in which Spark works: the checkpoint itself, or for remote storage the copy on this
    machine, which is removed when the process ends.
    """
    if _is_in_place(checkpoint):
        return checkpoint.path
    key = os.getpid(), str(checkpoint)
    if key not in _copies:
        _copies[key] = temporary_folder("checkpoint")
    return _copies[key]


def restore(checkpoint: Location, is_committed: Callable[[int], bool]) -> None:
    """Make the copy anew from the checkpoint.

    Args:
        checkpoint: the checkpoint; nothing is done for one on a mounted file system.
        is_committed: returns whether a batch is committed. Spark is told that it is done with it.
    """
    if _is_in_place(checkpoint):
        return
    copy = working_copy(checkpoint)
    kept = _fetch(checkpoint, copy)
    planned = planned_batches(copy)
    commits = copy / "commits"
    if planned and is_committed(planned[-1]) and not (commits / str(planned[-1])).exists():
        # The process ended between our commit and the plan of the next batch.
        commits.mkdir(exist_ok=True)
        earlier = commits / str(planned[-1] - 1)
        text = earlier.read_text() if earlier.exists() else 'v1\n{"nextBatchWatermarkMs":0}'
        (commits / str(planned[-1])).write_text(text)
    _kept[os.getpid(), str(checkpoint)] = kept


def read_only_copy(checkpoint: Where) -> Path:
    """Return the folder of a checkpoint to be read: itself, or a copy as it is now, which is removed when the
    process ends.
    """
    where = Location.of(checkpoint)
    if _is_in_place(where):
        return where.path
    copy = temporary_folder("checkpoint")
    _fetch(where, copy)
    return copy


def keep(
    checkpoint: Location, remove: Callable[[Callable[[], None]], None] = lambda removal: removal()
) -> None:
    """Make the newest plan of Spark durable, with what it refers to: flush it, or copy the new files of Spark
    to the checkpoint, and remove those that Spark has removed.

    A plan is kept after what it refers to: the process may be killed in between.

    Args:
        checkpoint: the checkpoint.
        remove: begins a removal; it may return before that is done.

    Raises:
        JobError: the query keeps state, which is not copied.
        FileExistsError: another process has taken the job over, and planned the batch.
    """
    copy = working_copy(checkpoint)
    if _is_in_place(checkpoint):
        for log in (*source_logs(copy).values(), copy / "offsets"):
            for _, path in log_files(log)[-1:]:
                disk.flush(path)
        disk.flush(copy / "metadata")
        return
    if (copy / "state").exists():
        raise JobError(
            f"the query keeps state, and the checkpoint {checkpoint} is in remote storage, to which state is "
            "not copied: use a checkpoint on a mounted file system"
        )
    kept = _kept.setdefault((os.getpid(), str(checkpoint)), set())
    files = {path.relative_to(copy).as_posix() for log in _LOGS for path in (copy / log).rglob("*")}
    present = {name for name in files if not Path(name).name.startswith(".") and (copy / name).is_file()}
    if (copy / "metadata").is_file():
        present.add("metadata")
    new, gone = sorted(present - kept), sorted(kept - present)

    def put(name: str) -> None:
        data = (copy / name).read_bytes()
        if name.startswith("commits/"):
            (checkpoint / name).put(data)
        else:  # a process that stood still must not replace the plan of one that has taken the job over
            (checkpoint / name).put_new(data)

    first = [name for name in new if name.partition("/")[0] in _FIRST]
    _for_each(put, first)
    _for_each(put, sorted(set(new) - set(first)))
    if gone:
        # A plan is removed long after its batch; what is left of it does no harm.
        remove(lambda: _for_each(lambda name: (checkpoint / name).delete(), gone))
    kept |= set(new)
    kept -= set(gone)


def _fetch(checkpoint: Location, copy: Path) -> set[str]:
    """Make a folder anew from a checkpoint; return the names of its files."""
    shutil.rmtree(copy)
    copy.mkdir(mode=0o700)
    entries = checkpoint.entries(deep=True)
    names = [Location(checkpoint.storage, entry.key).relative_to(checkpoint) for entry in entries]
    kept = {name for name in names if name == "metadata" or name.partition("/")[0] in _LOGS}
    for name in kept:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)

    def fetch(name: str) -> None:
        (copy / name).write_bytes((checkpoint / name).read())

    _for_each(fetch, sorted(kept))
    return kept


def _for_each(work: Callable[[str], None], names: Iterable[str]) -> None:
    """Do some work for each name, side by side. Raises the error of the first that fails."""
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(work, names):
            pass
