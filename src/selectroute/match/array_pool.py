"""Large arrays that are used again as soon as nobody has them any more.

Memory that comes fresh from the system is cleared page by page, and under a hypervisor often fetched from the
host page by page, too. For the 850 matches a message of Z at a million that took as long as finding and
copying them (0.2 µs a message, and up to 4 µs on a host that gives pages slowly). A process that matches
batch after batch has one batch's matches, or still those of the one before.
"""

from __future__ import annotations

import sys
import threading
from typing import Final

import numpy as np

from selectroute.arrays import tables as t

LEAST: Final = 1 << 20
"""Bytes from which on an array is kept: the C library itself uses smaller ones again."""

MOST: Final = 384 << 20
"""Bytes of the largest array that is kept."""

KEPT: Final = 2
"""Arrays that are kept, in a process: while the next batch is matched the matches of the last are there."""


class _Pool:
    """Arrays that are kept, int32.

    invariant: an array that is given out is a view of one of them, and every view of that view holds on to
    the array itself, as NumPy and Arrow have it. So there is none as long as only the list refers to it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrays = [np.empty(0, np.int32) for _ in range(KEPT)]

    def take(self, count: int) -> t.Array:
        size = 4 * count
        if not LEAST <= size <= MOST:
            return np.empty(count, np.int32)
        with self._lock:
            # Referred to by the list and the argument.
            free = [n for n in range(KEPT) if sys.getrefcount(self._arrays[n]) <= 2]
            for number in free:
                # Of a much larger one a small result would keep all of it from the system.
                if size <= self._arrays[number].nbytes <= 4 * size:
                    return self._arrays[number][:count]
            number = free[0] if free else 0
            self._arrays[number] = np.empty(count, np.int32)
            return self._arrays[number][:count]


_pool = _Pool()


def take_array(count: int) -> t.Array:
    """Return an array for so many ordinals, int32[count], with whatever was in it; nobody else has it.

    It comes from NumPy, and so in huge pages where the system has them: in small ones, which the system
    clears one by one, a million matches took seven times as long.
    """
    return _pool.take(count)
