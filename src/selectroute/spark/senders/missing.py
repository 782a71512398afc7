"""Destinations to which nothing can be delivered: one warning for each, and the job goes on.

Each delivery to them is a dead letter (see ``staging``); other deliveries are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from selectroute.index.destination import FILES, KAFKA, QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.spark.destinations.codes import Destinations, destinations
from selectroute.spark.destinations.kafka_records import INPUT_TOPIC, UNKNOWN_TOPIC, Topic
from selectroute.spark.destinations.queue_messages import UNKNOWN_QUEUE

_MOST: Final = 5
"""Maximum number of warnings at once; the other destinations are counted in one more."""


class Missing(NamedTuple):
    """Destination to which nothing can be delivered: its name as ``queue:NAME``, the problem, the remedy, and
    the reason of its dead letters, None if there are none.
    """

    destination: str
    problem: str
    remedy: str
    reason: str | None


class MissingDestinations:
    """Warnings of missing destinations of each snapshot: one for each, until the destination exists.

    Args:
        output: the output folder, for the command that replays.
        warn: called with a sentence.
    """

    def __init__(self, output: Path, warn: Callable[[str], None]) -> None:
        self._output = output
        self._warn = warn
        self._known: set[Missing] = set()

    def look(
        self, snapshot: Snapshot, queues: Mapping[str, int] | None, topics: Mapping[str, Topic] | None
    ) -> None:
        """Warn of newly missing destinations. O(destinations), for a new one O(subscriptions).

        Args:
            snapshot: the snapshot whose subscriptions are delivered.
            queues: the existing queues; None if the job has no database of queues.
            topics: the existing topics; None if the job has no Kafka cluster.
        """
        found = {
            KAFKA: set(_topics(destinations(snapshot, KAFKA), topics)),
            QUEUE: set(_queues(destinations(snapshot, QUEUE), queues)),
            FILES: set(_files(destinations(snapshot, FILES))),
        }
        every = set().union(*found.values())
        new = every - self._known
        self._known = every
        count = 0
        for kind, of_kind in found.items():
            mine = sorted(new & of_kind)
            if not mine:
                continue
            to = destinations(snapshot, kind)
            assert to is not None
            of_each = np.bincount(to.codes[to.codes >= 0], minlength=len(to.names)).tolist()
            counts = dict(zip(to.names, of_each, strict=True))
            for one in mine:
                count += 1
                if count <= _MOST:
                    self._warn(self._sentence(one, counts[one.destination.partition(":")[2]]))
        if count > _MOST:
            self._warn(
                f"nothing can be delivered to {count - _MOST:,} more destinations of subscriptions: "
                f"`selectroute dead-letter list {self._output} --stage deliver` lists them"
            )

    def _sentence(self, one: Missing, subscriptions: int) -> str:
        who = "1 subscription delivers" if subscriptions == 1 else f"{subscriptions:,} subscriptions deliver"
        if one.reason is None:
            return f"{who} to {one.destination}: {one.problem}; {one.remedy}"
        return (
            f"{who} to {one.destination}: {one.problem}. Its deliveries become dead letters "
            f"({one.reason}), and all others are made. {one.remedy}, then run `selectroute dead-letter "
            f"replay {self._output} --reason {one.reason}`"
        )


def _queues(to: Destinations | None, existing: Mapping[str, int] | None) -> Iterator[Missing]:
    for name in () if to is None else to.names:
        if existing is None:
            problem, remedy = "the job has no database of queues", "Start it with --queues"
        elif name not in existing:
            problem, remedy = "there is no such queue in the job's database of queues", "Create it"
        else:
            continue
        yield Missing(f"{QUEUE}:{name}", problem, remedy, UNKNOWN_QUEUE)


def _topics(to: Destinations | None, existing: Mapping[str, Topic] | None) -> Iterator[Missing]:
    for name in () if to is None else to.names:
        reason = UNKNOWN_TOPIC
        if existing is None:
            problem, remedy = "the job has no Kafka cluster", "Start it with --kafka-servers"
        elif name not in existing:
            problem, remedy = "there is no such topic in the job's Kafka cluster", "Create it"
        elif existing[name].is_input:
            problem = "the job reads this topic, so each delivery would return endlessly"
            remedy, reason = "Choose another destination", INPUT_TOPIC
        else:
            continue
        yield Missing(f"{KAFKA}:{name}", problem, remedy, reason)


def _files(to: Destinations | None) -> Iterator[Missing]:
    for name in () if to is None else to.names:
        yield Missing(
            f"{FILES}:{name}",
            "an earlier release accepted this destination, but nothing was ever written to it",
            "its deliveries are recorded under deliveries/; change it to none, queue:NAME or kafka:TOPIC",
            None,
        )
