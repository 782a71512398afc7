"""Check of an import's blocks of lines on several cores.

The check is Python and holds the interpreter's lock, so that threads do not help: helpers are processes. This
process checks the blocks for which no helper is free.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Final

import pyarrow as pa

from selectroute.registry.authorization import Permission
from selectroute.registry.bulk.check_process import LINES, arguments, of_batch
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
    """Process that checks blocks, one after the other, and a thread that exchanges them for the results. If
    the process ends, or a line is invalid, the block is checked here.
    """

    def __init__(self, limits: Limits, by: Permission) -> None:
        # -P: `-m` would put the working directory first on the path, and import a numpy.py from there.
        command = [sys.executable, "-P", "-m", "selectroute.registry.bulk.check_process"]
        self._process = subprocess.Popen(
            [*command, arguments(limits, by)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._check = partial(_checked, limits=limits, by=by)
        self._thread = ThreadPoolExecutor(1, "selectroute-import")
        self._blocks: pa.ipc.RecordBatchStreamWriter | None = None
        self._answers: pa.ipc.RecordBatchStreamReader | None = None
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
        """Write a block to the process and read its result."""
        numbers, lines = zip(*block, strict=True)
        # ValueError: a text that is not UTF-8; StopIteration: the process has ended.
        with suppress(OSError, ValueError, pa.ArrowException, StopIteration):
            batch = pa.record_batch([pa.array(numbers), pa.array(lines, pa.binary())], schema=LINES)
            if self._blocks is None:
                self._blocks = pa.ipc.new_stream(self._stdin, LINES)
            self._blocks.write_batch(batch)
            self._stdin.flush()
            if self._answers is None:
                self._answers = pa.ipc.open_stream(self._stdout)
            answer = self._answers.read_next_batch()
            if answer.num_rows:
                return of_batch(answer)
        return self._check(block)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._thread.shutdown(cancel_futures=True)
        for pipe in (self._stdin, self._stdout):
            with suppress(OSError):
                pipe.close()
