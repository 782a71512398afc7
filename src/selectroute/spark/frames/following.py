"""Pins of streams that follow a snapshot folder: each micro-batch is matched with the revision that was
newest at its start.

Spark plans a stream once, so the driver cannot pass a snapshot to each micro-batch. Instead the tasks, which
know their query and micro-batch, agree on it: the first task of a micro-batch writes the newest revision to
the snapshot folder, and all others of that micro-batch read it there: tasks on other machines, repeated
tasks, and tasks of the same micro-batch after a restart from its checkpoint.

::

    folder/followers/<query>-<micro-batch>.json     batch, revision, digest; created by a link, so only once
    folder/leases/<query>.json                      the oldest revision that the query may still need
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pyspark import TaskContext
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from selectroute.durable import disk
from selectroute.index.errors import SnapshotError
from selectroute.index.folder.manifest import latest_revision, locked, published_digest
from selectroute.match.columns.from_messages import BODY
from selectroute.selector.names import INVALID_NAMES
from selectroute.spark.columns.binding import BY_NAME, Binding, ambiguous, bind, column_at, columns_of
from selectroute.spark.columns.column_types import by_identifier, can_be_property, invalid_names
from selectroute.spark.columns.snapshot_ref import SnapshotRef, lease
from selectroute.storage import Location
from selectroute.topics.filter import TOPIC

_KEPT = 2
"""Micro-batches whose pins are kept: the newest, and the one that Spark may repeat."""

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark sets in the tasks of a stream."""


def current(folder: str) -> SnapshotRef:
    """Return the revision of a micro-batch, in one of its tasks.

    Raises:
        SnapshotError: there is no revision, the pinned one is gone, or the folder can't be written.
    """
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY)
    batch = None if context is None else context.getLocalProperty(_BATCH)
    if not query or batch is None:
        raise SnapshotError(
            f"only the micro-batches of a stream can follow {folder}; open a revision with "
            "sr.Snapshot.open(folder) instead"
        )
    return _known(folder, query, int(batch))


@lru_cache(maxsize=_KEPT)
def _known(folder: str, query: str, batch: int) -> SnapshotRef:
    return pinned(Location.of(folder), query, batch)


def pinned(folder: Location, query: str, batch: int) -> SnapshotRef:
    """Return the pinned revision of a query's micro-batch; pin the newest if there is none.

    Raises:
        SnapshotError: as `current`.
    """
    pins = folder / "followers"
    path = _path(pins, query, batch)
    try:
        written = path.read_json()
        if written is None:
            latest_revision(folder)  # raises if there is none
            pins.make_folder()
            # The lock keeps the newest revision from being removed before it is leased, and other tasks of
            # this micro-batch from leasing another one.
            with locked(folder, exclusive=True):
                if path.read_json() is None:
                    _pin(folder, path, query, batch)
            written = path.read_json()
        assert written is not None
    except OSError as error:
        raise SnapshotError(
            f"{path} can't be written ({error.strerror or error}): a stream that follows a folder writes the "
            "revision of each micro-batch to it, so let the workers write there"
        ) from error
    return SnapshotRef(str(folder), int(written["revision"]), str(written["digest"]))


def _pin(folder: Location, path: Location, query: str, batch: int) -> None:
    before = _path(path.parent, query, batch - 1).read_json()
    revision = latest_revision(folder)
    if before is not None and revision < before["revision"]:
        raise SnapshotError(
            f"the newest revision in {folder} is {revision}, but the previous micro-batch used "
            f"{before['revision']}: revisions only increase; publish the older state again as a new revision"
        )
    leased = revision if before is None else before["revision"]
    lease(folder, query, leased)
    content = {"batch": batch, "revision": revision, "digest": published_digest(folder, revision)}
    try:
        path.put_new_json(content)
    except FileExistsError:  # another task of this micro-batch was first
        if path.is_local:
            disk.sync_folder(path.parent.path)  # it may not have flushed the file
        else:  # where no lock kept it from leasing another revision
            winner = path.read_json()
            lease(folder, query, leased if winner is None else min(leased, int(winner["revision"])))
    for number in range(batch - _KEPT, -1, -1):
        old = _path(path.parent, query, number)
        if not old.exists():
            break
        old.delete()


def _path(pins: Location, query: str, batch: int) -> Location:
    return pins / f"{query}-{batch}.json"


def all_columns(
    schema: StructType, columns: Sequence[Column], binding: Binding | None
) -> list[tuple[str, Column]]:
    """Return every column that a selector of any later revision may read, with its identifier.

    Raises:
        BindingError: several columns of the frame have the same name.
    """
    binding = binding or BY_NAME
    by_name, _ = columns_of(schema)
    read: list[tuple[str, Column]] = []
    for identifier, places in sorted(by_identifier(schema, binding).items()):
        if identifier.startswith("@") and identifier not in (TOPIC, BODY):
            continue
        if len(places) > 1:
            raise ambiguous(binding.column(identifier), len(places))
        (bound,) = bind(schema, (identifier,), binding)
        read.append((identifier, _sent(bound.read(schema, columns), bound.type)))
    if INVALID_NAMES in by_name:
        path, _ = by_name[INVALID_NAMES][0]
        read.append((INVALID_NAMES, column_at(schema, columns, path)))
    else:
        read.append((INVALID_NAMES, invalid_names(schema, columns, binding)))
    return read


def _sent(column: Column, type_: DataType) -> Column:
    """Return a column to send to the workers; if no property has its type, a placeholder for each value."""
    return column if can_be_property(type_) else F.when(column.isNotNull(), F.lit("2000-01-01").cast("date"))
