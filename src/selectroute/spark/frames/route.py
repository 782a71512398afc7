"""Routing of DataFrames: the subscriptions of each message.

`route` adds a column of ordinals or ids, `deliveries` returns a row for each delivery. Only the columns that
selectors read, and those that identify a delivery, cross from the JVM to Python; a message's body does not.

A stream that *follows* a snapshot folder matches each micro-batch with the revision that was newest at its
start. Spark plans a stream once, so the driver cannot pass a snapshot to each micro-batch. Instead the tasks,
which know their query and micro-batch, agree on it: the first task of a micro-batch writes the newest
revision to the snapshot folder, and all others of that micro-batch read it there: tasks on other machines,
repeated tasks, and tasks of the same micro-batch after a restart from its checkpoint::

    folder/followers/<query>-<micro-batch>.json     batch, revision, digest; created by a link, so only once
    folder/leases/<query>.json                      the oldest revision that the query may still need
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, DataType, LongType, StructField, StructType

from selectroute.index.errors import SnapshotError
from selectroute.index.snapshot import Snapshot
from selectroute.index.snapshot_files import latest_revision, locked, published_digest
from selectroute.match.columns.from_messages import BODY
from selectroute.match.columns.missing import Missing, check_choice, missing_columns, report_missing
from selectroute.selector.arguments import check_argument, wrong_kind
from selectroute.selector.errors import did_you_mean
from selectroute.selector.extended import GROUP, provider
from selectroute.selector.names import INVALID_NAMES
from selectroute.spark.columns.binding import (
    BY_NAME,
    Binding,
    BindingError,
    ambiguous,
    bind,
    by_position,
    column_at,
    columns_of,
    is_mixed,
)
from selectroute.spark.columns.column_types import (
    by_identifier,
    can_be_property,
    check_types,
    invalid_names,
    read_columns,
)
from selectroute.spark.columns.matches import (
    IDS,
    TYPES,
    Form,
    Output,
    OutputError,
    Pairs,
    check_output,
    form_of,
    is_ids,
    is_ordinals,
    pairs,
    written,
)
from selectroute.spark.columns.matches import read as read_ordinals
from selectroute.spark.columns.snapshot_ref import SnapshotRef, lease, open_once, refer
from selectroute.spark.partitions.publish import partitioned
from selectroute.spark.partitions.route import (
    Exchange,
    MappedPartitions,
    check_exchange,
    map_once,
    needs_exchange,
    route_partitioned,
)
from selectroute.spark.partitions.snapshot import PartitionedSnapshot, PartitionsRef, partitioned_revisions
from selectroute.spark.partitions.steps import PartitionError
from selectroute.spark.tables.schemas import BATCH, DELIVERIES, SCHEMAS, decoded
from selectroute.storage import Location
from selectroute.topics.filter import TOPIC

_KEPT = 2
"""Micro-batches whose pins are kept: the newest, and the one before, which Spark may repeat."""

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
        path.parent.sync()  # it may not have flushed the file
        # Where no lock kept it from that, it has leased another revision.
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


_Known: TypeAlias = Snapshot | PartitionedSnapshot
_Opened: TypeAlias = Snapshot | MappedPartitions
_Ref: TypeAlias = SnapshotRef | PartitionsRef | str

SUBSCRIPTIONS = "subscriptions"
"""Column that `route` adds."""


_SUBSCRIPTION, *_OTHERS = SCHEMAS[DELIVERIES]
_DELIVERY_SCHEMA = decoded(pa.schema([_SUBSCRIPTION, BATCH, *_OTHERS]))

_OF_MESSAGE = ("source", "partition", "offset", "message_id")
"""Columns of a delivery that come from its message."""

_REVISION = "selectroute.revision"
"""Key in the metadata of a column of ordinals: their revision."""

_WITH_REVISION = "revision and ids"
_TYPES: dict[str, DataType] = TYPES | {
    _WITH_REVISION: StructType([StructField("revision", LongType()), StructField("subscriptions", IDS)])
}

_FRAME = {"source": "string", "partition": "int", "offset": "bigint"}
"""Types of the columns of a delivery that come from the frame's columns of these names with an ``@``."""


def route(
    df: DataFrame,
    snapshot: Snapshot | PartitionedSnapshot | str | os.PathLike[str],
    binding: Binding | None = None,
    *,
    partitions: int | None = None,
    exchange: Exchange = "auto",
    output: Output | None = None,
    missing: Missing = "warn",
    strict: bool = False,
) -> DataFrame:
    """Return the messages of ``df`` with a column ``subscriptions``: the matching subscriptions as ordinals
    (``array<int>``) or ids (``array<string>``).

    ``snapshot.ids[ordinal]`` is the subscription's id. Ordinals are valid within one revision only, which is
    in the column's metadata (``df.schema["subscriptions"].metadata``, kept by Parquet): to store the result,
    use ids. Works on batch and streaming frames. If a filter and an explode both read the column, it is
    computed once. Deliveries that no extended selection provider can judge (MQRC 2551) are omitted, with a
    warning if no provider is installed. For selectors with rules on property names, all columns of the frame
    that are neither headers nor ``@`` columns count as properties, unless the frame has a boolean column
    ``@invalid-names``, which is true where a message breaks a rule.

    A column of a type that no property has (a timestamp, a decimal, a list, …; bytes in a dialect without
    byte strings) is of an unlike type to the subscriptions that read it, with a warning; it does not affect
    other subscriptions.

    Args:
        df: one message per row. A column is the identifier of exactly its name, field ``b`` of a struct
            column ``a`` is ``a.b``; its type is the property's type, NULL is NULL, and an identifier without
            a column is NULL. Names that begin with ``@`` belong to the frame.
        snapshot: the snapshot to match with; an unpublished one is published to a temporary folder on this
            machine. One from `publish_partitions` is mapped by the workers, in whole or by partitions: see
            ``exchange``.
            In a stream, it stays the snapshot of every micro-batch, which is logged (logger ``selectroute``,
            INFO), and so does the newest revision in partitions, if the path is of such a folder. The path
            of a snapshot folder means its newest revision; a streaming frame *follows* it:
            each micro-batch uses the revision that is newest when it begins, even if it is repeated. For
            that the tasks write to the folder (``followers/`` and ``leases/``), and all columns that a
            selector may name cross to Python: drop those that no selector needs.
        binding: the columns of identifiers whose names differ.
        partitions: cut the snapshot into this many partitions first, in a temporary folder on this machine.
        exchange: for a snapshot in partitions, whether Spark sends the messages to tasks that map one
            partition each. ``never``: each worker maps all partitions and matches its own messages; the
            machines need the memory for it. ``always``: no machine maps all, but all columns of the frame
            cross to Python, rows are returned in any order, and it takes two shuffles. ``auto``: no exchange
            for at most 128 partitions that take at most half of the memory: in local mode that of this
            machine; on a cluster, whose machines the driver does not see, an executor's
            ``spark.executor.memoryOverhead``.
        output: ``ids``, or ordinals: ``array`` as ``array<int>``, ``packed`` as ``binary``, four
            little-endian bytes each: cheaper from some 32 per message. ``auto`` chooses the form that is
            expected to be cheaper for the snapshot; `explain_output` returns the choice and its reason.
            `deliveries` reads all forms, `unpack` converts packed ordinals to an array. The default is
            ``array`` for a snapshot, ``ids`` for a folder.
        missing: treatment of identifiers that selectors read and the frame lacks, which are NULL for every
            message: ``warn`` logs them (logger ``selectroute``, each sentence once), ``error`` raises,
            ``ignore`` does nothing.
        strict: raise for a column that selectors read and whose type no property has, instead of warning.

    Raises:
        ColumnTypeError: with ``strict``, a column that selectors read has a type that no property can have.
        BindingError: a column is missing, ambiguous, or already named ``subscriptions``.
        MissingColumnError: see ``missing``.
        OutputError: the output is unknown, or ordinals for a stream that follows a folder.
        PartitionError: an exchange of a snapshot without partitions, or of a column that can't be sent.
        SnapshotError: there is no snapshot in the folder.
        ValueError: ``exchange`` or ``missing`` is unknown.
    """
    _check_arguments(df, binding)
    check_exchange(exchange)
    if output is not None:
        check_output(output)
    check_choice(missing)
    if SUBSCRIPTIONS in df.columns:
        raise BindingError(
            f"the frame already has a column {SUBSCRIPTIONS!r}: rename or drop it before routing"
        )
    output = output or ("array" if isinstance(snapshot, Snapshot | PartitionedSnapshot) else "ids")
    against = _against(snapshot, df)
    if partitions is not None:
        check_argument(partitions, int, "partitions", "the number of partitions, or None")
        if isinstance(against, _Followed):
            raise PartitionError("a folder that a stream follows can't be cut into partitions")
        against = partitioned(against, partitions)
    known = against.newest if isinstance(against, _Followed) else against
    warn_of_extended(known)
    _tell_missing(df, known, binding, missing)
    revision = _revision(snapshot, known)
    sends = _sends(df, against, exchange)
    if isinstance(against, _Followed) and output != "ids":
        raise OutputError(
            "ordinals are valid within one revision only, but a stream that follows a folder has many: use "
            "output='ids', or a fixed revision: sr.Snapshot.open(folder)"
        )
    form = _form(output, known)
    metadata = {} if form == "ids" or revision is None else {_REVISION: revision}
    if sends:
        assert isinstance(against, PartitionedSnapshot)
        routed = route_partitioned(df, against, binding, SUBSCRIPTIONS, form, strict)
        return routed.withMetadata(SUBSCRIPTIONS, metadata) if metadata else routed
    exact, columns = by_position(df)
    judge, arguments = _judging(df, columns, against, binding, form, strict)
    routed = exact.select("*", judge(*arguments).alias(SUBSCRIPTIONS, metadata=metadata))
    return routed if exact is df else routed.toDF(*df.columns, SUBSCRIPTIONS)


def deliveries(
    df: DataFrame,
    snapshot: Snapshot | PartitionedSnapshot | str | os.PathLike[str],
    binding: Binding | None = None,
    *,
    keep: Sequence[str] | Literal["*"] = (),
    exchange: Exchange = "auto",
    missing: Missing = "warn",
    strict: bool = False,
) -> DataFrame:
    """Return one row for each delivery: subscription, batch, revision, source, partition, offset, message_id,
    and the columns ``keep`` of ``df``.

    ``source``, ``partition`` and ``offset`` come from the columns ``@source``, ``@partition``, ``@offset``,
    ``message_id`` from ``@id``, or else from ``JMSMessageID``; columns that the frame lacks are NULL, and so
    is ``batch``. If ``df`` has the column ``subscriptions`` of `route` (with this same snapshot), it is used;
    otherwise messages are matched and expanded in one crossing to Python, or by an exchange. ``strict`` is as
    in `route`.

    Args:
        df, snapshot, binding, exchange, missing: as in `route`.
        keep: columns of ``df`` to add to each delivery, after the others; ``"*"`` for all. They do not cross
            to Python unless by an exchange, and may have any type.

    Raises:
        ColumnTypeError, MissingColumnError, PartitionError, SnapshotError, ValueError: as `route`.
        BindingError: as `route`; a column to keep is missing, or has the name of another in the result; or
            ``df`` was routed with another revision.
    """
    _check_arguments(df, binding)
    check_exchange(exchange)
    check_choice(missing)
    kept = _kept(df, keep)
    against = _against(snapshot, df)
    known = against.newest if isinstance(against, _Followed) else against
    routed = SUBSCRIPTIONS in df.columns
    if not routed and _sends(df, against, exchange):
        assert isinstance(against, PartitionedSnapshot)
        df = route(df, against, binding, exchange="always", missing=missing, strict=strict)
        routed = True
    elif not routed:
        warn_of_extended(known)
        _tell_missing(df, known, binding, missing)
    exact, columns = by_position(df)
    result: Column | None = None
    has_ids = False
    if routed:
        field = df.schema.fields[df.columns.index(SUBSCRIPTIONS)]
        has_ids = is_ids(field.dataType)
        _check_routed(field, _revision(snapshot, known), followed=isinstance(against, _Followed))
        result = columns[df.columns.index(SUBSCRIPTIONS)]
    place: dict[str, tuple[str, Column]] = {}
    for name, spark_type in _FRAME.items():
        for bound in bind(df.schema, (f"@{name}",), binding):
            place[name] = (f"@{name}", bound.read(df.schema, columns).cast(spark_type))
    for bound in bind(df.schema, ("@id", "JMSMessageID"), binding)[:1]:
        place["message_id"] = ("@id", _id_text(bound.read(df.schema, columns), bound.type))
    if kept or has_ids:
        kept_columns = [columns[df.columns.index(name)] for name in kept]
        if has_ids and result is not None:
            ref = _ref(against)
            revision = None if isinstance(ref, str) else ref.revision
            matched = F.struct(
                F.lit(revision).cast("bigint").alias("revision"), result.alias("subscriptions")
            )
        else:
            matched = _matched(df, columns, against, binding, result, strict)
        return _exploded(exact, matched, place, kept_columns).toDF(*_DELIVERY_SCHEMA.names, *kept)
    chosen: list[tuple[str, Column]] = []
    if result is not None:
        chosen.append((SUBSCRIPTIONS, result))
    else:
        chosen += _read(df, columns, against, binding, strict)
    frame: dict[str, int] = {}
    for name, bound_column in place.items():
        frame[name] = len(chosen)
        chosen.append(bound_column)
    narrow = exact.select(
        *[column.alias(f"c{i}") for i, (_, column) in enumerate(chosen)] or [F.lit(False).alias("c0")]
    )
    spell = _spell(_ref(against), [name for name, _ in chosen], frame, routed)
    return narrow.mapInArrow(spell, from_arrow_schema(_DELIVERY_SCHEMA))


def warn_of_extended(snapshot: _Known) -> None:
    """Warn of EXTENDED subscriptions if no extended selection provider is installed."""
    count = int(np.sum(snapshot.extended if snapshot.extended is not None else 0))
    if count and provider() is None:
        warnings.warn(
            f"{count} of the subscriptions {'is' if count == 1 else 'are'} EXTENDED and get nothing: no "
            "extended selection provider is installed (MQRC_SELECTION_NOT_AVAILABLE, 2551). Install one, "
            f"with an entry point {GROUP}, here and where the workers run",
            stacklevel=3,
        )


def _id_text(column: Column, spark_type: DataType) -> Column:
    """Return message ids as text; 24 bytes are ``ID:`` and upper-case hex, as in the matcher."""
    if isinstance(spark_type, BinaryType):
        return F.concat(F.lit("ID:"), F.hex(column))
    if is_mixed(spark_type):
        return column.getField("text")
    return column.cast("string")


def _check_arguments(df: DataFrame, binding: Binding | None) -> None:
    if isinstance(df, Snapshot | PartitionedSnapshot | str | os.PathLike):
        raise TypeError(wrong_kind(df, "df", "the DataFrame first, then the snapshot: route(df, snapshot)"))
    check_argument(
        df, DataFrame, "df", "a DataFrame of Spark: spark.createDataFrame(df); Arrow is for Snapshot.match"
    )
    check_argument(
        binding, (Binding, NoneType), "binding", "a Binding, such as Binding({'JMSType': 'kind'}), or None"
    )


SNAPSHOT = "a Snapshot (sr.Snapshot.open(folder), index.freeze()) or the path or URL of a snapshot folder"


_LOGGER: Final = logging.getLogger("selectroute")
_STAYS: Final = (
    "the stream is routed with %s in all of its micro-batches, whatever is published later; to follow new "
    "revisions, pass the path of the snapshot folder"
)
_STAYS_IN_PARTITIONS: Final = (
    "the stream is routed with revision %s of the partitions in %s in all of its micro-batches, whatever is "
    "published later; to use a newer one, start the query again"
)


def _described(snapshot: Snapshot) -> str:
    if snapshot.folder is None or snapshot.revision is None:
        return "one unpublished snapshot"
    return f"revision {snapshot.revision} of {snapshot.folder}"


@dataclass(frozen=True, slots=True)
class _Followed:
    """Snapshot folder that a stream follows, and its newest revision now."""

    folder: str
    newest: Snapshot


_Against: TypeAlias = Snapshot | PartitionedSnapshot | _Followed


def _against(snapshot: object, df: DataFrame) -> _Against:
    """Return the snapshot, or followed folder, to route a frame with.

    Raises:
        TypeError: the argument is neither a snapshot nor a path.
        SnapshotError: the folder has no snapshot.
    """
    if isinstance(snapshot, Snapshot):
        if df.isStreaming:
            _LOGGER.info(_STAYS, _described(snapshot))
        return snapshot
    if isinstance(snapshot, PartitionedSnapshot):
        if df.isStreaming:
            _LOGGER.info(_STAYS_IN_PARTITIONS, snapshot.ref.revision, snapshot.ref.folder)
        return snapshot
    if isinstance(snapshot, DataFrame):
        raise TypeError(wrong_kind(snapshot, "snapshot", "the DataFrame first, then the snapshot"))
    check_argument(snapshot, (str, os.PathLike), "snapshot", SNAPSHOT)
    assert isinstance(snapshot, str | os.PathLike)
    folder = Location.of(snapshot).resolved()
    if partitioned_revisions(folder):
        return _against(PartitionedSnapshot.open(folder.path), df)
    newest = Snapshot.open(folder)
    return _Followed(str(folder), newest) if df.isStreaming else newest


def _sends(df: DataFrame, against: _Against, exchange: Exchange) -> bool:
    """Return whether the messages are sent to partitions. Raises `PartitionError` if there are none."""
    if isinstance(against, PartitionedSnapshot):
        return needs_exchange(df.sparkSession, against, exchange)
    if exchange == "always":
        raise PartitionError(
            "exchange='always' sends messages to partitions, but the snapshot has none: pass one from "
            "publish_partitions, or partitions=8"
        )
    return False


def _form(output: Output, known: _Known) -> Form:
    """Return the form of an output; ``auto`` is an array where the whole registry is not at hand."""
    if isinstance(known, Snapshot):
        return form_of(output, known)
    return "array" if output == "auto" else output


def _ref(against: _Against) -> _Ref:
    """Return the reference for the workers: a revision, or the followed folder."""
    if isinstance(against, _Followed):
        return against.folder
    return against.ref if isinstance(against, PartitionedSnapshot) else refer(against)


def _revision(snapshot: object, known: _Known) -> int | None:
    """Return the revision of the snapshot; None if it is not published."""
    if isinstance(snapshot, Snapshot):
        return snapshot.revision if snapshot.folder is not None else None
    return known.ref.revision if isinstance(known, PartitionedSnapshot) else known.revision


def _check_routed(field: StructField, revision: int | None, *, followed: bool) -> None:
    """Check that a column `subscriptions` is a result of `route` with this revision.

    Raises:
        BindingError: the column has another type, or another revision.
    """
    if is_ids(field.dataType):
        return
    if not is_ordinals(field.dataType):
        raise BindingError(
            f"column {SUBSCRIPTIONS!r} is {field.dataType.simpleString()}, not the array<int> that route "
            "adds: rename it"
        )
    if followed:
        raise BindingError(
            f"column {SUBSCRIPTIONS!r} has ordinals of one revision: pass the snapshot of that revision, "
            "sr.Snapshot.open(folder, revision), not a folder to follow"
        )
    routed = field.metadata.get(_REVISION)
    if routed is not None and revision is not None and routed != revision:
        raise BindingError(
            f"column {SUBSCRIPTIONS!r} has ordinals of revision {routed}, but the snapshot is revision "
            f"{revision}: pass sr.Snapshot.open(folder, {routed}), or route with output='ids'"
        )


def _kept(df: DataFrame, keep: Sequence[str] | str) -> list[str]:
    """Return the names of the columns to keep.

    Raises:
        TypeError: ``keep`` is not a list of names.
        BindingError: a column is missing, or its name would be ambiguous in the result.
    """
    if isinstance(keep, str) and keep == "*":
        names = [name for name in df.columns if name != SUBSCRIPTIONS]
    elif isinstance(keep, list | tuple) and all(isinstance(name, str) for name in keep):
        names = list(dict.fromkeys(keep))
    else:
        raise TypeError(wrong_kind(keep, "keep", "a list of columns, such as ['order_id'], or '*' for all"))
    for name in names:
        if name not in df.columns:
            advice = did_you_mean(name, df.columns, "its columns are")
            raise BindingError(f"keep names {name!r}, but the frame has no such column: {advice}")
        if df.columns.count(name) > 1:
            raise ambiguous(name, df.columns.count(name))
    taken = [name for name in names if name.lower() in _DELIVERY_SCHEMA.names]
    if taken:
        raise BindingError(
            f"keep names {', '.join(map(repr, taken))}, which is also the name of a column of deliveries: "
            "rename it first, with df.withColumnRenamed"
        )
    return names


def _tell_missing(df: DataFrame, snapshot: _Known, binding: Binding | None, missing: Missing) -> None:
    """Report the identifiers that selectors read and the frame lacks.

    Raises:
        MissingColumnError: there are any, and ``missing`` is "error".
    """
    if missing == "ignore":
        return
    columns, groups = columns_of(df.schema)
    present = {*columns, *groups}
    bound = set(binding.columns) if binding is not None else set()
    report_missing(missing_columns(snapshot.reads, present | bound), present, "the frame", missing)


def _read(
    df: DataFrame, columns: Sequence[Column], against: _Against, binding: Binding | None, strict: bool
) -> list[tuple[str, Column]]:
    if isinstance(against, _Followed):
        check_types(against.newest, bind(df.schema, against.newest.reads, binding), strict)
        return all_columns(df.schema, columns, binding)
    return read_columns(df.schema, columns, against, binding, strict)


def _judging(
    df: DataFrame,
    columns: Sequence[Column],
    against: _Against,
    binding: Binding | None,
    form: str,
    strict: bool,
) -> tuple[Any, list[Column]]:
    """Return the Spark function that matches messages, and its arguments."""
    read = _read(df, columns, against, binding, strict)
    names = [identifier for identifier, _ in read]
    # Spark rejects an arrow_udf without arguments: a registry that reads no column gets a constant.
    arguments = [column for _, column in read] or [F.lit(False)]
    return _once(_judge(_ref(against), names, form), _TYPES[form]), arguments


def _once(function: Callable[..., Any], type_: DataType) -> Any:
    judge: Any = arrow_udf(function, type_)  # type: ignore[call-overload]  # wants no kind
    # Declared nondeterministic so that Spark computes the column once instead of wherever it is used.
    return judge.asNondeterministic()


def _matched(
    df: DataFrame,
    columns: Sequence[Column],
    against: _Against,
    binding: Binding | None,
    result: Column | None,
    strict: bool,
) -> Column:
    """Return the matches of each message as a struct of a revision and ids."""
    if result is not None:
        return _once(_named(_ref(against)), _TYPES[_WITH_REVISION])(result)  # type: ignore[no-any-return]
    judge, arguments = _judging(df, columns, against, binding, _WITH_REVISION, strict)
    return judge(*arguments)  # type: ignore[no-any-return]


def _exploded(
    exact: DataFrame, matched: Column, place: dict[str, tuple[str, Column]], kept_columns: Sequence[Column]
) -> DataFrame:
    """Return the deliveries of a frame, each with the kept columns of its message, by the JVM's explode."""
    fixed = [field for field in from_arrow_schema(_DELIVERY_SCHEMA) if field.name in _OF_MESSAGE]
    values = [
        place[field.name][1] if field.name in place else F.lit(None).cast(field.dataType) for field in fixed
    ]
    kept = [f"k{number}" for number in range(len(kept_columns))]
    together = exact.select(
        matched.alias("m"),
        *(column.alias(field.name) for column, field in zip(values, fixed, strict=True)),
        *(column.alias(name) for column, name in zip(kept_columns, kept, strict=True)),
    )
    return together.select(
        F.explode("m.subscriptions").alias("subscription"),
        F.lit(None).cast("bigint").alias("batch"),
        F.col("m.revision").alias("revision"),
        *(field.name for field in fixed),
        *kept,
    )


def _open(ref: _Ref) -> tuple[_Opened, int]:
    """Open the snapshot of a reference in a worker; return it and its revision."""
    if isinstance(ref, PartitionsRef):
        return map_once(ref), ref.revision
    if isinstance(ref, str):
        ref = current(ref)
    return open_once(ref), ref.revision


def _match(snapshot: _Opened, columns: Sequence[pa.Array], names: Sequence[str]) -> tuple[Any, Any]:
    """Return the matches of columns as offsets and ordinals. A registry that reads no column has no names."""
    batch = pa.RecordBatch.from_arrays(list(columns), names=names or ["@none"])
    if isinstance(snapshot, MappedPartitions):
        return snapshot.match(batch)
    matches = snapshot.match(batch, missing="ignore", unlike="ignore")
    return matches.offsets, matches.ordinals


def _in_form(form: str, offsets: Any, ordinals: Any, snapshot: _Opened, revision: int) -> pa.Array:
    if form != _WITH_REVISION:
        # Ids of partitions are a file of their own, which is opened if they are needed.
        return written(form, offsets, ordinals, snapshot.ids if form == "ids" else None)
    lists = written("ids", offsets, ordinals, snapshot.ids)
    revisions = pa.repeat(pa.scalar(revision, pa.int64()), len(lists))
    return pa.StructArray.from_arrays([revisions, lists], names=["revision", "subscriptions"])


def _judge(ref: _Ref, identifiers: list[str], form: str) -> Callable[..., Any]:
    # Spark reads these type hints when the function is wrapped.
    def judge(*columns: pa.Array) -> pa.Array:
        snapshot, revision = _open(ref)
        return _in_form(form, *_match(snapshot, columns, identifiers), snapshot, revision)

    return judge


def _named(ref: _Ref) -> Callable[..., Any]:
    """Return the function that converts ordinals to their revision and ids."""

    def named(column: pa.Array) -> pa.Array:
        snapshot, revision = _open(ref)
        return _in_form(_WITH_REVISION, *read_ordinals(column), snapshot, revision)

    return named


def _spell(
    ref: _Ref, names: list[str], frame: dict[str, int], routed: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def spell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot, revision = _open(ref)
        for batch in batches:
            if routed:
                offsets, ordinals = read_ordinals(batch.column(0))
            else:
                offsets, ordinals = _match(snapshot, batch.columns, names)
            for part in pairs(offsets, ordinals):
                yield _rows(batch, part, snapshot.ids, revision, frame)

    return spell


def _rows(
    batch: pa.RecordBatch, part: Pairs, ids: pa.Array, revision: int, frame: dict[str, int]
) -> pa.RecordBatch:
    """Return deliveries of a batch as rows; ``frame`` has the positions of the frame's columns in it."""
    rows: Any = pa.array(part.rows)
    columns: list[Any] = []
    for field in _DELIVERY_SCHEMA:
        if field.name == "subscription":
            columns.append(ids.take(pa.array(part.ordinals, pa.int32())))
        elif field.name == "revision":
            columns.append(pa.repeat(pa.scalar(revision, pa.int64()), len(rows)))
        elif field.name in frame:
            columns.append(batch.column(frame[field.name]).take(rows))
        else:
            columns.append(pa.repeat(pa.scalar(None, field.type), len(rows)))
    return pa.RecordBatch.from_arrays(columns, schema=_DELIVERY_SCHEMA)
