"""Limits of callers: a token bucket for each, requests that run at the same time, and bodies being read."""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from weakref import WeakValueDictionary

from anyio import CapacityLimiter

from selectroute.service.http.problems import ProblemError

REMEMBERED: Final = 10_000
"""Callers whose buckets are kept; the least recently seen one is forgotten, which fills its bucket."""


UNCOUNTED_BYTES: Final = 1 << 16
"""Bytes of each body that `OpenBodies` does not count, so that no caller can keep others from small ones."""


class Rates:
    """Token bucket of each caller: holds `burst` requests, refilled by `per_second`. Not thread-safe.

    >>> rates = Rates(per_second=10, burst=1, clock=lambda: 0.0)
    >>> rates.wait_seconds("a"), rates.wait_seconds("a"), rates.wait_seconds("b")
    (0, 1, 0)
    """

    def __init__(
        self, per_second: float | None, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, caller: str) -> int:
        """Take one request from the caller's bucket; return 0, or whole seconds until there is one. O(1)."""
        if self._per_second is None:
            return 0
        now = self._clock()
        held, since = self._buckets.pop(caller, (float(self._burst), now))
        held = min(self._burst, held + (now - since) * self._per_second)
        taken = held >= 1
        self._buckets[caller] = (held - 1 if taken else held), now
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        return 0 if taken else max(1, math.ceil((1 - held) / self._per_second))


class FairLimiter:
    """Limit of requests that run at the same time, of which each caller has at most half.

    Args:
        total: the most requests.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._all = CapacityLimiter(total)
        self._each: WeakValueDictionary[str, CapacityLimiter] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, caller: str) -> AsyncIterator[None]:
        """Wait until a request of this caller may run, and run it as the block."""
        limiter = self._each.get(caller)
        if limiter is None:
            limiter = self._each[caller] = CapacityLimiter(max(1, self._total // 2))
        async with limiter, self._all:
            yield


class OpenBodies:
    """Bytes of the bodies of all requests in progress, of which each caller has at most half. Not
    thread-safe.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._all = 0
        self._each: Counter[str] = Counter()

    @contextmanager
    def of(self, caller: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that is told the size of a body while it grows. It raises a problem, 503, without
        room; the room comes back at the end of the block.
        """
        held = 0

        def grow(size: int) -> None:
            nonlocal held
            more = size - UNCOUNTED_BYTES - held
            if more <= 0:
                return
            if self._all + more > self._limit or self._each[caller] + more > self._limit // 2:
                detail = "other large bodies are being received: retry"
                raise ProblemError("unavailable", detail, headers={"Connection": "close"})
            held += more
            self._all += more
            self._each[caller] += more

        try:
            yield grow
        finally:
            self._all -= held
            self._each[caller] -= held
            if not self._each[caller]:
                del self._each[caller]
