"""Log of a Delta table: on a local disk made durable and repaired after a loss of power, and cut.

::

    _delta_log/<version>.json                 one transaction: commitInfo, then the actions
    _delta_log/<version>.checkpoint.parquet   the state of the table at a version
    _delta_log/_last_checkpoint               the newest of these

Appends are written here, whole and flushed. All else is written by the library, which does not flush: such an
entry is flushed before the next one is begun, so that a loss of power can tear only the last one; and a
checkpoint before anything is removed that it replaces. Remote storage has files whole or not at all.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Transaction
from deltalake.transaction import AddAction, RemoveAction

from selectroute.durable import disk
from selectroute.storage import Location

OURS = "selectroute"
"""Key of what this package writes to ``commitInfo``: ``adds`` and ``removes`` count the actions of the entry,
``batch`` is the batch of an append.
"""

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_TEMPORARY = re.compile(r".*#\d+|\..*-[0-9a-f]{8}\.tmp")
_LAST = "_last_checkpoint"
_CREATE = "CREATE TABLE"


def of_entry(
    ours: Mapping[str, Any], adds: Sequence[AddAction], removes: Sequence[RemoveAction]
) -> dict[str, Any]:
    """Return what this package writes to ``commitInfo`` of an entry with these actions."""
    return {**ours, "adds": len(adds), "removes": len(removes)}


class DeltaLog:
    """Log of one table. Its folder may not exist yet."""

    def __init__(self, table: Location) -> None:
        self.folder = table / "_delta_log"

    def entry(self, version: int) -> Location:
        """Return the location of an entry."""
        return self.folder / f"{version:020d}.json"

    def entries(self) -> list[int]:
        """Return the versions whose entry is there, ascending."""
        return self._versions(_ENTRY)

    def checkpoints(self) -> list[int]:
        """Return the versions with a checkpoint in one file, ascending."""
        return self._versions(_CHECKPOINT)

    def append(
        self, version: int, adds: Sequence[AddAction], transaction: Transaction, ours: Mapping[str, Any]
    ) -> None:
        """Write the entry of this version, durably: a blind append of files to the entry before it, which the
        caller knows. Raises FileExistsError if there is one already, `StorageError`, OSError.

        Source: Delta Transaction Log Protocol, "Delta Log Entries", "Add File", "Transaction Identifiers".
        """
        info = {
            "timestamp": time.time_ns() // 1_000_000,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": "[]"},
            "isBlindAppend": True,
            OURS: of_entry(ours, adds, ()),
        }
        actions: list[dict[str, Any]] = [{"commitInfo": info}]
        actions.append({"txn": {"appId": transaction.app_id, "version": transaction.version}})
        for one in adds:
            actions.append(
                {
                    "add": {
                        "path": one.path,
                        "size": one.size,
                        "partitionValues": dict(one.partition_values),
                        "modificationTime": one.modification_time,
                        "dataChange": one.data_change,
                        "stats": one.stats,
                    }
                }
            )
        lines = (json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions)
        self.entry(version).put_new("\n".join(lines).encode())

    def flush_from(self, version: int) -> None:
        """Flush the entry of this version, which must exist, and those that follow it. Raises OSError."""
        if not self.folder.is_local:
            return
        path = self.entry(version)
        while True:
            disk.sync(path.path)
            version += 1
            path = self.entry(version)
            if not path.exists():
                break
        disk.sync_folder(self.folder.path)

    def flush_checkpoint(self, version: int) -> None:
        """Flush the checkpoint of this version, and the pointer to it. Raises OSError."""
        if not self.folder.is_local:
            return
        disk.sync(self._checkpoint(version).path)
        disk.sync((self.folder / _LAST).path)
        disk.sync_folder(self.folder.path)

    def torn(self) -> list[Location]:
        """Return what a loss of power has torn at the end of the log, and what it makes useless."""
        return list(self._torn()) if self.folder.is_local and self.folder.is_folder() else []

    def repair(self) -> list[Location]:
        """Remove what is torn, and files of writes that did not end; return the former."""
        torn = self.torn()
        if self.folder.is_local and self.folder.is_folder():
            unfinished = [path for path in self.folder.files() if _TEMPORARY.fullmatch(path.name)]
            for path in (*torn, *unfinished):
                path.delete()
            if torn:
                disk.sync_folder(self.folder.path)
        return torn

    def cut(self, keep: int) -> int:
        """Remove the entries and checkpoints before the newest checkpoint that is at least ``keep`` versions
        old, which must be durable; return the number of files.
        """
        checkpoints = self.checkpoints()
        if not checkpoints:
            return 0
        first = max((one for one in checkpoints if one <= checkpoints[-1] - keep), default=0)
        old = [self.entry(version) for version in self.entries() if version < first]
        old += [self._checkpoint(version) for version in checkpoints if version < first]
        for path in old:
            path.delete()
        return len(old)

    def _torn(self) -> Iterator[Location]:
        for version in reversed(self.entries()):
            path = self.entry(version)
            if not _is_torn(path.read()):
                break
            yield path
        bad = []
        for version in reversed(self.checkpoints()):
            path = self._checkpoint(version)
            if _is_readable(path):
                break
            bad.append(path)
        yield from bad
        last = self.folder / _LAST
        if last.exists() and (bad or not self._names_checkpoint(last.read())):
            yield last

    def _names_checkpoint(self, data: bytes) -> bool:
        """Return whether a pointer is whole. Other writers may point to checkpoints of several files."""
        try:
            content = json.loads(data)
            version = int(content["version"])
        except (ValueError, TypeError, KeyError):
            return False
        return any(one.name.startswith(f"{version:020d}.checkpoint") for one in self.folder.files())

    def _checkpoint(self, version: int) -> Location:
        return self.folder / f"{version:020d}.checkpoint.parquet"

    def _versions(self, pattern: re.Pattern[str]) -> list[int]:
        names = (one.name for one in self.folder.files())
        return sorted(int(named[1]) for name in names if (named := pattern.fullmatch(name)))


def _is_torn(data: bytes) -> bool:
    """Return whether a part of an entry is missing. Entries of other writers do not say how long they are: of
    these only a line that was cut can be seen.
    """
    try:
        actions = [json.loads(line) for line in data.splitlines()]
    except ValueError:
        return True
    if not actions or not all(isinstance(action, dict) for action in actions):
        return True
    kinds = [next(iter(action), "") for action in actions]
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    if info.get("operation") == _CREATE:
        return "metaData" not in kinds or "protocol" not in kinds
    ours = info.get(OURS)
    if ours is None:
        return False
    wanted = ours["adds"], ours["removes"], int("batch" in ours)
    return (kinds.count("add"), kinds.count("remove"), kinds.count("txn")) != wanted


def _is_readable(path: Location) -> bool:
    try:
        pq.read_table(path.path, partitioning=None)
    except (pa.ArrowException, OSError):
        return False
    return True
