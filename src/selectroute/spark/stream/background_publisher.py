"""Thread that sends and publishes committed batches while the stream goes on with the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

PUBLISHER_THREAD: Final = "selectroute-publisher"
"""Name of the thread."""


class BackgroundPublisher:
    """Publisher in a thread of its own that runs functions in order, one at a time.

    After an error no more functions are run, and `give` and `wait_until_sent` raise it.

    Args:
        on_failure: called with the error, in that thread, after waiting callers are woken.
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._error: BaseException | None = None
        # A daemon like the stream's own thread: without `close`, the rest is done at the next start.
        self._thread = threading.Thread(target=self._run, name=PUBLISHER_THREAD, daemon=True)
        self._thread.start()

    def give(self, work: Callable[[], None]) -> None:
        """Run a function as soon as the previous one is done. Raises the error of the previous one."""
        self.wait_until_sent()
        self._idle.clear()
        self._given.put(work)

    def wait_until_sent(self, seconds: float | None = None) -> bool:
        """Wait until nothing is left to do; False after the timeout. Raises the errors of `give`."""
        idle = self._idle.wait(seconds)
        if self._error is not None:
            raise self._error
        return idle

    @property
    def busy(self) -> bool:
        """True while anything is left to do."""
        return not self._idle.is_set()

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
                self._idle.set()
            if self._error is not None:
                self._on_failure(self._error)
