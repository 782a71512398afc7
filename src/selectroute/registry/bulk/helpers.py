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
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import Final

import pyarrow as pa

from selectroute.registry.authorization.permission import Permission
from selectroute.registry.bulk.check_process import GIVEN, arguments, of_batch
from selectroute.registry.bulk.checking import CheckedLines, Line, checked_lines
from selectroute.registry.errors import ImportLineError
from selectroute.selector.limits import Limits

ALONE: Final = 3
"""Blocks that this process checks before it starts helpers, each of which takes half a second to start."""

MOST_HELPERS: Final = 3

_MOST_WAITING: Final = 16
"""Blocks that are read before the first one of them is checked; none after an invalid line."""

_Found = CheckedLines | ImportLineError


def checked_blocks(blocks: Iterable[list[Line]], limits: Limits, by: Permission) -> Generator[_Found]:
    """Yield the result of each block of lines, in order: what `checked_lines` returns or raises."""
    waiting: deque[Future[_Found]] = deque()
    most = _MOST_WAITING
    with ExitStack() as opened:
        helpers: _Helpers | None = None
        for number, block in enumerate(blocks):
            if number == ALONE and most:
                helpers = opened.enter_context(_Helpers(limits, by))
            if helpers is not None and most and helpers.are_free:
                waiting.append(helpers.submit(block))
            else:
                waiting.append(Future())
                waiting[-1].set_result(_checked(block, limits, by))
            while waiting and (waiting[0].done() or len(waiting) > most):
                found = waiting.popleft().result()
                if isinstance(found, ImportLineError):
                    most = 0
                yield found
        while waiting:
            yield waiting.popleft().result()


def _checked(block: list[Line], limits: Limits, by: Permission) -> _Found:
    try:
        return checked_lines(block, limits, by)
    except ImportLineError as error:
        return error


class _Helpers:
    """Helpers, one for each core but that of this process."""

    def __init__(self, limits: Limits, by: Permission) -> None:
        self._limits = limits
        self._by = by
        self._free: SimpleQueue[_Helper] = SimpleQueue()
        self._all: list[_Helper] = []
        count = min(len(os.sched_getaffinity(0)) - 1, MOST_HELPERS)
        with suppress(OSError):  # the system has no room for a process: it works without
            for _ in range(count):
                self._all.append(_Helper(limits, by))
                self._free.put(self._all[-1])
        self._threads = ThreadPoolExecutor(max(count, 1), "selectroute-import-check")

    @property
    def are_free(self) -> bool:
        """True if a helper can take a block at once."""
        return not self._free.empty()

    def submit(self, block: list[Line]) -> Future[_Found]:
        """Let a free helper check a block."""
        return self._threads.submit(self._check, self._free.get(), block)

    def _check(self, helper: _Helper, block: list[Line]) -> _Found:
        found = helper.check(block)
        if found is None and not helper.is_alive:
            return _checked(block, self._limits, self._by)
        self._free.put(helper)
        return _checked(block, self._limits, self._by) if found is None else found

    def __enter__(self) -> _Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._all:
            one.close()
        self._threads.shutdown(cancel_futures=True)


class _Helper:
    """Process that checks blocks, one after the other."""

    def __init__(self, limits: Limits, by: Permission) -> None:
        # -P: `-m` would put the working directory first on the path, and import a numpy.py from there.
        command = [sys.executable, "-P", "-m", "selectroute.registry.bulk.check_process"]
        self._process = subprocess.Popen(
            [*command, arguments(limits, by)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.is_alive = True
        self._given: pa.ipc.RecordBatchStreamWriter | None = None
        self._found: pa.ipc.RecordBatchStreamReader | None = None

    def check(self, block: list[Line]) -> CheckedLines | None:
        """Return the result of a block; None if a line is invalid or not UTF-8, or the process has ended."""
        numbers, lines = zip(*block, strict=True)
        try:
            batch = pa.record_batch([pa.array(numbers), pa.array(lines, pa.binary())], schema=GIVEN)
        except (pa.ArrowException, UnicodeEncodeError):
            return None
        try:
            if self._given is None:
                self._given = pa.ipc.new_stream(self._process.stdin, GIVEN)
            self._given.write_batch(batch)
            self._process.stdin.flush()  # type: ignore[union-attr]
            if self._found is None:
                self._found = pa.ipc.open_stream(self._process.stdout)
            found = self._found.read_next_batch()
        except (OSError, ValueError, pa.ArrowException, StopIteration):
            self.is_alive = False
            return None
        return of_batch(found) if found.num_rows else None

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
