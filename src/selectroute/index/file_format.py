"""Snapshots as files: ``publish`` writes a folder, ``open_snapshot`` maps it.

::

    folder/manifest-<revision>.json             what belongs to the revision, with every file's SHA-256
    folder/segments/<revision>-<x>-base.arrow   one row; each array of `Tables` is a list, mapped as it lies
    folder/ids/<revision>-<x>.arrow             ordinal → id, destination, topic, selector, dialect, seltype

A revision exists from the moment its manifest does; until then its files are of no consequence. A manifest is
never written over. Its own SHA-256 stands in it, over the canonical JSON of everything else, so that no bit
can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from selectroute.index.errors import RevisionExistsError, SnapshotError, SnapshotNotFoundError
from selectroute.index.segment import Attribute, Segment
from selectroute.index.snapshot import Snapshot
from selectroute.index.tables import DTYPES, Tables, as_array

FORMAT = 2
"""The version of the format that is written and read."""

MAX_MANIFEST_BYTES = 16 << 20
MAX_REVISION = 2**63 - 1
_MANIFEST = re.compile(r"manifest-(0|[1-9][0-9]{0,18})\.json")
_FILE = re.compile(r"(segments|ids)/[0-9A-Za-z-]+\.arrow")


def publish(snapshot: Snapshot, folder: str | Path) -> int:
    """Write a snapshot as a revision of a folder, durably, and return the revision.

    A snapshot without a revision becomes the one after the newest there. Raises `SnapshotError` if the
    revision exists already: nothing published is ever changed. A crash at any instant leaves the revision
    complete or absent.
    """
    folder = Path(folder)
    revision = snapshot.revision
    if revision is not None and (type(revision) is not int or not 0 <= revision <= MAX_REVISION):
        raise SnapshotError(f"{revision!r} is no revision: an integer from 0 to {MAX_REVISION}")
    try:
        while True:
            newest = (revisions(folder) or [0])[-1]
            if revision is None and newest == MAX_REVISION:
                raise SnapshotError(f"{folder} holds revision {newest}, and there is none after it")
            try:
                return _publish(snapshot, folder, newest + 1 if revision is None else revision)
            except RevisionExistsError:
                if revision is not None:
                    raise  # otherwise somebody else took the next one: take the one after
    except OSError as error:
        raise SnapshotError(
            f"the snapshot cannot be written to {folder}: {error.strerror or error}"
        ) from error


def _publish(snapshot: Snapshot, folder: Path, revision: int) -> int:
    for part in ("segments", "ids"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    # The names are unique to this call: two publishers of one revision must not write into each other's
    # files.
    token = uuid.uuid4().hex[:8]
    segment, ids = f"segments/{revision}-{token}-base.arrow", f"ids/{revision}-{token}.arrow"
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "revision": revision,
        "segments": [
            {
                "file": segment,
                "sha256": _write(folder / segment, _segment_table(snapshot.segments[0])),
                "rows": len(snapshot),
                "kind": "base",
            }
        ],
        "ids": {"file": ids, "sha256": _write(folder / ids, snapshot.subscriptions)},
    }
    manifest["sha256"] = _self_digest(manifest)
    temporary = folder / f".manifest-{revision}-{token}.tmp"
    _write_durably(temporary, _canonical(manifest))
    try:
        # Unlike a rename, a link fails where the name exists: a published revision is never written over.
        os.link(temporary, folder / f"manifest-{revision}.json")
    except FileExistsError:
        for file in (segment, ids):
            (folder / file).unlink()
        raise RevisionExistsError(
            f"revision {revision} is already published in {folder}; publish this one under a higher revision"
        ) from None
    finally:
        temporary.unlink()
    _sync(folder)
    return revision


def open_snapshot(folder: Path, revision: int | None = None) -> Snapshot:
    """See `Snapshot.open`."""
    if revision is None:
        revision = latest_revision(folder)
    manifest = read_manifest(folder, revision)
    try:
        [segment] = manifest["segments"]
        files = [(part["file"], part["sha256"]) for part in (segment, manifest["ids"])]
    except (KeyError, TypeError, ValueError):
        raise SnapshotError(f"manifest-{revision}.json in {folder} names no segment and ids") from None
    table, subscriptions = (_read(folder, *file) for file in files)
    header = json.loads(table.schema.metadata[b"selectroute"])
    tables = Tables(
        **{
            name: as_array(name, table[name].chunk(0).values.to_numpy(zero_copy_only=True))
            for name in Tables._fields
        }
    )
    base = Segment(
        tables=tables,
        attributes=tuple(Attribute(**attribute) for attribute in header["attributes"]),
        depth=header["depth"],
        checks_names=header["checks_names"],
        scanned=header["scanned"],
        rows=subscriptions.num_rows,
    )
    return Snapshot(
        segments=(base,),
        subscriptions=subscriptions,
        revision=revision,
        digest=manifest["sha256"],
        folder=folder,
    )


def revisions(folder: Path) -> list[int]:
    """The revisions published in a folder, ascending; none if there is no such folder."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(found[1]) for name in names if (found := _MANIFEST.fullmatch(name)))


def latest_revision(folder: str | Path) -> int:
    """The newest revision published in a folder. Raises `SnapshotError` if there is none."""
    found = revisions(Path(folder))
    if not found:
        raise SnapshotNotFoundError(
            f"no snapshot is published in {folder}; "
            f"make one with `selectroute index build SUBS.jsonl {folder}`"
        )
    return found[-1]


def published_digest(folder: str | Path, revision: int) -> str:
    """The digest of a published revision, its segments unread. Raises `SnapshotError`."""
    digest: str = read_manifest(Path(folder), revision)["sha256"]
    return digest


def read_manifest(folder: Path, revision: int) -> dict[str, Any]:
    """The checked manifest of a revision. Raises `SnapshotError`."""
    path = folder / f"manifest-{revision}.json"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
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


def _segment_table(segment: Segment) -> pa.Table:
    header = {
        "attributes": [asdict(attribute) for attribute in segment.attributes],
        "depth": segment.depth,
        "checks_names": segment.checks_names,
        "scanned": dict(segment.scanned),
    }
    columns = {}
    for name, array in zip(Tables._fields, segment.tables, strict=True):
        values = pa.array(array.reshape(-1), pa.from_numpy_dtype(DTYPES[name]))
        columns[name] = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
    return pa.table(columns).replace_schema_metadata({"selectroute": json.dumps(header)})


def _write(path: Path, table: pa.Table) -> str:
    """Write an Arrow file durably, uncompressed so that it can be mapped, and return its SHA-256."""
    with path.open("xb") as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        file.flush()
        os.fsync(file.fileno())
    _sync(path.parent)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(folder: Path, name: str, sha256: str) -> pa.Table:
    if not _FILE.fullmatch(name):
        raise SnapshotError(f"the manifest in {folder} names {name!r}, which lies outside the snapshot")
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


def _canonical(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1, sort_keys=True).encode()


def _self_digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical({k: v for k, v in manifest.items() if k != "sha256"})).hexdigest()


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make a folder's entries durable: a rename or a new file is one only when its folder is on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
