"""A queue that is a list, scanned from its beginning for everything: what every other one must agree with.

It is written from the documents alone, and shares with the queues only the reference evaluator of selectors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import selectroute as sr

NONE = bytes(24)
FIELDS = ("msg_id", "correl_id", "group_id", "msg_seq_number", "offset", "msg_token")
"""The fields of the match options 1, 2, 4, 8, 16 and 32."""


@dataclass(frozen=True)
class Entry:
    """A message of the list."""

    arrival: int
    body: bytes
    priority: int
    msg_id: bytes
    correl_id: bytes
    group_id: bytes
    msg_seq_number: int
    offset: int
    last_in_group: bool
    msg_token: bytes
    put_ms: int
    expires_ms: int | None
    properties: dict[str, Any]
    backout_count: int = 0

    @property
    def key(self) -> tuple[int, int]:
        return (-self.priority, self.arrival)

    def message(self) -> sr.Message:
        def text(octets: bytes) -> str | None:
            return None if octets == NONE else f"ID:{octets.hex().upper()}"

        return sr.Message(
            {
                "JMSMessageID": text(self.msg_id),
                "JMSCorrelationID": text(self.correl_id),
                "JMSPriority": self.priority,
                "JMSTimestamp": self.put_ms,
                "JMSDeliveryMode": "NON_PERSISTENT",
                "JMSExpiration": self.expires_ms or 0,
                "JMSRedelivered": self.backout_count > 0,
            },
            self.properties
            | {"JMSXDeliveryCount": sr.Int(self.backout_count + 1), "JMSXGroupID": text(self.group_id)},
        )


_AN_ID = re.compile(r"JMS(Message|Correlation)ID = 'ID:([0-9A-Fa-f]{48})'")


def is_option(selector: sr.Selector, mask: int, given: dict[str, Any]) -> bool:
    """Whether a selector only says what an id is, which makes it that id's match option (seed 000)."""
    found = _AN_ID.fullmatch(selector.text)
    if found is None:
        return False
    bit, name = (0, "msg_id") if found[1] == "Message" else (1, "correl_id")
    asked = given[name] if mask >> bit & 1 and given[name] != NONE else None
    return asked in (None, bytes.fromhex(found[2]))


@dataclass
class Place:
    """Where a handle or a cursor is: behind which message, and in which group."""

    key: tuple[int, int] | None = None
    begun: tuple[int, int] | None = None
    group: Entry | None = None


@dataclass
class LinearQueue:
    """See the module."""

    now_ms: int
    entries: list[Entry] = field(default_factory=list)
    handle: Place = field(default_factory=Place)

    def visible(self) -> list[Entry]:
        """The messages that could be got, in order."""
        alive = [one for one in self.entries if one.expires_ms is None or one.expires_ms > self.now_ms]
        return sorted(alive, key=lambda one: one.key)

    def matches(self, entry: Entry, mask: int, given: dict[str, Any], selector: sr.Selector | None) -> bool:
        for bit, name in enumerate(FIELDS):
            wanted = given[name]
            anything = name.endswith("_id") and wanted == NONE
            if mask >> bit & 1 and not anything and getattr(entry, name) != wanted:
                return False
        return selector is None or selector.matches(entry.message())

    def find(self, mask, given, selector, after=None):
        """The first match behind a place."""
        for entry in self.visible():
            if (after is None or entry.key > after) and self.matches(entry, mask, given, selector):
                return entry
        return None

    def find_logical(self, place: Place, mask, given, selector, after=None):
        """The next message in logical order; 2247 where it disagrees with an option, None for none."""
        found = None
        if place.group is None:
            for entry in self.visible():
                begins = entry.msg_seq_number == 1 and entry.offset == 0
                behind = after is None or entry.key > after
                if begins and behind and self.matches(entry, mask & 7, given, selector):
                    found = entry
                    break
        else:
            last = place.group
            end = last.offset + len(last.body)
            for numbers in ((last.msg_seq_number, end), (last.msg_seq_number + 1, 0)):
                if found is None and numbers != (last.msg_seq_number, 0):
                    of_group = [one for one in self.visible() if one.group_id == last.group_id]
                    found = next((e for e in of_group if (e.msg_seq_number, e.offset) == numbers), None)
            if found is not None and not self.matches(found, 0, given, selector):
                return 2247 if is_option(selector, mask, given) else None
        if found is not None and not self.matches(found, mask, given, None):
            return 2247
        return found

    def move(self, place: Place, entry: Entry, logical: bool) -> None:
        """Move a handle or cursor on to a message."""
        if logical and place.group is None:
            place.begun = entry.key
        goes_on = logical and entry.group_id != NONE and not entry.last_in_group
        place.group = entry if goes_on else None
        place.key = entry.key

    def back(self, entry: Entry) -> None:
        self.entries.append(replace(entry, backout_count=entry.backout_count + 1))
