"""Owners of folders: of several processes one owns a folder, by a lock or, in remote storage, by a lease.

A lock is released by the system when its process ends.

A lease is a file that its owner replaces again and again, each time only if it is unchanged. A process that
finds a lease watches it: if it does not change for some seconds, its owner has died or stands still, and the
lease is taken over with a higher *epoch*. The clocks of two machines are never compared. An owner that wakes
up finds that its version is gone, and ends.

A lease says who should write, and cannot stop a write that is already on its way. So what must not be written
twice, such as the commit of a batch, is also written only if it does not exist (`Storage.put_new`).
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from selectroute.durable.lock import FileLock, is_locked
from selectroute.selector.errors import SelectRouteError
from selectroute.storage.location import Location
from selectroute.storage.protocol import ChangedError, StorageError

LOCK, LEASE = "_lock", "_lease.json"
"""Files by which a folder is owned, unless others are named."""

LEASE_SECONDS: Final = 15.0
"""Time without a change after which a lease is taken over."""

_RENEWALS: Final = 5
"""Renewals in this time."""


_LOOK_SECONDS: Final = 0.5
"""Time for which a lock is tried: those who only look whether it is held take it for an instant."""


class LeaseLostError(SelectRouteError):
    """Lease that another process has taken over."""


class OwnedError(SelectRouteError):
    """Folder of another process. ``holder`` names the process, if it is known."""

    def __init__(self, holder: str | None = None) -> None:
        super().__init__("it has another owner" if holder is None else f"held by {holder}")
        self.holder = holder


class FolderOwner(Protocol):
    """Ownership of a folder, until `close`.

    ``expires``: it may be lost while it is held, and another process own the folder.
    """

    expires: ClassVar[bool]

    def check(self) -> None:
        """Make sure that the folder is owned. Raises LeaseLostError, StorageError."""

    def close(self) -> None:
        """Give the folder up. Idempotent."""


class FolderLock(FileLock):
    """Ownership of a folder of this machine by the lock of a file in it. Raises `OwnedError`."""

    expires: ClassVar[bool] = False

    def __init__(self, path: Path) -> None:
        deadline = time.monotonic() + _LOOK_SECONDS
        while True:
            try:
                super().__init__(path, wait=False, create=0o644)
                return
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise OwnedError from error
                time.sleep(_LOOK_SECONDS / 10)

    def check(self) -> None:
        """Do nothing: a lock is not lost."""


class Lease:
    """Lease on a folder, held from construction until `close`.

    Args:
        file: the file of the lease.
        seconds: the time without a renewal after which another process takes the lease over.
        lost: called once, in another thread, with the error when the lease was taken over.
        waiting: called when the lease of another process is watched, with the process; returns whether to
            give up.
        clock: returns seconds that count while the machine sleeps, too.

    Raises:
        OwnedError: another process renews the lease.
        StorageError: the storage can't be used.
    """

    expires: ClassVar[bool] = True

    def __init__(
        self,
        file: Location,
        *,
        seconds: float = LEASE_SECONDS,
        lost: Callable[[LeaseLostError], None] = lambda _: None,
        waiting: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._file = file
        self._seconds = seconds
        self._report = lost
        self._clock = clock
        self._holder = f"process {os.getpid()} on {socket.gethostname()}"
        self._id = uuid.uuid4().hex
        self._error: LeaseLostError | None = None
        self._guard = threading.Lock()
        self._ending = threading.Event()
        self._beats = 0
        self.epoch, self._version = self._taken(waiting)
        self._renewed = clock()
        self._thread = threading.Thread(target=self._renew, name="selectroute-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Make sure that the lease is held, without a request if it was renewed just now.

        Raises:
            LeaseLostError: another process has taken it over.
            StorageError: it is too old, and can't be renewed.
        """
        if self._error is not None:
            raise self._error
        if self._clock() - self._renewed > self._seconds / 2:
            self._beat()

    def close(self) -> None:
        """Release the lease: another process can take it at once. Idempotent."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._thread.join()
        if self._error is None:
            try:
                self._write({"released": True})
            except (ChangedError, StorageError):
                return  # it was taken over, or is taken over later

    def _taken(self, waiting: Callable[[str], bool]) -> tuple[int, str]:
        seen: str | None = None
        since = self._clock()
        pause = self._seconds / _RENEWALS
        while True:
            try:
                data, version = self._file.storage.read_version(self._file.key)
            except FileNotFoundError:
                try:
                    self._file.put_new(self._content(1))
                except FileExistsError:
                    continue
                return 1, self._file.storage.read_version(self._file.key)[1]
            content = _parsed(self._file, data)
            if content.get("released") or (seen == version and self._clock() - since >= self._seconds):
                epoch = content["epoch"] + 1
                try:
                    return epoch, self._file.storage.replace(self._file.key, self._content(epoch), version)
                except ChangedError:
                    seen = None
                    continue
            if seen is None:
                seen, since = version, self._clock()
            elif seen != version:
                raise OwnedError(content["holder"])
            if waiting(content["holder"]):
                raise OwnedError(content["holder"])
            time.sleep(pause)

    def _renew(self) -> None:
        while not self._ending.wait(self._seconds / _RENEWALS):
            try:
                self._beat()
            except LeaseLostError as error:
                self._report(error)
                return
            except StorageError:
                continue  # it is held as long as nobody has taken it over

    def _beat(self) -> None:
        with self._guard:
            if self._error is not None:
                raise self._error
            try:
                self._write({})
            except ChangedError as error:
                self._error = LeaseLostError(f"another process has taken over {self._file.parent}")
                raise self._error from error

    def _write(self, more: dict[str, Any]) -> None:
        started = self._clock()
        self._beats += 1
        data = self._content(self.epoch, more)
        self._version = self._file.storage.replace(self._file.key, data, self._version)
        self._renewed = started

    def _content(self, epoch: int, more: dict[str, Any] | None = None) -> bytes:
        content = {"epoch": epoch, "holder": self._holder, "id": self._id, "renewals": self._beats}
        return (json.dumps(content | (more or {}), indent=1) + "\n").encode()


def owner_of(
    folder: Location,
    lock: str = LOCK,
    lease: str = LEASE,
    lost: Callable[[LeaseLostError], None] = lambda _: None,
    waiting: Callable[[str], bool] = lambda _: False,
) -> FolderOwner:
    """Own a folder that exists.

    Args:
        folder: the folder.
        lock, lease: names of the file whose lock is taken, and of the lease.
        lost, waiting: of a lease, see `Lease`.

    Raises:
        OwnedError: another process owns the folder.
        OSError, StorageError: the folder can't be used.
    """
    if folder.is_local:
        return FolderLock(folder.path / lock)
    return Lease(folder / lease, lost=lost, waiting=waiting)


def is_owned(folder: Location) -> bool:
    """Return whether a process owns a folder. In remote storage it watches the lease for some seconds."""
    return is_locked(folder.path / LOCK) if folder.is_local else is_held(folder / LEASE)


def is_held(file: Location, seconds: float = LEASE_SECONDS) -> bool:
    """Return whether a process holds a lease, by watching it for the time of two renewals."""
    before = _seen(file)
    if before is None:
        return False
    time.sleep(2.2 * seconds / _RENEWALS)
    return _seen(file) not in (None, before)


def _seen(file: Location) -> str | None:
    """Return the version of a lease; None if it is released, or there is none."""
    try:
        data, version = file.storage.read_version(file.key)
    except FileNotFoundError:
        return None
    return None if _parsed(file, data).get("released") else version


def _parsed(file: Location, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
        if type(content["epoch"]) is int and isinstance(content["holder"], str):
            return dict(content)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise StorageError(f"{file} is not a lease: remove it if no process uses {file.parent}")
