"""Durable subscriptions: rows of the registry, each with a queue of its own.

The id of a row and the name of its queue come from the client and the name of the subscription, which are its
labels. What the registry has is matched by its published snapshot, which a thread of this process publishes,
or follows if another process does: so subscriptions that were made by other means and have a queue get their
messages, too, some 50 ms after they were made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from selectroute.index.destination import QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.index.specification import Destination, SubscriptionSpec
from selectroute.queues.errors import MQRC_Q_NOT_EMPTY, MQRC_UNKNOWN_OBJECT_NAME, MQError
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.queue import SqlQueues
from selectroute.registry.authorization import Permission
from selectroute.registry.errors import NotFoundError, RegistryError
from selectroute.registry.model import Subscription
from selectroute.registry.registry import Registry
from selectroute.selector.message import Message
from selectroute.service.subscriptions.publishing import Publishing

PUBLISHED_SECONDS: Final = 60.0
"""Longest time that a new subscription waits until this process knows it: the first snapshot of a million
subscriptions takes some."""

QUEUE_SETTINGS: Final = QueueSettings(dialect="jms")
"""Settings of a queue that a client's use creates."""

_LOOK_SECONDS: Final = 0.2
_CLIENT: Final = "jms-client"
_NAME: Final = "jms-subscription"
_NO_LOCAL: Final = "jms-no-local"
_MOST_LABEL: Final = 255
_MOST_KNOWN: Final = 100_000
_DELETE_ATTEMPTS: Final = 50


@dataclass(frozen=True, slots=True)
class DurableTerms:
    """Terms of a durable subscription: its client ("" for a global one), its name and its messages."""

    client: str
    name: str
    topic: str
    selector: str
    dialect: str
    no_local: bool

    @property
    def key(self) -> str:
        """Key of the subscription, whatever its messages."""
        return durable_key(self.client, self.name)


def durable_key(client: str, name: str) -> str:
    """Return the key of a client's subscription: the end of its id and of its queue's name."""
    return sha256(f"{len(client)}:{client}{name}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _terms_in(spec: SubscriptionSpec) -> tuple[object, ...]:
    return spec.selector, spec.topic, spec.dialect, spec.destination, dict(spec.labels)


def queue_of_durable(key: str) -> str:
    """Return the name of the queue of a durable subscription."""
    return f"jms.{key}"


class DurableMatch(NamedTuple):
    """Queue that gets a message, and the client whose own messages it does not get."""

    queue: str
    not_from: str | None


class DurableSubscriptions:
    """Durable subscriptions of a registry. Methods but `match` block, and are safe for threads.

    Args:
        registry: the registry.
        queues: the queues, in its database or another one.
        publishing: publishes the registry's revisions, or follows them; it was started.
    """

    def __init__(self, registry: Registry, queues: SqlQueues, publishing: Publishing) -> None:
        self._registry = registry
        self._queues = queues
        self._publishing = publishing
        self._not_from: dict[str, str] = {}
        self._snapshot: Snapshot | None = None
        self._known: dict[int, DurableMatch | None] = {}

    def load(self) -> None:
        """Wait for the first snapshot, and read what it does not have."""
        self._follow(self._registry.revision)
        cursor = None
        while True:
            page = self._registry.list(limit=1_000, label=f"{_NO_LOCAL}=true", cursor=cursor)
            for subscription in page.items:
                self._not_from[subscription.id] = subscription.labels.get(_CLIENT, "")
            cursor = page.next_cursor
            if cursor is None:
                return

    def attach(self, terms: DurableTerms, by: Permission) -> str:
        """Make a subscription, or change it to these terms; return the name of its queue.

        A subscription with other terms loses its messages, as in JMS. Returns when messages are matched with
        it.
        """
        id, queue = f"jms-{terms.key}", queue_of_durable(terms.key)
        spec = SubscriptionSpec(
            terms.selector,
            terms.topic,
            terms.dialect,
            destination=Destination(QUEUE, queue),
            labels={
                _CLIENT: terms.client[:_MOST_LABEL],
                _NAME: terms.name[:_MOST_LABEL],
                **({_NO_LOCAL: "true"} if terms.no_local else {}),
            },
        )
        may = Permission(token=by.token, actor=by.actor, quota=by.quota)
        known = self._get(id)
        if known is not None and _terms_in(known.spec) == _terms_in(spec):
            self._make_queue(queue)
            return queue
        if known is None:
            self._make_queue(queue)
            made = self._registry.register(spec, id=id, by=may)
        else:
            made = self._registry.replace(id, spec, by=may)
            self._queues.open(queue).purge()
        if terms.no_local:
            self._not_from[id] = terms.client
        else:
            self._not_from.pop(id, None)
        self._follow(made.revision)
        return queue

    def terms_of(self, client: str, name: str) -> DurableTerms | None:
        """Return a subscription's terms; None if there is none."""
        known = self._get(f"jms-{durable_key(client, name)}")
        if known is None:
            return None
        return DurableTerms(
            client, name, known.topic or "", known.selector, known.dialect, _NO_LOCAL in known.labels
        )

    def remove(self, key: str, by: Permission) -> None:
        """Remove a subscription and its queue, with its messages."""
        with suppress(NotFoundError):
            self._registry.remove(f"jms-{key}", by=Permission(token=by.token, actor=by.actor))
        self._not_from.pop(f"jms-{key}", None)
        for left in reversed(range(_DELETE_ATTEMPTS)):
            try:
                self._queues.delete(queue_of_durable(key), purge=True)
            except MQError as error:
                if error.reason == MQRC_UNKNOWN_OBJECT_NAME:
                    return
                if error.reason != MQRC_Q_NOT_EMPTY or not left:
                    raise
                time.sleep(0.02)  # what its consumers had is being put back
            else:
                return

    def match(self, message: Message) -> Iterator[DurableMatch]:
        """Yield the queues of the registry's subscriptions that get a message. Does not block."""
        snapshot = self._publishing.snapshot
        if snapshot is None or not len(snapshot):
            return
        if snapshot is not self._snapshot or len(self._known) > _MOST_KNOWN:
            self._snapshot = snapshot
            self._known.clear()
        for ordinal in snapshot.match_one(message).ordinals.tolist():
            target = self._known[ordinal] if ordinal in self._known else self._look_up(snapshot, ordinal)
            if target is not None:
                yield target

    def _look_up(self, snapshot: Snapshot, ordinal: int) -> DurableMatch | None:
        """Return the queue of the subscription at an ordinal; None if it has another destination."""
        rows = snapshot.subscriptions
        destination = rows["destination"][ordinal].as_py() or ""
        target = None
        if destination.startswith(f"{QUEUE}:"):
            id = rows["id"][ordinal].as_py()
            target = DurableMatch(destination.removeprefix(f"{QUEUE}:"), self._not_from.get(id))
        self._known[ordinal] = target
        return target

    def _get(self, id: str) -> Subscription | None:
        try:
            return self._registry.get(id)
        except NotFoundError:
            return None

    def _make_queue(self, name: str) -> None:
        self._queues.create(name, QUEUE_SETTINGS)

    def _follow(self, revision: int) -> None:
        """Wait until messages are matched with a revision. Raises RegistryError if it is not published."""
        deadline = time.monotonic() + PUBLISHED_SECONDS
        while True:
            snapshot = self._publishing.caught_up(revision, _LOOK_SECONDS)
            if snapshot is not None and (snapshot.revision or 0) >= revision:
                return
            failure = self._publishing.state().failure
            if failure is not None:
                raise RegistryError(failure)
            if time.monotonic() > deadline:
                raise RegistryError(f"revision {revision} is not published after {PUBLISHED_SECONDS:g} s")
