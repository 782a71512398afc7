"""Calls on many messages of a queue: count those that a lookup finds, purge them, move them to another queue.

A purge or a move is done in transactions of a limited number of messages each. Between two of them other
calls are served, and after a limited time the call answers with what it has done.
"""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from selectroute.queues.bulk import BulkPosition, BulkResult, MessageCount
from selectroute.queues.lookup.finding import ScanBudget
from selectroute.queues.rest.lookup import RestError
from selectroute.queues.sql.bulk import Bulk
from selectroute.service.context import Service
from selectroute.service.http.callers import Caller
from selectroute.service.http.disconnect import while_connected
from selectroute.service.http.problems import ProblemError
from selectroute.service.queues.administration import Name
from selectroute.service.queues.messages import opened_for, queue_exists, selected
from selectroute.service.queues.models import LookupBody, MoveBody, PurgeBody

_STEP_SECONDS: Final = 1.0
"""Longest time that one transaction may compare messages with a selector."""


async def count(
    request: Request, service: Service, by: Caller, name: Name, lookup: LookupBody
) -> MessageCount:
    """Return how many messages match, of those that a get can return now. At most the first 100,000 are
    compared with a selector: on a longer queue `exact` is false, and at least so many match.
    """
    by.check_queue(name)

    def counted() -> MessageCount:
        queue, options = opened_for(service, name, lookup)
        return queue.count(**options)

    budget = ScanBudget()
    async with while_connected(request, budget.cancel):
        return await selected(service, by, budget, counted)


async def purge(
    request: Request, service: Service, by: Caller, name: Name, body: PurgeBody | None = None
) -> BulkResult:
    """Remove the messages that match; without conditions, all messages.

    Messages in units of work, those that others are getting, and those that arrive after the call has begun,
    stay. With `expected`, nothing is removed if another number matches: problem 409, with both numbers.

    After ten seconds (the limit `bulk_seconds`) the call answers with a `position`: call again with it to go
    on with the same messages.
    """
    by.check_queue(name)
    return await _done(request, service, by, name, None, body or PurgeBody())


async def move(request: Request, service: Service, by: Caller, name: Name, body: MoveBody) -> BulkResult:
    """Move the messages that match to the end of another queue, in the order of delivery; `expected` and
    `position` are as for a purge.

    A message keeps everything but its token and its backout count, and is at any time on exactly one of the
    queues. What does not fit on the other queue stays, and `stayed` says how many did for which reason.
    """
    by.check_queue(name)
    by.check_queue(body.to)
    return await _done(request, service, by, name, body.to, body)


async def _done(
    request: Request, service: Service, by: Caller, name: str, to: str | None, body: PurgeBody
) -> BulkResult:
    until = time.monotonic() + service.limits.bulk_seconds
    budget = ScanBudget()
    async with while_connected(request, budget.cancel), queue_exists(service, name):
        bulk = await selected(service, by, budget, partial(_begun, service, name, to, body))
        turn = partial(service.scanning.of, by.subject) if body.selector else nullcontext
        while await _stepped(service, turn(), budget, bulk):
            if time.monotonic() > until:
                break
    return bulk.result


def _begun(service: Service, name: str, to: str | None, body: PurgeBody) -> Bulk:
    """Return the work on a queue, with its messages counted."""
    queue = service.queues.open(name)
    try:
        options = body.options(queue.settings.dialect, service.registry.limits)
    except RestError as error:
        raise ProblemError("invalid-body", str(error), place=f"/{error.place}", mqrc=error.reason) from error
    bulk = queue.bulk(to=to, **options)
    position = BulkPosition.of(body.position) if body.position else BulkPosition()
    bulk.count(body.expected, position)
    return bulk


async def _stepped(
    service: Service, turn: AbstractAsyncContextManager[None], budget: ScanBudget, bulk: Bulk
) -> bool:
    """Do the next chunk when it is the turn of its caller; return whether there may be more."""
    async with turn, service.writing:
        return await run_in_threadpool(budget.run, _STEP_SECONDS, bulk.step)
