"""Head of a database: the newest acknowledged commit, in a separate file next to the database.

SQLite reads its log up to the first frame with a wrong checksum and silently drops the rest: after a crash
these are uncommitted changes. A disk that lost or damaged the end of the log looks the same: a consistent,
but older database. The head distinguishes the two::

    commit, synced ──→ head, synced ──→ acknowledged

The head is written after the commit is durable, so it is never newer than an intact database; it is older
after a crash between the two or a failed write. A database older than its head lost changes.

The file has two slots, each a block of its own, written alternately: a torn write leaves the previous mark
intact.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from pathlib import Path
from typing import Final, NamedTuple

from selectroute.durable import disk
from selectroute.durable.lock import FileLock
from selectroute.store.errors import DamagedError, ReadOnlyError

_SLOT: Final = 4_096
"""Bytes of a slot: a block of the disk, so that a write of one slot does not touch the other."""

_FORMAT: Final = "selectroute-head-1"


class CommitMark(NamedTuple):
    """Acknowledged commit: its database, its number, and a digest of all commits up to it. The texts have no
    white space.
    """

    owner: str
    number: int
    digest: str


class Head:
    """Head of the database at `path`. Safe for use by threads and processes."""

    def __init__(self, path: str) -> None:
        self.path = Path(f"{path}.head")
        self._lock = threading.Lock()
        self.newest: CommitMark | None = None
        """Newest mark that this process wrote."""

    def read(self) -> CommitMark | None:
        """Return the newest mark; None if none was ever written. Raises `DamagedError`, `ReadOnlyError`."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ReadOnlyError(f"{self.path} cannot be read: {error.strerror or error}") from error
        found = max(filter(None, _slots(data)), key=lambda mark: mark.number, default=None)
        if found is None:  # the file has a mark from its creation on
            raise DamagedError(f"{self.path} is damaged: remove it to go on with the database as it is")
        return found

    def advance(self, mark: CommitMark) -> bool:
        """Record a commit about to be acknowledged, unless a later one is. One small synced write. Returns
        whether the mark is durable; if not, the commit still is, and the next one tries again.
        """
        with self._lock:
            if self.newest is None or self.newest.number < mark.number:
                try:
                    self._write(mark)
                except OSError:
                    return False
                self.newest = mark
            return True

    def _write(self, mark: CommitMark) -> None:
        try:
            lock = FileLock(self.path, create=None)
        except FileNotFoundError:
            self._create(mark)
            lock = FileLock(self.path, create=None)  # perhaps another process's
        with lock:
            file = lock.fileno()
            slots = _slots(os.pread(file, 2 * _SLOT, 0))
            numbers = [-1 if one is None else one.number for one in slots]
            if max(numbers) < mark.number:
                os.pwrite(file, _record(mark), _SLOT * numbers.index(min(numbers)))
                os.fdatasync(file)

    def _create(self, mark: CommitMark) -> None:
        """Create the file under a temporary name and rename it when it is durable."""
        new = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}.new")
        try:
            # Only its owner can read it, like the database.
            with open(
                new, "xb", opener=lambda path, flags: os.open(path, flags | os.O_CLOEXEC, 0o600)
            ) as file:
                file.write(_record(mark).ljust(2 * _SLOT, b"\0"))
            disk.name_if_absent(new, self.path)
        finally:
            new.unlink(missing_ok=True)


def lost(head: Head, what: str) -> DamagedError:
    """Return the error for a database that is older than its head, with the remedies."""
    return DamagedError(
        f"the database lost changes that were acknowledged: {what}; put back a newer copy of it, or, if an "
        f"older one was put back on purpose, remove {head.path}"
    )


def _record(mark: CommitMark) -> bytes:
    text = f"{_FORMAT} {mark.owner} {mark.number} {mark.digest} "
    return (text + hashlib.sha256(text.encode()).hexdigest() + "\n").encode()


def _slots(data: bytes) -> list[CommitMark | None]:
    return [_mark(data[start : start + _SLOT]) for start in (0, _SLOT)]


def _mark(slot: bytes) -> CommitMark | None:
    """Return the mark of a slot; None if the slot is empty or its write was torn."""
    line, end, _ = slot.partition(b"\n")
    text, space, digest = line.rpartition(b" ")
    text += space
    if not end or hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    _, owner, number, of_all = text.decode().split()
    return CommitMark(owner, int(number), of_all)
