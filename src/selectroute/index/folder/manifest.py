"""Manifests of a snapshot folder: the files of each revision.

A revision exists as soon as its manifest does; until then its files have no effect. A manifest is never
overwritten. It contains the SHA-256 of the canonical JSON of its other fields, so that any changed bit is
detected. `format` describes the fields. That of a registry's revision also has its `Source`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from selectroute.durable import disk
from selectroute.durable.lock import FileLock
from selectroute.index.errors import RevisionExistsError, SnapshotError, SnapshotNotFoundError
from selectroute.storage import Location
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
    where = Location.of(folder)
    if where.is_local:  # names alone: nothing is asked of each file
        try:
            names = os.listdir(where.path)
        except (FileNotFoundError, NotADirectoryError):
            return []
    else:
        names = [file.name for file in where.files()]
    # All names at once: after an hour of changes there are tens of thousands.
    return sorted(map(int, _MANIFESTS.findall("\n".join(names))))


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
        data = _read(path)
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
def locked(folder: Where, exclusive: bool = False) -> Iterator[None]:
    """Hold the folder's lock: shared to reference files in it, exclusive to remove files. Remote storage has
    no locks: there `retention` removes only what has been unused for long.

    A writer that reads a manifest and then references its files (in a new manifest, or a lease) does both
    under one lock, so that no file is removed in between. Readers take no lock.

    Raises `SnapshotError` if the folder cannot be locked.
    """
    where = Location.of(folder)
    if not where.is_local:
        yield
        return
    path = where.path / LOCK
    try:
        lock = FileLock(path, shared=not exclusive)
    except OSError as error:
        raise SnapshotError(f"{path} cannot be locked: {error.strerror or error}") from error
    with lock:  # released too when the process dies
        yield


def _read(manifest: Location) -> bytes:
    if not manifest.is_local:
        return manifest.read()
    with disk.opened_regular(manifest.path) as file:
        return file.read(MAX_MANIFEST_BYTES + 1)


def _canonical(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1, sort_keys=True).encode()


def _self_digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical({k: v for k, v in manifest.items() if k != "sha256"})).hexdigest()
