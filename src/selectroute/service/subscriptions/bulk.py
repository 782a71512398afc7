"""Calls on many subscriptions: pages, batches, import and export."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing
from itertools import chain
from typing import Annotated, Final, Literal, get_args
from urllib.parse import urlencode

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio import CancelScope, CapacityLimiter
from pydantic import BaseModel, Field
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import SubscriptionSpec, SubscriptionStatus
from selectroute.registry.errors import ImportLineError, OperationError, TooLargeError
from selectroute.registry.log.change_log import cursor_of, read_cursor
from selectroute.registry.model import Imported, Operation, Order, Page, Subscription
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import MAX_LINE, MAX_LINE_BYTES
from selectroute.service.context import Service
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.headers import IdempotencyKey, check_not_encoded, media_type_of, request_headers
from selectroute.service.http.models import BatchAnswer, BatchBody, Cursor, Dialect, Limit, OperationBody
from selectroute.service.http.problems import RETRY_SECONDS, ProblemError
from selectroute.service.subscriptions.messages import newest_snapshot
from selectroute.service.subscriptions.search import Search, SearchField
from selectroute.service.subscriptions.subscriptions import PATH, idempotency, with_warnings

_BLOCK = 1 << 16


class Streamed(StreamingResponse):
    """Response of lines, sent in blocks. The generator is always closed: at the end, when the client
    disconnects, and when it has read nothing for `stall_seconds`.

    Args:
        lines: without line ends; the first is read before the response begins, so its error can be answered.
        media_type: of the response.
        limiter: of concurrent responses of this kind.
        stall_seconds: the longest time that the client may read nothing.
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
        """Send the response. Raises ClientDisconnect if the client stalls."""

        async def timely(message: Message) -> None:
            with anyio.move_on_after(self._stall_seconds):
                await send(message)
                return
            raise ClientDisconnect

        async with self._limiter:
            try:
                blocks = _blocks(self._lines)
                first = await run_in_threadpool(next, blocks, b"")
                self.body_iterator = iterate_in_threadpool(chain([first] if first else [], blocks))
                await super().__call__(scope, receive, timely)
            finally:
                with CancelScope(shield=True):
                    await run_in_threadpool(self._lines.close)


def _blocks(lines: Iterator[str]) -> Iterator[bytes]:
    """Join lines into blocks of at least 64 KiB."""
    block, size = [], 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= _BLOCK:
            yield ("\n".join(block) + "\n").encode()
            block, size = [], 0
    if block:
        yield ("\n".join(block) + "\n").encode()


NDJSON: Final = "application/x-ndjson"
_LINES: Final = frozenset({NDJSON, "application/jsonl", "application/json-lines", "application/ndjson"})

_LOOKS: Final = 20
"""Pages that are read at most for one response to a caller who may see few subscriptions."""

_SEARCH_SECONDS: Final = 2.0
"""Time after which a search returns what it has found, and at which id to go on."""

_AT_ONCE: Final = 1 << 20
"""Bytes of a body that are received before its lines are read."""


_Text = Annotated[str | None, Field(max_length=10_240, pattern=r"^[^\x00]*$")]
_Label = Annotated[str | None, Field(max_length=400, pattern=r"^[^\x00=]+=[^\x00]*$")]


class Filters(BaseModel):
    """Values that subscriptions must have."""

    topic: Annotated[_Text, Field(description="Only those with this topic filter.")] = None
    status: Annotated[SubscriptionStatus | None, Field(description="Only those with this status.")] = None
    dialect: Annotated[Dialect | None, Field(description="Only those with this dialect.")] = None
    name: Annotated[_Text, Field(description="Only the one with this name.")] = None
    label: Annotated[_Label, Field(description="Only those with this label, KEY=VALUE.")] = None

    def wanted(self) -> dict[str, str]:
        """Return the filters that are given, as `Registry.list` takes them."""
        return self.model_dump(mode="json", exclude_none=True)


def page(
    service: Service,
    by: Caller,
    filters: Filters,
    limit: Limit = 50,
    cursor: Cursor = None,
    order: Annotated[Order, Field(description="By id, by name, or the newest change first.")] = "id",
) -> Annotated[Response, Page]:
    """Return subscriptions, in the order of their ids unless another is given; the header Link has the URL of
    the next page.

    A caller who may not see all of them can get fewer than `limit`, even none, although there are more.
    """
    limit, wanted = min(limit, service.limits.page), filters.wanted()
    cursor = _decrypted(service, by, cursor)
    visible: list[Subscription] = []
    for _ in range(_LOOKS):
        part = service.registry.list(limit=limit - len(visible), cursor=cursor, order=order, **wanted)
        visible += [subscription for subscription in part.items if by.sees(subscription.topic)]
        cursor = part.next_cursor
        if cursor is None or len(visible) == limit:
            break
    headers = {}
    cursor = _encrypted(service, by, cursor)
    if cursor is not None:
        in_order = {} if order == "id" else {"order": order}
        query = urlencode({"limit": limit, **wanted, **in_order, "cursor": cursor})
        headers["Link"] = f'<{PATH}?{query}>; rel="next"'
    return JsonAnswer(Page(visible, cursor), headers=headers)


async def searched(
    service: Service,
    by: Caller,
    filters: Filters,
    text: Annotated[
        str, Field(min_length=1, max_length=1_000, pattern=r"^[^\x00]*$", description="The text to find.")
    ],
    field: Annotated[
        list[SearchField], Field(max_length=5, description="Where to look; everywhere by default.")
    ] = [],  # noqa: B006  # it is copied
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Annotated[Response, Page]:
    """Return subscriptions with a text in their id, name, topic filter or selector, in upper or lower case,
    or whose selector reads an identifier of exactly this name. They are in the order of their ids.

    After two seconds a search returns what it has found, with the cursor to go on.
    """
    limit = min(limit, service.limits.page)
    cursor = _decrypted(service, by, cursor)
    after = "" if cursor is None else read_cursor(cursor, 1)[0]
    snapshot, fields = newest_snapshot(service), field or get_args(SearchField)
    searching = Search(service.registry, snapshot, by, text, fields, filters.wanted())

    def find() -> Response:
        items, last = searching.page(after, limit, _SEARCH_SECONDS)
        return JsonAnswer(Page(items, _encrypted(service, by, None if last is None else cursor_of(last))))

    return await anyio.to_thread.run_sync(find, limiter=service.searching)


def batch(
    service: Service, by: Caller, body: BatchBody, idempotency_key: IdempotencyKey = None
) -> Annotated[Response, BatchAnswer]:
    """Apply several changes as one revision, all or none."""
    limit = service.limits.batch_operations
    if len(body.operations) > limit:
        raise TooLargeError(f"a batch must not have more than {limit:,} operations")
    done = service.registry.apply(
        _operations(body),
        idempotency=idempotency(by, idempotency_key, body),
        max_expanded=service.limits.expanded_literals,
        by=by.permission,
    )
    has_selector = (operation.op in ("add", "replace") for operation in body.operations)
    items = with_warnings(zip(done.subscriptions, has_selector, strict=True), service.registry.limits)
    return JsonAnswer({"revision": done.revision, "subscriptions": items})


async def import_(
    request: Request,
    service: Service,
    by: Caller,
    mode: Annotated[
        Literal["add", "replace"],
        Field(
            description="For an existing id: `add` refuses it; `replace` replaces it, and keeps its status "
            "unless the line gives one."
        ),
    ] = "add",
) -> Imported:
    """Register subscriptions, one JSON object a line, as one revision, all or none."""
    headers = request_headers(request.scope)
    if media_type_of(headers) not in _LINES:
        raise ProblemError("unsupported-media-type", f"the body must be {NDJSON}: one JSON object a line")
    check_not_encoded(headers)
    if service.importing.available_tokens < 1:
        raise _too_many(service.limits.imports, "imports")
    if service.importers[by.subject] >= service.limits.imports_of_one:
        raise _too_many(service.limits.imports_of_one, "imports of this token")
    parts = request.stream()

    def read() -> Imported:
        lines: Iterator[bytes] = _lines(parts, service.limits.stall_seconds)
        return service.registry.import_(
            lines,
            mode=mode,
            max_rows=service.limits.import_rows,
            max_expanded=service.limits.expanded_literals,
            by=by.permission,
        )

    # Each import holds a thread until its last byte arrives, so it has a separate limit of threads.
    service.importers[by.subject] += 1
    try:
        done = await anyio.to_thread.run_sync(read, limiter=service.importing)
    finally:
        service.importers[by.subject] -= 1
        if not service.importers[by.subject]:
            del service.importers[by.subject]
    return done


async def export(
    service: Service,
    by: Caller,
    revision: Annotated[
        int | None, Field(ge=0, lt=2**63, description="The state as of this revision; as of now by default.")
    ] = None,
) -> Response:
    """Return all subscriptions that the caller may see, one per line, as of now or of a revision."""
    if service.exporting.available_tokens < 1:  # each holds a connection to the database
        raise _too_many(service.limits.exports, "exports")
    lines = _visible(by, service.registry.export(revision=revision))
    return Streamed(lines, NDJSON, service.exporting, service.limits.stall_seconds)


def _decrypted(service: Service, by: Caller, cursor: str | None) -> str | None:
    """Return the cursor that a caller sent, encrypted if the caller may not see all subscriptions."""
    return cursor if cursor is None or by.sees_all else service.cursors.read(cursor)


def _encrypted(service: Service, by: Caller, cursor: str | None) -> str | None:
    """Return a cursor as the caller may see it; the inverse of `_decrypted`."""
    return cursor if cursor is None or by.sees_all else service.cursors.hidden(cursor)


def _visible(by: Caller, lines: Generator[str, None, None]) -> Generator[str, None, None]:
    """Yield the lines of an export that the caller may see. Closing the generator ends the export."""
    with closing(lines):
        for line in lines:
            if by.sees_all or by.sees(json.loads(line)["topic"]):
                yield line


def _too_many(limit: int, what: str) -> ProblemError:
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return ProblemError("too-many-requests", f"{limit:,} {what} are running already", headers=headers)


def _operations(body: BatchBody) -> list[Operation]:
    operations: list[Operation] = []
    for index, operation in enumerate(body.operations):
        try:
            operations.append(_operation(operation))
        except SelectRouteError as error:
            raise OperationError(index, error) from error
    return operations


def _operation(body: OperationBody) -> Operation:
    data = body.model_dump(exclude_none=True, exclude={"op", "id", "expected", "from_"})
    spec = None
    if body.op in ("add", "replace"):
        spec = SubscriptionSpec.from_json(data)
    elif data:
        raise InvalidSpecError(f"/{min(data)}", f"{body.op} does not take fields of a subscription")
    return Operation(body.op, body.id, spec, body.expected, body.from_ or "latest")


def _lines(parts: AsyncIterator[bytes], stall_seconds: float) -> Iterator[bytes]:
    """Yield the lines of a body as they arrive, from a thread, in bounded memory.

    The thread waits for a megabyte at a time: while it checks lines it holds the interpreter's lock, and
    each part of 64 KiB that the server receives meanwhile waits some milliseconds for that.
    """

    async def following() -> bytes:
        taken: list[bytes] = []
        missing = _AT_ONCE
        while missing > 0:
            with anyio.move_on_after(stall_seconds) as waiting:
                part = await anext(parts, None)
            if waiting.cancelled_caught:
                raise ProblemError("timed-out", f"the import sent nothing for {stall_seconds:g} seconds")
            if part is None:
                break
            taken.append(part)
            missing -= len(part)
        return b"".join(taken)

    # A line may arrive in a thousand parts: they are joined once, at its end.
    rest: list[bytes] = []
    size, number = 0, 1
    while part := anyio.from_thread.run(following):
        first, *lines = part.split(b"\n")
        rest.append(first)
        size += len(first)
        if lines:
            *whole, last = lines
            yield b"".join(rest)
            yield from whole
            number += 1 + len(whole)
            rest, size = [last], len(last)
        if size > MAX_LINE_BYTES:
            raise ImportLineError(number, TooLargeError(f"a line has {MAX_LINE:,} characters at most"))
    if size:
        yield b"".join(rest)
