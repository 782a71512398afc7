"""Disconnection of a client while its request is being worked on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from fastapi import Request
from starlette.requests import ClientDisconnect


@asynccontextmanager
async def while_connected(request: Request) -> AsyncIterator[None]:
    """Cancel the block when the client hangs up, and raise ClientDisconnect then.

    A thread for which the block waits is waited for: what it did is known to the block, which is cancelled
    at its next await. The body of the request must have been read, or be of no interest.
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
            except Exception as raised:  # the body came too late, or the token was revoked meanwhile
                error = raised
            both.cancel_scope.cancel()

        both.start_soon(listen)
        try:
            yield
        except Exception as raised:  # by itself, not in a group as tasks would have it
            error = raised
        both.cancel_scope.cancel()
    if is_gone:
        raise ClientDisconnect
    if error is not None:
        raise error
