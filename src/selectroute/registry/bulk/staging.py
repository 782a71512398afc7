"""Staging of an import: lines are read and checked before they become one revision.

Lines are read in blocks, and the checked subscriptions are written to a temporary file. Only then a
transaction begins, so that a slow client does not block other writers. Memory does not grow with the number
of lines.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import IO, Final

from selectroute.index.errors import MAX_REPORTED, LineProblem
from selectroute.registry.authorization.permission import EVERYTHING, Permission
from selectroute.registry.bulk.checking import CheckedLines, Line, Staged
from selectroute.registry.bulk.helpers import checked_blocks
from selectroute.registry.changes import Progress
from selectroute.registry.errors import ImportLineError, TooLargeError
from selectroute.registry.specification import Budget
from selectroute.selector.limits import Limits
from selectroute.store.errors import ReadOnlyError

MAX_ROWS: Final = 1_000_000
"""Subscriptions in one import."""

_CHECKED_AT_ONCE: Final = 16_384


@dataclass(slots=True)
class Stage:
    """Checked lines in a temporary file."""

    file: IO[bytes]
    rows: int = 0

    def append(self, checked: CheckedLines) -> None:
        """Write lines to the file. Raises `ReadOnlyError`."""
        try:
            self.file.write(checked.text)
            self.file.flush()
        except OSError as error:
            raise _no_room(error) from error

    def blocks(self, size: int) -> Iterator[list[Staged]]:
        """Yield all lines in order, in blocks of `size`; once."""
        self.file.seek(0)
        lines = io.TextIOWrapper(self.file, "utf-8", newline="\n")
        while block := list(islice(lines, size)):
            yield [Staged.of(line) for line in block]


@contextmanager
def staged(
    lines: Iterable[str | bytes],
    limits: Limits,
    max_rows: int,
    budget: Budget,
    progress: Progress | None,
    by: Permission = EVERYTHING,
) -> Iterator[Stage]:
    """Read and check the lines of an import and the caller's permission for each. Raises `ImportLineError`,
    `TooLargeError`, `ReadOnlyError`; `TooCostlyError` with the line that exceeds the budget.

    Reading continues after an invalid line, until there are `MAX_REPORTED` of them.
    """
    wrong: list[LineProblem] = []
    with _temporary_file() as file, closing(checked_blocks(_blocks(lines, wrong), limits, by)) as checked:
        stage = Stage(file)
        for found in checked:
            if isinstance(found, ImportLineError):
                wrong.extend(found.problems)
            else:
                stage.rows += len(found.numbers)
                over = budget.spend_all(found.literals, found.lengths)
                if over is not None:
                    wrong.append(LineProblem(int(found.numbers[over]), budget.error))
                if not wrong:
                    stage.append(found)
            if len(wrong) >= MAX_REPORTED:
                break
            if stage.rows > max_rows:
                raise TooLargeError(f"an import has at most {max_rows:,} subscriptions")
            if progress is not None:
                progress(stage.rows, 0)
        if wrong:
            raise ImportLineError.of(wrong)
        yield stage


def _blocks(lines: Iterable[str | bytes], wrong: list[LineProblem]) -> Iterator[list[Line]]:
    """Yield the lines with their numbers, in blocks. An `ImportLineError` of their source ends them and is
    added to `wrong`.
    """
    numbered = enumerate(lines, start=1)
    while True:
        block: list[Line] = []
        try:
            block.extend(islice(numbered, _CHECKED_AT_ONCE))
        except ImportLineError as error:
            wrong.extend(error.problems)
        if not block:
            return
        yield block


@contextmanager
def _temporary_file() -> Iterator[IO[bytes]]:
    try:
        file = tempfile.TemporaryFile("w+b")  # noqa: SIM115  closing may fail
    except OSError as error:
        raise _no_room(error) from error
    try:
        yield file
    finally:
        with suppress(OSError):  # a failed write was reported already
            file.close()


def _no_room(error: OSError) -> ReadOnlyError:
    return ReadOnlyError(f"no temporary file can be written: {error.strerror or error}")
