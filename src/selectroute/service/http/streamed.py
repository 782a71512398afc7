"""Streamed response of lines, which ends early if its client disconnects or stalls."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain

import anyio
from anyio import CancelScope, CapacityLimiter
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

_BLOCK = 1 << 16


class Streamed(StreamingResponse):
    """Response of lines, sent in blocks. The generator is always closed: at the end, when the client
    disconnects, and when it has read nothing for `stall_seconds`.

    Args:
        lines: without line ends; the first is read before the response begins, so its error can be answered.
        media_type: of the response.
        limiter: of concurrent responses of this kind.
        stall_seconds: the longest time that the client may read nothing.
    """

    def __init__(
        self,
        lines: Generator[str, None, None],
        media_type: str,
        limiter: CapacityLimiter,
        stall_seconds: float,
    ) -> None:
        super().__init__((), media_type=media_type)
        self._lines = lines
        self._limiter = limiter
        self._stall_seconds = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. Raises ClientDisconnect if the client stalls."""

        async def timely(message: Message) -> None:
            with anyio.move_on_after(self._stall_seconds):
                await send(message)
                return
            raise ClientDisconnect

        async with self._limiter:
            try:
                blocks = _blocks(self._lines)
                first = await run_in_threadpool(next, blocks, b"")
                self.body_iterator = iterate_in_threadpool(chain([first] if first else [], blocks))
                await super().__call__(scope, receive, timely)
            finally:
                with CancelScope(shield=True):
                    await run_in_threadpool(self._lines.close)


def _blocks(lines: Iterator[str]) -> Iterator[bytes]:
    """Join lines into blocks of at least 64 KiB."""
    block, size = [], 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= _BLOCK:
            yield ("\n".join(block) + "\n").encode()
            block, size = [], 0
    if block:
        yield ("\n".join(block) + "\n").encode()
