"""Check of an import's blocks of lines on several cores.

The check is Python and holds the interpreter's lock, so that threads do not help: helpers are processes. This
process checks the blocks for which no helper is free.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import IO, Final

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

_MOST_GIVEN: Final = 2
"""Blocks that a helper has at a time: one that it checks, and the next one."""

_PIPE_BYTES: Final = 1 << 20
"""Room of a pipe: as much as Linux gives any user."""

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
            given = helpers.submit(block) if helpers is not None and most else None
            if given is None:
                given = Future()
                given.set_result(_checked(block, limits, by))
            waiting.append(given)
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
        self._all: list[_Helper] = []
        with suppress(OSError):  # the system has no room for a process: it works without
            for _ in range(min(len(os.sched_getaffinity(0)) - 1, MOST_HELPERS)):
                self._all.append(_Helper(limits, by))

    def submit(self, block: list[Line]) -> Future[_Found] | None:
        """Let a free helper check a block; None if none is free."""
        free = min(self._all, key=lambda one: one.waiting, default=None)
        if free is None or free.waiting >= _MOST_GIVEN:
            return None
        return free.submit(block)

    def __enter__(self) -> _Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._all:
            one.close()


class _Helper:
    """Process that checks blocks, one after the other, with a thread that writes them and one that reads the
    results. If it ends, or a line is invalid, the block is checked here.
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
        self._check = partial(_checked, limits=limits, by=by)
        # These threads wait for the interpreter's lock after each part that a pipe takes.
        for pipe in self._pipes:
            with suppress(OSError, AttributeError):  # more than this user may have, or not Linux
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._writer = ThreadPoolExecutor(1, "selectroute-import-write")
        self._reader = ThreadPoolExecutor(1, "selectroute-import-read")
        self._given: pa.ipc.RecordBatchStreamWriter | None = None
        self._found: pa.ipc.RecordBatchStreamReader | None = None
        self._results: deque[Future[_Found]] = deque()
        """Of the blocks that were given, in order; those at the front may be answered."""

    @property
    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    @property
    def waiting(self) -> int:
        """Number of blocks that were given and not answered."""
        while self._results and self._results[0].done():
            self._results.popleft()
        return len(self._results)

    def submit(self, block: list[Line]) -> Future[_Found]:
        """Let the process check a block, after those that it has."""
        written = self._writer.submit(self._write, block)
        self._results.append(self._reader.submit(self._read, block, written))
        return self._results[-1]

    def _write(self, block: list[Line]) -> bool:
        """Write a block to the process; return whether it can be written: a text that is not UTF-8 cannot."""
        numbers, lines = zip(*block, strict=True)
        try:
            batch = pa.record_batch([pa.array(numbers), pa.array(lines, pa.binary())], schema=GIVEN)
            if self._given is None:
                self._given = pa.ipc.new_stream(self._pipes[0], GIVEN)
            self._given.write_batch(batch)
            self._pipes[0].flush()
        except (OSError, ValueError, pa.ArrowException):
            return False
        return True

    def _read(self, block: list[Line], written: Future[bool]) -> _Found:
        """Read the result of a block that was written."""
        if written.result():
            with suppress(OSError, ValueError, pa.ArrowException, StopIteration):
                if self._found is None:
                    self._found = pa.ipc.open_stream(self._pipes[1])
                found = self._found.read_next_batch()
                if found.num_rows:
                    return of_batch(found)
        return self._check(block)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for thread in (self._writer, self._reader):
            thread.shutdown(cancel_futures=True)
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.close()
