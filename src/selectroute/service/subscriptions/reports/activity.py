"""Calls on the activity of subscriptions: last deliveries and rates, from the reports of streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from selectroute.registry.model import time_text
from selectroute.service.context import Service
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.models import ActivitiesAnswer, ActivityAnswer, Id
from selectroute.service.subscriptions.conditional import found, visible
from selectroute.service.subscriptions.subscriptions import OfPath


def activity(service: Service, by: Caller, id: OfPath) -> Annotated[Response, ActivityAnswer]:
    """Return when a subscription got deliveries last, and how many a second. A batch names only its 100
    busiest subscriptions: if none has named this one, everything but the id is null.
    """
    visible(service, by, id)
    nothing = {**dict.fromkeys(ActivityAnswer.model_fields), "id": id}
    return JsonAnswer(next(_activities(service, by, [id]), nothing))


def activities(
    service: Service,
    by: Caller,
    id: Annotated[list[Id], Field(min_length=1, max_length=100, description="Ids of subscriptions.")],
) -> Annotated[Response, ActivitiesAnswer]:
    """Return when several subscriptions got deliveries last, and how many a second: those that a batch has
    named and that the caller may see, in the order of the ids.
    """
    return JsonAnswer({"items": [*_activities(service, by, id)]})


def _activities(service: Service, by: Caller, ids: Iterable[str]) -> Iterator[dict[str, Any]]:
    for one in service.registry.streams.activities(ids):
        if by.sees_all or found(service, by, one.id) is not None:
            yield {
                "id": one.id,
                "last_delivered": time_text(one.time),
                # A stream is of all topics: a token for some does not learn which there are.
                "query": one.query if by.sees_all else None,
                "batch": one.batch,
                "deliveries": one.deliveries,
                "per_second": one.per_second,
            }
