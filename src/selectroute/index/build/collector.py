"""Garbage collector, put aside while millions of objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Within it, cyclic garbage is not looked for.

    A bulk load makes no garbage that refers to itself, and the collector would walk the whole index again and
    again (measured: a third of the time at 100,000 subscriptions). Reference counting goes on as ever.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
