"""How the cost of a call grows, as a test: no limit is a time, only one cost against another."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time


def cost_ratio(large: Callable[[], object], small: Callable[[], object], below: float) -> float:
    """How many times the processor time of `small` the one of `large` is.

    Each is the least of several runs, by turns: what else the machine does only ever adds to a time. There
    are more runs as long as the ratio is not `below` what the caller expects, so only a lasting noise can
    fail a test.
    """
    least_large = least_small = float("inf")
    for number in range(40):
        least_small = min(least_small, _seconds(small))
        least_large = min(least_large, _seconds(large))
        if number >= 4 and least_large < below * least_small:
            break
    return least_large / least_small


def _seconds(call: Callable[[], object]) -> float:
    start = thread_time()
    call()
    return thread_time() - start
