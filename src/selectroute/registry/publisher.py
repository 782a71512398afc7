"""Publication of a registry: committed changes of the log become segments and a manifest in a folder.

::

    follow_changes ──folded by id──→ Add, Replace, Remove ──Publisher.apply──→ manifest-<revision>.json
    table ──at first, or after an import──→ build_snapshot ──publish──────────→ the same

The only state is the folder's newest revision: all later changes are published next. Several revisions of the
registry may become one of the folder, but a revision is never split.

``registry.json`` in the folder names its registry. Each manifest has the digest of the log up to its
revision: lost changes are detected even if the revision has caught up again.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Final

from selectroute.index.changes import Change, Drop, Put
from selectroute.index.compile.build import rebuilt
from selectroute.index.errors import SnapshotError
from selectroute.index.jsonl import stored_subscriptions
from selectroute.index.publisher import Publisher
from selectroute.index.retention import collect
from selectroute.index.snapshot import Snapshot
from selectroute.index.snapshot_files import Source, published, revisions, source_of
from selectroute.index.specification import SubscriptionStatus
from selectroute.registry.errors import OtherPublisherError, PublishError
from selectroute.registry.log.change_log import Latest
from selectroute.registry.model import Subscription
from selectroute.registry.registry import Registry
from selectroute.selector.dialect import EXTENDED
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import UNLIMITED
from selectroute.storage import Location
from selectroute.storage.lease import FolderOwner, OwnedError, owner_of
from selectroute.storage.location import Where

MANY: Final = 50_000
"""Count of changes from which a snapshot is built from the whole table, if they are a quarter of it."""

COLLECT_SECONDS: Final = 60.0
"""Interval of the removal of files that no revision needs."""

PAUSE_SECONDS: Final = 0.05
"""Longest pause between two publications while changes arrive all the time, by default."""

_OWNER: Final = "registry.json"
_LOCK: Final = ".publisher"
_LEASE: Final = "publisher.json"


class RegistryPublisher:
    """Publisher of a registry's revisions to a folder; one at a time per folder, across processes.

    Paused subscriptions are not in a snapshot. After a crash at any instant the next publisher continues.

    Args:
        registry: the registry to publish.
        folder: the path or URL of the snapshot folder; by default the registry's `snapshots_folder`.

    Raises:
        OtherPublisherError: another process publishes to the folder.
        PublishError: the folder belongs to another registry, or cannot be used.
    """

    def __init__(self, registry: Registry, folder: Where | None = None) -> None:
        self._registry = registry
        self.folder = Location.of(folder) if folder is not None else registry.snapshots_folder
        self._publisher: Publisher | None = None
        self._collected = time.monotonic()
        self._guard = threading.Lock()
        self._ownership = self._owned()
        try:
            self._check_owner()
            # Before the first write: a registry that lost revisions assigns their numbers again.
            self._check_newest(max(revisions(self.folder), default=0))
            self._check_log()
        except BaseException:
            self._ownership.close()
            raise

    @property
    def snapshot(self) -> Snapshot:
        """Newest published revision. Raises `PublishError` before the first `catch_up`."""
        publisher = self._publisher
        if publisher is None:
            raise PublishError("nothing is published yet: call catch_up first")
        return publisher.snapshot

    def catch_up(self) -> int:
        """Publish all committed changes; return the folder's newest revision.

        It is the registry's newest unless the registry changed since. Raises `PublishError`,
        SnapshotError, `StoreError`.
        """
        with self._guard:
            try:
                return self._catch_up()
            except SnapshotError:
                self._publisher = None  # may differ from the folder: read it again next time
                raise

    def rebuild(self) -> int:
        """Publish the whole table as a new revision, independent of the folder's other files; return it.

        For example after damage to the files.
        """
        with self._guard:
            self._publisher = None
            self._publish_all(self._registry.skip_revision())
            return self._opened().snapshot.revision or 0

    def follow(
        self,
        stop: threading.Event,
        poll_seconds: float = 0.05,
        failed: Callable[[SelectRouteError], None] | None = None,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """Publish each revision as soon as it is committed, until `stop` is set.

        A commit of this process is published at once, one of another process within `poll_seconds`. While
        changes arrive all the time, half of the time is left to those who make them, in pauses of at most
        `pause_seconds`. An error is raised, or with `failed` passed to it and retried a second later.
        """
        while not stop.is_set():
            began = time.monotonic()
            try:
                newest = self.catch_up()
                self._collect()
                stop.wait(min(time.monotonic() - began, pause_seconds))
                self._registry.next_revision(newest, poll_seconds)
            except SelectRouteError as error:
                if failed is None:
                    raise
                failed(error)
                stop.wait(1.0)

    def close(self) -> None:
        """Wait for a merge in progress, and release the folder to other publishers."""
        with self._guard:
            if self._publisher is not None:
                self._publisher.close()
                self._publisher = None
            self._ownership.close()

    def __enter__(self) -> RegistryPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- steps

    def _catch_up(self) -> int:
        newest = self._registry.revision
        if self._publisher is None and newest and not revisions(self.folder):
            self._publish_all(None)
        publisher = self._opened()
        done = publisher.snapshot.revision or 0
        if done > newest:
            self._check_newest(done)  # the registry may have committed it since `newest` was read
            return done
        if done == newest:
            return done
        recent = self._registry.recent_changes(done)
        if recent is None:
            pending = self._registry.pending(done)
            if pending >= MANY and pending * 4 >= len(self._registry):
                self._publisher = None
                self._publish_all(None)
                return self._opened().snapshot.revision or 0
            recent = self._logged(done, newest)
        changes = [_change(id, state) for id, state in recent.changed.items()]
        return publisher.apply(changes, recent.revision, self._source(recent.digest))

    def _logged(self, done: int, newest: int) -> Latest:
        """Return what the log has after a revision."""
        changed: dict[str, Subscription | None] = {}
        for change in self._registry.follow_changes(done):
            changed[change.id] = change.subscription
            newest = change.revision
        return Latest(newest, self._registry.digest_at(newest), changed)

    def _opened(self) -> Publisher:
        if self._publisher is None:
            # Who has a lease, which may expire, looks for a second publisher.
            alone = not self._ownership.expires
            self._publisher = Publisher(self.folder, own_revisions=False, limits=UNLIMITED, alone=alone)
        return self._publisher

    def _publish_all(self, revision: int | None) -> None:
        """Publish the whole table."""
        with self._registry.bodies(SubscriptionStatus.ACTIVE) as (newest, bodies):
            table = stored_subscriptions(bodies)
        source = self._source(self._registry.digest_at(newest))
        published(rebuilt(table, newest if revision is None else revision), self.folder, source)

    def _collect(self) -> None:
        if time.monotonic() - self._collected >= COLLECT_SECONDS:
            self._collected = time.monotonic()
            collect(self.folder)

    def _owned(self) -> FolderOwner:
        """Own the folder.

        A second publisher is noticed at the next revision, too: a manifest is never written twice.
        """
        try:
            self.folder.make_private_folder()
            return owner_of(self.folder, _LOCK, _LEASE)
        except OwnedError:
            raise OtherPublisherError(f"another process publishes to {self.folder}: stop it first") from None
        except OSError as error:
            raise PublishError(f"{self.folder} cannot be used: {error.strerror or error}") from error

    def _check_newest(self, done: int) -> None:
        newest = self._registry.revision
        if done > newest:
            raise PublishError(
                f"{self.folder} holds revision {done}, the registry only {newest}: it lost changes, or was "
                "put back to an older state; publish to another folder"
            )

    def _check_owner(self) -> None:
        """Check that the folder is of this registry; record so in a new folder."""
        owner = self._owner()
        if owner is None:
            if revisions(self.folder):
                raise PublishError(f"{self.folder} holds revisions of no registry; publish to another folder")
            path = self.folder / _OWNER
            try:
                path.put(json.dumps({"registry": self._registry.id}).encode())
            except OSError as error:
                raise PublishError(f"{path} cannot be written: {error.strerror or error}") from error
        elif owner != self._registry.id:
            raise PublishError(f"{self.folder} belongs to another registry; publish to another folder")

    def _check_log(self) -> None:
        """Compare the digest of the log with that of the newest published revision."""
        revision = max(revisions(self.folder), default=0)
        try:
            source = source_of(self.folder, revision) if revision else None
        except SnapshotError:
            source = None  # `catch_up` reports it, and `rebuild` does without it
        if source is not None and source["digest"] != self._registry.digest_at(revision):
            raise PublishError(
                f"{self.folder} has revision {revision} of a log that is not the registry's: it lost "
                "changes, or was put back to an older state; publish to another folder"
            )

    def _owner(self) -> str | None:
        """Return the id of the registry in the folder's ``registry.json``; None if there is none yet."""
        path = self.folder / _OWNER
        try:
            owner = json.loads(path.read())["registry"]
            if not isinstance(owner, str):
                raise ValueError("it does not name a registry")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PublishError(f"{path} cannot be read: {error}") from error
        return owner

    def _source(self, digest: str) -> Source:
        return {"registry": self._registry.id, "digest": digest}


def _change(id: str, state: Subscription | None) -> Change:
    """Return the change that brings a subscription of the snapshot to its last state."""
    if state is None or state.status is SubscriptionStatus.PAUSED:
        return Drop(id)
    extended = state.seltype == EXTENDED
    return Put(id, state.selector, state.topic, state.dialect, extended, state.destination.text)
