"""Delta table of a job: opened, appended to batch by batch, and kept small.

::

    _delta_log/<version>.json                 one transaction
    _delta_log/<version>.checkpoint.parquet   the state of the table at a version
    _delta_log/_last_checkpoint               the newest of these

Each append is one transaction with ``txn(app id, version)``: the app id is the job's, the version the number
of the batch, so that a repeat is recognised. Its entry is written here, whole and flushed, as long as no
other writer has changed the table; all else is written by the library.

The library does not flush. On a local disk an entry of the log is flushed before the next one is begun, so
that a loss of power can tear only the last one; and a checkpoint before anything is removed that it
replaces. Remote storage has files whole or not at all.

Small files become few by compaction, in rounds, each row written a few times at most. Files of batches are
of level 0. As soon as those of ``every`` batches are small, they are merged into a file of level 1; sixteen
small files of level 1 into one of level 2, and so on. A file of ``LARGE`` bytes is not small, and stays. So
the number of files grows with the logarithm of the number of small batches.
"""

from __future__ import annotations

import bisect
import itertools
import json
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from selectroute.spark.job import CommitError, JobError, OtherJobError
from selectroute.spark.tables.parquet_file import ParquetFile
from selectroute.spark.tables.schemas import REPEATING, WITH_BATCH, decoded
from selectroute.storage import DeniedError, Location, StorageError, UnreachableError
from selectroute.storage.objects import delta_options, known_error

LARGE: Final = 32 << 20
"""Bytes from which on a file is left alone."""

_FAN: Final = 16
"""Merged files of one level that become one of the next."""

_MOST_FILES: Final = 2_000
_MOST_BYTES: Final = 256 << 20
"""Limits of one merge: bounds its time, and what is lost if it is interrupted."""

_ROW_GROUP: Final = 1 << 18
_GROUP_BYTES: Final = 64 << 20

_NAME = re.compile(r"(?:part-(-?\d+)|merged-(\d+))-[0-9a-f]{32}\.parquet")


class LiveFile(NamedTuple):
    """File of a table: its path below the table's folder, its size, and the smallest and largest number that
    a batch in it may have.
    """

    path: str
    size: int
    first: int
    last: int

    @property
    def level(self) -> int | None:
        """Level of the file; None for one that another writer merged."""
        return level_of(self.path)


def batch_of(name: str) -> int | None:
    """Return the batch whose task wrote the file of this name; None for any other file."""
    named = _NAME.fullmatch(name)
    return int(named[1]) if named and named[1] else None


def level_of(name: str) -> int | None:
    """Return the level of the file of this name; None if this package did not write it."""
    named = _NAME.fullmatch(name)
    return int(named[2] or 0) if named else None


def small_batches(live: Iterable[LiveFile]) -> int:
    """Return the number of batches with a small file that is not merged."""
    return len({file.first for file in live if file.level == 0 and file.size < LARGE})


class Merge(NamedTuple):
    """Files that are to become one of a level."""

    files: tuple[LiveFile, ...]
    level: int


def plan_merge(live: Iterable[LiveFile], every: int) -> Merge | None:
    """Return the next merge that is due; None if there is none.

    >>> files = [LiveFile(f"part-{n}-{n:032}.parquet", 100, n, n) for n in range(4)]
    >>> plan_merge(files, 5) is None, plan_merge(files, 4).level
    (True, 1)
    """
    of_level: dict[int, list[LiveFile]] = {}
    # By batch, so that readers of a batch skip most row groups.
    for file in sorted(live, key=lambda file: (file.first, file.path)):
        if file.level is not None and file.size < LARGE:
            of_level.setdefault(file.level, []).append(file)
    for level, files in sorted(of_level.items()):
        parts, least = (small_batches(files), every) if level == 0 else (len(files), _FAN)
        if len(files) > 1 and parts >= least:
            sizes = list(itertools.accumulate(file.size for file in files[:_MOST_FILES]))
            return Merge(tuple(files[: max(2, bisect.bisect(sizes, _MOST_BYTES))]), level + 1)
    return None


def merge(folder: Location, sink: str, plan: Merge, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
    """Write the rows of the files of a merge to a new file, durably, and return its report, see
    `ParquetFile.close`; None if there is nothing to write, or the merge was stopped.

    The library's own merge is not flushed before its transaction, so that a loss of power could tear a file
    of the table; and takes 1.9 times the processor time.

    Raises:
        OSError, pyarrow.ArrowException: a file can't be read or written.
    """
    schema = WITH_BATCH[sink]
    target = folder / f"merged-{plan.level}-{uuid.uuid4().hex}.parquet"
    written = ParquetFile(target, sink, schema)
    group: list[pa.Table] = []
    try:
        for rows in _row_groups(folder, sink, plan.files):
            if should_stop():
                written.discard()
                return None
            group.append(rows)
            if sum(map(len, group)) >= _ROW_GROUP or sum(rows.nbytes for rows in group) >= _GROUP_BYTES:
                written.write_table(_joined(group))
                group = []
        if group:
            written.write_table(_joined(group))
        report = written.close()
        written.upload()
        return report
    except BaseException:
        written.discard()
        raise


def _row_groups(folder: Location, sink: str, files: Iterable[LiveFile]) -> Iterator[pa.Table]:
    schema = WITH_BATCH[sink]
    for file in files:
        with (folder / file.path).opened_by_arrow() as data:
            parquet = pq.ParquetFile(data, read_dictionary=REPEATING[sink])
            for number in range(parquet.num_row_groups):
                yield parquet.read_row_group(number).select(schema.names).cast(schema)


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


OWNER: Final = "selectroute.job"
"""Property of a table with the id of its job."""

OURS: Final = "selectroute"
"""Key of what this package writes to ``commitInfo``: ``actions`` is the number of the entry's other lines,
``batch`` the batch of an append.
"""

_REMOVED = "delta.deletedFileRetentionDuration"
_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints are made behind the stream, not by the transaction that a batch waits for."""

_CHECKPOINT_EVERY: Final = 10
"""Transactions between two checkpoints: readers read the entries after the last one."""

_KEPT_VERSIONS: Final = 1_000
"""Versions whose log entries stay. The library cuts a log by age alone; and it lists the log, 4 ms of a
processor longer for each 1,000 entries.
"""

_PATIENCE: Final = 4
"""How many times as many batches are waited for while batches follow each other without a pause: merges and
checkpoints take the processor that they need.
"""

_LOOKS: Final = 24
"""Number of times that files are looked for which were merged long ago, in the time for which they stay: a
look lists all of them.
"""

_LAST = "_last_checkpoint"
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_POINTER = re.compile(rb'\{.*"version":\s*(\d+).*\}\s*', re.DOTALL)
_TEMPORARY = re.compile(r".*#\d+|\..*-[0-9a-f]{8}\.tmp")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_STORAGE_ERROR = re.compile(
    r"Generic (S3|GCS|MicrosoftAzure|HdfsObjectStore|URL)|HTTP error|error sending request|ObjectStore"
    r"|denied(?! \(os error)|operation lacked"
)
_REFUSED = re.compile(r"operation lacked|40[13] (Forbidden|Unauthorized)")
_DENIED = re.compile(
    r"ExpiredToken|AccessDenied|Permission|Unauth|InvalidToken|status code: 40[13]|token request|"
    + _REFUSED.pattern
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"\d+: ")


class OutcomeTable:
    """Delta table of one sink of a job.

    Args:
        folder: the folder of the table.
        sink: the name of the table.
    """

    def __init__(self, folder: Location, sink: str) -> None:
        self.folder = folder
        self.sink = sink
        self.log = folder / "_delta_log"
        self._schema = Schema.from_arrow(decoded(WITH_BATCH[sink]))
        self._id: str | None = None
        self._table: DeltaTable | None = None
        self._appended: dict[str, int] = {}
        """Newest version of an app id up to `_version`; -1 if there is none."""
        self._lock = threading.RLock()  # of the table object, and of transactions
        self._version = -1
        """Version of the newest transaction of this process; that of another writer may be newer."""
        self._checkpoint = -1
        self._looked = float("-inf")
        self._small = 0
        """Number of batches with a small file."""

    # ---- whose it is

    def check(self, id: str | None, may_create: bool) -> None:
        """Check that the table is that of the job of this id, without a change.

        Args:
            id: the id of the job; None if the job has none yet.
            may_create: whether the table may be missing.

        Raises:
            OtherJobError: it is another's, or has other columns.
            JobError: it is missing, damaged, or of a version of Delta that is not supported.
        """
        if self._is_missing():
            if not may_create:
                raise JobError(
                    f"the Delta table {self.folder} is gone, and batches were committed to it: restore it, "
                    "or choose a new output folder"
                )
        elif not self.torn():  # which `prepare` repairs, and then checks
            self._check(self._opened(), id)

    def _check(self, table: DeltaTable, id: str | None) -> None:
        owner = table.metadata().configuration.get(OWNER)
        if id is None or owner != id:
            whose = "not of this job" if owner is None else f"of the job {owner}, not of {id or 'this one'}"
            raise OtherJobError(
                f"the Delta table {self.folder} is {whose}: move it away, or choose a new output folder"
            )
        protocol = table.protocol()
        features = [*(protocol.reader_features or ()), *(protocol.writer_features or ())]
        if features or protocol.min_reader_version > 1:
            named = ", ".join(sorted(set(features))) or f"reader version {protocol.min_reader_version}"
            raise JobError(
                f"the Delta table {self.folder} uses {named}, which this job cannot write: undo it, or "
                "choose a new output folder"
            )
        fields = {field.name: field.type for field in table.schema().fields}
        wanted = {field.name: field.type for field in self._schema.fields}
        if fields != wanted or table.metadata().partition_columns:
            differ = sorted(name for name in fields | wanted if fields.get(name) != wanted.get(name))
            what = f"the column {differ[0]}" if differ else "its partitioning"
            raise OtherJobError(
                f"the Delta table {self.folder} has other columns than this job writes ({what}): undo the "
                "change, or choose a new output folder"
            )

    # ---- written by the stream

    def prepare(self, id: str, retention_hours: int) -> list[Location]:
        """Repair the log, create the table if there is none, and open it; return what was removed.

        Raises:
            JobError, OtherJobError: as `check`.
        """
        self.log.make_folder()
        torn = self._repair()
        # Files are listed by writers for an hour longer than they stay, so that none is forgotten.
        removed = f"interval {retention_hours + 1} hours"
        with self._errors("be opened"):
            if self._is_missing():
                DeltaTable.create(
                    str(self.folder),
                    self._schema,
                    name=self.sink,
                    description=f"{self.sink} of the selectroute job {id}",
                    configuration={OWNER: id, _REMOVED: removed},
                    raise_if_key_not_exists=False,
                    storage_options=table_options(self.folder),
                    commit_properties=_of_commit(2, {}),
                    post_commithook_properties=_NO_HOOKS,
                )
            table = self._opened()
            self._check(table, id)
            if table.metadata().configuration.get(_REMOVED) != removed:
                table.alter.set_table_properties({_REMOVED: removed})
                table.update_incremental()
        self._flush_from(table.version())
        self._id, self._table, self._version = id, table, table.version()
        self._appended.clear()
        self._checkpoint = max(self.checkpoints(), default=-1)
        self._small = small_batches(self.live())
        return torn

    def version_of(self, app: str) -> int:
        """Return the newest version that was appended for an app id; -1 if there is none."""
        with self._current("be read") as table:
            return _newest(table, app)

    def append(
        self,
        transaction: Transaction,
        files: Sequence[Mapping[str, Any]],
        commit: Mapping[str, Any],
        is_checked: bool,
    ) -> None:
        """Append the files of a batch in one durable transaction. A repeat is recognised and skipped.

        Args:
            transaction: app id and version of the batch.
            files: its files as in its commit, with paths below the table's folder.
            commit: its commit.
            is_checked: whether the files were there a moment ago.

        Raises:
            CommitError: the table cannot take them.
            OSError: the disk cannot.
        """
        batch, revision = commit["batch"], commit["revision"]
        adds = [_add(file, batch=(batch, batch), revision=(revision, revision)) for file in files]
        ours = {name: commit[name] for name in ("batch", "revision", "digest", "counts", "committed")}
        ours["inputs"] = {name: commit["inputs"][name] for name in ("count", "sha256")}

        app = transaction.app_id
        with self._lock:
            if app not in self._appended:
                with self._current(f"take batch {batch}") as table:
                    if table.version() != self._version:
                        self._check(table, self._id)  # which another writer has changed
                    self._version, self._appended[app] = table.version(), _newest(table, app)
            if self._appended[app] >= transaction.version:
                return  # its files may have been merged since
            for file in files if not is_checked else ():
                self._check_file(file, batch)
            if not self._put_entry(adds, ours, transaction):
                self._append_after_others(adds, ours, transaction)
            self._appended[app] = transaction.version
            self._small += any(file["size"] < LARGE for file in files)

    def _append_after_others(
        self, adds: Sequence[AddAction], ours: Mapping[str, Any], transaction: Transaction
    ) -> None:
        """Append to a table that another writer has changed, by the library, unless that was this append."""
        with self._current(f"take batch {ours['batch']}") as table:
            self._version = table.version()
            self._appended.clear()
            self._check(table, self._id)
            try:
                if _newest(table, transaction.app_id) < transaction.version:
                    self._commit(table, adds, ours, [transaction])
            except CommitFailedError:
                # Another process that ran this job may have been faster.
                table.update_incremental()
                if _newest(table, transaction.app_id) < transaction.version:
                    raise

    def _put_entry(
        self, adds: Sequence[AddAction], ours: Mapping[str, Any], transaction: Transaction
    ) -> bool:
        """Write the entry after the newest one that this process knows, durably; return whether there was
        none of another writer. This is one request, where the library makes six, one after the other.

        Source: Delta Transaction Log Protocol, "Delta Log Entries", "Add File", "Transaction Identifiers".
        """
        info = {
            "timestamp": _milliseconds(),
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": "[]"},
            "isBlindAppend": True,
            OURS: {**ours, "actions": len(adds) + 1},
        }
        actions: list[dict[str, Any]] = [{"commitInfo": info}]
        actions.append({"txn": {"appId": transaction.app_id, "version": transaction.version}})
        for add in adds:
            actions.append(
                {
                    "add": {
                        "path": add.path,
                        "size": add.size,
                        "partitionValues": {},
                        "modificationTime": add.modification_time,
                        "dataChange": True,
                        "stats": add.stats,
                    }
                }
            )
        lines = (json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions)
        try:
            self.entry(self._version + 1).put_new("\n".join(lines).encode())
        except FileExistsError:
            return False
        self._version += 1
        return True

    def _check_file(self, file: Mapping[str, Any], batch: int) -> None:
        path = self.folder / file["path"]
        entry = path.entry()
        if entry is None or entry.size != file["size"]:
            now = "is gone" if entry is None else f"has {entry.size} bytes, and had {file['size']}"
            raise CommitError(f"batch {batch} is committed, but its file {path} {now}: restore the file")

    def _commit(
        self,
        table: DeltaTable,
        actions: Sequence[AddAction | RemoveAction],
        ours: Mapping[str, Any],
        transactions: list[Transaction] | None = None,
    ) -> None:
        """Commit a transaction, durably."""
        table.create_write_transaction(
            list(actions),
            "append",
            self._schema,
            commit_properties=_of_commit(len(actions) + len(transactions or ()), ours, transactions),
            post_commithook_properties=_NO_HOOKS,
        )
        self._version = table.version() + 1
        self._flush_from(self._version)

    # ---- behind the stream

    def compact(self, every: int, should_stop: Callable[[], bool], is_busy: Callable[[], bool]) -> None:
        """Merge the small files of batches, if those of ``every`` batches are there, or of some times as many
        while ``is_busy``. The stream only waits for the transactions at the end of merges.

        Raises OSError, DeltaError, pyarrow.ArrowException; the table is as before.
        """
        if self._small < every or (self._small < _PATIENCE * every and is_busy()):
            return
        while (plan := plan_merge(self.live(), every)) is not None:
            report = merge(self.folder, self.sink, plan, should_stop)
            if report is None:
                return
            self._replace(plan, report)
        self._small = small_batches(self.live())

    def _replace(self, plan: Merge, report: Mapping[str, Any]) -> None:
        """Replace the files of a merge by the merged file, of which this is the report."""
        self.folder.sync()
        now = _milliseconds()
        firsts, lasts = [file.first for file in plan.files], [file.last for file in plan.files]
        add = _add(report, is_new=False, batch=(min(firsts), max(lasts)))
        removes = [RemoveAction(file.path, False, now, file.size, {}) for file in plan.files]
        try:
            with self._current("be compacted") as table:
                self._commit(table, [add, *removes], {"merged": plan.level, "sha256": report["sha256"]})
        except BaseException:
            # What failed may be the flush of a transaction.
            if report["path"] not in {file.path for file in self.live()}:
                (self.folder / report["path"]).delete()
            raise

    def clean(
        self, retention_hours: int, should_stop: Callable[[], bool], is_busy: Callable[[], bool]
    ) -> None:
        """Make a checkpoint if enough transactions came since the last one, or some times as many while
        ``is_busy``; before it now and then remove the files that were merged long ago, after it the oldest
        entries of the log.

        Raises OSError, DeltaError; the table is as before.
        """
        passed = self._version - self._checkpoint
        if should_stop() or passed < _CHECKPOINT_EVERY:
            return
        if passed < _PATIENCE * _CHECKPOINT_EVERY and is_busy():
            return
        with self._errors("be cleaned"):
            # Another object, since the stream does not wait for this one.
            other = self._opened()
            if time.monotonic() - self._looked >= retention_hours * 3_600 / _LOOKS:
                other.vacuum(
                    retention_hours,
                    dry_run=False,
                    enforce_retention_duration=False,
                    post_commithook_properties=_NO_HOOKS,
                )
                self._flush_from(other.version())
                self._looked = time.monotonic()
                other.update_incremental()
            other.create_checkpoint()
        self._checkpoint = other.version()
        self.log.sync((f"{self._checkpoint:020d}.checkpoint.parquet", _LAST))
        self._cut()
        with self._lock:
            # It keeps the files of each transaction that it has seen, and goes through all.
            self._table = None

    def _cut(self) -> None:
        """Remove the entries and checkpoints before the newest checkpoint that is old enough."""
        old = (version for version in self.checkpoints() if version <= self._checkpoint - _KEPT_VERSIONS)
        first = max(old, default=0)
        for kind in (_ENTRY, _CHECKPOINT):
            for version, file in self._files(kind).items():
                if version < first:
                    file.delete()

    def remove_strays(self) -> None:
        """Remove files that are neither in the table, nor in an earlier version of it."""
        kept = {file.path for file in self.live()}
        with self._current("be cleaned") as table:
            removed = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
        kept |= {os.path.basename(path) for path in removed}
        for file in self.folder.files():
            if level_of(file.name) is not None and file.name not in kept:
                file.delete()

    # ---- its log

    def entry(self, version: int) -> Location:
        """Return the location of an entry."""
        return self.log / f"{version:020d}.json"

    def entries(self) -> list[int]:
        """Return the versions whose entry is there, ascending."""
        return list(self._files(_ENTRY))

    def checkpoints(self) -> list[int]:
        """Return the versions with a checkpoint in one file, ascending."""
        return list(self._files(_CHECKPOINT))

    def _files(self, kind: re.Pattern[str]) -> dict[int, Location]:
        named = ((kind.fullmatch(file.name), file) for file in self.log.files())
        return dict(sorted((int(version[1]), file) for version, file in named if version))

    def _is_missing(self) -> bool:
        return not self.entries() and not self.checkpoints()

    def torn(self) -> list[Location]:
        """Return what a loss of power has torn at the end of the log, and what it makes useless. In remote
        storage files are whole or not there at all: what can't be read is damage, and stays.
        """
        if not self.folder.is_local:
            return []
        bad = list(itertools.takewhile(_is_unreadable, reversed(self._files(_CHECKPOINT).values())))
        torn = [*itertools.takewhile(_is_torn, reversed(self._files(_ENTRY).values())), *bad]
        last = self.log / _LAST
        if last.exists() and (bad or not self._is_there(last.read())):
            torn.append(last)
        return torn

    def _is_there(self, pointer: bytes) -> bool:
        """Return whether the checkpoint of a pointer is there. Those of other writers have several files."""
        named = _POINTER.fullmatch(pointer)
        prefix = f"{int(named[1]):020d}.checkpoint" if named else "/"
        return any(file.name.startswith(prefix) for file in self.log.files())

    def _repair(self) -> list[Location]:
        """Remove what is torn, and files of writes that did not end; return the former."""
        torn = self.torn()
        for file in (*torn, *(file for file in self.log.files() if _TEMPORARY.fullmatch(file.name))):
            file.delete()
        self.log.sync()
        return torn

    def _flush_from(self, version: int) -> None:
        """Flush the entry of this version, and those that follow it."""
        entries = (self.entry(number) for number in itertools.count(version))
        self.log.sync(entry.name for entry in itertools.takewhile(Location.exists, entries))

    # ---- read

    def live(self) -> list[LiveFile]:
        """Return the files of the table, as it is now. Raises JobError if there is none, or it is damaged."""
        with self._current("be read") as table:
            actions = pa.table(table.get_add_actions(flatten=True))
        known = [
            name for name in ("path", "size_bytes", "min.batch", "max.batch") if name in actions.schema.names
        ]
        return [
            LiveFile(file["path"], file["size_bytes"], *_bounds(file.get("min.batch"), file.get("max.batch")))
            for file in actions.select(known).to_pylist()
        ]

    def _opened(self) -> DeltaTable:
        try:
            with self._errors("be read", JobError):
                return DeltaTable(str(self.folder), storage_options=table_options(self.folder))
        except TableNotFoundError:
            raise JobError(f"there is no Delta table {self.folder}: it was moved away") from None

    @contextmanager
    def _current(self, action: str) -> Iterator[DeltaTable]:
        """Hold the table object, as the table is now, for an action."""
        with self._lock, self._errors(action):
            try:
                if self._table is None:
                    self._table = self._opened()
                else:
                    self._table.update_incremental()
                yield self._table
            except BaseException:
                self._table = None  # nobody knows how far it came
                raise

    @contextmanager
    def _errors(self, action: str, kind: type[Exception] = CommitError) -> Iterator[None]:
        """Raise the library's errors as OSError, if the disk failed, or as ``kind``, in one sentence."""
        try:
            yield
        except (StorageError, TableNotFoundError):
            raise
        except (DeltaError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            failed, text = f"the Delta table {self.folder} cannot {action}", str(error)
            if _STORAGE_ERROR.search(text):
                raise _storage_error(error, failed) from error
            if (number := _OS_ERROR.search(text)) is not None:
                raise OSError(int(number[1]), os.strerror(int(number[1])), str(self.folder)) from error
            raise kind(f"{failed}: {_one_line(error)}") from error


def _newest(table: DeltaTable, app: str) -> int:
    version = table.transaction_version(app)
    return -1 if version is None else version


def table_options(folder: Location) -> dict[str, str] | None:
    """Return what the library needs to be told of a storage; None for what it finds by itself."""
    return delta_options(str(folder)) or None


def _of_commit(
    actions: int, ours: Mapping[str, Any], transactions: list[Transaction] | None = None
) -> CommitProperties:
    """Return what a transaction of so many actions has beside them."""
    return CommitProperties(
        custom_metadata={OURS: {**ours, "actions": actions}}, app_transactions=transactions
    )


def _add(file: Mapping[str, Any], is_new: bool = True, **bounds: tuple[int, int]) -> AddAction:
    """Return the action that adds a file, with statistics by which readers skip it."""
    if file["offsets"] is not None:
        bounds["offset"] = file["offsets"]
    statistics = {
        "numRecords": file["rows"],
        "minValues": {name: least for name, (least, _) in bounds.items()},
        "maxValues": {name: most for name, (_, most) in bounds.items()},
        "nullCount": {"batch": 0, "revision": 0},
    }
    return AddAction(file["path"], file["size"], {}, _milliseconds(), is_new, json.dumps(statistics))


def _bounds(first: int | None, last: int | None) -> tuple[int, int]:
    """Return the smallest and largest number of a batch in a file; another writer may not say them."""
    return (-sys.maxsize, sys.maxsize) if first is None or last is None else (first, last)


def _is_torn(entry: Location) -> bool:
    """Return whether a part of an entry is missing. Entries of other writers do not say how long they are: of
    these only a line that was cut can be seen.
    """
    try:
        actions = [dict(json.loads(line)) for line in entry.read().splitlines()]
    except (ValueError, TypeError):
        return True
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return not actions or (OURS in info and len(actions) != info[OURS]["actions"] + 1)


def _is_unreadable(checkpoint: Location) -> bool:
    try:
        pq.read_table(checkpoint.path, partitioning=None)
    except (pa.ArrowException, OSError):
        return True
    return False


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _storage_error(error: BaseException, failed: str) -> StorageError:
    """Return the error of remote storage that the library met, after what ``failed``."""
    text = str(error)
    if (known := known_error(text, failed)) is not None:
        return known
    kind = DeniedError if _DENIED.search(text) else UnreachableError
    cause = "the credentials do not allow it" if _REFUSED.search(text) else _one_line(error)[:200]
    return kind(f"{failed}: {cause}")


def _one_line(error: BaseException) -> str:
    """Return the text of an error of the library, without its colours and its backtrace."""
    lines = [line.strip(" \t↳") for line in _COLOUR.sub("", str(error)).splitlines()]
    frames = (at for at, line in enumerate(lines) if _FRAME.match(line))
    return ": ".join(filter(None, lines[: next(frames, None)])) or repr(error)
