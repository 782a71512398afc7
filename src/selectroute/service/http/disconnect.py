"""Requests that take long or wait: disconnection of the client, and revocation of its token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from selectroute.service.context import Service
from selectroute.service.http.callers import Caller
from selectroute.service.http.problems import check_waiting
from selectroute.service.subscriptions.publishing import BatchWaiting, ChangeWatch


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


async def waited(
    request: Request,
    service: Service,
    waiting: ChangeWatch | BatchWaiting,
    what: str,
    revision: int,
    seconds: float,
) -> Caller:
    """Wait for a revision while the client is connected, and return the caller, see `still_known`. Raises a
    problem, 429, if too many requests wait for ``what``.
    """
    check_waiting(len(waiting), service.limits.waiting, what)
    async with while_connected(request):  # a disconnected client does not count
        await waiting.wait(revision, seconds)
    return await still_known(request, service)


async def still_known(request: Request, service: Service) -> Caller:
    """Return the caller after a wait. Raises a problem, 401, if the token was revoked meanwhile."""
    return await run_in_threadpool(service.callers.caller, request.headers.get("authorization"))
