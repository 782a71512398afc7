"""Committed records, their number and the times at which they were committed, read from the broker's files.

A record has the time of its append, but a consumer that reads what is committed gets it no sooner than the
mark of its transaction, and of each that began before it in the same partition. Consumers do not show marks;
in the files of a partition they are batches with a bit set. The fixed part of a batch (magic 2) is all that
is read here, and of a mark the key of its record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from bench.workloads.plain import Ints

_HEAD: Final = Struct(">qi9xh12xqq6xi")
_LENGTH_ENDS: Final = 12
"""Where the bytes begin that the length of a batch counts."""
_TRANSACTIONAL, _MARK = 0x10, 0x20
_KIND: Final = Struct(">7xh")
"""The beginning of a mark's record: its five small numbers, the version of its key, and what it says."""
_COMMIT: Final = 1


class Batch(NamedTuple):
    """What is read of a batch of records."""

    offset: int
    """That of its first record."""
    length: int
    attributes: int
    stamp: int
    """When it was appended, in milliseconds: the topic's records are dated by the broker."""
    producer: int
    records: int
    """How many it has."""
    commits: bool = False
    """True of a mark that says that its transaction was committed; False if it was aborted."""


class CommitTimes:
    """When the transactional records of one partition could be read.

    Args:
        folder: the partition's, among the files of the broker.
        start: the first offset that is asked for; files that end before it may be about to be removed.
    """

    def __init__(self, folder: Path, start: int) -> None:
        began: dict[int, int] = {}
        found: list[tuple[int, int]] = []
        for batch in _batches(folder, start):
            if batch.attributes & _MARK:
                found.append((began.pop(batch.producer, batch.offset), batch.stamp))
            elif batch.attributes & _TRANSACTIONAL:
                began.setdefault(batch.producer, batch.offset)
        found.sort()
        self._first = np.array([first for first, _ in found], np.int64)
        self._stamps = np.maximum.accumulate(np.array([stamp for _, stamp in found], np.int64))

    def of(self, offsets: Ints) -> Ints:
        """Return the times of records that were committed, in milliseconds."""
        times: Ints = self._stamps[np.searchsorted(self._first, offsets, "right") - 1]
        return times


def committed(folder: Path, start: int) -> int:
    """Count the records of a partition from an offset on that were committed; those of a transaction count
    with its mark. Arguments as `CommitTimes`.
    """
    found, waiting = 0, Counter[int]()
    for batch in _batches(folder, start):
        if batch.offset < start:
            continue
        if batch.attributes & _MARK:
            own = waiting.pop(batch.producer, 0)
            found += own if batch.commits else 0
        elif batch.attributes & _TRANSACTIONAL:
            waiting[batch.producer] += batch.records
        else:
            found += batch.records
    return found


def _batches(folder: Path, start: int) -> Iterator[Batch]:
    files = sorted(folder.glob("*.log"))  # each is named after its first offset
    before = sum(int(file.stem) <= start for file in files[1:])
    for file in files[before:]:
        with file.open("rb") as opened:
            while len(head := opened.read(_HEAD.size)) == _HEAD.size:
                batch = Batch(*_HEAD.unpack(head))
                rest = opened.tell() - _HEAD.size + _LENGTH_ENDS + batch.length
                if batch.attributes & _MARK:
                    key = opened.read(_KIND.size)
                    if len(key) < _KIND.size:  # the broker is writing it
                        break
                    batch = batch._replace(commits=_KIND.unpack(key) == (_COMMIT,))
                yield batch
                opened.seek(rest)
