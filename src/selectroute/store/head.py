"""Head of a database: the newest commit that was acknowledged, in a file beside it.

SQLite reads its log up to the first frame that does not check, and drops the rest without a word: after a
crash this is what was not committed. A disk that lost or damaged the end of the log would look the same, as a
database of some time ago, sound in itself. The head tells the two apart::

    commit, synced ──→ head, synced ──→ acknowledged

It is written when the commit is durable, so it is never ahead of a sound database; a crash between the two
leaves it behind, as does a head that could not be written. A database that is behind its head lost changes.

The file has two slots in blocks of their own, written in turns, so that a write which is torn leaves the mark
before it.
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
"""Bytes of a slot: a block of the disk, so that writing one touches no other."""

_FORMAT: Final = "selectroute-head-1"


class CommitMark(NamedTuple):
    """An acknowledged commit: the database that made it, the number of the commit, and a digest of all up to
    it. None of the texts has white space.
    """

    owner: str
    number: int
    digest: str


class Head:
    """Head of the database at `path`. Safe for use by threads and processes."""

    def __init__(self, path: str) -> None:
        self.path = Path(f"{path}.head")
        self._lock = threading.Lock()
        self._newest: CommitMark | None = None

    @property
    def newest(self) -> CommitMark | None:
        """Newest mark that this process made."""
        return self._newest

    def read(self) -> CommitMark | None:
        """Return the newest mark; None if none was ever written. Raises `DamagedError`, `ReadOnlyError`."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ReadOnlyError(f"{self.path} cannot be read: {error.strerror or error}") from error
        found = max(filter(None, _slots(data)), key=lambda mark: mark.number, default=None)
        if found is None:  # it is never without one, not even for an instant
            raise DamagedError(f"{self.path} is damaged: remove it to go on with what there is")
        return found

    def advance(self, mark: CommitMark) -> bool:
        """Write down that a commit is about to be acknowledged, unless a later one was. One small synced
        write. Returns whether it is durable; if not, the commit still is, and the next one tries again.
        """
        with self._lock:
            if self._newest is None or self._newest.number < mark.number:
                try:
                    self._write(mark)
                except OSError:
                    return False
                self._newest = mark
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
        """Make the file under another name, and give it its own when it is durable."""
        new = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}.new")
        try:
            with open(new, "xb", opener=_owners_alone) as file:
                file.write(_record(mark).ljust(2 * _SLOT, b"\0"))
            disk.name_if_absent(new, self.path)
        finally:
            new.unlink(missing_ok=True)


def _owners_alone(path: str, flags: int) -> int:
    """Open a new file that only its owner reads, as the database beside it."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def lost(head: Head, what: str) -> DamagedError:
    """Return the error of a database that is not what its head says, with what can be done."""
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
    """Return the mark of a slot; None if it has none, or what was begun to be written."""
    line, end, _ = slot.partition(b"\n")
    text, space, digest = line.rpartition(b" ")
    text += space
    if not end or hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    _, owner, number, of_all = text.decode().split()
    return CommitMark(owner, int(number), of_all)
