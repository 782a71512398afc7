"""Messages of a queue, in the shape of IBM MQ's messaging REST API, version 3.

What a get promises: a message is on its queue until it is certain that the client is there, and is taken off
in a transaction before the first byte of the answer is sent. Until then a client that hangs up, or a service
that dies, loses nothing; from then on the message is delivered at most once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from anyio import CancelScope
from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from selectroute.queues.errors import (
    MQRC_HOBJ_ERROR,
    MQRC_MSG_TOKEN_ERROR,
    MQRC_NO_MSG_AVAILABLE,
    MQRC_Q_MGR_NAME_ERROR,
    MQError,
    failed,
)
from selectroute.queues.message import Message
from selectroute.queues.rest_headers import (
    OMITTED,
    SETTABLE,
    decoded,
    descriptor_headers,
    put_fields,
)
from selectroute.queues.rest_ids import RestError
from selectroute.queues.rest_items import item_of
from selectroute.queues.rest_properties import PROPERTIES
from selectroute.queues.sql_call import SqlCall
from selectroute.selector.errors import SelectRouteError
from selectroute.service.callers import Caller, Role
from selectroute.service.calls import Call, JsonAnswer, call, check_not_encoded
from selectroute.service.connected import while_connected
from selectroute.service.context import By, Service, The
from selectroute.service.gate import MESSAGING
from selectroute.service.queue_answers import answered, check_answerable
from selectroute.service.queue_lookups import OfQuery
from selectroute.service.queue_models import MessageListAnswer
from selectroute.service.queue_waiting import InThread, Ring
from selectroute.service.queues import Name

USER: Final = "JMSXUserID"
"""Who put a message. As in IBM MQ, where the queue manager sets the user identifier, it is not for an
application to say.
"""

_USER_NAMES: Final = (USER, "Root.MQMD.UserIdentifier")

_QUEUE: Final = MESSAGING + "qmgr/{qmgr}/queue/{queue:path}"
_NOT_FOUND: Final = ("queue-not-found", "queue-manager-not-found")
_LOOKUP: Final = ("invalid-selector", *_NOT_FOUND)
_BODY: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}
_MEDIA_TYPES: Final = ("text/plain", "application/json", "application/octet-stream")
_FOUND: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The message: its body, and all else as headers ibm-mq-….",
        "headers": {
            OMITTED: {
                "description": "How many properties are left out, because they do not fit into the headers "
                "of an answer. As long as the message is on its queue, `messagelist` has all of them.",
                "schema": {"type": "integer"},
            }
        },
        "content": {"text/plain": _BODY, "application/octet-stream": _BODY},
    },
    204: {"description": "There is none (2033)."},
}

router = APIRouter(route_class=Call, tags=["queues"])
Manager = Annotated[str, Path(description="The name of the queue manager.")]
Wait = Annotated[int, Query(ge=0, lt=2**31, description="Milliseconds to wait for a message.")]
_PUT_HEADERS: Final = [
    {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}
    for name in (*SETTABLE, PROPERTIES)
]
_T = TypeVar("_T")


@call(
    router,
    "POST",
    f"{_QUEUE}/message",
    Role.writer,
    *_NOT_FOUND,
    "queue-full",
    "invalid-message",
    "message-too-large",
    "unsupported-media-type",
    "read-only",
    status_code=201,
    response_class=Response,
    responses={201: {"description": "It is on the queue; its ids are headers."}},
    openapi_extra={
        "parameters": _PUT_HEADERS,
        "requestBody": {"content": dict.fromkeys(_MEDIA_TYPES, _BODY)},
    },
)
async def put(
    request: Request,
    service: The,
    by: By,
    qmgr: Manager,
    queue: Name,
) -> Response:
    """Put a message: the body is its body, byte by byte, and headers ibm-mq-… say the rest.

    Its JMSXUserID is the name of the token with which it is put, which a client cannot choose. The header
    ibm-mq-rest-csrf-token, which IBM's clients send, is taken and not needed.
    """
    _check(service, by, qmgr, queue)
    check_not_encoded(request)
    fields = _fields(request, by)
    check_answerable(fields, service.limits)
    body = await request.body()

    def made() -> Mapping[str, str]:
        return descriptor_headers(service.queues.open(queue).put(body, **fields))

    return Response(status_code=201, headers=await _writing(service, made))


@call(
    router,
    "GET",
    f"{_QUEUE}/message",
    Role.reader,
    *_LOOKUP,
    "forbidden",
    response_class=Response,
    responses=_FOUND,
)
async def browse(
    request: Request, service: The, by: By, qmgr: Manager, queue: Name, lookup: OfQuery, wait: Wait = 0
) -> Response:
    """The first match, which stays on the queue."""
    _check(service, by, qmgr, queue)
    opened = await run_in_threadpool(service.queues.open, queue)
    fields = lookup.fields(opened.settings, service.registry.limits)
    async with while_connected(request), _there(service, queue):
        found = await _found(
            service,
            wait,
            fields,
            partial(opened.browse, **fields),
            partial(opened.call, browses=True, **fields),
            run_in_threadpool,
        )
        if wait:
            await _still_known(request, service)
    return Response(status_code=204) if found is None else answered(found, service.limits)


@call(
    router,
    "DELETE",
    f"{_QUEUE}/message",
    Role.writer,
    *_LOOKUP,
    "read-only",
    response_class=Response,
    responses=_FOUND,
)
async def get(
    request: Request, service: The, by: By, qmgr: Manager, queue: Name, lookup: OfQuery, wait: Wait = 0
) -> Response:
    """The first match, which is on the queue no more."""
    _check(service, by, qmgr, queue)
    opened = await run_in_threadpool(service.queues.open, queue)
    fields = lookup.fields(opened.settings, service.registry.limits)
    unit = opened.unit()
    answer = Response(status_code=204)
    is_taken = False
    try:
        async with while_connected(request), _there(service, queue):
            found = await _found(
                service,
                wait,
                fields,
                partial(opened.get, syncpoint=unit, **fields),
                partial(opened.call, syncpoint=unit, **fields),
                partial(_writing, service),
            )
            if wait:
                await _still_known(request, service)
            if found is not None:
                answer = answered(found, service.limits)
        with CancelScope(shield=True):
            await _writing(service, unit.commit)
        is_taken = True
    finally:
        if not is_taken:
            with CancelScope(shield=True):
                await _writing(service, partial(_back_out, unit.backout))
    return answer


@call(
    router,
    "GET",
    f"{_QUEUE}/messagelist",
    Role.reader,
    *_LOOKUP,
    "forbidden",
    response_model=MessageListAnswer,
)
def listed(
    service: The,
    by: By,
    qmgr: Manager,
    queue: Name,
    lookup: OfQuery,
    limit: Annotated[int, Query(ge=1, lt=2**31)] = 10,
) -> Response:
    """The first matches without their bodies, in the order in which they would be got."""
    _check(service, by, qmgr, queue)
    opened = service.queues.open(queue)
    fields = lookup.fields(opened.settings, service.registry.limits)
    found = opened.listed(min(limit, service.limits.page), **fields)
    return JsonAnswer({"messages": [item_of(message) for message in found]})


def _check(service: Service, by: Caller, manager: str, queue: str) -> None:
    by.check_queue(queue)
    if manager != service.queue_manager:
        raise failed(MQRC_Q_MGR_NAME_ERROR, "this service is the queue manager of another name")


@asynccontextmanager
async def _there(service: Service, name: str) -> AsyncIterator[None]:
    """Raise MQError 2085 if the block finds its queue closed because it was deleted meanwhile."""
    try:
        yield
    except MQError as error:
        if error.reason == MQRC_HOBJ_ERROR:
            await run_in_threadpool(service.queues.open, name)
        raise


def _fields(request: Request, by: Caller) -> dict[str, Any]:
    """What a put takes of the headers, and who the caller is. Raises RestError."""
    given = {}
    for name in SETTABLE:
        values = request.headers.getlist(name)
        if len(values) > 1:
            raise RestError(name, "one of these headers is enough")
        if values:
            given[name] = decoded(values[0], name)
    fields = put_fields(given, [decoded(value, PROPERTIES) for value in request.headers.getlist(PROPERTIES)])
    properties = fields.get("properties", {})
    for name in _USER_NAMES:
        if name in properties:
            raise RestError(PROPERTIES, f"{name} is the name of the token, which the service sets")
    if by.name is not None:
        fields["properties"] = {**properties, USER: by.name}
    return fields


async def _writing(service: Service, function: Callable[[], _T]) -> _T:
    """Do what writes in a thread, together with few others."""
    async with service.writing:
        return await run_in_threadpool(function)


async def _found(
    service: Service,
    wait: int,
    fields: Mapping[str, Any],
    look: Callable[[], Message],
    made: Callable[[Ring], SqlCall],
    in_thread: InThread,
) -> Message | None:
    """The message that is there now, or within so many milliseconds; None if there is none."""
    if wait and "msg_token" in fields:
        raise failed(MQRC_MSG_TOKEN_ERROR, "nothing waits for a token")
    try:
        return await in_thread(look)
    except MQError as error:
        if error.reason != MQRC_NO_MSG_AVAILABLE:
            raise
    seconds = min(wait / 1000, service.limits.wait_seconds)
    return await service.queue_waiting.message(made, seconds, in_thread) if seconds else None


async def _still_known(request: Request, service: Service) -> None:
    """Raise a problem, 401, for a caller whose token was revoked while he waited."""
    await run_in_threadpool(service.callers.caller, request.headers.get("authorization"))


def _back_out(backout: Callable[[], None]) -> None:
    """Back a unit out as well as can be; one that is dropped is backed out by a later call on its queue."""
    with suppress(SelectRouteError):
        backout()
