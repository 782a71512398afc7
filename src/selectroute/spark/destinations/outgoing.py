"""Deliveries of one task to destinations outside the output folder.

A `DestinationFormat` converts the messages to what the kind of destination holds, and an `OutgoingWriter`
hands them on, in transactions that also record how far the task is: see ``kafka_writer`` and
``queue_writer``. A delivery that its destination cannot accept is a dead letter, and not counted among the
batch's deliveries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.match.match import Matches
from selectroute.selector.message import Message
from selectroute.spark.destinations.codes import Destinations
from selectroute.spark.sources.files.readers import DeadLetterBatch, Messages, SourcePartition

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
    messages: Messages, places: Ints, convert: Callable[[Message], _Converted | str]
) -> tuple[list[_Converted], Mask, list[str]]:
    """Convert the messages at these rows one by one; return the results, and mask and reasons of `Contents`.

    ``convert`` returns an error text for a message that does not fit.
    """
    assert messages.full is not None
    found: list[_Converted] = []
    fit = np.ones(len(places), np.bool_)
    reasons: list[str] = []
    for index, message in enumerate(messages.full.messages(places)):
        one = message if isinstance(message, str) else convert(message)
        if isinstance(one, str):
            fit[index] = False
            reasons.append(one)
        else:
            found.append(one)
    return found, fit, reasons


class Refused(NamedTuple):
    """Deliveries that are not made: a mask of those that were asked for, and why."""

    without: Mask
    reason: str
    sentence: str


class DestinationFormat(Protocol):
    """Format of messages for one kind of destination."""

    name: str
    """Name of the kind."""
    unfit: str
    """Reason of dead letters for messages that no destination of the kind can hold."""

    def block(self, messages: Messages) -> int:
        """Return the number of messages to convert at a time, the maximum of a row group: bounds the memory
        of writer and reader.
        """

    def contents(self, messages: Messages, places: Ints) -> Contents:
        """Return the columns of the kind for the messages at these rows."""

    def refused(self, contents: Contents, rows: Ints, codes: Codes) -> Iterator[Refused]:
        """Yield the deliveries that are not accepted, of those given: a row of the contents and a destination
        each.
        """


class OutgoingWriter(Protocol):
    """Writer of one task's deliveries to destinations of one kind."""

    def write(self, block: Block) -> list[Refused]:
        """Write the deliveries of a block of messages; return those that are not made."""

    def close(self) -> None:
        """Finish, after the last block."""

    def report(self) -> dict[str, Any]:
        """Return what the report of the task says of the kind, after `close`: the destinations to which
        deliveries were ``sent``, and those that are ``held``, with the reason.
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
        self, place: SourcePartition, messages: Messages, matches: Matches
    ) -> tuple[Matches, list[tuple[DeadLetterBatch, Codes]]]:
        """Write the messages for destinations of the kind. Return the matches without the refused deliveries,
        and the refused ones with their ordinals.
        """
        codes = self._to.codes[matches.ordinals]
        pairs = np.flatnonzero(codes >= 0)
        if not len(pairs):
            return matches, []
        rows = np.repeat(np.arange(len(matches), dtype=np.int64), np.diff(matches.offsets))
        places, firsts = np.unique(rows[pairs], return_index=True)
        firsts = np.append(firsts, len(pairs))
        refused: list[tuple[DeadLetterBatch, Codes]] = []
        keep = np.ones(len(matches.ordinals), np.bool_)
        most = self._kind.block(messages)
        for start in range(0, len(places), most):
            block = places[start : start + most]
            own = pairs[firsts[start] : firsts[start + len(block)]]
            positions = np.searchsorted(block, rows[own])
            contents = self._kind.contents(messages, block)
            left = np.ones(len(own), np.bool_)

            def refuse(one: Refused, own: Ints = own, left: Mask = left) -> None:
                left &= ~one.without
                dead = DeadLetterBatch(
                    "deliver", one.reason, one.sentence, messages.rows[rows[own[one.without]]]
                )
                refused.append((dead, matches.ordinals[own[one.without]]))

            for one in self._refused(contents, positions, codes[own]):
                refuse(one)
            kept = np.flatnonzero(left)
            if len(kept):
                assert self.writer is not None, "deliveries without a destination are refused by their format"
                fitting = np.cumsum(contents.fit) - 1
                chosen = block[contents.fit]
                offsets = messages.rows[chosen]
                written = self.writer.write(
                    Block(
                        place,
                        self.part,
                        offsets,
                        contents.columns,
                        fitting[positions[kept]],
                        codes[own[kept]],
                        matches.ordinals[own[kept]],
                        offsets if messages.numbers is None else messages.numbers[chosen],
                    )
                )
                for one in written:
                    without = np.zeros(len(own), np.bool_)
                    without[kept[one.without]] = True
                    refuse(one._replace(without=without))
            self.deliveries += int(np.count_nonzero(left))
            keep[own[~left]] = False
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)))[matches.offsets]
        return replace(matches, offsets=bounds, ordinals=matches.ordinals[keep]), refused

    def close(self) -> None:
        """Finish, after the last message."""
        if self.writer is not None:
            self.writer.close()

    def report(self) -> dict[str, Any]:
        """Return what the report of the task says of the kind, after `close`."""
        return {} if self.writer is None else self.writer.report()

    def _refused(self, contents: Contents, positions: Ints, codes: Codes) -> Iterator[Refused]:
        """Yield a block's deliveries that are not accepted, for each reason and error text."""
        unfit = np.flatnonzero(~contents.fit)
        for position, sentence in zip(unfit.tolist(), contents.reasons, strict=True):
            yield Refused(positions == position, self._kind.unfit, sentence)
        fitting = contents.fit[positions]
        row = np.cumsum(contents.fit) - 1
        for one in self._kind.refused(contents, row[positions[fitting]], codes[fitting]):
            whole = np.zeros(len(positions), np.bool_)
            whole[np.flatnonzero(fitting)[one.without]] = True
            yield one._replace(without=whole)
