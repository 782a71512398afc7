"""Delta table of a job: opened, appended to batch by batch, and kept small.

Each append is one transaction with ``txn(app id, version)``: the app id is the job's, the version the
number of the batch, so that a repeat is recognised. It is written as the next entry of the log, if there is
none yet; if another writer was faster, the library finds out whether that is in the way, and appends. The
library also merges, makes checkpoints and reads; its table object is brought up to date when it is used.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from selectroute.durable import disk
from selectroute.spark.job.job import CommitError, JobError, OtherJobError
from selectroute.spark.sinks.schemas import WITH_BATCH
from selectroute.spark.tables.compaction import LARGE, LiveFile, merge, plan_merge
from selectroute.spark.tables.delta_log import OURS, DeltaLog, of_entry
from selectroute.storage import DeniedError, Location, StorageError, UnreachableError
from selectroute.storage.objects import delta_options, known_error
from selectroute.storage.patient import waiting

OWNER: Final = "selectroute.job"
"""Property of a table with the id of its job."""

_REMOVED = "delta.deletedFileRetentionDuration"
_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints are made behind the stream, not by the transaction that a batch waits for."""

_CHECKPOINT_EVERY: Final = 10
"""Transactions between two checkpoints: readers read the entries after the last one."""

_KEPT_VERSIONS: Final = 1_000
"""Versions whose log entries stay: the library lists the log, 1 ms longer for each 600 entries."""

_PATIENCE: Final = 4
"""How many times as many batches are waited for while batches follow each other without a pause: merges and
checkpoints take the processor that they need.
"""

_LOOKS: Final = 24
"""Number of times that files are looked for which were merged long ago, in the time for which they stay: a
look lists all of them.
"""

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_STORAGE_ERROR = re.compile(
    r"Generic (S3|GCS|MicrosoftAzure|HdfsObjectStore|URL)|HTTP error|error sending request|ObjectStore|denied"
    r"|operation lacked"
)
_REFUSED = re.compile(r"operation lacked|40[13] (Forbidden|Unauthorized)")
_DENIED = re.compile(
    r"ExpiredToken|AccessDenied|Permission|Unauth|InvalidToken|status code: 40[13]|token request|"
    + _REFUSED.pattern
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"\d+: ")


class Append(NamedTuple):
    """Files of a batch to be appended: as in its commit, with paths below the table's folder; ``checked`` if
    they were there a moment ago.
    """

    app: str
    version: int
    files: Sequence[Mapping[str, Any]]
    revision: int
    batch: int
    metadata: Mapping[str, Any]
    checked: bool = False


class OutcomeTable:
    """Delta table of one sink of a job.

    Args:
        folder: the folder of the table.
        sink: the name of the table.
    """

    def __init__(self, folder: Location, sink: str) -> None:
        self.folder = folder
        self.sink = sink
        self.log = DeltaLog(folder)
        self._schema = schema_of(sink)
        self._id: str | None = None
        self._table: DeltaTable | None = None
        self._lock = threading.Lock()  # of the table object, and of transactions
        self._version = -1
        """Newest version that this process knows; the table object may be of an earlier one."""
        self._appended: dict[str, int | None] = {}
        """Newest version of each app id, as in that version of the table."""
        self._checkpoint = -1
        self._looked = float("-inf")
        self._small: set[int] = set()
        self._may_merge = True
        self._is_stale = False

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
        entries = self.log.entries()
        if not entries and not self.log.checkpoints():
            if not may_create:
                raise JobError(
                    f"the Delta table {self.folder} is gone, and batches were committed to it: restore it, "
                    "or choose a new output folder"
                )
            return
        if self.log.torn():
            return  # which `prepare` repairs, and then checks
        self._check(waiting(self.folder, self._opened), id)

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
        return waiting(self.folder, lambda: self._prepare(id, retention_hours))

    def _prepare(self, id: str, retention_hours: int) -> list[Location]:
        self.log.folder.make_folder()
        torn = self.log.repair()
        # Files are listed by writers for an hour longer than they stay, so that none is forgotten.
        removed = f"interval {retention_hours + 1} hours"
        with self._errors("be opened"):
            if not self.log.entries() and not self.log.checkpoints():
                DeltaTable.create(
                    str(self.folder),
                    self._schema,
                    name=self.sink,
                    description=f"{self.sink} of the selectroute job {id}",
                    configuration={OWNER: id, _REMOVED: removed},
                    raise_if_key_not_exists=False,
                    storage_options=table_options(self.folder),
                    post_commithook_properties=_NO_HOOKS,
                )
            table = self._opened()
            self._check(table, id)
            if table.metadata().configuration.get(_REMOVED) != removed:
                table.alter.set_table_properties({_REMOVED: removed})
                table.update_incremental()
        newest = self.log.entries()
        if newest:
            self.log.flush_from(newest[-1])
        self._id, self._table, self._version = id, table, table.version()
        self._checkpoint = max(self.log.checkpoints(), default=-1)
        self._small = {file.batch for file in self.live() if file.batch is not None and file.size < LARGE}
        return torn

    def version_of(self, app: str) -> int | None:
        """Return the newest version that was appended for an app id; None if there is none."""
        return waiting(self.folder, lambda: self._version_of(app))

    def _version_of(self, app: str) -> int | None:
        with self._current() as table, self._errors("be read"):
            return table.transaction_version(app)

    def append(self, append: Append) -> None:
        """Append the files of a batch in one durable transaction. A repeat is recognised and skipped.

        Raises:
            CommitError: the table cannot take them.
            OSError: the disk cannot.
        """
        waiting(self.folder, lambda: self._append(append))

    def _append(self, append: Append) -> None:
        adds = [self._add(file["path"], file["size"], _statistics(file, append)) for file in append.files]
        with self._lock:
            if append.app not in self._appended:
                with self._errors("be read"):
                    self._appended[append.app] = self._now().transaction_version(append.app)
            if not _is_after(append.version, self._appended[append.app]):
                return  # its files may have been merged since
            for file in append.files if not append.checked else ():
                self._check_file(file, append.batch)
            ours = {"batch": append.batch, **append.metadata}
            transaction = Transaction(append.app, append.version)
            try:
                self.log.append(self._version + 1, adds, transaction, ours)
                self._version += 1
            except FileExistsError:
                self._append_after_others(append, adds, transaction, ours)
            self._appended[append.app] = append.version
        self._small |= {append.batch for file in append.files if file["size"] < LARGE}

    def _append_after_others(
        self, append: Append, adds: Sequence[AddAction], transaction: Transaction, ours: Mapping[str, Any]
    ) -> None:
        """Append to a table that another writer has changed, by the library, unless that was this append."""
        with self._errors("be read"):
            self._version += 1  # at least
            table = self._now()
            self._appended.clear()
            known = table.transaction_version(append.app)
        if not _is_after(append.version, known):
            return
        self._check(table, self._id)
        with self._errors(f"take batch {append.batch}"):
            try:
                self._commit(table, adds, (), ours, [transaction])
            except CommitFailedError:
                # Another process that ran this job may have been faster.
                if _is_after(append.version, table.transaction_version(append.app)):
                    raise

    def _commit(
        self,
        table: DeltaTable,
        adds: Sequence[AddAction],
        removes: Sequence[RemoveAction],
        ours: Mapping[str, Any],
        transactions: list[Transaction] | None = None,
    ) -> None:
        """Commit a transaction durably by the library, and bring the table up to date."""
        before = table.version()
        try:
            table.create_write_transaction(
                [*adds, *removes],
                "append",
                self._schema,
                commit_properties=CommitProperties(
                    custom_metadata={OURS: of_entry(ours, adds, removes)}, app_transactions=transactions
                ),
                post_commithook_properties=_NO_HOOKS,
            )
        except BaseException:
            with suppress(DeltaError, OSError):
                self._update(table)
            raise
        self.log.flush_from(before + 1)
        self._update(table)

    def _check_file(self, file: Mapping[str, Any], batch: int) -> None:
        path = self.folder / file["path"]
        entry = path.entry()
        size = -1 if entry is None else entry.size
        if size != file["size"]:
            now = "is gone" if size < 0 else f"has {size} bytes, and had {file['size']}"
            raise CommitError(f"batch {batch} is committed, but its file {path} {now}: restore the file")

    def _add(self, path: str, size: int, statistics: Mapping[str, Any], is_new: bool = True) -> AddAction:
        return AddAction(path, size, {}, _milliseconds(), is_new, json.dumps(statistics))

    # ---- behind the stream

    def compact(
        self,
        every: int,
        should_stop: Callable[[], bool] = lambda: False,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Merge the small files of batches, if those of ``every`` batches are there, or of some times as many
        while ``is_busy``; return whether there may be more to merge. The stream only waits for the
        transaction at the end.

        Raises OSError, DeltaError, pyarrow.ArrowException; the table is as before.
        """
        if len(self._small) < every and not self._may_merge:
            return False
        if len(self._small) < _PATIENCE * every and is_busy():
            return False
        live = self.live()
        plan = plan_merge(live, every)
        self._may_merge = plan is not None
        if plan is None:
            self._small = {file.batch for file in live if file.batch is not None and file.size < LARGE}
            return False
        report = merge(self.folder, self.sink, plan, should_stop)
        if report is None:
            return False
        if self.folder.is_local:
            disk.sync_folder(self.folder.path)
        now = _milliseconds()
        removes = [RemoveAction(file.path, False, now, file.size, {}) for file in plan.files]
        statistics = _merged(plan.files, report)
        adds = [self._add(report["path"], report["size"], statistics, is_new=False)]
        ours = {"merged": plan.level, "sha256": report["sha256"]}
        try:
            with self._current() as table, self._errors("be compacted"):
                self._commit(table, adds, removes, ours)
        except BaseException:
            self._discard(report["path"])
            raise
        self._small -= {file.batch for file in plan.files if file.batch is not None}
        return True

    def _discard(self, name: str) -> None:
        """Remove a merged file, unless the table has it: what failed may be the flush of a transaction."""
        if name not in {file.path for file in self.reopen().live()}:
            (self.folder / name).delete()

    def clean(
        self,
        retention_hours: int,
        should_stop: Callable[[], bool] = lambda: False,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make a checkpoint if enough transactions came since the last one, or some times as many while
        ``is_busy``; before it now and then remove the files that were merged long ago, after it the oldest
        entries of the log.

        Raises OSError, DeltaError; the table is as before.
        """
        passed = self._version - self._checkpoint
        if passed < _CHECKPOINT_EVERY or should_stop():
            return
        if passed < _PATIENCE * _CHECKPOINT_EVERY and is_busy():
            return
        with self._errors("be cleaned"):
            # Another object: the stream does not wait for this one. It then replaces the first: an object
            # keeps the files of each transaction that it has seen as a part of its own, and goes through all.
            other = self._opened()
            if time.monotonic() - self._looked >= retention_hours * 3_600 / _LOOKS:
                for path in other.vacuum(retention_hours, dry_run=True, enforce_retention_duration=False):
                    if should_stop():
                        return
                    self._remove(path)
                self._looked = time.monotonic()
            other.create_checkpoint()
        self.log.flush_checkpoint(other.version())
        self._checkpoint = other.version()
        self.log.cut(_KEPT_VERSIONS)
        with self._lock:
            self._table = other
            self._version = max(self._version, self._checkpoint)

    def remove_strays(self, named: Collection[str]) -> None:
        """Remove files that are neither in the table, nor in an earlier version of it, nor ``named``."""
        kept = {file.path for file in self.live()} | set(named)
        with self._current() as table, self._errors("be cleaned"):
            kept |= {
                os.path.basename(path)
                for path in table.vacuum(0, dry_run=True, enforce_retention_duration=False)
            }
        for file in self.folder.files():
            if file.name not in kept and _is_data(file.name):
                file.delete()

    def _remove(self, path: str) -> None:
        name = os.path.basename(path)
        if _is_data(name):
            (self.folder / name).delete()

    # ---- read

    def live(self) -> list[LiveFile]:
        """Return the files of the table, as it is now, or as it was last written by this process."""
        with self._current() as table, self._errors("be read"):
            actions = pa.table(table.get_add_actions(flatten=True))
        names = {"path": "path", "size": "size_bytes", "rows": "num_records", "first": "min.batch"}
        names["last"] = "max.batch"
        columns = [
            actions[name].to_pylist() if name in actions.column_names else [None] * len(actions)
            for name in names.values()
        ]
        return [LiveFile(*values) for values in zip(*columns, strict=True)]

    def reopen(self) -> OutcomeTable:
        """Return the table as it is now, to be read. Raises JobError if there is none, or it is damaged."""
        other = OutcomeTable(self.folder, self.sink)
        other._table = other._opened()
        other._version = other._table.version()
        return other

    def _opened(self) -> DeltaTable:
        try:
            return DeltaTable(str(self.folder), storage_options=table_options(self.folder))
        except TableNotFoundError:
            raise JobError(f"there is no Delta table {self.folder}: it was moved away") from None
        except (DeltaError, OSError) as error:
            if (of_storage := self._storage_error(error, "be read")) is not None:
                raise of_storage from error
            raise JobError(f"the Delta table {self.folder} can't be read: {_one_line(error)}") from error

    @contextmanager
    def _current(self) -> Iterator[DeltaTable]:
        """Hold the table object, up to date."""
        with self._lock:
            with self._errors("be read"):
                table = self._now()
            yield table

    def _now(self) -> DeltaTable:
        """Return the table object, up to date. The caller holds the lock."""
        assert self._table is not None, "the table is not open"
        if self._is_stale:
            self._table = self._opened()
            self._version = max(self._version, self._table.version())
            self._is_stale = False
        if self._table.version() < self._version:
            self._update(self._table)
        return self._table

    def _update(self, table: DeltaTable) -> None:
        table.update_incremental()
        self._version = max(self._version, table.version())

    def _storage_error(self, error: BaseException, action: str) -> StorageError | None:
        """Return the error of remote storage that the library met; None for any other."""
        text = str(error)
        if self.folder.is_local or not _STORAGE_ERROR.search(text):
            return None
        failed = f"the Delta table {self.folder} cannot {action}"
        if (known := known_error(text, failed)) is not None:
            return known
        kind = DeniedError if _DENIED.search(text) else UnreachableError
        cause = "the credentials do not allow it" if _REFUSED.search(text) else _one_line(error)[:200]
        return kind(f"{failed}: {cause}")

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Raise the library's errors as OSError, if the disk failed, or as CommitError, in one sentence."""
        try:
            yield
        except StorageError:
            raise
        except (DeltaError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            if (of_storage := self._storage_error(error, action)) is not None:
                self._is_stale = True  # nobody knows how far it came
                raise of_storage from error
            failed = _OS_ERROR.search(str(error))
            if failed is not None:
                number = int(failed[1])
                raise OSError(number, os.strerror(number), str(self.folder)) from error
            raise CommitError(f"the Delta table {self.folder} cannot {action}: {_one_line(error)}") from error


def table_options(folder: Location) -> dict[str, str] | None:
    """Return what the library needs to be told of a storage; None for what it finds by itself."""
    return None if folder.is_local else delta_options(str(folder))


def schema_of(sink: str) -> Schema:
    """Return the columns of a table: those of its files, with dictionaries as plain strings."""
    return Schema.from_arrow(
        pa.schema(
            field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field
            for field in WITH_BATCH[sink]
        )
    )


def _statistics(file: Mapping[str, Any], append: Append) -> dict[str, Any]:
    """Return the statistics of a file of a batch, with which readers skip it."""
    return _statistics_of(
        file["rows"], (append.batch, append.batch), {"revision": [append.revision] * 2}, file["offsets"]
    )


def _merged(files: Iterable[LiveFile], report: Mapping[str, Any]) -> dict[str, Any]:
    firsts = [file.first for file in files]
    lasts = [file.last for file in files]
    batches = None
    if all(one is not None for one in (*firsts, *lasts)):
        batches = min(one for one in firsts if one is not None), max(one for one in lasts if one is not None)
    return _statistics_of(report["rows"], batches, {}, report["offsets"])


def _statistics_of(
    rows: int,
    batches: tuple[int, int] | None,
    others: Mapping[str, Sequence[int]],
    offsets: Sequence[int] | None,
) -> dict[str, Any]:
    known = {"batch": batches, **others, "offset": offsets}
    bounds = {name: two for name, two in known.items() if two is not None}
    return {
        "numRecords": rows,
        "minValues": {name: two[0] for name, two in bounds.items()},
        "maxValues": {name: two[1] for name, two in bounds.items()},
        "nullCount": {"batch": 0, "revision": 0},
    }


def _is_after(version: int, known: int | None) -> bool:
    return known is None or version > known


def _is_data(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(("_", "."))


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _one_line(error: BaseException) -> str:
    """Return the text of an error of the library, without its colours and its backtrace."""
    lines = [line.strip(" \t↳") for line in _COLOUR.sub("", str(error)).splitlines()]
    frames = (at for at, line in enumerate(lines) if _FRAME.match(line))
    return ": ".join(filter(None, lines[: next(frames, None)])) or repr(error)
