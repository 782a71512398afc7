"""Shutdown by signals: the first one ends the process after the current work, a second one at once.

Used by the service and by commands that run until they are stopped.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

_ONE_REQUEST_SECONDS: Final = 1.0
"""Signals within this time count as one: a terminal signals the whole process group, and wrappers
(`uv run`, `npm`, …) forward the signal again."""


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM by this function in the block. Only in the main thread."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


class Stop:
    """Shutdown request. The first signal sets `event`, which `asked` returns; a second one ends the process
    at once.

    Ending at once loses nothing: an uncommitted batch is routed at the next start, an uncommitted request was
    not acknowledged.
    """

    def __init__(self, on_first: Callable[[], None]) -> None:
        self._on_first = on_first
        self.at_once: Callable[[], None] = lambda: None
        """Called before the process ends at once."""
        self.event = threading.Event()
        self._first = 0.0

    def asked(self) -> bool:
        """Return whether the process was asked to end."""
        return self.event.is_set()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Handle the first signal, or a repetition."""
        if not self.event.is_set():
            self._first = time.monotonic()
            self.event.set()
            self._on_first()
        elif time.monotonic() - self._first > _ONE_REQUEST_SECONDS:
            with suppress(Exception):  # an error must not prevent the exit
                self.at_once()
            os._exit(128 + number)  # threads that wait for Spark would delay any other exit
