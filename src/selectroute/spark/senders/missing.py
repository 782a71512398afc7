"""Destinations to which nothing can be delivered: one warning for each, and the job goes on.

What they should get is a dead letter of that delivery (see ``staging``); nobody else is affected.
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
"""Warnings of destinations that are met at once; the others are counted in one more."""


class Missing(NamedTuple):
    """Destination to which nothing can be delivered: as ``queue:NAME``, what is wrong with it, what mends it,
    and the reason of its dead letters, None where there are none.
    """

    destination: str
    what: str
    mend: str
    reason: str | None


class MissingDestinations:
    """Warns of the destinations of each snapshot that are not there: once of each, until it is there.

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
        """Warn of what is new. O(destinations), for a new one O(subscriptions).

        Args:
            snapshot: whose subscriptions are delivered.
            queues: those that there are; None if the job has no database of queues.
            topics: those that there are; None if the job writes to no Kafka.
        """
        found = {
            KAFKA: set(_topics(destinations(snapshot, KAFKA), topics)),
            QUEUE: set(_queues(destinations(snapshot, QUEUE), queues)),
            FILES: set(_files(destinations(snapshot, FILES))),
        }
        every = set().union(*found.values())
        new = every - self._known
        self._known = every
        said = 0
        for kind, of_kind in found.items():
            mine = sorted(new & of_kind)
            if not mine:
                continue
            to = destinations(snapshot, kind)
            assert to is not None
            of_each = np.bincount(to.codes[to.codes >= 0], minlength=len(to.names)).tolist()
            counts = dict(zip(to.names, of_each, strict=True))
            for one in mine:
                said += 1
                if said <= _MOST:
                    self._warn(self._sentence(one, counts[one.destination.partition(":")[2]]))
        if said > _MOST:
            self._warn(
                f"nothing can be delivered to {said - _MOST:,} more destinations of subscriptions: "
                f"`selectroute dead-letter list {self._output} --stage deliver` says which"
            )

    def _sentence(self, one: Missing, subscriptions: int) -> str:
        who = "1 subscription delivers" if subscriptions == 1 else f"{subscriptions:,} subscriptions deliver"
        if one.reason is None:
            return f"{who} to {one.destination}: {one.what}; {one.mend}"
        return (
            f"{who} to {one.destination}: {one.what}. What it should get becomes dead letters "
            f"({one.reason}), and all else is delivered. {one.mend}, then `selectroute dead-letter replay "
            f"{self._output} --reason {one.reason}`"
        )


def _queues(to: Destinations | None, there: Mapping[str, int] | None) -> Iterator[Missing]:
    for name in () if to is None else to.names:
        if there is None:
            what, mend = "the job has no database of queues", "Start it with --queues"
        elif name not in there:
            what, mend = "there is no such queue in the job's database of queues", "Create it"
        else:
            continue
        yield Missing(f"{QUEUE}:{name}", what, mend, UNKNOWN_QUEUE)


def _topics(to: Destinations | None, there: Mapping[str, Topic] | None) -> Iterator[Missing]:
    for name in () if to is None else to.names:
        reason = UNKNOWN_TOPIC
        if there is None:
            what, mend = "the job writes to no Kafka", "Start it with --kafka-servers"
        elif name not in there:
            what, mend = "there is no such topic in the Kafka that the job writes to", "Create it"
        elif there[name].is_input:
            what = "the job reads this topic, so each delivery would come in again, for ever"
            mend, reason = "Give it another destination", INPUT_TOPIC
        else:
            continue
        yield Missing(f"{KAFKA}:{name}", what, mend, reason)


def _files(to: Destinations | None) -> Iterator[Missing]:
    for name in () if to is None else to.names:
        yield Missing(
            f"{FILES}:{name}",
            "an earlier release took this destination, and nothing was ever written to it",
            "what it gets is recorded under deliveries/ as always; give it none, queue:NAME or kafka:TOPIC",
            None,
        )
