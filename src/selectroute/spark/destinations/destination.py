"""Destinations of deliveries outside the output folder: what queues and topics have in common.

**In a task.** Each ordinal of a snapshot has the code of its subscription's destination, computed once. A
`DestinationFormat` converts the messages to what the kind of destination holds, and an `OutgoingWriter`
hands them on, in transactions that also record how far the task is. A delivery that its destination cannot
accept is a dead letter, and not counted among the batch's deliveries.

**In the driver.** A system that does not answer is asked again. A destination that refuses holds the stream
back for a bounded time::

    accepts ──full──→ waited for, while it has seconds left ──none left──→ tripped: tried once, without a wait
      └──────────────── a batch that it accepted completely ─────────────────┘

Each destination has its own budget of seconds. Waiting uses it up; it is refilled at a tenth of the time
that passes without waiting. So a destination that stays full costs the stream its budget once; a destination
that is full again and again costs at most a tenth of the time. The state is in memory: a restarted job waits
again. Destinations to which nothing can be delivered are warned of once each, and the job goes on.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.destination import KAFKA, QUEUE, topic_and_grouping
from selectroute.index.snapshot import Snapshot
from selectroute.match.match import Matches
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.message import Message
from selectroute.spark.job import DestinationNotFoundError
from selectroute.spark.messages import DeadLetterBatch, MessageBatch, SourcePartition
from selectroute.storage import Location

_Result = TypeVar("_Result")

_COMES_BACK: Final = 0.1
"""Seconds of budget refilled for each second that passes."""


class StoppingError(SelectRouteError):
    """Request to stop the job. The interrupted work is finished at the next start."""


class Waiting:
    """Destinations of one kind that are waited for, or that are tripped.

    Args:
        noun: the noun of a destination, such as "the queue".
        seconds: how long one may hold the stream back; ``inf`` for no limit.
        warn: called with a sentence when one is waited for, trips or accepts again.
        clock: returns seconds.
    """

    def __init__(
        self,
        noun: str,
        seconds: float,
        warn: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._noun = noun
        self.seconds = seconds
        self._warn = warn
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}
        self._waited_for: set[str] = set()
        self._tripped: set[str] = set()

    @property
    def count(self) -> int:
        """Number of destinations that are waited for or tripped."""
        return len(self._waited_for | self._tripped)

    @property
    def tripped(self) -> frozenset[str]:
        """Destinations that are no longer waited for."""
        return frozenset(self._tripped)

    def left(self, name: str) -> float:
        """Return the seconds for which a destination may be waited for; 0 if it is tripped."""
        return 0.0 if name in self._tripped else self.budget(name)

    def budget(self, name: str) -> float:
        """Return the remaining seconds of a destination, tripped or not."""
        if name not in self._left:
            return self.seconds
        seconds, at = self._left[name]
        if name in self._waited_for:  # not refilled while it is waited for, or the wait would never end
            return seconds
        return min(self.seconds, seconds + _COMES_BACK * (self._clock() - at))

    def waits(self, name: str, why: str) -> bool:
        """Begin to wait for a destination that refuses, or stop if it has no seconds left; return whether it
        is waited for. ``why`` is as in `begin`.
        """
        if self.left(name) > 0:
            self.begin(name, why)
            return True
        self.trip(name, why)
        return False

    def begin(self, name: str, why: str) -> None:
        """Begin to wait for a destination, with one warning; ``why`` is a clause: "the queue A is full"."""
        if name not in self._waited_for:
            self._left[name] = self.budget(name), self._clock()
            self._waited_for.add(name)
            if self.seconds == float("inf"):
                bound = "and so does the stream, without a limit"
            else:
                bound = f"for at most {self.left(name):.3g} s, and then become dead letters"
            self._warn(f"{why}: its deliveries wait, {bound}; all others are made")

    def waited(self, names: Collection[str], seconds: float) -> None:
        """Subtract seconds from the budgets of these destinations."""
        for name in names:
            self._left[name] = max(0.0, self.budget(name) - seconds), self._clock()

    def trip(self, name: str, why: str) -> None:
        """Stop waiting for a destination, with one warning."""
        self._waited_for.discard(name)
        if name not in self._tripped:
            self._tripped.add(name)
            self._warn(
                f"{why}: from now on, deliveries that it does not accept at once become dead letters, until "
                "it accepts a whole batch again"
            )

    def took(self, name: str) -> None:
        """Reset a destination that accepted all deliveries of a batch, with a warning if it was full."""
        if name in self._waited_for or name in self._tripped:
            self._waited_for.discard(name)
            self._tripped.discard(name)
            self._warn(f"{self._noun} {name} accepts messages again")


def patient(
    call: Callable[[], _Result],
    error: type[Exception],
    warn: Callable[[str], None],
    pause: Callable[[], bool],
) -> _Result:
    """Retry a call until it succeeds, and return its result.

    Args:
        call: the call.
        error: the error after which it is tried again; its text is the reason.
        warn: called with a sentence, once for as long as the reason stays the same.
        pause: waits some time; returns whether the job is to stop.

    Raises:
        StoppingError: the job is to stop.
    """
    warned = ""
    while True:
        try:
            return call()
        except error as failure:
            why = str(failure)
            if why != warned:
                warn(f"{why}: the stream waits")
                warned = why
            if pause():
                raise StoppingError(f"the job stopped while it waited: {why}") from failure


@dataclass(frozen=True, slots=True)
class Destinations:
    """Destinations of one kind.

    Attributes:
        names: the queue or topic of each destination. A topic has several destinations if they differ in
            their grouping.
        codes: int32[ordinals], index in ``names`` of each subscription's destination, -1 if of another kind.
        groupings: the grouping of each destination; None for the grouping of the job.
    """

    names: tuple[str, ...]
    codes: npt.NDArray[np.int32]
    groupings: tuple[str | None, ...]


_known: weakref.WeakKeyDictionary[Snapshot, dict[str, Destinations | None]] = weakref.WeakKeyDictionary()


def destinations(snapshot: Snapshot, kind: str) -> Destinations | None:
    """Return the destinations of a kind; None if no subscription has one. O(ordinals) once per snapshot."""
    known = _known.setdefault(snapshot, {})
    if kind not in known:
        known[kind] = _destinations(snapshot, kind)
    return known[kind]


def names_of(snapshot: Snapshot, kind: str) -> frozenset[str]:
    """Return the queues or topics to which a snapshot's subscriptions are delivered."""
    to = destinations(snapshot, kind)
    return frozenset() if to is None else frozenset(to.names)


def _destinations(snapshot: Snapshot, kind: str) -> Destinations | None:
    column = snapshot.subscriptions["destination"]
    if column.null_count == len(column):
        return None
    prefix = f"{kind}:"
    chosen = pc.fill_null(pc.starts_with(column, prefix), False).to_numpy()
    if snapshot.dead is not None:
        chosen = chosen & ~snapshot.dead
    ordinals = np.flatnonzero(chosen)
    if not len(ordinals):
        return None
    encoded = column.take(pa.array(ordinals)).combine_chunks().dictionary_encode()
    codes = np.full(len(column), -1, np.int32)
    codes[ordinals] = encoded.indices.to_numpy()
    names = [text.removeprefix(prefix) for text in encoded.dictionary.to_pylist()]
    parts = [topic_and_grouping(name) if kind == KAFKA else (name, None) for name in names]
    return Destinations(tuple(name for name, _ in parts), codes, tuple(grouping for _, grouping in parts))


Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

_Converted = TypeVar("_Converted")


@dataclass(frozen=True, slots=True)
class Contents:
    """Messages in the columns of a kind of destination: a row for each message that fits.

    ``fit`` is a mask of these messages, and ``reasons`` has an error text for each of the others.
    """

    columns: pa.RecordBatch
    fit: Mask
    reasons: list[str]


def converted(
    messages: MessageBatch, places: Ints, convert: Callable[[Message], _Converted | str]
) -> tuple[list[_Converted], Mask, list[str]]:
    """Convert the messages at these rows one by one; return the results, and mask and reasons of `Contents`.

    ``convert`` returns an error text for a message that does not fit.
    """
    assert messages.full is not None
    results: list[_Converted] = []
    fit = np.ones(len(places), np.bool_)
    reasons: list[str] = []
    for index, message in enumerate(messages.full.messages(places)):
        result = message if isinstance(message, str) else convert(message)
        if isinstance(result, str):
            fit[index] = False
            reasons.append(result)
        else:
            results.append(result)
    return results, fit, reasons


class Refusal(NamedTuple):
    """Deliveries that a destination does not accept: a mask over the deliveries of a block; the reason."""

    without: Mask
    reason: str
    sentence: str


def refuse(mask: Mask, codes: Codes, reason: str, text: Callable[[int], str]) -> Iterator[Refusal]:
    """Yield the deliveries of a mask, those of each destination with the ``text`` of its code."""
    for code in np.unique(codes[mask]).tolist():
        yield Refusal(mask & (codes == code), reason, text(code))


class DestinationFormat(Protocol):
    """Format of messages for one kind of destination."""

    name: str
    """Name of the kind."""
    unfit: str
    """Reason of dead letters for messages that no destination of the kind can hold."""

    def block(self, messages: MessageBatch) -> int:
        """Return the number of messages to convert at a time, the maximum of a row group: bounds the memory
        of writer and reader.
        """

    def contents(self, messages: MessageBatch, places: Ints) -> Contents:
        """Return the columns of the kind for the messages at these rows."""

    def refused(self, contents: Contents, rows: Ints, codes: Codes) -> Iterator[Refusal]:
        """Yield the deliveries that are not accepted; a delivery is a row of the contents and the code of a
        destination.
        """


class OutgoingWriter(Protocol):
    """Writer of one task's deliveries to destinations of one kind."""

    def write(self, block: Block) -> list[Refusal]:
        """Write the deliveries of a block of messages; return the refused ones."""

    def close(self) -> None:
        """Finish, after the last block."""

    def report(self) -> dict[str, Any]:
        """Return the kind's part of the task's report, after `close`: the destinations to which deliveries
        were ``sent``, and the destinations that are ``held``, with the reason.
        """


@dataclass(frozen=True, slots=True)
class Block:
    """Messages and their deliveries, which are ordered by message.

    Attributes:
        place: the origin of the messages.
        part: the number of the part of the task's input that they are from.
        offsets: the offset of each message at its origin.
        contents: the messages in the columns of the kind, a row each.
        rows: the message of each delivery.
        codes: the destination of each delivery.
        ordinals: the subscription of each delivery.
        numbers: the ascending number of each message in the part; its offset, unless these do not ascend.
    """

    place: SourcePartition
    part: int
    offsets: Ints
    contents: pa.RecordBatch
    rows: Ints
    codes: Codes
    ordinals: Codes
    numbers: Ints


class Outgoing:
    """Deliveries of one task to destinations of one kind.

    Args:
        kind: the format of the kind.
        to: the destinations of the snapshot's subscriptions.
        writer: takes the deliveries; None in a job without destinations of the kind: the format refuses all.

    ``part`` is the number of the part of the task's input that the next messages are from.
    """

    def __init__(self, kind: DestinationFormat, to: Destinations, writer: OutgoingWriter | None) -> None:
        self.deliveries = 0
        self.part = 0
        self.kind = kind.name
        self._kind = kind
        self._to = to
        self.writer = writer

    def deliver(
        self, place: SourcePartition, messages: MessageBatch, matches: Matches
    ) -> tuple[Matches, list[tuple[DeadLetterBatch, Codes]]]:
        """Write the messages for destinations of the kind. Return the matches without the refused deliveries,
        and the refused ones with their ordinals.
        """
        # A match is a message with a subscription. Chunks of messages are converted at once:
        #
        #     match         0  1  2  3  4  5      those of this kind: 1 3 4
        #     message_of    0  0  1  2  2  3
        #     in_chunk         0     1  1         with the chunk 0 2: place of the message in it
        codes = self._to.codes[matches.ordinals]
        of_kind = np.flatnonzero(codes >= 0)
        if not len(of_kind):
            return matches, []
        message_of = np.repeat(np.arange(len(matches), dtype=np.int64), np.diff(matches.offsets))
        to_send, firsts = np.unique(message_of[of_kind], return_index=True)
        firsts = np.append(firsts, len(of_kind))
        refused: list[tuple[DeadLetterBatch, Codes]] = []
        keep = np.ones(len(matches.ordinals), np.bool_)
        most = self._kind.block(messages)
        for start in range(0, len(to_send), most):
            chunk = to_send[start : start + most]
            of_chunk = of_kind[firsts[start] : firsts[start + len(chunk)]]
            in_chunk = np.searchsorted(chunk, message_of[of_chunk])
            contents = self._kind.contents(messages, chunk)
            accepted = np.ones(len(of_chunk), np.bool_)

            def strike_off(
                refusal: Refusal, of: Ints, of_chunk: Ints = of_chunk, accepted: Mask = accepted
            ) -> None:
                """Strike off a refusal of the matches ``of`` the chunk."""
                accepted[of[refusal.without]] = False
                struck = of_chunk[of[refusal.without]]
                rows = messages.rows[message_of[struck]]
                dead = DeadLetterBatch("deliver", refusal.reason, refusal.sentence, rows)
                refused.append((dead, matches.ordinals[struck]))

            for refusal in self._refused(contents, in_chunk, codes[of_chunk]):
                strike_off(refusal, np.arange(len(of_chunk)))
            to_write = np.flatnonzero(accepted)
            if len(to_write):
                assert self.writer is not None, "deliveries without a destination are refused by their format"
                row_of = np.cumsum(contents.fit) - 1  # of the contents, which have only messages that fit
                fitting = chunk[contents.fit]
                offsets = messages.rows[fitting]
                block = Block(
                    place,
                    self.part,
                    offsets,
                    contents.columns,
                    row_of[in_chunk[to_write]],
                    codes[of_chunk[to_write]],
                    matches.ordinals[of_chunk[to_write]],
                    offsets if messages.numbers is None else messages.numbers[fitting],
                )
                for refusal in self.writer.write(block):
                    strike_off(refusal, to_write)
            self.deliveries += int(np.count_nonzero(accepted))
            keep[of_chunk[~accepted]] = False
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)))[matches.offsets]
        return replace(matches, offsets=bounds, ordinals=matches.ordinals[keep]), refused

    def close(self) -> None:
        """Finish, after the last message."""
        if self.writer is not None:
            self.writer.close()

    def report(self) -> dict[str, Any]:
        """Return what the report of the task says of the kind, after `close`."""
        return {} if self.writer is None else self.writer.report()

    def _refused(self, contents: Contents, positions: Ints, codes: Codes) -> Iterator[Refusal]:
        """Yield a block's deliveries that are not accepted, for each reason and error text."""
        unfit = np.flatnonzero(~contents.fit)
        for position, sentence in zip(unfit.tolist(), contents.reasons, strict=True):
            yield Refusal(positions == position, self._kind.unfit, sentence)
        fitting = contents.fit[positions]
        row = np.cumsum(contents.fit) - 1
        for refusal in self._kind.refused(contents, row[positions[fitting]], codes[fitting]):
            whole = np.zeros(len(positions), np.bool_)
            whole[np.flatnonzero(fitting)[refusal.without]] = True
            yield refusal._replace(without=whole)


UNKNOWN_QUEUE: Final = "unknown-queue"
"""Reason of a dead letter for a queue that does not exist."""

UNKNOWN_TOPIC: Final = "unknown-topic"
INPUT_TOPIC: Final = "input-topic"
"""Reasons of dead letters for a topic that does not exist, and for a topic that the job reads."""


class Topic(NamedTuple):
    """Topic to write to: its maximum record size in bytes, its number of partitions, and whether it is also
    an input of the job, and so must not be written; and the milliseconds by which the time stamp of a record
    may be before and after the broker's clock (KIP-937).
    """

    longest: int
    partitions: int
    is_input: bool = False
    before_ms: int = (1 << 63) - 1
    after_ms: int = (1 << 63) - 1


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
        every: set[MissingDestination] = set()
        sentences: list[str] = []
        for kind in (KAFKA, QUEUE):
            to = destinations(snapshot, kind)
            if to is None:
                continue
            problems = {name: _problem(kind, name, queues, topics) for name in to.names}
            missing = {MissingDestination(f"{kind}:{name}", *why) for name, why in problems.items() if why}
            every |= missing
            if new := sorted(missing - self._known):
                of_each = np.bincount(to.codes[to.codes >= 0], minlength=len(to.names)).tolist()
                counts: Counter[str] = Counter()
                for name, subscriptions in zip(to.names, of_each, strict=True):
                    counts[f"{kind}:{name}"] += subscriptions
                sentences += [self._sentence(each, counts[each.destination]) for each in new]
        self._known = every
        for sentence in sentences[:_MOST]:
            self._warn(sentence)
        if len(sentences) > _MOST:
            self._warn(
                f"nothing can be delivered to {len(sentences) - _MOST:,} more destinations of subscriptions: "
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
