"""Lines as an answer that goes on as long as there are some, and no longer than its client takes them."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import anyio
from anyio import CancelScope, CapacityLimiter
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

_BLOCK = 1 << 16


class Streamed(StreamingResponse):
    """Lines, sent in blocks. What they are read from is closed in any case: when all is sent, when the client
    is gone, and when it has taken nothing for `stall_seconds`.

    Args:
        lines: without their ends; the first is read before the answer begins, so what it raises is answered.
        media_type: of the answer.
        limiter: of how many such answers may be under way.
        stall_seconds: how long the client may take nothing.
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
        """Send the answer. Raises ClientDisconnect if the client takes no more of it."""

        async def timely(message: Message) -> None:
            with anyio.move_on_after(self._stall_seconds):
                await send(message)
                return
            raise ClientDisconnect

        async with self._limiter:
            try:
                blocks = _blocks(self._lines)
                first = await run_in_threadpool(next, blocks, b"")
                self.body_iterator = iterate_in_threadpool(_behind(first, blocks))
                await super().__call__(scope, receive, timely)
            finally:
                with CancelScope(shield=True):
                    await run_in_threadpool(self._lines.close)


def _blocks(lines: Iterator[str]) -> Iterator[bytes]:
    """Lines in pieces that are worth sending."""
    block, size = [], 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= _BLOCK:
            yield ("\n".join(block) + "\n").encode()
            block, size = [], 0
    if block:
        yield ("\n".join(block) + "\n").encode()


def _behind(first: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from blocks
