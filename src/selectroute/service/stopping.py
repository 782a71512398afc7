"""Requests to end a process: the first signal ends it after the work in hand, a second one at once.

Commands that run until they are stopped and a service are stopped alike.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

_ONE_REQUEST_SECONDS: Final = 1.0
"""A terminal signals the whole process group, and wrappers (`uv run`, `npm`, …) hand the signal on once more:
signals within this time are one request."""


class Stop:
    """A request to end. `asked` says whether there was one, which also sets `event`; a second one ends the
    process at once.

    Ending at once loses nothing: a batch that was not committed is routed at the next start, a request that
    was not committed was not acknowledged.
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
        """Take a signal: a request to end, or a repetition of it."""
        if not self.event.is_set():
            self._first = time.monotonic()
            self.event.set()
            self._on_first()
        elif time.monotonic() - self._first > _ONE_REQUEST_SECONDS:
            with suppress(Exception):  # nothing may keep it
                self.at_once()
            os._exit(128 + number)  # threads that wait for Spark would hold up any other end
