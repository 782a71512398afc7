"""A world whose subscriptions are delivered to queues."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import selectroute as sr
from selectroute.index.compile.build import built
from selectroute.queues.errors import MQRC_NO_MSG_AVAILABLE, MQError
from selectroute.queues.message.message import QueuedMessage
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.deliveries import QueueDeliveries
from selectroute.queues.sql.queue import SqlQueue
from selectroute.spark.batch.router import Router
from selectroute.spark.destinations.queues.queues import JobQueues
from tests.support.subscription_lines import read_subscriptions
from tests.support.world import World

A, B = {"kind": "queue", "name": "A"}, {"kind": "queue", "name": "B"}
CHUNK = "selectroute.queues.sql.deliveries._CHUNK"
PUTS = [(QueueDeliveries, name) for name in ("put", "take_over", "finish")]
"""The transactions by which tasks put."""


@dataclass
class Queues:
    """A world whose subscriptions may be delivered to queues of one database."""

    world: World
    url: str
    warnings: list[str] = field(default_factory=list)

    def create(self, *names: str, **settings: Any) -> None:
        for name in names:
            SqlQueue.create(self.url, name, QueueSettings(**settings)).close()

    def publish(self, revision: int, **subscriptions: tuple[str, dict[str, str] | None]) -> None:
        lines = [
            json.dumps({"id": id, "selector": selector, "destination": destination})
            for id, (selector, destination) in subscriptions.items()
        ]
        sr.publish(built(read_subscriptions(lines).table, revision), self.world.snapshots)

    def sender(self, pause: Callable[[], bool] = lambda: True, wait: float = float("inf")) -> JobQueues:
        return JobQueues(self.url, self.warnings.append, pause, wait)

    def router(
        self,
        pause: Callable[[], bool] = lambda: True,
        tasks: int = 2,
        wait: float = float("inf"),
        **options: Any,
    ) -> Router:
        """A router as a start of the job makes it; ``wait`` seconds for what is full."""
        job = self.world.started(self.world.job(**options))
        queues, warn = self.sender(pause, wait), self.warnings.append
        source = self.world.source(job, tasks)
        router = self.world.note(Router(job, source, queues, warn=warn, pause=pause))
        router.commits.prepare()
        return router

    def get_all(self, name: str) -> list[QueuedMessage]:
        with SqlQueue(self.url, name) as queue:
            found = []
            try:
                while True:
                    found.append(queue.get())
            except MQError as error:
                assert error.reason == MQRC_NO_MSG_AVAILABLE
            return found

    def ids(self, name: str) -> Counter[str]:
        """The ids of all deliveries on a queue, which is empty then."""
        return Counter(one.properties["selectroute_delivery_id"] for one in self.get_all(name))


def numbered(count, **more):
    return [{"properties": {"n": number}, "body": f"body {number}", **more} for number in range(count)]


def delivery_ids(source, subscription, rows):
    return Counter(f"{source}/0/{row}/{subscription}" for row in rows)
