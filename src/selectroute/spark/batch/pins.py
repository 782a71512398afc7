"""Pins and leases: which revision a batch is routed against, decided once and for all.

A batch may run again after a crash, when the registry has moved on. Its pin is written before it is routed
and read when it comes again, so both runs give the same deliveries. The lease, a file in the snapshot
folder, tells whoever clears that folder up which revisions are still needed.

A backfill or replay has a pin of its own, in which also stands what it is about to do, and a lease of its
own: the next batch of the stream may move on to a newer revision before an interrupted one comes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selectroute.durable import disk
from selectroute.index.errors import SnapshotError
from selectroute.index.folder.manifest import latest_revision, locked, published_digest
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.commits import BACKFILL, REPLAY, STREAM
from selectroute.spark.columns.snapshot_ref import SnapshotRef, lease


class PinError(SelectRouteError):
    """Error: the revision of a batch can't be used, or the newest one is older than one used before."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Revision that a batch is routed against, and what a side batch is about to do.

    Attributes:
        batch: its number.
        revision, digest: the revision, and the SHA-256 of its manifest.
        kind: ``stream``, ``backfill`` or ``replay``.
        batches: of a side batch, those whose messages are judged once more.
        subscriptions: of a backfill, those that missed these batches.
        request, wanted: of a replay, the request that it is for, and which dead letters that means.
    """

    batch: int
    revision: int
    digest: str
    kind: str = STREAM
    batches: tuple[int, ...] = ()
    subscriptions: tuple[str, ...] = ()
    request: str = ""
    wanted: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as `from_json` reads it. The kind is told by the keys that only it has."""
        content: dict[str, Any] = {"batch": self.batch, "revision": self.revision, "digest": self.digest}
        if self.kind == BACKFILL:
            content |= {"subscriptions": list(self.subscriptions), "batches": list(self.batches)}
        elif self.kind == REPLAY:
            content |= {"request": self.request, "wanted": dict(self.wanted), "batches": list(self.batches)}
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Pin:
        """Return what `to_json` gave."""
        kind = BACKFILL if "subscriptions" in content else REPLAY if "request" in content else STREAM
        lists = {name: tuple(content[name]) for name in ("batches", "subscriptions") if name in content}
        return cls(**(dict(content) | lists), kind=kind)


def pin(batch: int, pins: Path, snapshots: Path, query: str) -> Pin:
    """Return the batch's pin: the one it has, or else the newest published revision, written down durably.

    Raises:
        PinError: the pinned revision is gone or its files are others, or revisions went backwards.
        SnapshotError: the folder holds no snapshot, or the lease can't be written to it.
    """
    path = pins / f"{batch}.json"
    written = disk.read_json(path)
    if written is not None:
        pinned = Pin.from_json(written)
        _check(pinned, snapshots)
        return pinned
    disk.make_folder(pins)
    latest_revision(snapshots)  # raises where there is none
    # Under the lock nobody removes the revision between its being the newest and its being leased.
    with locked(snapshots):
        pinned = _newest(batch, pins, snapshots, query)
    disk.write_json(path, pinned.to_json())
    return pinned


def _newest(batch: int, pins: Path, snapshots: Path, query: str) -> Pin:
    previous = _previous(batch, pins)
    revision = latest_revision(snapshots)
    if previous is not None and revision < previous.revision:
        raise PinError(
            f"the newest revision in {snapshots} is {revision}, but batch {previous.batch} was "
            "already routed against "
            f"revision {previous.revision}: revisions only go up; publish the older state again as a "
            "new revision"
        )
    # The lease first: from then on nobody removes the revision, and the digest is read of files that stay.
    lease(snapshots, query, revision)
    return Pin(batch, revision, published_digest(snapshots, revision))


def pinned_revision(batch: int, pins: Path) -> int | None:
    """Return the revision that a batch of the stream is pinned to, None if it is not pinned."""
    written = disk.read_json(pins / f"{batch}.json")
    return None if written is None else int(written["revision"])


def pin_side_batch(pinned: Pin, pins: Path, snapshots: Path, query: str) -> None:
    """Write the pin of a side batch durably, after its lease. Hold the lock of the snapshot folder."""
    lease(snapshots, _side_batch_lease(query), pinned.revision)
    disk.make_folder(pins)
    disk.write_json(pins / f"{pinned.batch}.json", pinned.to_json())


def pinned_side_batch(batch: int, kind: str, pins: Path, snapshots: Path) -> Pin | None:
    """Return the pin of this kind that an interrupted side batch of this number left; None if there is none.

    Raises:
        PinError: the pinned revision is gone or its files are others.
    """
    written = disk.read_json(pins / f"{batch}.json")
    found = None if written is None else Pin.from_json(written)
    if found is None or found.kind != kind:
        return None
    _check(found, snapshots)
    return found


def release_side_batch(snapshots: Path, query: str) -> None:
    """Release the lease of a committed side batch."""
    (snapshots / "leases" / f"{_side_batch_lease(query)}.json").unlink(missing_ok=True)


def _side_batch_lease(query: str) -> str:
    """Return the name of the lease, of a backfill or a replay: only one of them is made at a time."""
    return f"{query}-backfill"


def reference(pinned: Pin, snapshots: Path) -> SnapshotRef:
    """Return the reference by which workers open the pinned snapshot."""
    return SnapshotRef(str(snapshots), pinned.revision, pinned.digest)


def _previous(batch: int, pins: Path) -> Pin | None:
    # Batches come one after another, so nearly always the one before has a pin.
    for number in range(batch - 1, -1, -1):
        written = disk.read_json(pins / f"{number}.json")
        if written is not None:
            return Pin.from_json(written)
        if number < batch - 2:
            break
    return None


def _check(pinned: Pin, snapshots: Path) -> None:
    try:
        digest = published_digest(snapshots, pinned.revision)
    except SnapshotError as error:
        raise PinError(
            f"batch {pinned.batch} is pinned to revision {pinned.revision} and must be routed against "
            f"it again: {error}"
        ) from error
    if digest != pinned.digest:
        raise PinError(
            f"batch {pinned.batch} is pinned to revision {pinned.revision} with digest "
            f"{pinned.digest[:12]}…, but "
            f"{snapshots} now holds another revision {pinned.revision} (digest {digest[:12]}…): put "
            "the files back; "
            "a published revision must never be replaced"
        )
