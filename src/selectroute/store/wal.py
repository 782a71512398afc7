"""Whether SQLite's write-ahead log was cut short by damage rather than by a crash.

::

    header │ frame 1 … frame m │ frame m+1 …            m: the last commit before the first wrong checksum
             read by SQLite      ignored by SQLite

Each frame's checksum goes on from that of the frame before it. Where one does not fit, SQLite ends the log in
silence: so a crash in the middle of a commit is undone, but a bit that turns in the middle of the log undoes
every commit behind it as well. The two are told apart: a commit is synced before the next one begins, so a
crash, or a write that failed, leaves at most the end of one transaction behind. Frames that follow upon each
other and hold two commits are changes that were acknowledged, and lost.

The last transaction alone cannot be told from one that a crash cut off: who publishes it notices (see
``registry/publish.py``). The format is SQLite's: https://sqlite.org/walformat.html
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from selectroute.store.errors import DamagedError

_HEADER: Final = struct.Struct(">4I8s2I")
"""Magic number, version, bytes of a page, a count, salts, checksum."""

_FRAME: Final = struct.Struct(">2I8s2I")
"""Page, pages of the database after a commit (0 within a transaction), salts, checksum."""

_MAGIC: Final = 0x377F0682
"""With the lowest bit set, checksums take the words as big-endian."""

_READ_BYTES: Final = 8 << 20
_LOOKS: Final = 5
_LOOK_SECONDS: Final = 0.05


class _Frame(NamedTuple):
    is_next: bool
    """It is of this log, and its checksum goes on from the frame before it."""
    commits: bool


def check_log(path: str) -> None:
    """Raise `DamagedError` if the log at `path` (``<database>-wal``) holds commits that SQLite will not see.

    To be called before the database is opened: who closes it last removes the log. Others may be writing.
    """
    for look in range(_LOOKS):
        try:
            log = os.open(path, os.O_RDONLY)
        except OSError:
            return  # there is none, or whoever opens the database says what is wrong
        try:
            header = os.pread(log, _HEADER.size, 0)
            if _is_whole(log, header) or os.pread(log, _HEADER.size, 0) != header:
                return  # or it began anew just now, by somebody who reads it
        finally:
            os.close(log)
        if look < _LOOKS - 1:
            time.sleep(_LOOK_SECONDS)
    raise DamagedError(
        f"the database's log {path} is damaged, and changes that were committed are lost: put the database "
        "and its log back from a copy, or move the log away to go on without them"
    )


def _is_whole(log: int, header: bytes) -> bool:
    if os.fstat(log).st_size < _HEADER.size + _FRAME.size:
        return True  # no frame was written yet
    magic, _, page, _, salts, *sums = _HEADER.unpack(header)
    order = ">" if magic & 1 else "<"
    start = _sums(np.frombuffer(header[:24], f"{order}u4")[None, :], np.zeros((1, 2), np.uint32))
    if magic & ~1 != _MAGIC or start[0].tolist() != sums:
        return False  # the header is synced before the first frame is written
    commits, is_cut = 0, False
    for frame in _frames(log, page, salts, sums, order):
        is_cut = is_cut or not frame.is_next
        if is_cut:
            commits = (commits if frame.is_next else 0) + frame.commits
        if commits == 2:
            return False
    return True


def _frames(log: int, page: int, salts: bytes, before: list[int], order: str) -> Iterator[_Frame]:
    """The frames of a log, up to its end."""
    size = _FRAME.size + page
    many = max(1, _READ_BYTES // size)
    at = _HEADER.size
    while data := os.pread(log, many * size, at):
        count = len(data) // size
        rows = np.frombuffer(data, np.uint8, count * size).reshape(count, size)
        said = rows[:, 16:24].copy().view(">u4").astype(np.uint32)
        summed = np.concatenate([rows[:, :8], rows[:, _FRAME.size :]], axis=1)
        previous = np.concatenate([np.array([before], np.uint32), said[:-1]])
        fits = (_sums(summed.view(f"{order}u4"), previous) == said).all(axis=1)
        ours = (rows[:, 8:16] == np.frombuffer(salts, np.uint8)).all(axis=1)  # not of the log before this one
        commits = rows[:, 4:8].any(axis=1)
        yield from map(_Frame, (fits & ours).tolist(), (commits & ours).tolist())
        if count < many:
            return
        before = said[-1].tolist()
        at += count * size


def _sums(words: Any, before: Any) -> Any:
    """The checksums of rows of 32-bit words behind those of the rows before them; uint32[rows, 2].

    Two sums run over pairs of words: s += x + t, t += y + s, modulo 2^32. That is linear, so a row's sums are
    a product of its words and of what stood before with weights that depend on its length alone.
    """
    weights, of_before = _weights(words.shape[1])
    return words.astype(np.uint32) @ weights + before.astype(np.uint32) @ of_before


@cache
def _weights(words: int) -> tuple[Any, Any]:
    """How much each word of a row counts in its two sums, and each of the two sums before it; uint32."""
    weights = np.zeros((words, 2), np.uint32)
    # From the last pair to the first: what 1 more in s, or in t, makes of the sums after all that follow.
    s, t = np.array([1, 0], np.uint32), np.array([0, 1], np.uint32)
    for at in range(words - 2, -1, -2):
        weights[at] = s + t  # x is in s, and by s in t
        weights[at + 1] = t
        s, t = s + t, s + t + t
    return weights, np.array([s, t])
