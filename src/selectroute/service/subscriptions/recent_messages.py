"""Sample of recent messages, parsed once, and which of them a change would gain or lose."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from selectroute.registry import reports
from selectroute.registry.registry import Registry
from selectroute.registry.reports import SampledMessage
from selectroute.selector.message import Message, to_wire
from selectroute.selector.values import type_name
from selectroute.service.http.callers import Caller
from selectroute.topics.filter import InvalidTopicFilterError

_EXAMPLES: Final = 5
"""Values of an identifier that are shown."""


_LONGEST: Final = 60
"""Characters of a value that are shown."""


class Recent(NamedTuple):
    """Message of the sample, as it was reported and as selectors see it."""

    sampled: SampledMessage
    message: Message

    def to_json(self) -> dict[str, Any]:
        """Return the message as plain data, with the query and the time of its report."""
        return {"query": self.sampled.query, "time": self.sampled.time, "message": self.sampled.message}


class RecentMessages:
    """Sample of a registry in memory: at most 10,000 messages. May be called in any thread.

    To parse as many takes most of a second, so each is parsed once; after that only newer ones are read.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._messages: deque[Recent] = deque(maxlen=reports.SAMPLES_KEPT)
        self._lock = threading.Lock()

    def seen_by(self, caller: Caller) -> list[Recent]:
        """Return the messages that a caller may see, the oldest first: those with a topic within its own."""
        with self._lock:
            newest = self._messages[-1].sampled.key if self._messages else None
            for sampled in self._registry.streams.recent_messages(newest):
                self._messages.append(Recent(sampled, Message.from_json(sampled.message)))
            messages = list(self._messages)
        if caller.sees_all:
            return messages
        may_see = {topic: _may_see(caller, topic) for topic in {recent.message.topic for recent in messages}}
        return [recent for recent in messages if may_see[recent.message.topic]]


def _may_see(caller: Caller, topic: str | None) -> bool:
    try:
        return caller.sees(topic)
    except InvalidTopicFilterError:  # a topic that no filter can name
        return False


@dataclass(frozen=True, slots=True)
class IdentifierSeen:
    """Identifier in recent messages: its types, in how many messages it is, and some of its values."""

    name: str
    types: list[str]
    messages: int
    values: list[str]


def identifiers_in(messages: Sequence[Recent]) -> Iterator[IdentifierSeen]:
    """Yield the headers and properties of these messages, the most frequent first. O(values)."""
    counts: Counter[str] = Counter()
    types: dict[str, dict[str, None]] = {}
    values: dict[str, dict[str, None]] = {}
    for recent in messages:
        for name, value in (*recent.message.headers.items(), *recent.message.properties.items()):
            if value is None:
                continue
            counts[name] += 1
            types.setdefault(name, {})[type_name(value)] = None
            shown = values.setdefault(name, {})
            if len(shown) < _EXAMPLES:
                wire = to_wire(value)
                shown[str(wire["value"] if isinstance(wire, dict) else wire)[:_LONGEST]] = None
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield IdentifierSeen(name, [*types[name]], count, [*values[name]])
