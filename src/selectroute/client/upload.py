"""Upload of an import: lines in blocks; the last lines are kept to explain errors of the service."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from selectroute.registry.model import SubscriptionSpec
from selectroute.selector.errors import SelectRouteError

KEPT: Final = 32 << 20
"""Bytes of lines that are kept: a service reads thousands of lines ahead before it refuses one."""

_BLOCK: Final = 64 << 10
_SAID_EVERY: Final = 1_000


class Upload:
    """Lines as blocks of bytes, iterable once; `spec` returns the specification in one of the last lines.

    Args:
        lines: NDJSON, text or UTF-8, with or without line ends.
        progress: called every 1,000 lines with the count of lines sent, and 0.
    """

    def __init__(self, lines: Iterable[str | bytes], progress: Callable[[int, int], None] | None) -> None:
        self._lines = lines
        self._progress = progress
        self._kept: deque[bytes] = deque()
        self._count = 0

    def __iter__(self) -> Iterator[bytes]:
        block: list[bytes] = []
        size = kept = 0
        for line in self._lines:
            # Lone surrogates are sent unchanged: the service reports the error and its position.
            data = line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")
            data = data if data.endswith(b"\n") else data + b"\n"
            self._count += 1
            self._kept.append(data)
            kept += len(data)
            while kept > KEPT and len(self._kept) > 1:
                kept -= len(self._kept.popleft())
            block.append(data)
            size += len(data)
            if size >= _BLOCK:
                yield b"".join(block)
                block, size = [], 0
            if self._progress is not None and not self._count % _SAID_EVERY:
                self._progress(self._count, 0)
        yield b"".join(block)

    def spec(self, index: int) -> SubscriptionSpec | None:
        """Return the specification in the line of this index; None if no longer kept, or invalid."""
        at = index - (self._count - len(self._kept))
        if not 0 <= at < len(self._kept):
            return None
        try:
            return SubscriptionSpec.from_json(json.loads(self._kept[at]))
        except (ValueError, RecursionError, SelectRouteError):
            return None
