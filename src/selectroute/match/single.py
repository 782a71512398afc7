"""Matching of one message: the stages of a batch, without what a batch costs whatever its rows.

The values that selectors read are written to a small table::

    attribute │ tag   │ bits or place of the bytes │ bytes        text
    3         │ STRING│ 0                          │ 3            car
    7         │ LONG  │ 2600                       │

The kernel is given them as a batch of one row, whose memory is used again for each message. A segment, the
row and what the kernel needs are described once by their addresses (see ``array_structs``). Compiled code
writes the values to the row, encodes them, runs the kernel, copies the ordinals of the matches, and clears
the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from selectroute.arrays import tables as t
from selectroute.arrays.ids import Ids
from selectroute.arrays.state import SnapshotState
from selectroute.match.array_structs import (
    READONLY,
    WORD,
    ArrayStruct,
    Columns,
    Description,
    Stack,
    address_of_segment,
    new_columns,
    segment_at,
    stack_of,
)
from selectroute.match.columns.from_messages import INTEGER_TAGS
from selectroute.match.compiled import compiled, compiling_alone
from selectroute.match.encoding.blocks import WORDS
from selectroute.match.encoding.encode import encode, find_prefixes, hash_strings
from selectroute.match.encoding.like_cache import no_verdicts
from selectroute.match.extended import judge_extended_message
from selectroute.match.kernel.kernel import collect
from selectroute.selector.arguments import check_argument
from selectroute.selector.explain.sentences import counted
from selectroute.selector.fields import PREFIX
from selectroute.selector.message import ONE_MESSAGE, Message
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.values.values import Float, Unsupported
from selectroute.topics.filter import TOPIC, level_value

_ORDINALS = 256
"""Matches for which there is room at first."""


class _Row(NamedTuple):
    """Arrays for the matching of one message with a segment."""

    columns: Columns
    values: Annotated[t.Int64, t.MATRIX]  # [values, 3]: attribute of the snapshot << 8 | tag, bits or place
    # in `data`, bytes
    data: Annotated[t.UInt8, READONLY]  # the strings
    places: t.Int32  # [attributes of the snapshot], the attribute of the segment, or -1
    coded: t.Bool  # [attributes], whether values are looked up among the constants
    null_keyed: t.Int64  # [n], attributes with NULL among their keys
    prefixing: t.Int64  # [n], attributes with prefixes
    anchors: t.Int64  # [attributes], room for the anchors of `collect`
    hashes: t.UInt64  # [1]
    sources: Annotated[t.Int64, t.MATRIX]  # none: the row is encoded here
    stack: Stack
    seen: t.Int64  # [subscriptions], the message that last matched a subscription of several clauses
    dead: t.UInt64  # see `Snapshot.dead_entries`; empty without any
    counters: t.Int64  # [3], see `kernel`
    ordinals: t.Int32  # the result


_ROW: Final = ArrayStruct(_Row)
_row_at = _ROW.reader()
_batch_from = WORD * _ROW.places["columns"]


@compiled
def _match(segment, address, count, first, mark):
    """Match `count` values with a segment, by the addresses of `SegmentArrays` and `_Row`: write the ordinals
    of the matches, which count from `first`, and return their number; or its negative, if there is not enough
    room. ``mark`` is greater than in all earlier calls.
    """
    tables, row = segment_at(segment).tables, _row_at(address)
    columns = row.columns
    anchored = 0
    for value in range(count):
        number = np.int64(row.places[row.values[value, 0] >> 8])
        if number < 0:
            continue
        columns.tags[number, 0] = row.values[value, 0] & 0xFF
        columns.bits[number, 0] = row.values[value, 1]
        columns.sizes[number, 0] = row.values[value, 2]
        if row.coded[number]:
            tags, bits, sizes = columns.tags[number], columns.bits[number], columns.sizes[number]
            hash_strings(tags, bits, sizes, row.data, row.hashes)
            encode(number, tags, bits, sizes, row.hashes, row.data, segment, columns.codes[number])
        if tables.code_first[number + 1] > tables.code_first[number]:
            row.anchors[anchored] = number
            anchored += 1
    for number in row.null_keyed:
        if columns.tags[number, 0] == t.NULL:
            row.anchors[anchored] = number
            anchored += 1
    for place in range(len(row.prefixing)):
        number = row.prefixing[place]
        tags, bits, sizes = columns.tags[number], columns.bits[number], columns.sizes[number]
        find_prefixes(number, tags, bits, sizes, row.data, segment, columns.prefixed[place])
    # Not the number 1: for a literal numba would compile the kernel once more.
    rows = len(columns.invalid_names)
    runs, offsets = collect(
        rows, row.sources, row.anchors[:anchored], segment, address + _batch_from, row.stack, row.seen, mark,
        row.counters,
    )  # fmt: skip
    for value in range(count):
        number = np.int64(row.places[row.values[value, 0] >> 8])
        if number >= 0:
            columns.tags[number, 0], columns.codes[number, 0] = t.NULL, t.CODE_NULL
    if offsets[1] > len(row.ordinals):
        return -offsets[1]
    found, shift = 0, np.int32(first)
    for run in range(len(runs)):
        for entry in range(runs[run, 0], runs[run, 1]):
            if len(row.dead) == 0 or not row.dead[entry >> 6] >> np.uint64(entry & 63) & np.uint64(1):
                row.ordinals[found] = tables.entry_ordinal[entry] + shift
                found += 1
    return found


class Prepared:
    """Segment with its arrays for one message, and their description."""

    def __init__(
        self, snapshot: SnapshotState, place: int, values: t.Array, text: t.Array, bad: t.Array
    ) -> None:
        segment = self._segment = snapshot.segments[place]
        tables, count = segment.tables, len(segment.attributes)
        numbers = {attribute.name: number for number, attribute in enumerate(segment.attributes)}
        keyed = np.diff(tables.code_first) > 0
        dead = snapshot.dead_entries[place]
        row = _Row(
            columns=new_columns(segment, 1, text, bad, no_verdicts(segment)),
            values=values,
            data=text,
            places=np.array([numbers.get(one.name, -1) for one in snapshot.attributes], np.int32),
            coded=np.array([one.codes for one in segment.attributes], np.bool_),
            null_keyed=np.flatnonzero(keyed & (tables.code_low == t.CODE_NULL)),
            prefixing=segment.prefixing,
            anchors=np.zeros(count, np.int64),
            hashes=np.zeros(1, np.uint64),
            sources=np.zeros((0, WORDS), np.int64),
            stack=stack_of(segment),
            seen=np.zeros(segment.rows, np.int64),
            dead=np.zeros(0, np.uint64) if dead is None else dead,
            counters=np.zeros(3, np.int64),
            ordinals=np.empty(_ORDINALS, np.int32),
        )
        self._first, self._ordinals = int(snapshot.firsts[place]), row.ordinals
        self._mark = 0
        self._row = Description(_ROW, row)
        self._addresses = address_of_segment(segment), self._row.address

    def match(self, count: int) -> t.Array:
        """Return the ordinals of the matches of `count` values, int32."""
        while True:
            self._mark += 1
            found = _match(*self._addresses, count, self._first, self._mark)
            if found >= 0:
                return self._ordinals[:found].copy()
            self._ordinals = np.empty(-2 * found, np.int32)
            self._row.place("ordinals", self._ordinals)

    def place_text(self, text: t.Array) -> None:
        """Use other memory for the text."""
        self._row.place("columns.text", text)
        self._row.place("data", text)


_TEXT: Final = 1 << 12
"""Bytes for the strings of a message, at first."""

_MOST_TEXT: Final = 1 << 20
"""Bytes that are kept from one message to the next."""


@dataclass(slots=True, eq=False)
class MessageMatches:
    """Matches of one message: ``ordinals`` int32, distinct and in any order. ``len()`` is their number.

    ``refused``, int32, are the ordinals of deliveries without a verdict, which are not among the matches.
    Ordinals are valid within one revision only; `ids` are permanent.
    """

    ordinals: t.Array
    refused: t.Array
    subscriptions: Ids
    """Ids of the snapshot's ordinals."""

    def __len__(self) -> int:
        return len(self.ordinals)

    def __repr__(self) -> str:
        return f"MessageMatches({counted(len(self), 'match', 'matches')})"

    def ids(self) -> list[str]:
        """Return the ids of the subscriptions. O(matches)."""
        found: list[str] = self.subscriptions.take(pa.array(self.ordinals)).to_pylist()
        return found


_NONE: Final = np.zeros(0, np.int32)


class _Matcher:
    """Memory for matching one message at a time with a snapshot, in one thread at a time."""

    def __init__(self, snapshot: SnapshotState) -> None:
        names = [attribute.name for attribute in snapshot.attributes]
        self._numbers = {name: number for number, name in enumerate(names)}
        self._derived = [name for name in names if name.startswith(PREFIX)]
        values = np.zeros((len(names), 3), np.int64)
        self._words = values.reshape(-1).data
        self._reals = values.reshape(-1).view(np.float64).data
        self._checks_names = snapshot.checks_names
        self._bad_names = np.zeros(1, np.bool_)
        self._text = np.empty(_TEXT, np.uint8)
        self._octets = self._text.data
        self._segments = [
            Prepared(snapshot, place, values, self._text, self._bad_names)
            for place in range(len(snapshot.segments))
        ]

    @property
    def is_small(self) -> bool:
        """True if its memory may be kept for the next message."""
        return len(self._text) <= _MOST_TEXT

    def match(self, message: Message) -> t.Array:
        """Return the ordinals of the matches, int32."""
        count = self._write(message)
        if self._checks_names:
            self._bad_names[0] = message.value(INVALID_NAMES)
        parts = [segment.match(count) for segment in self._segments]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _write(self, message: Message) -> int:
        """Write the values that selectors read to the table; return how many there are."""
        values = message.values
        if self._derived:
            values = {**values, **{name: _derived(name, message) for name in self._derived}}
        if len(values) > 2 * len(self._numbers):
            values = {name: values[name] for name in self._numbers if name in values}
        words = self._words
        at = end = 0
        for name, value in values.items():
            number = self._numbers.get(name)
            if number is None or value is None:
                continue
            kind = type(value)
            if kind is str or kind is bytes:
                octets = value.encode() if kind is str else value
                stop = end + len(octets)
                if stop > len(self._octets):
                    self._enlarge(stop)
                self._octets[end:stop] = octets
                tag = t.STRING if kind is str else t.BYTES
                words[at + 1], words[at + 2] = end, stop - end
                end = stop
            elif kind in INTEGER_TAGS:
                tag = INTEGER_TAGS[kind]
                words[at + 1], words[at + 2] = value.value, 0
            elif kind is bool:
                tag = t.BOOLEAN
                words[at + 1], words[at + 2] = value, 0
            elif kind is Unsupported:
                tag = t.UNSUPPORTED
                words[at + 1], words[at + 2] = 0, 0
            else:
                tag = t.FLOAT if kind is Float else t.DOUBLE
                self._reals[at + 1], words[at + 2] = value.value, 0
            words[at] = number << 8 | tag
            at += 3
        return at // 3

    def _enlarge(self, size: int) -> None:
        larger = np.empty(2 * size, np.uint8)
        larger[: len(self._text)] = self._text
        self._text, self._octets = larger, larger.data
        for segment in self._segments:
            segment.place_text(larger)


def _derived(name: str, message: Message) -> Any:
    return level_value(name, message.topic) if name.startswith(TOPIC) else message.value(name)


_IDLE = "_idle_matchers"
"""Attribute of a snapshot: the matchers that no thread uses."""


def match_one(snapshot: SnapshotState, message: Message) -> MessageMatches:
    """Match one message: see `Snapshot.match_one`."""
    check_argument(message, Message, "message", ONE_MESSAGE)
    idle: list[_Matcher] = snapshot.__dict__.setdefault(_IDLE, [])
    try:
        matcher = idle.pop()
    except IndexError:
        with compiling_alone("the matching kernel for single messages"):
            matcher = _Matcher(snapshot)
            ordinals = matcher.match(message)
    else:
        ordinals = matcher.match(message)
    if matcher.is_small:
        idle.append(matcher)
    if snapshot.extended is None:
        return MessageMatches(ordinals, _NONE, snapshot.ids)
    return MessageMatches(*judge_extended_message(snapshot, message, ordinals), snapshot.ids)
