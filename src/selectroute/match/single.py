"""Matching of one message: the stages of a batch, without what a batch costs whatever its rows.

The values that selectors read are written to a small table, which `one_row` matches::

    attribute │ tag   │ bits or place of the bytes │ bytes        text
    3         │ STRING│ 0                          │ 3            car
    7         │ LONG  │ 2600                       │
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from selectroute.arrays import tables as t
from selectroute.arrays.ids import Ids
from selectroute.arrays.state import SnapshotState
from selectroute.match.columns.from_messages import INTEGER_TAGS
from selectroute.match.compiled import compiling_alone
from selectroute.match.extended import judge_extended_message
from selectroute.match.one_row import Prepared
from selectroute.selector.arguments import check_argument
from selectroute.selector.fields import PREFIX
from selectroute.selector.message import ONE_MESSAGE, Message
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.sentences import counted
from selectroute.selector.values import Float, Unsupported
from selectroute.topics.filter import TOPIC, level_value

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
        ids: list[str] = self.subscriptions.take(pa.array(self.ordinals)).to_pylist()
        return ids


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
