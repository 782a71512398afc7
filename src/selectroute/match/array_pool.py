"""Pool of large arrays, reused as soon as they are unreferenced.

The system clears new memory page by page, and under a hypervisor often fetches it from the host page by page.
With 850 matches a message (workload Z at a million) that took as long as finding and copying the matches (0.2
µs a message, and up to 4 µs on a host with slow pages). A process that matches batch after batch holds the
matches of one batch, or of two.
"""

from __future__ import annotations

import sys
import threading
from typing import Final

import numpy as np

from selectroute.arrays import tables as t

LEAST: Final = 1 << 20
"""Smallest array in the pool, in bytes: the C library itself reuses smaller ones."""

MOST: Final = 384 << 20
"""Largest array in the pool, in bytes."""

KEPT: Final = 2
"""Arrays in the pool of a process: the previous matches are still in use while the next batch is matched."""


_lock = threading.Lock()
_arrays = [np.empty(0, np.int32) for _ in range(KEPT)]
"""Arrays of the pool.

invariant: `take_array` returns a view of a pooled array, and every view of that view holds a reference to the
array itself, in NumPy and Arrow. So an array is free if only the list refers to it.
"""


def take_array(count: int) -> t.Array:
    """Return an unshared array for ordinals, int32[count], uninitialized.

    NumPy allocates it, in huge pages if the system has them: in small pages, which the system clears one by
    one, a million matches took seven times as long.
    """
    size = 4 * count
    if not LEAST <= size <= MOST:
        return np.empty(count, np.int32)
    with _lock:
        # Referred to by the list and the argument.
        free = [n for n in range(KEPT) if sys.getrefcount(_arrays[n]) <= 2]
        for number in free:
            # Not a much larger one: a small result would keep all of its memory.
            if size <= _arrays[number].nbytes <= 4 * size:
                return _arrays[number][:count]
        number = free[0] if free else 0
        _arrays[number] = np.empty(count, np.int32)
        return _arrays[number][:count]
