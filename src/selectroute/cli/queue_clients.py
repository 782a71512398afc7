"""Where queues are: in a database, or behind a service."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

from selectroute.cli.connect import is_service, queues_told
from selectroute.queues.errors import (
    MQRC_NO_MSG_AVAILABLE,
    MQRC_NOT_AUTHORIZED,
    MQRC_OBJECT_ALREADY_EXISTS,
    REASONS,
    MQError,
    failed,
)
from selectroute.queues.message import Descriptor, Message
from selectroute.queues.rest_headers import OMITTED, descriptor_of, message_of, put_headers
from selectroute.queues.rest_items import message_of_item
from selectroute.queues.rest_lookup import Lookup
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql_queues import SqlQueues
from selectroute.registry.errors import RegistryError
from selectroute.registry.exchange import Answer, Exchange
from selectroute.registry.model import SubscriptionSpec
from selectroute.registry.problems import refusal
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.sentences import printable

MAX_WAIT_SECONDS: Final = 30.0
"""How long a service lets one request wait for a message; for longer it is asked again."""

_PATH: Final = "/v1/queues"
_CREATED, _NONE, _REFUSED, _INVALID = 201, 204, 300, 422
_SPARE_SECONDS: Final = 5.0
_T = TypeVar("_T")


class Described(NamedTuple):
    """A queue, and how many messages could be got of it now."""

    name: str
    settings: QueueSettings
    depth: int

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"name": self.name, **asdict(self.settings), "depth": self.depth}


class Queues(Protocol):
    """What the commands ask of queues. All raise MQError with IBM's reasons, besides what the database or the
    network says.
    """

    def names(self) -> list[str]:
        """The names of all queues, in order."""

    def create(self, name: str, settings: QueueSettings) -> bool:
        """Make a queue; return whether it is new. One that is there with these settings stays as it is."""

    def describe(self, name: str) -> Described:
        """A queue as it is."""

    def delete(self, name: str, purge: bool) -> None:
        """Delete a queue."""

    def put(self, name: str, body: bytes, fields: Mapping[str, Any]) -> Descriptor:
        """Put a message; `fields` as `Queue.put` takes them."""

    def get(self, name: str, lookup: Lookup, wait: float | None, deliver: Callable[[Message], None]) -> None:
        """Get a message and deliver it."""

    def browse(self, name: str, lookup: Lookup, wait: float | None) -> Message:
        """The message that a get would give."""

    def listed(self, name: str, lookup: Lookup, most: int) -> list[Message]:
        """The first messages without their bodies."""


class DatabaseQueues:
    """Queues in a database."""

    def __init__(self, queues: SqlQueues) -> None:
        self._queues = queues

    def names(self) -> list[str]:
        """See `Queues.names`."""
        return self._queues.names()

    def create(self, name: str, settings: QueueSettings) -> bool:
        """See `Queues.create`."""
        try:
            self._queues.create(name, settings)
        except MQError as error:
            if error.reason != MQRC_OBJECT_ALREADY_EXISTS or self._queues.settings(name) != settings:
                raise
            return False
        return True

    def describe(self, name: str) -> Described:
        """See `Queues.describe`."""
        queue = self._queues.open(name)
        return Described(name, queue.settings, queue.depth)

    def delete(self, name: str, purge: bool) -> None:
        """See `Queues.delete`."""
        self._queues.delete(name, purge=purge)

    def put(self, name: str, body: bytes, fields: Mapping[str, Any]) -> Descriptor:
        """See `Queues.put`."""
        return self._queues.open(name).put(body, **fields)

    def get(self, name: str, lookup: Lookup, wait: float | None, deliver: Callable[[Message], None]) -> None:
        """See `Queues.get`. A message that cannot be delivered stays on the queue."""
        queue = self._queues.open(name)
        with queue.unit() as unit:
            deliver(queue.get(**lookup.fields(queue.settings), wait=wait, syncpoint=unit))

    def browse(self, name: str, lookup: Lookup, wait: float | None) -> Message:
        """See `Queues.browse`."""
        queue = self._queues.open(name)
        return queue.browse(**lookup.fields(queue.settings), wait=wait)

    def listed(self, name: str, lookup: Lookup, most: int) -> list[Message]:
        """See `Queues.listed`."""
        queue = self._queues.open(name)
        return queue.listed(most, **lookup.fields(queue.settings))


class ServiceQueues:
    """Queues behind a service. What puts or gets is sent once: done twice it would be two messages."""

    def __init__(self, exchange: Exchange, manager: str, timeout_seconds: float) -> None:
        self._exchange = exchange
        self._manager = manager
        self._timeout_seconds = timeout_seconds

    def names(self) -> list[str]:
        """See `Queues.names`."""
        answer = self._checked(self._exchange.ask("GET", _PATH))
        return self._read(lambda: [str(one["name"]) for one in json.loads(answer.body)["items"]])

    def create(self, name: str, settings: QueueSettings) -> bool:
        """See `Queues.create`."""
        answer = self._exchange.ask("PUT", _path_of(name), body=asdict(settings))
        self._checked(answer)
        return answer.status == _CREATED

    def describe(self, name: str) -> Described:
        """See `Queues.describe`."""
        answer = self._checked(self._exchange.ask("GET", _path_of(name)))

        def read() -> Described:
            data = json.loads(answer.body)
            found = {field: data[field] for field in asdict(QueueSettings())}
            return Described(str(data["name"]), QueueSettings(**found), int(data["depth"]))

        return self._read(read)

    def delete(self, name: str, purge: bool) -> None:
        """See `Queues.delete`."""
        self._checked(self._exchange.ask("DELETE", _path_of(name), params={"purge": str(purge).lower()}))

    def put(self, name: str, body: bytes, fields: Mapping[str, Any]) -> Descriptor:
        """See `Queues.put`."""
        headers = {**dict(put_headers(fields)), "Content-Type": "application/octet-stream"}
        answer = self._exchange.once("POST", self._messages(name), content=body, headers=headers)
        self._checked(answer)
        return self._read(lambda: descriptor_of(answer.headers))

    def get(self, name: str, lookup: Lookup, wait: float | None, deliver: Callable[[Message], None]) -> None:
        """See `Queues.get`. What the service has sent is on the queue no more."""
        deliver(self._found("DELETE", name, lookup, wait))

    def browse(self, name: str, lookup: Lookup, wait: float | None) -> Message:
        """See `Queues.browse`."""
        return self._found("GET", name, lookup, wait)

    def listed(self, name: str, lookup: Lookup, most: int) -> list[Message]:
        """See `Queues.listed`; a service gives no more than a page."""
        path = f"{self._messages(name)}list"
        params = {**_params(lookup), "limit": str(most)}
        answer = self._exchange.ask("GET", path, params=params)
        self._checked(answer, name, lookup)
        return self._read(lambda: [message_of_item(one) for one in json.loads(answer.body)["messages"]])

    def _found(self, method: str, name: str, lookup: Lookup, wait: float | None) -> Message:
        until = time.monotonic() + (wait or 0.0)
        while True:
            left = min(max(until - time.monotonic(), 0.0), MAX_WAIT_SECONDS)
            message = self._asked(method, name, lookup, left)
            if message is not None:
                return message
            if time.monotonic() >= until:
                raise failed(MQRC_NO_MSG_AVAILABLE)

    def _asked(self, method: str, name: str, lookup: Lookup, wait: float) -> Message | None:
        params = _params(lookup) | ({"wait": str(math.ceil(1000 * wait))} if wait else {})
        timeout = self._timeout_seconds + wait + _SPARE_SECONDS
        answer = self._exchange.once(method, self._messages(name), params=params, timeout_seconds=timeout)
        self._checked(answer, name, lookup)
        if answer.status == _NONE:
            return None
        if omitted := answer.headers.get(OMITTED):
            sentence = f"properties of the message left out, which did not fit into the answer: {omitted}"
            print(f"warning: {printable(sentence, 200)}", file=sys.stderr)
        return self._read(lambda: message_of(answer.headers, answer.body))

    def _messages(self, name: str) -> str:
        manager, queue = quote(self._manager, safe=""), quote(name, safe="")
        return f"/ibmmq/rest/v3/messaging/qmgr/{manager}/queue/{queue}/message"

    def _checked(self, answer: Answer, name: str = "", lookup: Lookup | None = None) -> Answer:
        """The answer, if it is a success. Raises the error that it stands for."""
        if answer.status < _REFUSED:
            return answer
        spec = None
        if lookup is not None and lookup.selector is not None and answer.status == _INVALID:
            # To show the selector, the dialect is needed in which the service read it.
            dialect = lookup.dialect or self.describe(name).settings.dialect
            spec = SubscriptionSpec(lookup.selector, dialect=dialect)
        error = refusal(answer, self._exchange.url, spec=spec)
        reason = _reason(answer)
        if reason is not None and type(error).__module__ == RegistryError.__module__:
            raise failed(reason, str(error))
        raise error

    def _read(self, read: Callable[[], _T]) -> _T:
        """What an answer says. Raises RegistryError for one that no service of this kind gives."""
        try:
            return read()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SelectRouteError) as error:
            raise RegistryError(f"{self._exchange.url} answers what no queue says: {error}") from error


def _params(lookup: Lookup) -> dict[str, str]:
    """The parameters of a request. Raises RestError for an id that is none, before anybody is asked."""
    lookup._replace(selector=None).fields(QueueSettings())
    return lookup.params()


def _path_of(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"


def _reason(answer: Answer) -> int | None:
    """The reason that a problem document has, if it is one of a queue."""
    try:
        reason = json.loads(answer.body)["mqrc"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    # What the service says of a token is said as it is.
    return reason if isinstance(reason, int) and reason in REASONS and reason != MQRC_NOT_AUTHORIZED else None


@contextmanager
def opened_queues(queues: str | None, manager: str | None = None) -> Iterator[Queues]:
    """The queues that a command was told, wherever they are."""
    url, told = queues_told(queues, manager)
    if not is_service(url):
        with SqlQueues(url) as opened:
            yield DatabaseQueues(opened)
        return
    token = None if told.token is None else told.token.get_secret_value()
    exchange = Exchange(url, token, told.timeout)
    try:
        yield ServiceQueues(exchange, told.queue_manager, told.timeout)
    finally:
        exchange.close()
