"""Disconnection of a client while its request is processed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from starlette.requests import ClientDisconnect, Request


@asynccontextmanager
async def while_connected(
    request: Request, on_disconnect: Callable[[], None] = lambda: None
) -> AsyncIterator[None]:
    """Cancel the block when the client disconnects, and raise ClientDisconnect.

    If the block awaits a thread, the thread ends first and its result is returned; the block is cancelled at
    its next await. `on_disconnect` may end the thread. The request's body must have been read or be
    irrelevant.
    """
    is_gone = False
    error: Exception | None = None
    async with anyio.create_task_group() as both:

        async def listen() -> None:
            nonlocal is_gone, error
            try:
                while (await request.receive())["type"] != "http.disconnect":
                    pass
                is_gone = True
                on_disconnect()
            except Exception as raised:  # the body came too late, or the token was revoked
                error = raised
            both.cancel_scope.cancel()

        both.start_soon(listen)
        try:
            yield
        except Exception as raised:  # not wrapped in an exception group
            error = raised
        both.cancel_scope.cancel()
    if is_gone:
        raise ClientDisconnect
    if error is not None:
        raise error
