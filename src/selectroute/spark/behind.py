"""A thread that hands committed batches on while the stream goes on with the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

BEHIND: Final = "selectroute-behind"
"""The name of the thread."""


class Behind:
    """Does what it is given, in order, in a thread of its own: one thing at a time, and none waits.

    After an error nothing more is done; whoever gives or settles gets it.

    Args:
        on_failure: called with the error, in that thread, when whoever waits has been told.
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._settled = threading.Event()
        self._settled.set()
        self._error: BaseException | None = None
        # A daemon as the stream's own thread is: a process that ends without `close` leaves the rest to its
        # next start.
        self._thread = threading.Thread(target=self._run, name=BEHIND, daemon=True)
        self._thread.start()

    def give(self, work: Callable[[], None]) -> None:
        """Have this done as soon as what was given before is. Raises the error with which that ended."""
        self.settle()
        self._settled.clear()
        self._given.put(work)

    def settle(self, seconds: float | None = None) -> bool:
        """Wait, so long at most, until nothing is left to do; return whether that is so. Raises as `give`."""
        settled = self._settled.wait(seconds)
        if self._error is not None:
            raise self._error
        return settled

    @property
    def busy(self) -> bool:
        """Whether anything is left to do."""
        return not self._settled.is_set()

    def close(self) -> None:
        """End the thread when it has nothing left to do."""
        self._given.put(None)

    def _run(self) -> None:
        while (work := self._given.get()) is not None:
            try:
                work()
            except BaseException as error:
                self._error = error
            finally:
                self._settled.set()
            if self._error is not None:
                self._on_failure(self._error)
