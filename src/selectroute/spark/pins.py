"""Pins and leases: which revision a batch is routed against, decided once and for all.

A batch may run again after a crash, when the registry has moved on. Its pin is written before it is routed
and read when it comes again, so both runs give the same deliveries. The lease, a file in the snapshot
folder, tells whoever clears that folder up which revisions are still needed.

A backfill or replay has a pin of its own, in which also stands what it is about to do, and a lease of its
own: the next batch of the stream may move on to a newer revision before an interrupted one comes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from selectroute.index.errors import SnapshotError
from selectroute.index.manifest import latest_revision, locked, published_digest
from selectroute.selector.errors import SelectRouteError
from selectroute.spark import durable
from selectroute.spark.snapshots import SnapshotRef


class PinError(SelectRouteError):
    """The revision of a batch can't be used, or the newest one is older than one used before."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The revision that a batch is routed against, and the digest of its manifest."""

    batch: int
    revision: int
    digest: str


@dataclass(frozen=True, slots=True)
class BackfillPin:
    """What a backfill does: these subscriptions of this revision get what they missed of these batches."""

    batch: int
    revision: int
    digest: str
    subscriptions: tuple[str, ...]
    batches: tuple[int, ...]

    @property
    def pin(self) -> Pin:
        """Number, revision and digest."""
        return Pin(self.batch, self.revision, self.digest)


@dataclass(frozen=True, slots=True)
class ReplayPin:
    """What a replay does: the dead letters of these batches that are wanted are judged by this revision."""

    batch: int
    revision: int
    digest: str
    request: str
    wanted: Mapping[str, Any]
    batches: tuple[int, ...]

    @property
    def pin(self) -> Pin:
        """Number, revision and digest."""
        return Pin(self.batch, self.revision, self.digest)


def pin(batch: int, pins: Path, snapshots: Path, query: str) -> Pin:
    """Return the batch's pin: the one it has, or else the newest published revision, written down durably.

    Raises:
        PinError: the pinned revision is gone or its files are others, or revisions went backwards.
        SnapshotError: the folder holds no snapshot, or the lease can't be written to it.
    """
    path = pins / f"{batch}.json"
    written = durable.read_json(path)
    if written is not None:
        pinned = Pin(**written)
        _check(pinned, snapshots)
        return pinned
    durable.make_folder(pins)
    latest_revision(snapshots)  # raises where there is none
    # Under the lock nobody removes the revision between its being the newest and its being leased.
    with locked(snapshots):
        pinned = _newest(batch, pins, snapshots, query)
    durable.write_json(path, asdict(pinned))
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


def lease(snapshots: Path, query: str, revision: int) -> None:
    """Write down that this query needs this revision and later ones."""
    path = snapshots / "leases" / f"{query}.json"
    try:
        current = durable.read_json(path)
        if current is None or current.get("revision") != revision:
            durable.make_folder(path.parent)
            durable.write_json(path, {"query": query, "revision": revision})
    except OSError as error:
        raise SnapshotError(
            f"the lease {path} can't be written ({error.strerror}); the job needs to write there, so "
            "that no revision "
            "is removed while a batch may still need it"
        ) from error


def pinned_revision(batch: int, pins: Path) -> int | None:
    """Return the revision that a batch of the stream is pinned to, None if it is not pinned."""
    written = durable.read_json(pins / f"{batch}.json")
    return None if written is None else int(written["revision"])


def pin_aside(one: BackfillPin | ReplayPin, pins: Path, snapshots: Path, query: str) -> None:
    """Write the pin of a backfill or replay down durably, after its lease. Hold the lock of the snapshot
    folder.
    """
    lease(snapshots, _aside_lease(query), one.revision)
    durable.make_folder(pins)
    durable.write_json(pins / f"{one.batch}.json", asdict(one))


def pinned_backfill(batch: int, pins: Path, snapshots: Path) -> BackfillPin | None:
    """Return the pin that an interrupted backfill of this number left behind.

    Raises:
        PinError: the pinned revision is gone or its files are others.
    """
    written = durable.read_json(pins / f"{batch}.json")
    if written is None or "subscriptions" not in written:
        return None
    lists = {name: tuple(written[name]) for name in ("subscriptions", "batches")}
    found = BackfillPin(**(written | lists))
    _check(found.pin, snapshots)
    return found


def pinned_replay(batch: int, pins: Path, snapshots: Path) -> ReplayPin | None:
    """Return the pin that an interrupted replay of this number left behind.

    Raises:
        PinError: the pinned revision is gone or its files are others.
    """
    written = durable.read_json(pins / f"{batch}.json")
    if written is None or "request" not in written:
        return None
    found = ReplayPin(**(written | {"batches": tuple(written["batches"])}))
    _check(found.pin, snapshots)
    return found


def release_aside(snapshots: Path, query: str) -> None:
    """Give the lease of a backfill or replay that is committed back."""
    (snapshots / "leases" / f"{_aside_lease(query)}.json").unlink(missing_ok=True)


def _aside_lease(query: str) -> str:
    return f"{query}-backfill"


def reference(pinned: Pin, snapshots: Path) -> SnapshotRef:
    """Return the reference by which workers open the pinned snapshot."""
    return SnapshotRef(str(snapshots), pinned.revision, pinned.digest)


def _previous(batch: int, pins: Path) -> Pin | None:
    # Batches come one after another, so nearly always the one before has a pin.
    for number in range(batch - 1, -1, -1):
        written = durable.read_json(pins / f"{number}.json")
        if written is not None:
            return Pin(**written)
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
