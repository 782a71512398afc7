"""Check of an import's blocks of lines on several cores.

The check is Python and holds the interpreter's lock, so that threads do not help: helpers are processes. This
process checks the blocks for which no helper is free. A helper is this module run as a program; blocks and
results go over a connection.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Final

from selectroute.registry.authorization import Permission
from selectroute.registry.bulk.checking import CheckedLines, Line, checked_lines
from selectroute.registry.errors import ImportLineError
from selectroute.selector.limits import Limits

ALONE: Final = 3
"""Blocks that this process checks before it starts helpers, each of which takes half a second to start."""

MOST_HELPERS: Final = 3
"""Helpers at most: one for each core but that of this process."""

_MOST_WAITING: Final = 16
"""Blocks that are read before the first one of them is checked; none after an invalid line."""

_MOST_PENDING: Final = 2
"""Blocks that a helper has at a time: one that it checks, and the next one."""

_Result = CheckedLines | ImportLineError


def checked_blocks(blocks: Iterable[list[Line]], limits: Limits, by: Permission) -> Generator[_Result]:
    """Yield the result of each block of lines, in order: what `checked_lines` returns or raises."""
    waiting: deque[Future[_Result]] = deque()
    most = _MOST_WAITING
    helpers: list[_Helper] = []
    with ExitStack() as opened:
        for number, block in enumerate(blocks):
            if number == ALONE and most:
                with suppress(OSError):  # the system has no room for a process: it works without
                    for _ in range(min(len(os.sched_getaffinity(0)) - 1, MOST_HELPERS)):
                        helpers.append(opened.enter_context(closing(_Helper(limits, by))))
            free = min(helpers, key=lambda helper: helper.waiting, default=None)
            if free is not None and most and free.waiting < _MOST_PENDING:
                waiting.append(free.submit(block))
            else:
                waiting.append(Future())
                waiting[-1].set_result(_checked(block, limits, by))
            while waiting and (waiting[0].done() or len(waiting) > most):
                result = waiting.popleft().result()
                if isinstance(result, ImportLineError):
                    most = 0
                yield result
        while waiting:
            yield waiting.popleft().result()


def _checked(block: list[Line], limits: Limits, by: Permission) -> _Result:
    try:
        return checked_lines(block, limits, by)
    except ImportLineError as error:
        return error


class _Helper:
    """Process that checks blocks one after the other, and the thread that sends and receives them.

    If the process ends, or a line is invalid, the block is checked here.
    """

    def __init__(self, limits: Limits, by: Permission) -> None:
        self._connection, remote = Pipe()
        # -P: `-m` would put the working directory first on the path, and import a numpy.py from there.
        command = [sys.executable, "-P", "-m", "selectroute.registry.bulk.helpers", str(remote.fileno())]
        with remote:
            self._process = subprocess.Popen(
                command,
                pass_fds=[remote.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._check = partial(_checked, limits=limits, by=by)
        self._thread = ThreadPoolExecutor(1, "selectroute-import")
        self._thread.submit(self._connection.send, (limits, by))
        self._results: deque[Future[_Result]] = deque()
        """Of the blocks that were submitted, in order; those at the front may be done."""

    @property
    def waiting(self) -> int:
        """Number of blocks that were submitted and are not done."""
        while self._results and self._results[0].done():
            self._results.popleft()
        return len(self._results)

    def submit(self, block: list[Line]) -> Future[_Result]:
        """Let the process check a block, after those that it has."""
        self._results.append(self._thread.submit(self._exchange, block))
        return self._results[-1]

    def _exchange(self, block: list[Line]) -> _Result:
        """Send a block to the process and receive its result."""
        with suppress(OSError, EOFError):  # the process has ended
            self._connection.send(block)
            result: CheckedLines | None = self._connection.recv()
            if result is not None:
                return result
        return self._check(block)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._thread.shutdown(cancel_futures=True)
        self._connection.close()


def main(descriptor: int) -> None:
    """Check the blocks that the parent sends, until it closes the connection.

    The limits and the permission come first. The result of a block with an invalid line is None: the
    parent checks such a block itself.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the parent, which then ends this process
    with Connection(descriptor) as parent, suppress(EOFError):
        limits, by = parent.recv()
        while True:
            result = _checked(parent.recv(), limits, by)
            parent.send(None if isinstance(result, ImportLineError) else result)


if __name__ == "__main__":
    main(int(sys.argv[1]))
