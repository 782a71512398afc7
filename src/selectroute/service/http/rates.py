"""Rate limits: a token bucket for each caller."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

REMEMBERED: Final = 10_000
"""Callers whose buckets are kept; the least recently seen one is forgotten, which fills its bucket."""


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
