"""Snapshots as files: ``publish`` writes a folder, ``open_snapshot`` maps it.

::

    folder/manifest-<revision>.json             the revision's segments: file, SHA-256, rows, kind, ids
    folder/segments/<revision>-<x>-base.arrow   one row; each array of `Tables` is a list, mapped as it lies
    folder/segments/<revision>-<x>-delta.arrow  the same, and the ordinals that it removes
    folder/ids/<revision>-<x>.arrow             row → id, destination, topic, selector, dialect, seltype

A segment and its ids are written once, in the first revision that has them; later ones name the same files.
What a manifest is and when it counts: `manifest`. What is needed no more: `collect`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import pyarrow as pa

from selectroute.index.errors import RevisionExistsError, SnapshotError
from selectroute.index.manifest import (
    FORMAT,
    MAX_REVISION,
    latest_revision,
    locked,
    published_digest,
    read_manifest,
    revisions,
    sync_folder,
    write_manifest,
)
from selectroute.index.segment import Attribute, Segment
from selectroute.index.snapshot import Snapshot
from selectroute.index.tables import DTYPES, Tables, as_array

__all__ = [
    "FORMAT",
    "latest_revision",
    "open_snapshot",
    "publish",
    "published",
    "published_digest",
    "read_manifest",
    "read_segment",
    "revisions",
    "write_segment",
]

Entry = dict[str, Any]
"""A segment in a manifest: ``file``, ``sha256``, ``rows``, ``kind``, ``removed`` (how many), ``ids`` {file,
sha256}."""

_FILE = re.compile(r"(segments|ids)/[0-9A-Za-z-]+\.arrow")
_REMOVED = "removed"

_entries: WeakKeyDictionary[Segment, dict[Path, Entry]] = WeakKeyDictionary()
"""In which folders a segment lies already."""

_opened: WeakValueDictionary[tuple[object, ...], Segment] = WeakValueDictionary()
"""Segments that this process has opened, by their files: these were checked, and are mapped once."""

_subscriptions: WeakKeyDictionary[Segment, pa.Table] = WeakKeyDictionary()
"""The subscriptions of the segments in `_opened`."""


def publish(snapshot: Snapshot, folder: str | Path) -> int:
    """Write a snapshot as a revision of a folder, durably, and return the revision.

    A snapshot without a revision becomes the one after the newest there. Segments that lie in the folder
    already are not written again. Raises `SnapshotError` if the revision exists already: nothing published is
    ever changed. A crash at any instant leaves the revision complete or absent.
    """
    revision = published(snapshot, folder).revision
    assert revision is not None
    return revision


def published(snapshot: Snapshot, folder: str | Path) -> Snapshot:
    """As `publish`, but gives the snapshot with its revision, digest and folder."""
    folder = Path(folder)
    revision = snapshot.revision
    if revision is not None and (type(revision) is not int or not 0 <= revision <= MAX_REVISION):
        raise SnapshotError(f"{revision!r} is no revision: an integer from 0 to {MAX_REVISION}")
    try:
        for part in ("segments", "ids"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        with locked(folder):
            return _publish(snapshot, folder, revision)
    except OSError as error:
        raise SnapshotError(
            f"the snapshot cannot be written to {folder}: {error.strerror or error}"
        ) from error


def _publish(snapshot: Snapshot, folder: Path, revision: int | None) -> Snapshot:
    written: list[Segment] = []
    try:
        while True:
            newest = (revisions(folder) or [0])[-1]
            if revision is None and newest == MAX_REVISION:
                raise SnapshotError(f"{folder} holds revision {newest}, and there is none after it")
            number = newest + 1 if revision is None else revision
            entries = [
                _entry(snapshot, index, folder, number, written) for index in range(len(snapshot.segments))
            ]
            try:
                digest = write_manifest(folder, number, entries)
                return replace(snapshot, revision=number, digest=digest, folder=folder)
            except RevisionExistsError:
                if revision is not None:
                    raise  # otherwise somebody else took the next one: take the one after
    except RevisionExistsError:
        for segment in written:
            entry = _entries[segment].pop(folder.resolve())
            for file in (entry["file"], entry["ids"]["file"]):
                (folder / file).unlink()
        raise


def _entry(snapshot: Snapshot, number: int, folder: Path, revision: int, written: list[Segment]) -> Entry:
    """The entry of a segment, which is written if the folder does not have it yet."""
    segment = snapshot.segments[number]
    known = _entries.setdefault(segment, {})
    entry = known.get(folder.resolve())
    if entry is None or not all((folder / file).exists() for file in (entry["file"], entry["ids"]["file"])):
        subscriptions = snapshot.subscriptions.slice(snapshot.firsts[number], segment.rows)
        entry = write_segment(segment, subscriptions, folder, revision, "delta" if number else "base")
        known[folder.resolve()] = entry
        written.append(segment)
    return entry | {"kind": "delta" if number else "base"}


def write_segment(segment: Segment, subscriptions: pa.Table, folder: Path, revision: int, kind: str) -> Entry:
    """Write a segment and its subscriptions, durably. Until a manifest names them they are of no consequence.

    Raises OSError.
    """
    # The names are unique to this call: two publishers of one revision must not write into each other's
    # files.
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


def open_snapshot(folder: Path, revision: int | None = None) -> Snapshot:
    """See `Snapshot.open`."""
    if revision is not None:
        return _open(folder, revision)
    while True:
        newest = latest_revision(folder)
        try:
            return _open(folder, newest)
        except SnapshotError:
            # It may have been collected in this very moment, because there is a newer one.
            if latest_revision(folder) == newest:
                raise


def _open(folder: Path, revision: int) -> Snapshot:
    manifest = read_manifest(folder, revision)
    entries = manifest.get("segments")
    if not isinstance(entries, list) or not entries or not all(map(_is_entry, entries)):
        raise SnapshotError(f"manifest-{revision}.json in {folder} names no segments and their ids")
    parts = [read_segment(folder, entry) for entry in entries]
    return Snapshot(
        segments=tuple(segment for segment, _ in parts),
        subscriptions=pa.concat_tables([subscriptions for _, subscriptions in parts]),
        revision=revision,
        digest=manifest["sha256"],
        folder=folder,
    )


def _is_entry(entry: Any) -> bool:
    try:
        names = (entry["file"], entry["sha256"], entry["ids"]["file"], entry["ids"]["sha256"])
    except (KeyError, TypeError):
        return False
    return all(isinstance(name, str) for name in names)


def read_segment(folder: Path, entry: Entry) -> tuple[Segment, pa.Table]:
    """The segment and its subscriptions that an entry names, mapped and checked where this process has not
    done so yet. Raises `SnapshotError`.
    """
    files = ((entry["file"], entry["sha256"]), (entry["ids"]["file"], entry["ids"]["sha256"]))
    key = tuple((sha256, *_identity(folder, name)) for name, sha256 in files)
    segment = _opened.get(key)
    if segment is not None:
        return segment, _subscriptions[segment]
    table, subscriptions = (_read(folder, *file) for file in files)
    if table.column_names != [*Tables._fields, _REMOVED]:
        raise SnapshotError(f"{folder / entry['file']} has other arrays than format {FORMAT}; build it again")
    header = json.loads(table.schema.metadata[b"selectroute"])
    arrays = {name: table[name].chunk(0).values.to_numpy(zero_copy_only=True) for name in table.column_names}
    removed = arrays.pop(_REMOVED)
    segment = Segment(
        tables=Tables(**{name: as_array(name, arrays[name]) for name in Tables._fields}),
        attributes=tuple(Attribute(**attribute) for attribute in header["attributes"]),
        depth=header["depth"],
        checks_names=header["checks_names"],
        scanned=header["scanned"],
        rows=subscriptions.num_rows,
        removed=removed,
    )
    _entries[segment] = {folder.resolve(): entry}
    _subscriptions[segment] = subscriptions
    _opened[key] = segment
    return segment, subscriptions


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
        values = pa.array(array.reshape(-1), pa.from_numpy_dtype(DTYPES.get(name, array.dtype)))
        columns[name] = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
    return pa.table(columns).replace_schema_metadata({"selectroute": json.dumps(header)})


def _write(path: Path, table: pa.Table) -> str:
    """Write an Arrow file durably, uncompressed so that it can be mapped, and return its SHA-256."""
    with path.open("xb") as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _identity(folder: Path, name: str) -> tuple[object, ...]:
    """Which file this is: one that was written since to the same name is another."""
    if not _FILE.fullmatch(name):
        raise SnapshotError(f"the manifest in {folder} names {name!r}, which lies outside the snapshot")
    path = folder / name
    try:
        status = path.stat()
    except OSError:
        return (str(path),)  # reading it says what is wrong
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _read(folder: Path, name: str, sha256: str) -> pa.Table:
    path = folder / name
    try:
        mapped = pa.memory_map(str(path))
    except FileNotFoundError:
        raise SnapshotError(
            f"{path} is missing though its manifest names it; publish the snapshot again"
        ) from None
    except OSError as error:
        raise SnapshotError(f"{path} cannot be read: {error.strerror or error}") from error
    if hashlib.sha256(mapped.read_buffer()).hexdigest() != sha256:
        raise SnapshotError(
            f"{path} is damaged: its SHA-256 is not the one in its manifest; publish the snapshot again, "
            "under a higher revision"
        )
    mapped.seek(0)
    return pa.ipc.open_file(mapped).read_all()
