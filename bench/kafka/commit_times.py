"""Times at which the deliveries of transactions were committed, read from the broker's files.

A record has the time of its append, but a consumer that reads what is committed gets it no sooner than the
mark of its transaction, and of each that began before it in the same partition. Consumers do not show marks;
in the files of a partition they are batches with a bit set, and the fixed part of a batch (magic 2) is all
that is read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import SEEK_CUR
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from bench.workloads.plain import Ints

_HEAD: Final = Struct(">qi9xh12xqq")
_LENGTH_ENDS: Final = 12
"""Where the bytes begin that the length of a batch counts."""
_TRANSACTIONAL, _MARK = 0x10, 0x20


class Batch(NamedTuple):
    """What is read of a batch of records."""

    offset: int
    """That of its first record."""
    length: int
    attributes: int
    stamp: int
    """When it was appended, in milliseconds: the topic's records are dated by the broker."""
    producer: int


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


def _batches(folder: Path, start: int) -> Iterator[Batch]:
    files = sorted(folder.glob("*.log"))  # each is named after its first offset
    before = sum(int(file.stem) <= start for file in files[1:])
    for file in files[before:]:
        with file.open("rb") as opened:
            while len(head := opened.read(_HEAD.size)) == _HEAD.size:
                batch = Batch(*_HEAD.unpack(head))
                yield batch
                opened.seek(_LENGTH_ENDS + batch.length - _HEAD.size, SEEK_CUR)
