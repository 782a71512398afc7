"""Queues of a service over HTTP: IBM MQ's messaging REST API v3, and ``/v1/queues`` for administration.

`RemoteQueues` are all queues of a service, `RemoteQueue` is one queue. A put or get is not idempotent: its
request is sent once.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, TypeVar, Unpack
from urllib.parse import quote

from selectroute.client.http import HttpClient, Response
from selectroute.client.problems import MAX_WAIT_SECONDS, document_of, refusal
from selectroute.index.specification import SubscriptionSpec
from selectroute.queues.errors import MQRC_NO_MSG_AVAILABLE, MQRC_NOT_AUTHORIZED, REASONS, failed
from selectroute.queues.lookup import MatchOptions
from selectroute.queues.message.message import Descriptor, QueuedMessage
from selectroute.queues.queue import BulkResult, MessageCount
from selectroute.queues.rest.headers import OMITTED, descriptor_of_headers, message_of, put_headers
from selectroute.queues.rest.lookup import LookupParams, message_of_item
from selectroute.queues.settings import QueueDescription, QueueName, QueueSettings
from selectroute.registry.errors import RegistryError
from selectroute.registry.model import Items
from selectroute.selector.errors import InvalidSelectorError, SelectRouteError
from selectroute.selector.sentences import printable

QUEUE_MANAGER: Final = "selectroute"
"""Default name of a service's queue manager."""

_PATH: Final = "/v1/queues"
_CREATED, _NONE, _REFUSED, _INVALID = 201, 204, 300, 422
_SPARE_SECONDS: Final = 5.0
_BULK_SECONDS: Final = 60.0
"""Time that a service may take for a part of a purge or a move, by its limits usually ten seconds."""

_T = TypeVar("_T")


class RemoteQueues:
    """Queues of a service. All methods raise MQError with IBM's reason codes, `ServiceUnreachableError` and
    `AuthError`.

    Created by `RemoteRegistry.queues`.

    Args:
        http: the connections to the service.
        manager: the name of the service's queue manager.
        timeout_seconds: the longest that a response may take, in addition to the requested wait.
        warn: called with a sentence if a response omits properties of a message; by default a UserWarning.
    """

    def __init__(
        self,
        http: HttpClient,
        manager: str,
        timeout_seconds: float,
        warn: Callable[[str], object] = warnings.warn,
    ) -> None:
        self._http = http
        self._manager = manager
        self._timeout_seconds = timeout_seconds
        self._warn = warn

    def names(self) -> list[str]:
        """Return the names of all queues, in order."""
        answer = _checked(self._http, self._http.ask("GET", _PATH))
        return [queue.name for queue in _data(self._http, answer, Items[QueueName]).items]

    def create(self, name: str, settings: QueueSettings | None = None) -> bool:
        """Create a queue; return whether it is new. An existing queue with these settings stays unchanged."""
        body = asdict(settings or QueueSettings())
        answer = _checked(self._http, self._http.ask("PUT", _path_of(name), body=body))
        return answer.status == _CREATED

    def describe(self, name: str) -> QueueDescription:
        """Return the name, settings and current depth of a queue."""
        answer = _checked(self._http, self._http.ask("GET", _path_of(name)))
        return _data(self._http, answer, QueueDescription)

    def delete(self, name: str, *, purge: bool = False) -> None:
        """Delete an empty queue; with `purge`, also one with messages."""
        params = {"purge": str(purge).lower()}
        _checked(self._http, self._http.ask("DELETE", _path_of(name), params=params))

    def open(self, name: str) -> RemoteQueue:
        """Return the queue of a name. Sends no request: a missing queue is noticed by the first call."""
        return RemoteQueue(self, name)


class RemoteQueue:
    """Queue of a service: put messages, get each once, by ids or by a selector.

    Thread-safe. Opened by `RemoteQueues.open`; methods raise the same errors.
    """

    def __init__(self, queues: RemoteQueues, name: str) -> None:
        self.name = name
        self._queues = queues
        self._http = queues._http
        manager, queue = quote(queues._manager, safe=""), quote(name, safe="")
        self._messages = f"/ibmmq/rest/v3/messaging/qmgr/{manager}/queue/{queue}/message"

    def __repr__(self) -> str:
        return f"RemoteQueue({self.name!r}, {self._http.url!r})"

    @property
    def settings(self) -> QueueSettings:
        """Settings with which the queue was created."""
        return self._queues.describe(self.name).settings

    @property
    def depth(self) -> int:
        """Count of messages available to `get` now."""
        return self._queues.describe(self.name).depth

    def put(self, body: bytes = b"", **fields: Any) -> Descriptor:
        """Put a message and return its descriptor; `fields` are those of `Queue.put`, without syncpoint."""
        headers = {**put_headers(fields), "Content-Type": "application/octet-stream"}
        answer = self._http.once("POST", self._messages, content=body, headers=headers)
        _checked(self._http, answer)
        return _read(self._http, lambda: descriptor_of_headers(answer.headers))

    def get(self, *, wait: float | None = None, **options: Unpack[MatchOptions]) -> QueuedMessage:
        """Get the first message that matches all options; wait for one at most `wait` seconds.

        Raises MQError 2033 if there is none. A message whose response is lost is lost: the error says that
        the request may have taken effect.
        """
        return self._first("DELETE", LookupParams.of(options), wait)

    def browse(self, *, wait: float | None = None, **options: Unpack[MatchOptions]) -> QueuedMessage:
        """Return the message that `get` would return, and leave it on the queue."""
        return self._first("GET", LookupParams.of(options), wait)

    def listed(
        self, most: int, *, after: bytes | None = None, **options: Unpack[MatchOptions]
    ) -> list[QueuedMessage]:
        """Return the first messages without their bodies, at most one page of the service; with the token
        `after`, those behind the message that has or had it.
        """
        lookup = LookupParams.of(options)
        params = {**_params(lookup), "limit": str(most)} | ({} if after is None else {"after": after.hex()})
        answer = self._http.ask("GET", f"{self._messages}list", params=params)
        self._checked(answer, lookup)
        return _read(
            self._http, lambda: [message_of_item(item) for item in json.loads(answer.body)["messages"]]
        )

    def count(self, **options: Unpack[MatchOptions]) -> MessageCount:
        """Return the number of messages that match all options; see `MessageCount`."""
        lookup = LookupParams.of(options)
        answer = self._http.ask("GET", f"{_path_of(self.name)}:count", params=_params(lookup))
        self._checked(answer, lookup)
        return _data(self._http, answer, MessageCount)

    def purge(self, *, expected: int | None = None, **options: Unpack[MatchOptions]) -> BulkResult:
        """Remove all messages that match all options; see `SqlQueue.purge`.

        Raises CountChangedError, before anything is removed, if another number than `expected` matches.
        """
        return self._bulk("purge", {"expected": expected}, LookupParams.of(options))

    def move(self, to: str, *, expected: int | None = None, **options: Unpack[MatchOptions]) -> BulkResult:
        """Move all messages that match all options to the end of another queue; see `SqlQueue.move`."""
        return self._bulk("move", {"to": to, "expected": expected}, LookupParams.of(options))

    def _bulk(self, action: str, request: dict[str, Any], lookup: LookupParams) -> BulkResult:
        """Purge or move messages, in as many requests as the service needs time for."""
        body = {**request, **lookup.body()}
        path, timeout = f"{_path_of(self.name)}:{action}", self._queues._timeout_seconds + _BULK_SECONDS
        done: BulkResult | None = None
        while done is None or not done.is_complete:
            content = json.dumps({name: value for name, value in body.items() if value is not None})
            headers = {"Content-Type": "application/json"}
            answer = self._http.once(
                "POST", path, content=content.encode(), headers=headers, timeout_seconds=timeout
            )
            self._checked(answer, lookup)
            part = _data(self._http, answer, BulkResult)
            done = part if done is None else done.with_more(part)
            body |= {"expected": None, "position": part.position}
        return done

    def _first(self, method: str, lookup: LookupParams, wait: float | None) -> QueuedMessage:
        until = time.monotonic() + (wait or 0.0)
        while True:
            left = min(max(until - time.monotonic(), 0.0), MAX_WAIT_SECONDS)
            message = self._ask_once(method, lookup, left)
            if message is not None:
                return message
            if time.monotonic() >= until:
                raise failed(MQRC_NO_MSG_AVAILABLE)

    def _ask_once(self, method: str, lookup: LookupParams, wait: float) -> QueuedMessage | None:
        params = _params(lookup) | ({"wait": str(math.ceil(1000 * wait))} if wait else {})
        timeout = self._queues._timeout_seconds + wait + _SPARE_SECONDS
        answer = self._http.once(method, self._messages, params=params, timeout_seconds=timeout)
        self._checked(answer, lookup)
        if answer.status == _NONE:
            return None
        if omitted := answer.headers.get(OMITTED):
            sentence = f"properties of the message that did not fit into the response are left out: {omitted}"
            self._queues._warn(printable(sentence, 200))
        return _read(self._http, lambda: message_of(answer.headers, answer.body))

    def _checked(self, answer: Response, lookup: LookupParams) -> None:
        """Raise the error of a response that is not successful, if it is one.

        The error of a selector shows it in the dialect in which the service parsed it.
        """
        if lookup.selector is None or answer.status != _INVALID:
            _checked(self._http, answer)
            return
        spec = SubscriptionSpec(lookup.selector, dialect=lookup.dialect or self.settings.dialect)
        try:
            _checked(self._http, answer, spec)
        except InvalidSelectorError as error:
            raise failed(error.reason, str(error)) from error


def _checked(http: HttpClient, answer: Response, spec: SubscriptionSpec | None = None) -> Response:
    """Return a successful response. Raises the error that any other response stands for."""
    if answer.status < _REFUSED:
        return answer
    error = refusal(answer, http.url, spec=spec)
    reason = _reason(answer)
    if reason is not None and isinstance(error, RegistryError):
        raise failed(reason, str(error))
    raise error


def _read(http: HttpClient, read: Callable[[], _T]) -> _T:
    """Return the content of a response. Raises RegistryError for a response that is not a queue's."""
    try:
        return read()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SelectRouteError) as error:
        raise RegistryError(f"the response of {http.url} is not a queue's: check the URL") from error


def _data(http: HttpClient, answer: Response, kind: type[_T]) -> _T:
    return _read(http, lambda: answer.data(kind))


def _params(lookup: LookupParams) -> dict[str, str]:
    """Return the parameters of a request."""
    return {name: str(value) for name, value in lookup.body().items()}


def _path_of(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"


def _reason(answer: Response) -> int | None:
    """Return the IBM MQ reason code of a problem document, if it has one."""
    reason = (document_of(answer) or {}).get("mqrc")
    # An authorization error keeps the service's own text.
    return reason if isinstance(reason, int) and reason in REASONS and reason != MQRC_NOT_AUTHORIZED else None
