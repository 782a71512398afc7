"""Pins, plans and leases: what a batch is routed with, decided once and durably.

A batch may run again after a crash, when the registry has newer revisions. Its pin, the revision, is written
before the batch is routed and read by a repeat, so both runs make the same deliveries. The lease, a file in
the snapshot folder, keeps needed revisions from being removed.

The plan of a batch with deliveries to queues or topics is which task gets which input, and what is known of
these destinations. A task that runs again must put and send the same, or its progress and its commit tokens
would say nothing. So before that, the plan is written to ``pins/<batch>.plan.json``, and a repeat of the
batch reads it. It is removed after the commit.

A backfill or replay has its own pin, which includes its plan, and its own lease (see ``replay``). The newest
revision of a folder in remote storage is known without a request while a batch waits.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from selectroute.index.errors import SnapshotError
from selectroute.index.snapshot_files import latest_revision, locked, published_digest
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.commits import BACKFILL, REPLAY, STREAM
from selectroute.spark.columns.snapshot_ref import SnapshotRef, lease
from selectroute.spark.destinations.destination import Topic
from selectroute.storage import Location
from selectroute.storage.owned import shared

_LOOK_SECONDS: Final = 1.0
_OLD_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 5.0


class Revision(NamedTuple):
    """Published revision, and the SHA-256 of its manifest."""

    number: int
    digest: str


class NewestRevision:
    """Newest revision of a folder. A mounted folder is looked at when it is asked for. For remote storage a
    thread looks each second, from the first use on, so that what is returned is at most a second or two old.

    All that a job does by the newest revision asks here. What is returned never goes back, unless the folder
    does: a batch of the stream has at least the revision that a backfill before it was planned with.
    """

    def __init__(self, snapshots: Location) -> None:
        self._snapshots = snapshots
        self._looks_ahead = not snapshots.is_local
        self._known: Revision | None = None
        self._looked = 0.0
        self._guard = threading.Lock()
        # One after the other: of two at once, that which ends later may have read the older revision.
        self._looking = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def get(self) -> Revision:
        """Return the newest revision. Raises `SnapshotError`."""
        if not self._looks_ahead:
            return self._look()
        known = self._fresh()
        if known is None:
            with self._looking:
                known = self._fresh() or self._look()
        with self._guard:
            if self._thread is None and not self._ending.is_set():
                self._thread = threading.Thread(target=self._run, name="selectroute-revision", daemon=True)
                self._thread.start()
        return known

    def number(self) -> int:
        """Return the newest revision without its digest. Raises `SnapshotError`."""
        return self.get().number if self._looks_ahead else latest_revision(self._snapshots)

    def close(self) -> None:
        """End the thread, and wait some seconds for its last answer: a client of HDFS aborts a process that
        ends in a call.
        """
        self._ending.set()
        with self._guard:
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_SECONDS)

    def _fresh(self) -> Revision | None:
        """Return the known revision; None if it is too old."""
        with self._guard:
            return self._known if time.monotonic() - self._looked <= _OLD_SECONDS else None

    def _look(self) -> Revision:
        began = time.monotonic()
        number = latest_revision(self._snapshots)
        known = self._known
        if known is None or known.number != number:
            known = Revision(number, published_digest(self._snapshots, number))
        with self._guard:
            self._known, self._looked = known, began
        return known

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            try:
                with self._looking:
                    self._look()
            except (SelectRouteError, OSError):
                continue  # `get` looks for itself, and says so


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
    write(lambda: path.put_new_json(content))
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
    # The lease first: it keeps the files whose digest is read. The batch before has written the same one.
    if previous is None or previous.revision != revision:
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
    pins_before = (read_pin(number, pins) for number in range(batch - 1, max(-1, batch - 4), -1))
    return next(filter(None, pins_before), None)


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


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a batch.

    Attributes:
        batch: the number of the batch.
        revision, digest: the revision that it is routed with.
        input: the plan of its input, from `BatchInput.plan`.
        topics: the existing topics, with their limits and numbers of partitions.
        queues: the existing queues, with their maximum body lengths.
    """

    batch: int
    revision: int
    digest: str
    input: Mapping[str, Any]
    topics: Mapping[str, Topic]
    queues: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON, the inverse of `from_json`."""
        return {
            "batch": self.batch,
            "revision": self.revision,
            "digest": self.digest,
            "input": dict(self.input),
            "topics": {name: list(topic) for name, topic in sorted(self.topics.items())},
            "queues": dict(sorted(self.queues.items())),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Plan:
        """Read the plan that `to_json` returned."""
        topics = {name: Topic(*values) for name, values in content["topics"].items()}
        return cls(**{**content, "topics": topics})

    @property
    def sha256(self) -> str:
        """SHA-256 of the plan, which commit tokens and the progress of puts have."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


def written_plan(pins: Location, pinned: Pin) -> Plan | None:
    """Return the plan of a batch that has begun with this pin; None if there is none."""
    content = _path(pins, pinned.batch).read_json()
    plan = None if content is None else Plan.from_json(content)
    if plan is None or (plan.revision, plan.digest) != (pinned.revision, pinned.digest):
        return None
    return plan


def write_plan(pins: Location, plan: Plan) -> None:
    """Write a new plan durably; decisions and digests that followed another one go.

    Raises:
        FileExistsError: another process has taken the job over, and planned the batch.
    """
    pins.make_folder()
    path = _path(pins, plan.batch)
    if path.exists():
        _forget(pins, plan.batch)
        path.put_json(plan.to_json())
    else:
        path.put_new_json(plan.to_json())


def remove_plan(pins: Location, batch: int) -> None:
    """Remove the plan of a batch that is committed, with decisions on schemas and digests of rows."""
    path = _path(pins, batch)
    if path.exists():  # as long as there is anything to forget
        _forget(pins, batch)
        path.delete()


def decisions_of(pins: Location, batch: int) -> Location:
    """Return the folder of a batch's decisions on schemas, which its tasks write. They belong to its plan."""
    return shared(pins) / f"{batch}.schemas"


def digests_of(pins: Location, batch: int) -> Location:
    """Return the folder of a batch's digests of the rows of a DataFrame, which its tasks write. They are a
    part of its plan.
    """
    return shared(pins) / f"{batch}.rows"


def begun_batches(pins: Location) -> list[int]:
    """Return the batches with a plan: they may have been put or sent in part."""
    return [int(path.name.removesuffix(_ENDING)) for path in pins.files() if path.name.endswith(_ENDING)]


_ENDING = ".plan.json"


def _forget(pins: Location, batch: int) -> None:
    for folder in (decisions_of(pins, batch), digests_of(pins, batch)):
        folder.delete_folder()


def _path(pins: Location, batch: int) -> Location:
    return pins / f"{batch}{_ENDING}"
