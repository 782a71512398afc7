"""Pins and leases: the revision that a batch is routed with, decided once and durably.

A batch may run again after a crash, when the registry has newer revisions. Its pin is written before the
batch is routed and read by a repeat, so both runs make the same deliveries. The lease, a file in the snapshot
folder, keeps needed revisions from being removed.

A backfill or replay has its own pin, which includes its plan, and its own lease (see ``replay``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from selectroute.index.errors import SnapshotError
from selectroute.index.folder.manifest import locked, published_digest
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.commits import BACKFILL, REPLAY, STREAM
from selectroute.spark.batch.revisions import NewestRevision, Revision
from selectroute.spark.columns.snapshot_ref import SnapshotRef, lease
from selectroute.storage import Location


class PinError(SelectRouteError):
    """Unusable revision of a batch, or a newest revision that is older than a previous one."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Revision that a batch is routed with, and the plan of a side batch.

    Attributes:
        batch: the number of the batch.
        revision, digest: the revision, and the SHA-256 of its manifest.
        kind: ``stream``, ``backfill`` or ``replay``.
        batches: of a side batch, the batches whose messages are judged again.
        subscriptions: of a backfill, the subscriptions that missed these batches.
        request, wanted: of a replay, the id of its request, and the filter of dead letters.
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
        """Return the pin as JSON, the inverse of `from_json`. The keys determine the kind."""
        content: dict[str, Any] = {"batch": self.batch, "revision": self.revision, "digest": self.digest}
        if self.kind == BACKFILL:
            content |= {"subscriptions": list(self.subscriptions), "batches": list(self.batches)}
        elif self.kind == REPLAY:
            content |= {"request": self.request, "wanted": dict(self.wanted), "batches": list(self.batches)}
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Pin:
        """Read the pin that `to_json` returned."""
        kind = BACKFILL if "subscriptions" in content else REPLAY if "request" in content else STREAM
        lists = {name: tuple(content[name]) for name in ("batches", "subscriptions") if name in content}
        return cls(**(dict(content) | lists), kind=kind)


def pin(
    batch: int,
    pins: Location,
    snapshots: Location,
    query: str,
    newest: Callable[[], Revision] | None = None,
    write: Callable[[Callable[[], None]], None] = lambda write: write(),
) -> Pin:
    """Return the batch's pin: the existing one, or else the newest published revision, written durably.

    Args:
        batch: the number of the batch.
        pins: the folder of pins.
        snapshots: the snapshot folder.
        query: id of the query, whose lease keeps the revision.
        newest: returns the newest revision.
        write: writes the pin; it may return before that is done.

    Raises:
        PinError: the pinned revision is gone or was replaced, or revisions went backwards.
        SnapshotError: the folder has no snapshot, or the lease can't be written.
    """
    path, pinned = pins / f"{batch}.json", read_pin(batch, pins)
    if pinned is not None:
        check_pinned(pinned, snapshots)
        return pinned
    pins.make_folder()
    find = newest or NewestRevision(snapshots).get
    find()  # raises if there is none
    # The lock keeps the newest revision from being removed before it is leased.
    with locked(snapshots):
        pinned = _newest(batch, pins, snapshots, query, find())
    content = pinned.to_json()
    # Where another process may have taken the job over, of two pins the first stands.
    write(lambda: path.put_json(content) if path.is_local else path.put_new_json(content))
    return pinned


def _newest(batch: int, pins: Location, snapshots: Location, query: str, newest: Revision) -> Pin:
    previous = _previous(batch, pins)
    revision = newest.number
    if previous is not None and revision < previous.revision:
        raise PinError(
            f"the newest revision in {snapshots} is {revision}, but batch {previous.batch} was already "
            f"routed with revision {previous.revision}: revisions only increase; publish the older state "
            "again as a new revision"
        )
    # The lease first: it keeps the files whose digest is read. In remote storage to look at it is a round
    # trip, and the batch before has it.
    if snapshots.is_local or previous is None or previous.revision != revision:
        lease(snapshots, query, revision)
    return Pin(batch, revision, newest.digest)


def read_pin(batch: int, pins: Location) -> Pin | None:
    """Return the pin of a batch as it was written; None if the batch is not pinned."""
    written = (pins / f"{batch}.json").read_json()
    return None if written is None else Pin.from_json(written)


def reference(pinned: Pin, snapshots: Location) -> SnapshotRef:
    """Return the reference with which workers open the pinned snapshot."""
    return SnapshotRef(str(snapshots), pinned.revision, pinned.digest)


def _previous(batch: int, pins: Location) -> Pin | None:
    # Batches come one after another, so the previous one nearly always has a pin.
    found = (read_pin(number, pins) for number in range(batch - 1, max(-1, batch - 4), -1))
    return next(filter(None, found), None)


def check_pinned(pinned: Pin, snapshots: Location) -> None:
    """Raise PinError if the pinned revision is gone or was replaced."""
    try:
        digest = published_digest(snapshots, pinned.revision)
    except SnapshotError as error:
        raise PinError(
            f"batch {pinned.batch} is pinned to revision {pinned.revision}, which can't be used: {error}"
        ) from error
    if digest != pinned.digest:
        raise PinError(
            f"batch {pinned.batch} is pinned to revision {pinned.revision} with digest "
            f"{pinned.digest[:12]}…, but {snapshots} now has another revision {pinned.revision} (digest "
            f"{digest[:12]}…): restore the files, and never replace a published revision"
        )
