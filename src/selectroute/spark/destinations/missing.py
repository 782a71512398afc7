"""Destinations to which nothing can be delivered: one warning for each, and the job goes on.

Each delivery to them is a dead letter (see ``outgoing``); other deliveries are not affected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import numpy as np

from selectroute.index.destination import KAFKA, QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.spark.destinations.destination import destinations
from selectroute.spark.destinations.kafka.writer import INPUT_TOPIC, UNKNOWN_TOPIC, Topic
from selectroute.spark.destinations.queues.writer import UNKNOWN_QUEUE
from selectroute.spark.job import DestinationNotFoundError
from selectroute.storage import Location

_MOST: Final = 5
"""Maximum number of warnings at once; the other destinations are counted in one more."""


class MissingDestination(NamedTuple):
    """Destination to which nothing can be delivered: its name as ``queue:NAME``, the problem, the remedy, and
    the reason of its dead letters.
    """

    destination: str
    problem: str
    remedy: str
    reason: str


class MissingDestinations:
    """Warnings of missing destinations of each snapshot: one for each, until the destination exists.

    Args:
        output: the output folder, for the command that replays.
        warn: called with a sentence.
    """

    def __init__(self, output: Location, warn: Callable[[str], None]) -> None:
        self._output = output
        self._warn = warn
        self._known: set[MissingDestination] = set()

    def look(
        self, snapshot: Snapshot, queues: Mapping[str, int] | None, topics: Mapping[str, Topic] | None
    ) -> None:
        """Warn of newly missing destinations. O(destinations), for a new one O(subscriptions).

        Args:
            snapshot: the snapshot whose subscriptions are delivered.
            queues: the existing queues; None if the job has no database of queues.
            topics: the existing topics; None if the job has no Kafka cluster.
        """
        of_kinds: dict[str, set[MissingDestination]] = {}
        for kind in (KAFKA, QUEUE):
            to = destinations(snapshot, kind)
            names = () if to is None else to.names
            problems = {name: _problem(kind, name, queues, topics) for name in names}
            of_kinds[kind] = {
                MissingDestination(f"{kind}:{name}", *problem)
                for name, problem in problems.items()
                if problem
            }
        every = set().union(*of_kinds.values())
        new = every - self._known
        self._known = every
        count = 0
        for kind, of_kind in of_kinds.items():
            mine = sorted(new & of_kind)
            if not mine:
                continue
            to = destinations(snapshot, kind)
            assert to is not None
            of_each = np.bincount(to.codes[to.codes >= 0], minlength=len(to.names)).tolist()
            counts: Counter[str] = Counter()
            for name, subscriptions in zip(to.names, of_each, strict=True):
                counts[name] += subscriptions
            for destination in mine:
                count += 1
                if count <= _MOST:
                    self._warn(self._sentence(destination, counts[destination.destination.partition(":")[2]]))
        if count > _MOST:
            self._warn(
                f"nothing can be delivered to {count - _MOST:,} more destinations of subscriptions: "
                f"`selectroute dead-letter list {self._output} --stage deliver` lists them"
            )

    def _sentence(self, missing: MissingDestination, subscriptions: int) -> str:
        who = "1 subscription delivers" if subscriptions == 1 else f"{subscriptions:,} subscriptions deliver"
        return (
            f"{who} to {missing.destination}: {missing.problem}. Its deliveries become dead letters "
            f"({missing.reason}), and all others are made. {missing.remedy}, then run `selectroute "
            f"dead-letter replay {self._output} --reason {missing.reason}`"
        )


def _problem(
    kind: str, name: str, queues: Mapping[str, int] | None, topics: Mapping[str, Topic] | None
) -> tuple[str, str, str] | None:
    """Return problem, remedy and reason of a destination to which nothing can be delivered."""
    if kind == QUEUE:
        if queues is None:
            return "the job has no database of queues", "Start it with --queues", UNKNOWN_QUEUE
        if name not in queues:
            return "there is no such queue in the job's database of queues", "Create it", UNKNOWN_QUEUE
        return None
    if topics is None:
        return "the job has no Kafka cluster", "Start it with --kafka-servers", UNKNOWN_TOPIC
    if name not in topics:
        return "there is no such topic in the job's Kafka cluster", "Create it", UNKNOWN_TOPIC
    if topics[name].is_input:
        problem = "the job reads this topic, so each delivery would return endlessly"
        return problem, "Choose another destination", INPUT_TOPIC
    return None


def refuse_missing(names: Collection[str], known: Collection[str], where: str) -> None:
    """Raise DestinationNotFoundError for destinations that are not known: they are ``where``."""
    if missing := set(names).difference(known):
        raise DestinationNotFoundError(
            f"subscriptions are delivered to {where}: {shown(missing)}; create them first"
        )


def shown(names: Collection[str]) -> str:
    """Return a few names and the number of the others."""
    more = len(names) - 3
    return ", ".join(sorted(names)[:3]) + (f" and {more:,} more" if more > 0 else "")
