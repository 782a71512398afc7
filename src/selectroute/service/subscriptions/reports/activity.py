"""Calls on the activity of subscriptions: last deliveries and rates, from the reports of streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from selectroute.registry.model import Items
from selectroute.registry.reports import Activity
from selectroute.service.context import Service
from selectroute.service.http.callers import Caller
from selectroute.service.http.models import Id
from selectroute.service.subscriptions.conditional import found, visible
from selectroute.service.subscriptions.subscriptions import OfPath


def activity(service: Service, by: Caller, id: OfPath) -> Activity:
    """Return when a subscription got deliveries last, and how many a second. A batch names only its 100
    busiest subscriptions: if none has named this one, everything but the id is null.
    """
    visible(service, by, id)
    return next(_activities(service, by, [id]), Activity(id))


def activities(
    service: Service,
    by: Caller,
    id: Annotated[list[Id], Field(min_length=1, max_length=100, description="Ids of subscriptions.")],
) -> Items[Activity]:
    """Return when several subscriptions got deliveries last, and how many a second: those that a batch has
    named and that the caller may see, in the order of the ids.
    """
    return Items([*_activities(service, by, id)])


def _activities(service: Service, by: Caller, ids: Iterable[str]) -> Iterator[Activity]:
    for one in service.registry.streams.activities(ids):
        if by.sees_all:
            yield one
        elif found(service, by, one.id) is not None:
            # A stream is of all topics: a token for some does not learn which there are.
            yield replace(one, query=None)
