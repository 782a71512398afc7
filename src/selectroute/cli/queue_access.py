"""Queues of a command: in a database, or of a service."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from selectroute.cli.connect import is_service, queue_settings
from selectroute.client.queues import QueueDescription, RemoteQueues
from selectroute.client.registry import RemoteRegistry
from selectroute.queues.bulk import BulkResult, MessageCount
from selectroute.queues.errors import MQRC_OBJECT_ALREADY_EXISTS, MQError
from selectroute.queues.message.message import Descriptor, QueuedMessage
from selectroute.queues.rest.lookup import LookupParams
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.queues import SqlQueues

_Opened = TypeVar("_Opened", SqlQueues, RemoteQueues)


class Queues(ABC, Generic[_Opened]):
    """Queues, as used by the commands. All methods raise MQError with IBM's reason codes, and the errors of
    the database or the network.
    """

    def __init__(self, queues: _Opened) -> None:
        self._queues: _Opened = queues

    def names(self) -> list[str]:
        """Return the names of all queues, in order."""
        return self._queues.names()

    @abstractmethod
    def create(self, name: str, settings: QueueSettings) -> bool:
        """Create a queue; return whether it is new. An existing one with these settings stays unchanged."""

    @abstractmethod
    def describe(self, name: str) -> QueueDescription:
        """Return the name, settings and current depth of a queue."""

    def delete(self, name: str, purge: bool) -> None:
        """Delete a queue."""
        self._queues.delete(name, purge=purge)

    def put(self, name: str, body: bytes, fields: Mapping[str, Any]) -> Descriptor:
        """Put a message; for `fields` see `Queue.put`."""
        return self._queues.open(name).put(body, **fields)

    @abstractmethod
    def get(
        self, name: str, lookup: LookupParams, wait: float | None, deliver: Callable[[QueuedMessage], None]
    ) -> None:
        """Get a message and deliver it."""

    def browse(self, name: str, lookup: LookupParams, wait: float | None) -> QueuedMessage:
        """Return the message that a get would return."""
        queue = self._queues.open(name)
        return queue.browse(wait=wait, **self._wanted(queue, lookup))

    def listed(
        self, name: str, lookup: LookupParams, most: int, after: bytes | None = None
    ) -> list[QueuedMessage]:
        """Return the first messages, behind that with a token, without their bodies; a service returns one
        page at most.
        """
        queue = self._queues.open(name)
        return queue.listed(most, after=after, **self._wanted(queue, lookup))

    def count(self, name: str, lookup: LookupParams) -> MessageCount:
        """Return how many messages match."""
        queue = self._queues.open(name)
        return queue.count(**self._wanted(queue, lookup))

    def purge(self, name: str, lookup: LookupParams, expected: int | None) -> BulkResult:
        """Remove all messages that match."""
        queue = self._queues.open(name)
        return queue.purge(expected=expected, **self._wanted(queue, lookup))

    def move(self, name: str, to: str, lookup: LookupParams, expected: int | None) -> BulkResult:
        """Move all messages that match to another queue."""
        queue = self._queues.open(name)
        return queue.move(to, expected=expected, **self._wanted(queue, lookup))

    @abstractmethod
    def _wanted(self, queue: Any, lookup: LookupParams) -> dict[str, Any]:
        """Return the lookup as arguments of a queue's methods."""


class DatabaseQueues(Queues[SqlQueues]):
    """Queues in a database."""

    def create(self, name: str, settings: QueueSettings) -> bool:
        """See `Queues.create`."""
        try:
            self._queues.create(name, settings)
        except MQError as error:
            if error.reason != MQRC_OBJECT_ALREADY_EXISTS or self._queues.settings(name) != settings:
                raise
            return False
        return True

    def describe(self, name: str) -> QueueDescription:
        """See `Queues.describe`."""
        queue = self._queues.open(name)
        return QueueDescription(name, queue.settings, queue.depth, queue.oldest)

    def get(
        self, name: str, lookup: LookupParams, wait: float | None, deliver: Callable[[QueuedMessage], None]
    ) -> None:
        """See `Queues.get`. A message that cannot be delivered stays on the queue."""
        queue = self._queues.open(name)
        with queue.unit() as unit:
            deliver(queue.get(**self._wanted(queue, lookup), wait=wait, syncpoint=unit))

    def _wanted(self, queue: Any, lookup: LookupParams) -> dict[str, Any]:
        return lookup.fields(queue.settings)


class ServiceQueues(Queues[RemoteQueues]):
    """Queues of a service."""

    def create(self, name: str, settings: QueueSettings) -> bool:
        """See `Queues.create`."""
        return self._queues.create(name, settings)

    def describe(self, name: str) -> QueueDescription:
        """See `Queues.describe`."""
        return self._queues.describe(name)

    def get(
        self, name: str, lookup: LookupParams, wait: float | None, deliver: Callable[[QueuedMessage], None]
    ) -> None:
        """See `Queues.get`. A message sent by the service is removed from the queue, delivered or not."""
        queue = self._queues.open(name)
        deliver(queue.get(wait=wait, **self._wanted(queue, lookup)))

    def _wanted(self, queue: Any, lookup: LookupParams) -> dict[str, Any]:
        return lookup._asdict()


@contextmanager
def opened_queues(queues: str | None, manager: str | None = None) -> Iterator[Queues[Any]]:
    """Open the queues of a command, in a database or of a service."""
    url, found = queue_settings(queues, manager)
    if not is_service(url):
        with SqlQueues(url) as opened:
            yield DatabaseQueues(opened)
        return
    token = None if found.token is None else found.token.get_secret_value()
    with RemoteRegistry(url, token, timeout_seconds=found.timeout) as service:
        yield ServiceQueues(service.queues(found.queue_manager, warn=_warn))


def _warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)
