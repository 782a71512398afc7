"""Registry of a service: the methods of `Registry` over HTTP, and the same errors."""

from __future__ import annotations

import json
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import quote

import httpx

from selectroute.client.http import HttpClient, Response
from selectroute.client.problems import BULK_SECONDS, MAX_WAIT_SECONDS, MOST_CHANGES, TIMEOUT_SECONDS, refusal
from selectroute.client.queues import QUEUE_MANAGER, RemoteQueues
from selectroute.index.matches import MatchedSubscriptions
from selectroute.index.specification import SubscriptionSpec, check_id
from selectroute.registry.errors import (
    IdTakenError,
    ImportLineError,
    NotFoundError,
    OperationError,
    PublishError,
    RegistryError,
)
from selectroute.registry.model import (
    Applied,
    Backfill,
    Change,
    ChangePage,
    EffectiveFrom,
    From,
    Idempotency,
    Imported,
    Items,
    Op,
    Operation,
    Order,
    Page,
    Resumed,
    Subscription,
)
from selectroute.registry.role import Token
from selectroute.selector.arguments import check_argument
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.message import Message
from selectroute.selector.strict_json import parse_json
from selectroute.storage import Location

PATH: Final = "/v1/subscriptions"

_LAST: Final = 2**63 - 1
"""Larger than any revision: the response then has no changes, only the newest revision."""

_INVALID: Final = 422
_PRECONDITION_REQUIRED: Final = 428

_T = TypeVar("_T")


def connect(
    url: str, *, token: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS
) -> RemoteRegistry:
    """Open the registry of a service; its queues are ``connect(url).queues()``. Close it, or use it in a
    ``with``.

    Args:
        url: of the service, ``http(s)://host:port``. Nothing is sent before the first call.
        token: the secret of a bearer token; None where the service needs none.
        timeout_seconds: the longest that a response may take.

    Raises:
        RegistryError: the URL is not a service's, or the token has invalid characters.
    """
    check_argument(url, str, "url", "http://HOST:PORT or https://…")
    return RemoteRegistry(url, token, timeout_seconds=timeout_seconds)


class RemoteRegistry:
    """Registry of a service. Thread-safe; close it, or use it in a ``with``.

    A request whose response is lost is sent again, except an import, and takes effect once: a registration
    has an ``Idempotency-Key``; every other change has an ETag, which matches only once, or is idempotent. If
    a repeated attempt is refused, a note of the error says that the first one may have taken effect.

    In addition to the errors of `Registry`, all methods raise `ServiceUnreachableError`, `AuthError` for an
    unknown or insufficient token, and `RegistryError` for a response that is not a registry's.

    Args:
        url: of the service, ``http(s)://host:port``.
        token: the secret of a bearer token; None where the service needs none.
        timeout_seconds: the longest that a response may take.
        transport: replaces the network in tests.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.has_token = token is not None
        self._http = HttpClient(url, token, timeout_seconds, transport=transport)
        self._timeout_seconds = timeout_seconds
        self.url = self._http.url
        self.streams = RemoteStreams(self)
        self.tokens = RemoteTokens(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def info(self) -> dict[str, str | int | None]:
        """Return the newest revision, the only property that a service exposes."""
        return {"revision": self.revision}

    @property
    def snapshots_folder(self) -> Location:
        """Raise `PublishError`: a service does not expose the folder that it publishes to."""
        raise PublishError("a service does not expose its snapshots folder: name the folder (--snapshots)")

    def queues(
        self, manager: str = QUEUE_MANAGER, *, warn: Callable[[str], object] = warnings.warn
    ) -> RemoteQueues:
        """Return the queues of the service, over the same connections.

        Args:
            manager: the name of the queue manager that the service was started with.
            warn: called with a sentence if a response omits properties of a message.
        """
        return RemoteQueues(self._http, manager, self._timeout_seconds, warn)

    @property
    def revision(self) -> int:
        """Newest revision; 0 before the first change."""
        params = {"after": _LAST, "limit": 1}
        return self._read(self.ask("GET", "/v1/changes", params=params), lambda data: int(data["revision"]))

    def get(self, id: str) -> Subscription:
        """Return a subscription. Raises `NotFoundError`."""
        return self._subscription(self.ask("GET", path_of(id), id=id))

    def get_by_name(self, name: str) -> Subscription:
        """Return the subscription of a name. Raises `NotFoundError`."""
        matches = self.list(limit=1, name=name).items
        if not matches:
            raise NotFoundError(f"there is no subscription of the name {name!r}")
        return matches[0]

    def effective_of(
        self, id: str, *, wait_seconds: float = 0
    ) -> tuple[Subscription, Sequence[EffectiveFrom]]:
        """Return a subscription and, for each query, the first batch that used its current version. If there
        is none, waits at most `wait_seconds` for one, 30 at most.
        """
        wait = min(wait_seconds, MAX_WAIT_SECONDS)
        params = {"wait": f"{wait:g}" if wait > 0 else None}
        answer = self.ask("GET", path_of(id), params=params, id=id, wait_seconds=wait)
        return self._subscription(answer), self.read(_Effective, answer).effective_from

    def list(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        topic: str | None = None,
        status: str | None = None,
        dialect: str | None = None,
        name: str | None = None,
        label: str | None = None,
        order: Order = "id",
    ) -> Page:
        """Return a page of subscriptions; see `Registry.list`."""
        asked = {"topic": topic, "status": status, "dialect": dialect, "name": name, "label": label}
        page = {"limit": limit, "cursor": cursor, "order": None if order == "id" else order}
        return self.read(Page, self.ask("GET", PATH, params={**page, **asked}))

    def changes(
        self,
        after: int = 0,
        *,
        limit: int = MOST_CHANGES,
        cursor: str | None = None,
        ops: Collection[Op] | None = None,
        wait_seconds: float = 0,
    ) -> ChangePage:
        """Return the changes after a revision, see `Registry.changes`. Waits 30 seconds at most, and returns
        1,000 changes at most.
        """
        wait = min(wait_seconds, MAX_WAIT_SECONDS)
        page = {"after": after, "limit": min(limit, MOST_CHANGES), "wait": f"{wait:g}", "cursor": cursor}
        params = {**page, "op": None if ops is None else sorted(ops)}
        return self._read(self.ask("GET", "/v1/changes", params=params, wait_seconds=wait), _change_page)

    def follow_changes(self, after: int, *, ops: Collection[Op] | None = None) -> Generator[Change]:
        """Yield the changes after a revision that the token may see, up to the newest revision at the first
        call, in bounded memory. With `ops` only changes of these kinds.
        """
        cursor: str | None = None
        newest: int | None = None
        while True:
            page = self.changes(after, cursor=cursor, ops=ops)
            newest = page.revision if newest is None else newest
            for change in page:
                if change.revision > newest:
                    return
                yield change
            cursor = page.next_cursor
            if cursor is None or page.complete >= newest:
                return

    def history(
        self, id: str, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[Sequence[Change], str | None]:
        """Return the newest changes of a subscription, see `Registry.history`."""
        params = {"limit": min(limit, MOST_CHANGES), "cursor": cursor}
        answer = self.ask("GET", f"{path_of(id)}/changes", params=params, id=id)
        return self._read(
            answer, lambda data: ([*map(Change.from_json, data["changes"])], data["next_cursor"])
        )

    def export(self, *, revision: int | None = None) -> Iterator[str]:
        """Yield all subscriptions as lines of JSON, as they come; see `Registry.export`."""
        with self._http.lines(f"{PATH}:export", {"revision": revision}, BULK_SECONDS) as answer:
            if isinstance(answer, Response):
                raise refusal(answer, self.url)
            for line in answer:
                yield line.decode()

    def explain(self, id: str, message: Message) -> dict[str, Any]:
        """Explain why a subscription gets a message or not: the response of ``/v1/messages:explain`` with the
        ``revision``. Raises `NotFoundError`.
        """
        body = {"message": message.to_json(), "subscriptions": [id]}
        answer = self.ask("POST", "/v1/messages:explain", body=body, id=id)
        return self._read(answer, lambda data: {"revision": data["revision"], **data["explanations"][0]})

    def matcher(self, progress: Callable[[int], None] = lambda _: None) -> Self:
        """Return the registry itself: a service matches with its published snapshot."""
        return self

    def match(self, message: Message, limit: int, near: bool = False) -> MatchedSubscriptions:
        """Return the subscriptions that get a message, at most `limit` of them by name, and with ``near``
        those for which only one condition fails.
        """
        body = {"message": message.to_json(), "limit": limit, **({"near": True} if near else {})}
        return self.read(MatchedSubscriptions, self.ask("POST", "/v1/messages:match", body=body))

    # ---- changes

    def register(
        self, spec: SubscriptionSpec, *, id: str | None = None, idempotency: Idempotency | None = None
    ) -> Subscription:
        """Register a subscription; see `Registry.register`. Only the key of `idempotency` is used."""
        if id is None:
            return self._subscription(
                self.ask("POST", PATH, body=spec.to_json(), headers=_key(idempotency), spec=spec)
            )
        check_id(id)  # an invalid id in the path would be answered as not found
        # A PUT without If-Match never replaces: for an existing subscription the service answers 428.
        answer = self._http.ask("PUT", path_of(id), body=spec.to_json())
        if answer.status != _PRECONDITION_REQUIRED:
            return self._subscription(self._checked(answer, id=id, spec=spec))
        if answer.repeated and _is(subscription := self.get(id), spec):
            return subscription  # registered by the attempt whose response was lost
        raise IdTakenError(f"there is a subscription {id!r} already")

    def replace(self, id: str, spec: SubscriptionSpec, *, expected: int | None = None) -> Subscription:
        """Replace a subscription's specification; see `Registry.replace`."""
        body, headers = spec.to_json(), _if_match(expected)
        return self._subscription(self.ask("PUT", path_of(id), body=body, headers=headers, id=id, spec=spec))

    def change(self, id: str, patch: Mapping[str, Any], *, expected: int | None = None) -> Subscription:
        """Change some fields by a JSON merge patch; see `Registry.change`."""
        headers = {**_if_match(expected), "Content-Type": "application/merge-patch+json"}
        answer = self._http.ask("PATCH", path_of(id), body=dict(patch), headers=headers)
        spec = None
        if answer.status == _INVALID:  # the error shows the selector in its dialect
            spec = self.get(id).spec
            text, dialect = patch.get("selector", spec.selector), patch.get("dialect", spec.dialect)
            spec = replace(spec, selector=str(text), dialect=str(dialect))
        return self._subscription(self._checked(answer, id=id, spec=spec))

    def remove(self, id: str, *, expected: int | None = None) -> Subscription:
        """Remove a subscription; see `Registry.remove`."""
        return self._subscription(self.ask("DELETE", path_of(id), headers=_if_match(expected), id=id))

    def pause(self, id: str, *, expected: int | None = None) -> Subscription:
        """Pause a subscription; see `Registry.pause`."""
        return self._subscription(
            self.ask("POST", f"{path_of(id)}:pause", headers=_if_match(expected), id=id)
        )

    def resume(self, id: str, *, from_: From = "latest", expected: int | None = None) -> Resumed:
        """Resume a paused subscription; see `Registry.resume`."""
        body, headers = {"from": from_}, _if_match(expected)
        answer = self.ask("POST", f"{path_of(id)}:resume", body=body, headers=headers, id=id)
        return Resumed(self._subscription(answer), self.read(_Missed, answer).backfill)

    def apply(self, operations: Iterable[Operation], *, idempotency: Idempotency | None = None) -> Applied:
        """Apply several changes as one revision; see `Registry.apply`."""
        requested = [*operations]
        if not requested:
            return Applied(self.revision, [])  # the service refuses an empty batch
        body = {"operations": [*map(_operation, requested)]}
        answer = self._http.ask("POST", f"{PATH}:batch", body=body, headers=_key(idempotency))

        def spec(index: int) -> SubscriptionSpec | None:
            return requested[index].spec if index < len(requested) else None

        return self.read(Applied, self._checked(answer, several=OperationError, asked=spec))

    def import_(
        self,
        lines: Iterable[str | bytes],
        *,
        mode: Literal["add", "replace"] = "add",
        progress: Callable[[int, int], None] | None = None,
    ) -> Imported:
        """Register subscriptions from JSON lines, all or none, sent once; see `Registry.import_`."""
        sent = _Upload(lines, progress)
        answer = self._http.once(
            "POST",
            f"{PATH}:import",
            params={"mode": mode},
            content=sent,
            headers={"Content-Type": "application/x-ndjson"},
            timeout_seconds=BULK_SECONDS,
        )
        return self.read(Imported, self._checked(answer, several=ImportLineError, asked=sent.spec))

    # ---- requests

    def ask(
        self,
        method: str,
        path: str,
        *,
        id: str = "",
        spec: SubscriptionSpec | None = None,
        wait_seconds: float = 0.0,
        **sent: Any,
    ) -> Response:
        """Send a request, see `HttpClient.ask`, and return its successful response."""
        timeout = self._timeout_seconds + wait_seconds
        return self._checked(self._http.ask(method, path, timeout_seconds=timeout, **sent), id=id, spec=spec)

    def _checked(self, answer: Response, **about: Any) -> Response:
        """Return a successful response. Raises the error that any other response stands for."""
        if 200 <= answer.status < 300:
            return answer
        error = refusal(answer, self.url, **about)
        if answer.repeated:
            error.add_note("an earlier attempt lost its connection and may have taken effect")
        raise error

    def _subscription(self, answer: Response) -> Subscription:
        return self.read(Subscription, answer)

    def read(self, kind: type[_T], answer: Response) -> _T:
        """Return the data of a response, which are of this type; other members are ignored."""
        return self._taken(lambda: answer.data(kind))

    def _read(self, answer: Response, take: Callable[[Any], _T]) -> _T:
        return self._taken(lambda: take(json.loads(answer.body)))

    def _taken(self, take: Callable[[], _T]) -> _T:
        try:
            return take()
        except (ValueError, KeyError, IndexError, TypeError, RecursionError, SelectRouteError) as error:
            raise RegistryError(f"{self.url} does not answer as a registry does: check the URL") from error


class RemoteStreams:
    """Streams of a service's registry: the methods of `Streams` that jobs use."""

    def __init__(self, registry: RemoteRegistry) -> None:
        self._registry = registry

    def note_query(self, query: str, *, source: str, can_replay: bool, reason: str | None = None) -> None:
        """Announce a query."""
        self._note(query, "", source=source, can_replay=can_replay, reason=reason)

    def queries(self) -> Sequence[Backfill]:
        """Return the known queries. Needs the token of a job."""
        answer = self._registry.ask("GET", "/v1/queries")
        return self._registry.read(Items[Backfill], answer).items

    def note_batch(self, query: str, batch: int, revision: int) -> None:
        """Report that a batch of a query was delivered with a revision."""
        self._note(query, "/batches", batch=batch, revision=revision)

    def note_reports(
        self, query: str, batches: Sequence[Mapping[str, Any]], state: Mapping[str, Any]
    ) -> None:
        """Report batches of a query, and its state."""
        self._note(query, "/reports", batches=[dict(batch) for batch in batches], state=dict(state))

    def remove(self, query: str) -> None:
        """Remove a stream with its reports. Needs the token of a job."""
        self._registry.ask("DELETE", f"/v1/streams/{quote(query, safe='')}")

    def note_messages(self, query: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Add messages of a query to the sample of recent messages."""
        self._note(query, "/messages", messages=[dict(message) for message in messages])

    def _note(self, query: str, what: str, **body: Any) -> None:
        self._registry.ask("POST", f"/v1/queries/{quote(query, safe='')}{what}", body=body)


class RemoteTokens:
    """Tokens of a service's registry."""

    def __init__(self, registry: RemoteRegistry) -> None:
        self._registry = registry

    def add(
        self,
        role: str,
        *,
        topics: Iterable[str] = (),
        queues: Iterable[str] = (),
        kafka: Iterable[str] = (),
        name: str | None = None,
    ) -> tuple[Token, str]:
        """Create a token, see `Tokens.add`. Needs an admin's token. Not idempotent: a request
        repeated after a lost response leaves a second token whose secret is lost.
        """
        body = {"role": role, "name": name, "topics": [*topics], "queues": [*queues], "kafka": [*kafka]}
        answer = self._registry.ask("POST", "/v1/tokens", body=body)
        return self._registry.read(Token, answer), self._registry.read(_Secret, answer).secret

    def all(self) -> Sequence[Token]:
        """Return all tokens. Needs an admin's token."""
        answer = self._registry.ask("GET", "/v1/tokens")
        return self._registry.read(Items[Token], answer).items

    def had_any(self) -> bool:
        """Return whether this client has a token: a service with tokens refuses every request without one."""
        return self._registry.has_token

    def revoke(self, id: str) -> None:
        """Revoke a token. Needs an admin's token. Raises `NotFoundError`."""
        self._registry.ask("DELETE", f"/v1/tokens/{quote(id, safe='')}")


def path_of(id: str) -> str:
    """Return the path of a subscription in a service."""
    # ``.`` and ``..`` are valid ids, but in a path they would be resolved.
    step = quote(id, safe="") if id.strip(".") else id.replace(".", "%2E")
    return f"{PATH}/{step}"


def _change_page(data: Any) -> ChangePage:
    changes = [*map(Change.from_json, data["changes"])]
    return ChangePage(changes, data["next_cursor"], int(data["revision"]), int(data["complete"]))


@dataclass
class _Effective:
    effective_from: list[EffectiveFrom]


@dataclass
class _Missed:
    backfill: list[Backfill]


@dataclass
class _Secret:
    secret: str


def _key(idempotency: Idempotency | None) -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex if idempotency is None else idempotency.key}


def _if_match(expected: int | None) -> dict[str, str]:
    return {"If-Match": "*" if expected is None else f'"{expected}"'}


def _operation(operation: Operation) -> dict[str, Any]:
    spec = {} if operation.spec is None else operation.spec.to_json()
    start = operation.resume_from if operation.op == "resume" else None
    data = {"op": operation.op, **spec, "id": operation.id, "expected": operation.expected, "from": start}
    return {name: value for name, value in data.items() if value is not None}


def _is(subscription: Subscription, spec: SubscriptionSpec) -> bool:
    """Return whether a subscription has the requested specification."""
    asked = replace(spec, name=spec.name or subscription.id, seltype=spec.seltype or subscription.seltype)
    return replace(subscription.spec, seltype=subscription.seltype) == asked


_KEPT: Final = 32 << 20
"""Bytes of lines that are kept: a service reads thousands of lines ahead before it refuses one."""

_BLOCK: Final = 64 << 10
_SAID_EVERY: Final = 1_000


class _Upload:
    """Lines as blocks of bytes, iterable once; `spec` returns the specification in one of the last lines.

    Args:
        lines: NDJSON, text or UTF-8, with or without line ends.
        progress: called every 1,000 lines with the count of lines sent, and 0.
    """

    def __init__(self, lines: Iterable[str | bytes], progress: Callable[[int, int], None] | None) -> None:
        self._lines = lines
        self._progress = progress
        self._kept: deque[bytes] = deque()
        self._count = 0

    def __iter__(self) -> Iterator[bytes]:
        block: list[bytes] = []
        size = kept = 0
        for line in self._lines:
            # Lone surrogates are sent unchanged: the service reports the error and its position.
            data = line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")
            data = data if data.endswith(b"\n") else data + b"\n"
            self._count += 1
            self._kept.append(data)
            kept += len(data)
            while kept > _KEPT and len(self._kept) > 1:
                kept -= len(self._kept.popleft())
            block.append(data)
            size += len(data)
            if size >= _BLOCK:
                yield b"".join(block)
                block, size = [], 0
            if self._progress is not None and not self._count % _SAID_EVERY:
                self._progress(self._count, 0)
        yield b"".join(block)

    def spec(self, index: int) -> SubscriptionSpec | None:
        """Return the specification in the line of this index; None if no longer kept, or invalid."""
        at = index - (self._count - len(self._kept))
        if not 0 <= at < len(self._kept):
            return None
        try:
            return SubscriptionSpec.from_json(parse_json(self._kept[at]))
        except SelectRouteError:
            return None
