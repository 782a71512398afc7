"""Snapshots as files: ``publish`` writes a folder, ``open_snapshot`` maps it.

::

    folder/manifest-<revision>.json             the revision's segments: file, SHA-256, rows, kind, ids
    folder/segments/<revision>-<x>-base.arrow   one row; each array of `Tables` is a list, mapped unchanged
    folder/segments/<revision>-<x>-delta.arrow  the same, and the removed ordinals
    folder/ids/<revision>-<x>.arrow             row → id, destination, topic, selector, dialect, seltype

A segment and its ids are written once, in the first revision that has them; later ones name the same files.
`retention` removes files.

A revision exists as soon as its manifest does; until then its files have no effect. A manifest is never
overwritten. It contains the SHA-256 of the canonical JSON of its other fields, so that any changed bit is
detected. The manifest of a registry's revision also has its `Source`.

Opening checks digests, types and lengths, and the arrays by ``index.invariants``. A user who can write to a
folder still decides which messages are delivered: the folder should belong to the registry's own user.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import pyarrow as pa

from selectroute.arrays.segment import Attribute, Segment
from selectroute.arrays.state import SnapshotState
from selectroute.arrays.tables import DTYPES, SHAPES, Tables, as_array
from selectroute.durable import disk
from selectroute.index.errors import (
    InvariantError,
    RevisionExistsError,
    SnapshotError,
    SnapshotNotFoundError,
    require,
)
from selectroute.index.invariants import check_safety, check_subscriptions, check_tombstones
from selectroute.selector.arguments import check_argument, check_path
from selectroute.storage import Location
from selectroute.storage.cache import cached, forget
from selectroute.storage.location import Where

FORMAT = 4
"""Version of the format that is written and read."""

Source = Mapping[str, str]
"""Registry that a revision was published from: its id as ``registry``, and as ``digest`` that of its log up
to the revision, in hex.
"""

MAX_MANIFEST_BYTES = 16 << 20
MAX_REVISION = 2**63 - 1
LOCK = ".lock"
_MANIFESTS = re.compile(r"^manifest-(0|[1-9][0-9]{0,18})\.json$", re.MULTILINE)


def manifest_of(folder: Location, revision: int) -> Location:
    """Return the location of a revision's manifest."""
    return folder / f"manifest-{revision}.json"


def revisions(folder: Where) -> list[int]:
    """Return the revisions published in a folder, ascending; none if the folder does not exist."""
    # All names at once: after an hour of changes there are tens of thousands.
    return sorted(map(int, _MANIFESTS.findall("\n".join(Location.of(folder).names()))))


def latest_revision(folder: Where) -> int:
    """Return the newest revision published in a folder. Raises `SnapshotError` if there is none."""
    published = revisions(folder)
    if not published:
        raise SnapshotNotFoundError(
            f"no snapshot is published in {folder}; "
            f"make one with `selectroute index build SUBS.jsonl {folder}`"
        )
    return published[-1]


def published_digest(folder: Where, revision: int) -> str:
    """Return the digest of a published revision, without reading segments. Raises `SnapshotError`."""
    return str(read_manifest(Location.of(folder), revision)["sha256"])


def source_of(folder: Location, revision: int) -> Source | None:
    """Return the registry that a revision was published from, None if its manifest has none. Raises
    `SnapshotError`.
    """
    source = read_manifest(folder, revision).get("source")
    if source is None:
        return None
    if not isinstance(source, dict) or {type(source.get(name)) for name in ("registry", "digest")} != {str}:
        raise SnapshotError(f"{manifest_of(folder, revision)} names no registry; publish the snapshot again")
    return source


def read_manifest(folder: Location, revision: int) -> dict[str, Any]:
    """Return the checked manifest of a revision. Raises `SnapshotError`."""
    path = manifest_of(folder, revision)
    try:
        data = path.storage.read_range(path.key, 0, MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise SnapshotNotFoundError(f"revision {revision} is not published in {folder}") from None
    except OSError as error:
        raise SnapshotError(f"{path} cannot be read: {error.strerror or error}") from error
    damaged = SnapshotError(f"{path} is damaged; publish the snapshot again, under a higher revision")
    try:
        manifest = json.loads(data)
        version, digest = manifest["format"], manifest["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise damaged from None
    if digest != _self_digest(manifest) or data != _canonical(manifest):
        raise damaged
    if version != FORMAT:
        raise SnapshotError(
            f"{path} has format {version}, this version reads format {FORMAT}; build it again"
        )
    if manifest.get("revision") != revision:
        raise damaged
    checked: dict[str, Any] = manifest
    return checked


def write_manifest(
    folder: Location, revision: int, segments: list[dict[str, Any]], source: Source | None = None
) -> str:
    """Write a revision's manifest, durably, and return its digest. Raises `RevisionExistsError`, OSError."""
    manifest: dict[str, Any] = {"format": FORMAT, "revision": revision, "segments": segments}
    if source is not None:
        manifest["source"] = dict(source)
    manifest["sha256"] = _self_digest(manifest)
    try:
        manifest_of(folder, revision).put_new(_canonical(manifest))
    except FileExistsError:
        raise RevisionExistsError(
            f"revision {revision} is already published in {folder}; publish this one under a higher revision"
        ) from None
    return str(manifest["sha256"])


@contextmanager
def locked(folder: Where, exclusive: bool = False) -> Iterator[bool]:
    """Hold the folder's lock: shared to reference files in it, exclusive to remove files. Yields False in
    remote storage, which has no locks: there `retention` removes only what has been unused for long.

    A writer that reads a manifest and then references its files (in a new manifest, or a lease) does both
    under one lock, so that no file is removed in between. Readers take no lock.

    Raises `SnapshotError` if the folder cannot be locked.
    """
    path = Location.of(folder) / LOCK
    with ExitStack() as lock:
        try:
            is_locked = lock.enter_context(path.locked(shared=not exclusive))
        except OSError as error:
            raise SnapshotError(f"{path} cannot be locked: {error.strerror or error}") from error
        yield is_locked


def _canonical(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1, sort_keys=True).encode()


def _self_digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical({k: v for k, v in manifest.items() if k != "sha256"})).hexdigest()


Entry = dict[str, Any]
"""Segment in a manifest: ``file``, ``sha256``, ``rows``, ``kind``, ``removed`` (a count), ``ids`` {file,
sha256}."""

_FILE = re.compile(r"(segments|ids)/[0-9A-Za-z-]+\.arrow")
_REMOVED = "removed"
_SEGMENT_SCHEMA = pa.schema(
    [(name, pa.large_list(pa.from_numpy_dtype(DTYPES[name]))) for name in Tables._fields]
    + [(_REMOVED, pa.large_list(pa.int32()))]
)

MAX_SEGMENTS = 1_000
"""Maximum segments of one revision; a publisher merges them long before there are a hundred."""

_IN_MEMORY = 1 << 20
"""Bytes of a file up to which it is made in memory, and read into memory: it is written at once, and needs no
copy in the cache."""

_entries: WeakKeyDictionary[Segment, dict[Location, Entry]] = WeakKeyDictionary()
"""Folders that have the files of a segment already."""

_opened: WeakValueDictionary[tuple[object, ...], Segment] = WeakValueDictionary()
"""Segments opened by this process, by their files: checked and mapped once."""

_subscriptions: WeakKeyDictionary[Segment, pa.Table] = WeakKeyDictionary()
"""Subscriptions of the segments in `_opened`."""


def publish(snapshot: SnapshotState, folder: Where) -> int:
    """Write a snapshot as a revision of a folder, durably, and return the revision.

    A snapshot without a revision gets the one after the newest in the folder. Segments that are in the folder
    already are not written again. ``folder`` is a path or a URL (``s3://bucket/snapshots``). Raises
    `SnapshotError` if the revision exists already: published revisions never change. A crash at any instant
    leaves the revision complete or absent.
    """
    revision = published(snapshot, folder).revision
    assert revision is not None
    return revision


def published(snapshot: SnapshotState, folder: Where, source: Source | None = None) -> SnapshotState:
    """Publish as `publish`, and return the snapshot with its revision, digest and folder. A ``source`` is
    recorded in the manifest.
    """
    check_argument(snapshot, SnapshotState, "snapshot", "a Snapshot: index.freeze(), sr.build_snapshot(…)")
    check_path(folder, "folder", "the path or URL of a snapshot folder")
    where = Location.of(folder)
    revision = snapshot.revision
    if revision is not None and (type(revision) is not int or not 0 <= revision <= MAX_REVISION):
        raise SnapshotError(f"{revision!r} is not a revision: give an integer from 0 to {MAX_REVISION}")
    try:
        where.make_private_folder()  # selectors are in it, as in a registry's database
        for part in ("segments", "ids"):
            (where / part).make_folder()
        with locked(where):
            return _publish(snapshot, where, revision, source)
    except OSError as error:
        raise SnapshotError(
            f"the snapshot cannot be written to {where}: {error.strerror or error}"
        ) from error


def _publish(
    snapshot: SnapshotState, folder: Location, revision: int | None, source: Source | None
) -> SnapshotState:
    written: list[Segment] = []
    try:
        while True:
            number = _next_revision(folder) if revision is None else revision
            is_there = _presence(folder)
            entries = [
                _entry(snapshot, index, folder, number, written, is_there)
                for index in range(len(snapshot.segments))
            ]
            try:
                digest = write_manifest(folder, number, entries, source)
                return replace(snapshot, revision=number, digest=digest, folder=folder)
            except RevisionExistsError:
                if revision is not None:
                    raise  # another process took this revision: try the next one
    except RevisionExistsError:
        for segment in written:
            entry = _entries[segment].pop(folder.resolved())
            for file in (entry["file"], entry["ids"]["file"]):
                (folder / file).delete()
        raise


def _next_revision(folder: Location) -> int:
    newest = max(revisions(folder), default=0)
    if newest == MAX_REVISION:
        raise SnapshotError(f"{folder} has the last revision, {newest}: publish to another folder")
    return newest + 1


def _presence(folder: Location) -> Callable[[str], bool]:
    """Return a function that says whether a file of segments is in a folder. Remote storage is asked twice,
    however many segments there are.
    """
    if folder.is_local:
        return lambda file: (folder / file).exists()
    keys = {entry.key for part in ("segments", "ids") for entry in (folder / part).entries()}
    return lambda file: (folder / file).key in keys


def _entry(
    snapshot: SnapshotState,
    number: int,
    folder: Location,
    revision: int,
    written: list[Segment],
    is_there: Callable[[str], bool],
) -> Entry:
    """Return the entry of a segment; write the segment if the folder does not have it yet."""
    segment = snapshot.segments[number]
    known = _entries.setdefault(segment, {})
    entry = known.get(folder.resolved())
    if entry is None or not all(map(is_there, (entry["file"], entry["ids"]["file"]))):
        subscriptions = snapshot.subscriptions.slice(snapshot.firsts[number], segment.rows)
        entry = write_segment(segment, subscriptions, folder, revision, "delta" if number else "base")
        known[folder.resolved()] = entry
        written.append(segment)
    return entry | {"kind": "delta" if number else "base"}


def write_segment(
    segment: Segment, subscriptions: pa.Table, folder: Location, revision: int, kind: str
) -> Entry:
    """Write a segment and its subscriptions, durably. They have no effect until a manifest names them.

    Raises OSError.
    """
    # Unique names: two publishers of one revision must not write to the same files.
    token = uuid.uuid4().hex[:8]
    file, ids = f"segments/{revision}-{token}-{kind}.arrow", f"ids/{revision}-{token}.arrow"
    return {
        "file": file,
        "sha256": _write(folder / file, _segment_table(segment)),
        "rows": segment.rows,
        "kind": kind,
        "removed": len(segment.removed),
        "ids": {"file": ids, "sha256": _write(folder / ids, subscriptions)},
    }


def open_snapshot(folder: Where, revision: int | None = None) -> SnapshotState:
    """Open a snapshot: see `Snapshot.open`."""
    where = Location.of(folder)
    if revision is not None:
        return _open(where, revision)
    while True:
        newest = latest_revision(where)
        try:
            return _open(where, newest)
        except SnapshotError:
            # It may just have been collected, because there is a newer one.
            if latest_revision(where) == newest:
                raise


def _open(folder: Location, revision: int) -> SnapshotState:
    manifest = read_manifest(folder, revision)
    path = manifest_of(folder, revision)
    entries = manifest.get("segments")
    if not isinstance(entries, list) or not entries or not all(map(_is_entry, entries)):
        raise SnapshotError(f"{path} names no segments and their ids; publish the snapshot again")
    files = {entry["file"] for entry in entries}
    if len(files) < len(entries) or len(entries) > MAX_SEGMENTS:
        raise SnapshotError(f"{path} names a segment twice, or more than {MAX_SEGMENTS:,}; publish it again")
    parts = [read_segment(folder, entry) for entry in entries]
    snapshot = SnapshotState(
        segments=tuple(segment for segment, _ in parts),
        subscriptions=pa.concat_tables([subscriptions for _, subscriptions in parts]),
        revision=revision,
        digest=manifest["sha256"],
        folder=folder,
    )
    try:
        check_tombstones(snapshot)
    except InvariantError as error:
        raise _unsound(path, error) from None
    return snapshot


def _is_entry(entry: Any) -> bool:
    try:
        names = (entry["file"], entry["sha256"], entry["ids"]["file"], entry["ids"]["sha256"])
    except (KeyError, TypeError):
        return False
    return all(isinstance(name, str) for name in names)


def read_segment(folder: Location, entry: Entry) -> tuple[Segment, pa.Table]:
    """Return the segment and the subscriptions of an entry, mapped and checked once in a process. Raises
    `SnapshotError`.
    """
    files = ((entry["file"], entry["sha256"]), (entry["ids"]["file"], entry["ids"]["sha256"]))
    key = tuple((sha256, *_identity(folder, name)) for name, sha256 in files)
    segment = _opened.get(key)
    if segment is not None:
        return segment, _subscriptions[segment]
    (name, sha256), (ids_name, ids_sha256) = files
    table = read_table(folder, name, sha256)
    subscriptions = read_table(folder, ids_name, ids_sha256)
    try:
        check_subscriptions(subscriptions)
    except (InvariantError, pa.ArrowException) as error:
        raise _unsound(folder / ids_name, error) from None
    try:
        segment = _segment(table, subscriptions.num_rows)
        check_safety(segment)
    except _OtherFormatError:
        raise SnapshotError(
            f"{folder / name} has other arrays than format {FORMAT}; build it again"
        ) from None
    except (InvariantError, pa.ArrowException) as error:
        raise _unsound(folder / name, error) from None
    _entries[segment] = {folder.resolved(): entry}
    _subscriptions[segment] = subscriptions
    _opened[key] = segment
    return segment, subscriptions


class _OtherFormatError(Exception):
    """Segment file with other columns than this format."""


def _unsound(path: Location, error: Exception) -> SnapshotError:
    broken = " ".join(str(error).split()).removeprefix("invariant broken: ")
    return SnapshotError(f"{path} is invalid (broken invariant: {broken}); publish the snapshot again")


def _segment(table: pa.Table, rows: int) -> Segment:
    """Return the segment in an Arrow table, without copying the arrays. Raises `InvariantError`."""
    if table.column_names != _SEGMENT_SCHEMA.names:
        raise _OtherFormatError
    require(table.num_rows == 1, "a segment is one row")
    arrays = {}
    for wanted, column in zip(_SEGMENT_SCHEMA, table.columns, strict=True):
        require(column.type == wanted.type, f"{wanted.name} is a {wanted.type}, not a {column.type}")
        column.validate(full=True)
        [array] = column.chunks
        values = array.values
        whole = array.offset == 0 and array.offsets.to_pylist() == [0, len(values)]
        require(
            whole and not array.null_count and not values.null_count, f"{wanted.name} is one list, no NULL"
        )
        width = int(np.prod(np.abs(SHAPES.get(wanted.name, (1,)))))
        require(len(values) % width == 0, f"{wanted.name} has rows of {width}")
        arrays[wanted.name] = values.to_numpy(zero_copy_only=True)
    removed = arrays.pop(_REMOVED)
    require(removed.flags.aligned, "removed is aligned")
    header = _header(table.schema.metadata)
    return Segment(
        tables=Tables(**{name: as_array(name, array) for name, array in arrays.items()}),
        rows=rows,
        removed=removed,
        **header,
    )


def _header(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Return the fields of a segment that are not arrays. Raises `InvariantError`."""
    try:
        header = json.loads((metadata or {})[b"selectroute"])
        attributes = tuple(Attribute(**attribute) for attribute in header["attributes"])
        settings = {name: header[name] for name in ("depth", "checks_names", "scanned")}
    except (KeyError, TypeError, ValueError, RecursionError):
        raise InvariantError("invariant broken: the header is a JSON object of this format") from None
    of_types = all(
        type(attribute.name) is str
        and {type(attribute.codes), type(attribute.values), type(attribute.byte_strings)} == {bool}
        for attribute in attributes
    )
    require(of_types, "an attribute has a name and three booleans")
    require(type(settings["depth"]) is int and settings["depth"] >= 0, "`depth` is a number")
    require(type(settings["checks_names"]) is bool, "`checks_names` is a boolean")
    scanned = settings["scanned"]
    counts = isinstance(scanned, dict) and all(type(count) is int for count in scanned.values())
    require(counts, "`scanned` counts by reason")
    return {"attributes": attributes, **settings}


def _segment_table(segment: Segment) -> pa.Table:
    header = {
        "attributes": [asdict(attribute) for attribute in segment.attributes],
        "depth": segment.depth,
        "checks_names": segment.checks_names,
        "scanned": dict(segment.scanned),
    }
    columns = {}
    arrays = dict(zip(Tables._fields, segment.tables, strict=True)) | {_REMOVED: segment.removed}
    for name, array in arrays.items():
        # From buffers, because pa.array looks for many other kinds of input first.
        type_ = _SEGMENT_SCHEMA.field(name).type
        data = np.ascontiguousarray(array, DTYPES.get(name, np.int32)).reshape(-1)
        values = pa.Array.from_buffers(type_.value_type, len(data), [None, pa.py_buffer(data)])
        bounds = pa.py_buffer(np.array([0, len(data)], np.int64))
        columns[name] = pa.Array.from_buffers(type_, 1, [None, bounds], children=[values])
    return pa.table(columns).replace_schema_metadata({"selectroute": json.dumps(header)})


def _write(file: Location, table: pa.Table) -> str:
    """Write an Arrow file durably, uncompressed so that it can be mapped, and return its SHA-256."""

    def write(new: Any) -> None:
        with pa.ipc.new_file(new, table.schema) as writer:
            writer.write_table(table.combine_chunks())

    if table.nbytes <= _IN_MEMORY:
        sink = pa.BufferOutputStream()
        write(sink)
        data = sink.getvalue().to_pybytes()
        file.put(data)
        return hashlib.sha256(data).hexdigest()
    draft = file.draft()
    try:
        sha256 = disk.write_file(draft, write)
    except BaseException:
        file.discard(draft)
        raise
    file.upload(draft)
    return sha256


def _identity(folder: Location, name: str) -> tuple[object, ...]:
    """Return the identity of a file, which changes if another file gets the same name."""
    if not _FILE.fullmatch(name):
        raise SnapshotError(f"the manifest in {folder} names {name!r}, which is outside the folder")
    file = folder / name
    if not file.is_local:  # its copy is found by its digest
        return (str(file),)
    try:
        status = file.path.stat()
    except OSError:
        return (str(file),)  # reading raises the error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_table(folder: Location, name: str, sha256: str) -> pa.Table:
    """Return the table of an Arrow file of a folder, mapped, after a check of its digest. Raises
    `SnapshotError`.
    """
    path = folder / name
    try:
        data = _content(path, sha256)
    except FileNotFoundError:
        raise SnapshotError(
            f"{path} is missing though its manifest names it; publish the snapshot again"
        ) from None
    except OSError as error:
        raise SnapshotError(f"{path} cannot be read: {error.strerror or error}") from error
    if data is None:
        raise SnapshotError(
            f"{path} is damaged: its SHA-256 is not the one in its manifest; publish the snapshot again, "
            "under a higher revision"
        )
    try:
        reader = pa.ipc.open_file(pa.BufferReader(data))
        require(reader.num_record_batches <= 1, "the file has at most one record batch")
        table = reader.read_all()
        require(len(table.column_names) > 0, "the file has columns")  # whose names must be UTF-8
        return table
    except (InvariantError, pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise _unsound(path, error) from None


def _content(file: Location, sha256: str) -> pa.Buffer | None:
    """Return a private copy of a file with this SHA-256; None if the file has another. A damaged copy in the
    cache is made again. A small file of this machine is read into memory.

    Raises OSError.
    """
    if file.is_local:
        with disk.opened_regular(file.path) as opened:
            if os.fstat(opened.fileno()).st_size <= _IN_MEMORY:
                data = opened.read()
                return pa.py_buffer(data) if hashlib.sha256(data).hexdigest() == sha256 else None
            if hashlib.file_digest(opened, "sha256").hexdigest() != sha256:
                return None
    damaged = 0
    while damaged < 2:
        try:
            copy = _mapped(cached(file, sha256))
        except FileNotFoundError:
            if file.storage.entry(file.key) is None:
                raise
            continue  # another process made room in the cache just now
        if hashlib.sha256(copy).hexdigest() == sha256:
            return copy
        forget(sha256)
        damaged += 1
    return None


def _mapped(path: Path) -> pa.Buffer:
    """Map a file of the cache into memory. Raises OSError."""
    with path.open("rb") as file:
        return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
