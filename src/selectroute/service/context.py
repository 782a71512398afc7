"""State that the calls of one service share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated

from anyio import CapacityLimiter
from fastapi import Depends, Request

from selectroute.queues.sql.queues import SqlQueues
from selectroute.registry.registry import Registry
from selectroute.service.http.callers import Caller, Callers
from selectroute.service.http.rates import Rates
from selectroute.service.limits import ServiceLimits
from selectroute.service.metrics import Metrics
from selectroute.service.queues.waiting import QueueWaiting
from selectroute.service.subscriptions.batch_waiting import BatchWaiting
from selectroute.service.subscriptions.cursors import HiddenCursors
from selectroute.service.subscriptions.publishing import Publishing, Watch


@dataclass(frozen=True, slots=True)
class Service:
    """Registry, and everything around it."""

    registry: Registry
    limits: ServiceLimits
    callers: Callers
    rates: Rates
    publishing: Publishing
    watch: Watch
    metrics: Metrics
    cursors: HiddenCursors
    importing: CapacityLimiter
    importers: Counter[str]
    """How many imports each caller has under way."""
    exporting: CapacityLimiter
    writing: CapacityLimiter
    """Callers that may hold a thread while they wait for their turn to write; the other threads read."""
    parsing: CapacityLimiter
    """Large bodies that are read at the same time, each in a thread: more would only slow all others down."""
    explaining: CapacityLimiter
    """Requests that explain at the same time."""
    queues: SqlQueues
    queue_manager: str
    """The name under which all queues are found."""
    queue_waiting: QueueWaiting

    batch_waiting: BatchWaiting

    def release(self) -> None:
        """Answer everybody who waits, and let nobody wait any more: the service is about to stop."""
        self.watch.release()
        self.queue_waiting.release()
        self.batch_waiting.release()


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


ServiceDep = Annotated[Service, Depends(_service)]
CallerDep = Annotated[Caller, Depends(_caller)]
