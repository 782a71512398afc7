"""Queues of a command: in a database, or of a service."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from selectroute.cli.connect import is_service, queue_settings
from selectroute.client.queues import QueueDescription, RemoteQueue, RemoteQueues
from selectroute.client.registry import RemoteRegistry
from selectroute.queues.errors import MQRC_OBJECT_ALREADY_EXISTS, MQError
from selectroute.queues.message.message import Descriptor, QueuedMessage
from selectroute.queues.rest.lookup import LookupParams
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.queue import SqlQueue
from selectroute.queues.sql.queues import SqlQueues


class Queues:
    """Queues, as used by the commands. All methods raise MQError with IBM's reason codes, and the errors of
    the database or the network.
    """

    def __init__(self, queues: SqlQueues | RemoteQueues) -> None:
        self._queues = queues
        self.names = queues.names
        self.delete = queues.delete

    def create(self, name: str, settings: QueueSettings) -> bool:
        """Create a queue; return whether it is new. An existing one with these settings stays unchanged."""
        if isinstance(self._queues, RemoteQueues):
            return self._queues.create(name, settings)
        try:
            self._queues.create(name, settings)
        except MQError as error:
            if error.reason != MQRC_OBJECT_ALREADY_EXISTS or self._queues.settings(name) != settings:
                raise
            return False
        return True

    def describe(self, name: str) -> QueueDescription:
        """Return the name, settings and current depth of a queue."""
        if isinstance(self._queues, RemoteQueues):
            return self._queues.describe(name)
        queue = self._queues.open(name)
        return QueueDescription(name, queue.settings, queue.depth, queue.oldest)

    def put(self, name: str, body: bytes, fields: Mapping[str, Any]) -> Descriptor:
        """Put a message; for `fields` see `Queue.put`."""
        return self._queues.open(name).put(body, **fields)

    def get(
        self, name: str, lookup: LookupParams, wait: float | None, deliver: Callable[[QueuedMessage], None]
    ) -> None:
        """Get a message and deliver it. In a database, one that cannot be delivered stays on the queue; one
        that a service sent is removed from it.
        """
        queue, wanted = self.wanted(name, lookup)
        if isinstance(queue, RemoteQueue):
            deliver(queue.get(wait=wait, **wanted))
        else:
            with queue.unit() as unit:
                deliver(queue.get(wait=wait, syncpoint=unit, **wanted))

    def wanted(self, name: str, lookup: LookupParams) -> tuple[SqlQueue | RemoteQueue, dict[str, Any]]:
        """Return a queue, and a lookup as arguments of its methods."""
        queue = self._queues.open(name)
        remote = isinstance(queue, RemoteQueue)
        return queue, lookup._asdict() if remote else lookup.fields(queue.settings)


@contextmanager
def opened_queues(queues: str | None, manager: str | None = None) -> Iterator[Queues]:
    """Open the queues of a command, in a database or of a service."""
    url, found = queue_settings(queues, manager)
    if not is_service(url):
        with SqlQueues(url) as opened:
            yield Queues(opened)
        return
    token = None if found.token is None else found.token.get_secret_value()
    with RemoteRegistry(url, token, timeout_seconds=found.timeout) as service:
        yield Queues(service.queues(found.queue_manager, warn=_warn))


def _warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)
