"""Messages of a queue over HTTP, by the calls of IBM MQ's messaging REST API, versions 1 to 3. The page
``reference/ibm-rest.md`` lists what differs.

Guarantee of a get: the message stays on its queue while the client's connection is checked, and is removed
in a transaction before the first byte of the response is sent. Until then neither a disconnected client nor
a crash of the service loses it; from then on the message is delivered at most once.

A purge or a move of many messages is done in transactions of a limited number each. Between two of them
other calls are served, and after a limited time the call answers with what it has done.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar

from anyio import CancelScope
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from selectroute.queues.errors import (
    MQRC_HOBJ_ERROR,
    MQRC_MSG_TOKEN_ERROR,
    MQRC_NO_MSG_AVAILABLE,
    MQRC_Q_MGR_NAME_ERROR,
    MQError,
    ScanLimitError,
    failed,
)
from selectroute.queues.lookup import MatchOptions, ScanBudget
from selectroute.queues.message.message import Descriptor, QueuedMessage
from selectroute.queues.message.put_validation import MAX_NUMBER
from selectroute.queues.queue import BulkPosition, BulkResult, MessageCount
from selectroute.queues.rest.headers import (
    CORRELATION_ID,
    EXPIRY,
    GROUP_ID,
    LAST_IN_GROUP,
    MESSAGE_ID,
    OFFSET,
    OMITTED,
    PERSISTENCE,
    PRIORITY,
    REPLY_TO,
    SEQUENCE,
    SETTABLE,
    decoded,
    descriptor_headers,
    headers_of,
    hex_headers,
    put_fields,
)
from selectroute.queues.rest.lookup import LookupParams, RestError, hex_item_of, item_of, token_of_text
from selectroute.queues.rest.properties import PROPERTIES, header_of
from selectroute.queues.settings import MAX_MESSAGE_LENGTH, QueueSettings
from selectroute.queues.sql.bulk import Bulk
from selectroute.queues.sql.queue import SqlQueue
from selectroute.queues.unit import UnitOfWork
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import Limits
from selectroute.service.context import Service, still_known, while_connected
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.headers import check_not_encoded, check_utf8, request_headers
from selectroute.service.http.models import Dialect, Strict
from selectroute.service.http.problems import ProblemError
from selectroute.service.limits import ServiceLimits

Name = Annotated[str, Field(description="A queue's name; encode a slash as %2F, a percent sign as %25.")]


class QueueBody(Strict):
    """Settings of a queue; a missing one is IBM MQ's default."""

    order: Literal["priority", "fifo"] = "priority"
    default_priority: Annotated[StrictInt, Field(ge=0, le=9)] = 4
    default_persistence: StrictBool = False
    max_depth: Annotated[StrictInt, Field(ge=0, lt=2**53)] | None = None
    max_message_length: Annotated[StrictInt, Field(ge=0, lt=2**31)] = MAX_MESSAGE_LENGTH
    dialect: Dialect = "ibm-jms"

    def settings(self) -> QueueSettings:
        """Return the settings as a `QueueSettings`."""
        return QueueSettings(**self.model_dump())


class ListedMessageAnswer(BaseModel):
    """Message without its body."""

    messageId: str
    correlationId: str | None
    groupId: str | None
    msgSeqNumber: int
    offset: int
    lastInGroup: bool
    priority: int
    persistence: Literal["persistent", "nonPersistent"]
    expiry: int | Literal["unlimited"]
    """Remaining time in milliseconds."""
    timestamp: int
    """Time of the put, in milliseconds since 1970 (UTC)."""
    backoutCount: int
    expiration: int
    """Time of expiry, in milliseconds since 1970 (UTC); 0 for never."""
    msgToken: str
    properties: dict[str, Any]


class MessageListAnswer(BaseModel):
    """First matching messages, in the order of delivery."""

    messages: list[ListedMessageAnswer]
    next: str | None
    """Token to send as `after` for the messages that follow; null at the end."""


# ---- lookups, and what is done to many messages

ID_HELP: Final = "ID: followed by 48 hexadecimal digits."
TEXT_HELP: Final = (
    "ID: followed by up to 48 hexadecimal digits, zero-padded on the right; or an application's text, of "
    "which the first 24 bytes of UTF-8 are the id."
)

Text = Annotated[str, Field(max_length=2_000)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]


class LookupBody(Strict):
    """Conditions on messages, as of a get: all that are given must agree; without any, every message does."""

    model_config = ConfigDict(strict=True)  # a body; parameters of a query, which are texts, are converted

    messageId: Annotated[Text | None, Field(description=ID_HELP)] = None
    correlationId: Annotated[Text | None, Field(description=TEXT_HELP)] = None
    groupId: Annotated[Text | None, Field(description=TEXT_HELP)] = None
    msgSeqNumber: Annotated[int | None, Field(ge=1, le=MAX_NUMBER, description="The place in the group.")] = (
        None
    )
    offset: Annotated[int | None, Field(ge=0, le=MAX_NUMBER, description="The offset of a segment.")] = None
    msgToken: Annotated[Text | None, Field(description="32 hexadecimal digits.")] = None
    selector: Annotated[str | None, Field(description="A selector that the message must match.")] = None
    dialect: Annotated[Dialect | None, Field(description="The selector's; the queue's by default.")] = None

    def options(self, dialect: str, limits: Limits) -> MatchOptions:
        """Return the match options, see `LookupParams.options`."""
        params = LookupParams(*(getattr(self, name) for name in LookupParams._fields))
        return params.options(dialect, limits)


class PurgeBody(LookupBody):
    """Messages to be removed."""

    expected: _Count | None = None
    """Number of matching messages that the caller has seen: with another one nothing is done."""
    position: Annotated[str, Field(pattern="^[0-9]{1,18}-(-1|[0-9]{1,18})$")] | None = None
    """As of the answer before, to go on with the same messages: those that arrived later are not touched."""


class MoveBody(PurgeBody):
    """Messages to be moved, and the queue to which."""

    to: Annotated[str, Field(max_length=1_000)]


_MOMENT: Final = 0.05
"""Seconds that a lookup with a selector may take at once."""

_DESCRIPTOR_BYTES: Final = 1_536
"""Bytes of a response's headers at most, without the properties."""


def message_response(message: QueuedMessage, limits: ServiceLimits, version: str) -> Response:
    """Return the response with a message, as this version of the API has it.

    Properties that do not fit into its headers are left out, and `OMITTED` counts them: if the message were
    refused instead, it would block every get of the first message.
    """
    headers = headers_of(message)
    if _size(headers) > limits.message_header_bytes:
        kept = _fitting(message, limits.message_header_bytes)
        headers = headers_of(kept) | {OMITTED: str(len(message.properties) - len(kept.properties))}
    versioned = _versioned(headers, message.descriptor, version)
    return Response(message.body, headers=versioned, media_type=_media_type(message.body))


def _versioned(headers: Mapping[str, str], descriptor: Descriptor, version: str) -> Mapping[str, str]:
    return headers if version == V3 else hex_headers(headers, descriptor)


def _fitting(message: QueuedMessage, most: int) -> QueuedMessage:
    """Return the message with as many of its properties as fit, in their order."""

    def alone(properties: Mapping[str, Any]) -> QueuedMessage:
        return QueuedMessage(message.descriptor, b"", properties)

    empty = _size(headers_of(alone({})))
    room = most - _DESCRIPTOR_BYTES
    kept = {}
    for name, value in message.properties.items():
        size = _size(headers_of(alone({name: value}))) - empty  # an upper bound: they share one header
        if size <= room:
            room -= size
            kept[name] = value
    return alone(kept)


def _size(headers: Mapping[str, str]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers.items())


def check_answerable(fields: Mapping[str, Any], limits: ServiceLimits) -> None:
    """Refuse, with problem 422, a message that could be put but never be got whole over HTTP."""
    properties = fields.get("properties") or {}
    size = _DESCRIPTOR_BYTES + (len(header_of(properties)) if properties else 0)
    if size > limits.message_header_bytes:
        detail = (
            f"its properties do not fit into the {limits.message_header_bytes:,} bytes of headers of a "
            f"response, {_DESCRIPTOR_BYTES:,} of which are reserved: a character that is not ASCII takes "
            "up to six bytes"
        )
        raise ProblemError("invalid-message", detail, place=PROPERTIES)


def _media_type(body: bytes) -> str:
    """Return the media type of a body, guessed: a queue does not store it."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


# ---- endpoints

USER: Final = "JMSXUserID"
"""Property that names who put a message. As in IBM MQ, where the queue manager sets the user identifier,
applications cannot choose it.
"""

_USER_NAMES: Final = (USER, "Root.MQMD.UserIdentifier")

OMITTED_HEADER: Final = {
    OMITTED: {
        "description": "Count of the properties that are left out, because they do not fit into the "
        "headers. While the message is on its queue, `messagelist` returns all of them.",
        "schema": {"type": "integer"},
    }
}
"""Header of a response with a message, in OpenAPI's form."""

SETTABLE_HELP: Final[Mapping[str, str]] = {
    MESSAGE_ID: f"{ID_HELP} Generated by default.",
    CORRELATION_ID: TEXT_HELP,
    GROUP_ID: TEXT_HELP,
    SEQUENCE: "The place in the group, from 1.",
    OFFSET: "The offset of a segment.",
    LAST_IN_GROUP: "true or false; false by default.",
    PRIORITY: "0 to 9, or asDestination, the queue's default.",
    PERSISTENCE: "persistent, nonPersistent, or asDestination, the queue's default.",
    EXPIRY: "Milliseconds after which the message is discarded; 0 or unlimited, the default, for never.",
    REPLY_TO: "QUEUE or QUEUE@MANAGER.",
    PROPERTIES: "Properties, each NAME;VALUE;TYPE, separated by commas.",
}
"""Description of each header of a put."""

_AFTER_HELP: Final = "The token of the last message of the page before; it may have left the queue since."

V3: Final = "v3"
Version = Annotated[
    Literal["v1", "v2", "v3"],
    Field(description="The version of the API. The ids that v1 and v2 return are 48 digits without ID:."),
]
Manager = Annotated[str, Field(description="The name of the queue manager.")]


class QueuePath(BaseModel):
    """Steps of a path: the version of the API, the queue manager, and the queue."""

    version: Version
    qmgr: Manager
    queue: Name


Wait = Annotated[
    int,
    Field(
        ge=0,
        lt=2**31,
        description="Milliseconds to wait for a message; at most those of the limit wait_seconds.",
    ),
]
_T = TypeVar("_T")


async def put(request: Request, service: Service, by: Caller, path: QueuePath) -> Response:
    """Put a message: its body is the request's body, unchanged; other fields are headers ibm-mq-….

    The service sets its JMSXUserID to the name of the caller's token. The header ibm-mq-rest-csrf-token,
    which IBM's clients send, is accepted and not needed.
    """
    _check(service, by, path)
    fields = request_fields(request, by, service.limits)
    body = await request.body()

    descriptor = await writing(service, lambda: service.queues.open(path.queue).put(body, **fields))
    headers = _versioned(descriptor_headers(descriptor), descriptor, path.version)
    return Response(status_code=201, headers=headers)


async def browse(
    request: Request, service: Service, by: Caller, path: QueuePath, lookup: LookupBody, wait: Wait = 0
) -> Response:
    """Return the first matching message and leave it on the queue."""
    _check(service, by, path)
    opened, options = await run_in_threadpool(opened_for, service, path.queue, lookup)
    message = await _first_message(request, service, by, wait, opened, options, None)
    if message is None:
        return Response(status_code=204)
    return message_response(message, service.limits, path.version)


async def get(
    request: Request, service: Service, by: Caller, path: QueuePath, lookup: LookupBody, wait: Wait = 0
) -> Response:
    """Return the first matching message and remove it from the queue."""
    _check(service, by, path)
    opened, options = await run_in_threadpool(opened_for, service, path.queue, lookup)
    unit = opened.unit()
    answer = Response(status_code=204)
    is_taken = False
    try:
        message = await _first_message(request, service, by, wait, opened, options, unit)
        if message is not None:
            answer = message_response(message, service.limits, path.version)
        with CancelScope(shield=True):
            await writing(service, unit.commit)
        is_taken = True
    finally:
        if not is_taken:
            with CancelScope(shield=True):
                await writing(service, partial(_back_out, unit.backout))
    return answer


async def listed(
    request: Request,
    service: Service,
    by: Caller,
    path: QueuePath,
    lookup: LookupBody,
    limit: Annotated[
        int, Field(ge=1, lt=2**31, description="The most to return; at most the limit page.")
    ] = 10,
    after: Annotated[Text | None, Field(description=_AFTER_HELP)] = None,
) -> Annotated[Response, MessageListAnswer]:
    """Return the first matching messages without their bodies, in the order of delivery."""
    _check(service, by, path)
    most = min(limit, service.limits.page)
    begin = None if after is None else token_of_text(after, "after")

    def answer() -> Response:
        opened, options = opened_for(service, path.queue, lookup)
        items = [item_of(message) for message in opened.listed(most, after=begin, **options)]
        shown = items if path.version == V3 else [*map(hex_item_of, items)]
        return JsonAnswer({"messages": shown, "next": items[-1]["msgToken"] if len(items) == most else None})

    budget = ScanBudget()
    async with while_connected(request, budget.cancel):
        return await selected(service, by, budget, answer)


def opened_for(service: Service, queue: str, lookup: LookupBody) -> tuple[SqlQueue, MatchOptions]:
    """Return a queue, and the match options of a lookup on it."""
    opened = service.queues.open(queue)
    return opened, lookup.options(opened.settings.dialect, service.registry.limits)


async def selected(service: Service, by: Caller, budget: ScanBudget, function: Callable[[], _T]) -> _T:
    """Run a lookup with a selector in a thread.

    One that takes longer than a moment begins again when it is the turn of its caller to scan: lookups that
    an index answers do not wait for scans. Raises ScanLimitError after the limit `scan_seconds`.
    """
    try:
        async with service.selecting:
            return await run_in_threadpool(budget.run, _MOMENT, function)
    except ScanLimitError:
        async with service.scanning.of(by.subject):
            return await run_in_threadpool(budget.run, service.limits.scan_seconds, function)


def _check(service: Service, by: Caller, path: QueuePath) -> None:
    by.check_queue(path.queue)
    check_manager(service, path.qmgr)


def check_manager(service: Service, manager: str) -> None:
    """Raise MQError 2058 for a queue manager that is not the service's."""
    if manager != service.queue_manager:
        raise failed(MQRC_Q_MGR_NAME_ERROR, "this service is a queue manager with another name")


@asynccontextmanager
async def queue_exists(service: Service, name: str) -> AsyncIterator[None]:
    """Raise MQError 2085 if the block finds its queue closed because it was deleted."""
    try:
        yield
    except MQError as error:
        if error.reason == MQRC_HOBJ_ERROR:
            await run_in_threadpool(service.queues.open, name)
        raise


def request_fields(request: Request, by: Caller, limits: ServiceLimits) -> dict[str, Any]:
    """Return the arguments of a put in the headers, with the caller's name. Raises RestError and problems."""
    check_not_encoded(request_headers(request.scope))
    check_utf8(request_headers(request.scope))
    texts = {}
    for name in SETTABLE:
        values = request.headers.getlist(name)
        if len(values) > 1:
            raise RestError(name, "send only one of these headers")
        if values:
            texts[name] = decoded(values[0], name)
    fields = put_fields(texts, [decoded(value, PROPERTIES) for value in request.headers.getlist(PROPERTIES)])
    properties = fields.get("properties", {})
    for name in _USER_NAMES:
        if name in properties:
            raise RestError(PROPERTIES, f"{name} is the name of the token, set by the service")
    if by.name is not None:
        fields["properties"] = {**properties, USER: by.name}
    check_answerable(fields, limits)
    return fields


async def writing(service: Service, function: Callable[[], _T]) -> _T:
    """Run a writing function in a thread, within the limit of writers."""
    async with service.writing:
        return await run_in_threadpool(function)


async def _first_message(
    request: Request,
    service: Service,
    by: Caller,
    wait: int,
    queue: SqlQueue,
    options: MatchOptions,
    unit: UnitOfWork[Any] | None,
) -> QueuedMessage | None:
    """Return the message that is there now or arrives within `wait` milliseconds; None without one. Raises a
    problem, 401, if the caller's token was revoked during the wait.

    The message is got in the unit, or without one left on the queue. A lookup with a selector waits for its
    turn among those, any other get among the writers.
    """
    if wait and options["msg_token"] is not None:
        raise failed(MQRC_MSG_TOKEN_ERROR, "a call cannot wait for a token")
    budget, message = ScanBudget(), None
    if unit is None:
        in_thread, look = run_in_threadpool, partial(queue.browse, **options)
    else:
        in_thread, look = partial(writing, service), partial(queue.get, syncpoint=unit, **options)
    if options["selector"]:
        in_thread = partial(selected, service, by, budget)
    async with while_connected(request, budget.cancel), queue_exists(service, queue.name):
        try:
            message = await in_thread(look)
        except MQError as error:
            if error.reason != MQRC_NO_MSG_AVAILABLE:
                raise
        if wait:
            if message is None and (seconds := min(wait / 1000, service.limits.wait_seconds)):
                new_call = partial(queue.call, browses=unit is None, syncpoint=unit, **options)
                message = await service.queue_waiting.message(new_call, seconds, in_thread)
            await still_known(request, service)
    return message


def _back_out(backout: Callable[[], None]) -> None:
    """Back out a unit, ignoring failures: a later call on the queue backs out dropped units."""
    with suppress(SelectRouteError):
        backout()


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
