"""The messages of a queue by place, by each of their ids, and by whatever else they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sortedcontainers import SortedList

from selectroute.clauses.access import message_key
from selectroute.clauses.predicate import Clause
from selectroute.queues.message import NO_ID
from selectroute.queues.order import Order
from selectroute.queues.positions import CORREL_ID, EXPIRATION, GROUP_ID, MSG_ID
from selectroute.queues.postings import Listed, Postings, first_of, size_of, walk
from selectroute.queues.record import PLACE, Record, seen
from selectroute.queues.request import Request
from selectroute.queues.selection import Alternative, Field

MAX_INDEXES: Final = 8
"""Indexes made on demand at a time; one that was not used for longest gives way."""

_PATIENCE: Final = 16
"""Messages that a lookup may look at in vain before it counts towards an index of its own."""


@dataclass(slots=True)
class Statistics:
    """What lookups cost, counted since the queue was made."""

    looked_at: int = 0
    """Messages that were compared with what was asked for."""

    scans: int = 0
    """Lookups that walked through the queue, because nothing that they asked for was indexed."""

    indexes_made: int = 0
    waiters_looked_at: int = 0
    """Waiting calls that were compared with an arriving message."""


Fields = tuple[Field, ...]
Keys = tuple[Any, ...]

_BY_ID: Final[tuple[Fields, ...]] = ((MSG_ID,), (CORREL_ID,), (GROUP_ID,))


class _Index(NamedTuple):
    """Messages by the values of some fields together."""

    key_of: Callable[[Record], Keys]
    postings: Postings


class Catalogue:
    """Messages by place and by MsgId, CorrelId and GroupId.

    Any other set of fields that lookups ask for, several ids together or attributes that selectors equate,
    gets an index when lookups by it have looked at so many messages in vain that making it costs no more.
    Not safe for threads: the queue has the lock.

    invariant: a message is in the order, in the postings of each of its ids that is not none, and in every
    index; one that expires is in ``expiring``.
    """

    __slots__ = (
        "_by_correl_id",
        "_by_group_id",
        "_by_msg_id",
        "_indexes",
        "_owed",
        "expiring",
        "order",
        "statistics",
        "token_prefix",
    )

    def __init__(self, statistics: Statistics, token_prefix: bytes) -> None:
        self.order = Order()
        self.statistics = statistics
        self.token_prefix = token_prefix
        self.expiring: SortedList = SortedList()
        """(expiration, place) of the messages that expire."""
        self._by_msg_id = Postings()
        self._by_correl_id = Postings()
        self._by_group_id = Postings()
        self._indexes: dict[Fields, _Index] = {}
        self._owed: dict[Fields, int] = {}

    def add(self, record: Record) -> None:
        """Add a message. O(1) but for shared ids."""
        self.order.add(record)
        self._by_msg_id.add(record[MSG_ID], record)
        if record[CORREL_ID] is not NO_ID:
            self._by_correl_id.add(record[CORREL_ID], record)
        if record[GROUP_ID] is not NO_ID:
            self._by_group_id.add(record[GROUP_ID], record)
        if record[EXPIRATION]:
            self.expiring.add((record[EXPIRATION], record[PLACE]))
        if self._indexes:
            for index in self._indexes.values():
                index.postings.add(index.key_of(record), record)

    def remove(self, record: Record) -> None:
        """Take a message out. O(1) but for shared ids."""
        self.order.remove(record)
        self._by_msg_id.remove(record[MSG_ID], record)
        if record[CORREL_ID] is not NO_ID:
            self._by_correl_id.remove(record[CORREL_ID], record)
        if record[GROUP_ID] is not NO_ID:
            self._by_group_id.remove(record[GROUP_ID], record)
        if record[EXPIRATION]:
            self.expiring.remove((record[EXPIRATION], record[PLACE]))
        if self._indexes:
            for index in self._indexes.values():
                index.postings.remove(index.key_of(record), record)

    def find(self, request: Request, after: int = -1) -> Record | None:
        """Return the first message behind a place that the request is for. O(1), with an index."""
        msg_id, correl_id, group_id, msg_seq_number, offset, msg_token, selection = request
        if selection is not None or msg_token is not None:
            return self._find_selected(request, after)
        if msg_id is not None:
            listed = self._by_msg_id.get(msg_id)
            alone = correl_id is None and group_id is None
        elif correl_id is not None:
            listed = self._by_correl_id.get(correl_id)
            alone = group_id is None
        elif group_id is not None:
            listed = self._by_group_id.get(group_id)
            alone = True
        elif msg_seq_number is None and offset is None:
            return self.order.first() if after < 0 else next(self.order.walk(after), None)
        else:
            return self._search(*_fields_and_keys(request), request, None, after)
        if listed is None:
            return None
        # What nearly every lookup comes to: one message, the first of those with the one id asked for, or a
        # few of which one is.
        alone = alone and msg_seq_number is None and offset is None
        if type(listed) is tuple or (alone and after < 0):
            self.statistics.looked_at += 1
            record = first_of(listed)
            return (
                record if (after < 0 or record[PLACE] > after) and (alone or request.agrees(record)) else None
            )
        if type(listed) is dict:
            return self._first(walk(listed, after), request, None)
        return self._search(*_fields_and_keys(request), request, None, after)

    def has_token(self, record: Record, msg_token: bytes) -> bool:
        """Return whether a message has this token."""
        return self.token_prefix == msg_token[:8] and record[PLACE] == place_in(msg_token)

    def _find_selected(self, request: Request, after: int) -> Record | None:
        if request.msg_token is not None:
            return self._find_token(request, after)
        assert request.selection is not None
        asked = _asked(request)
        best: Record | None = None
        for alternative in request.selection.alternatives:
            fields, keys = alternative.fields, alternative.keys
            if asked:
                both = _both(asked, alternative)
                if both is None:
                    continue
                fields, keys = both
            found = self._search(fields, keys, request, alternative, after)
            if found is not None and (best is None or found[PLACE] < best[PLACE]):
                best = found
        return best

    def _find_token(self, request: Request, after: int) -> Record | None:
        assert request.msg_token is not None
        record = self.order.get(place_in(request.msg_token))
        if record is None or record[PLACE] <= after or not self.has_token(record, request.msg_token):
            return None
        self.statistics.looked_at += 1
        if not request.agrees(record):
            return None
        return record if request.selection is None or request.selection.selects(seen(record)) else None

    def _search(
        self, fields: Fields, keys: Keys, request: Request, alternative: Alternative | None, after: int
    ) -> Record | None:
        """The first message whose fields have these keys and that satisfies the rest of an alternative."""
        index = self._indexes.get(fields)
        if index is not None:
            self._used(fields)
            found: Fields | None = fields
            listed = index.postings.get(keys)
        else:
            found, listed = self._smallest(fields, keys)
        if found is not None and listed is None:
            return None
        if found == fields and fields:
            rest = None if alternative is None else alternative.rest
            return self._first(walk(listed, after), None, rest)
        if found is None:
            self.statistics.scans += 1
        whole = None if alternative is None else alternative.whole
        records = self.order.walk(after) if found is None else walk(listed, after)
        before = self.statistics.looked_at
        result = self._first(records, request, whole)
        looked_at = self.statistics.looked_at - before
        if fields and looked_at > _PATIENCE:
            self._owe(fields, looked_at)
        return result

    def _smallest(self, fields: Fields, keys: Keys) -> tuple[Fields | None, Listed | None]:
        """The index, by its fields, that leaves the fewest messages to look at, and these; or None."""
        wanted = dict(zip(fields, keys, strict=True))
        best: tuple[Fields | None, Listed | None] = (None, None)
        for of, postings in self._all_postings():
            if all(field in wanted for field in of):
                key = tuple([wanted[field] for field in of])
                listed = postings.get(key[0] if of in _BY_ID else key)
                if listed is None:
                    return of, None
                if best[1] is None or size_of(listed) < size_of(best[1]):
                    best = of, listed
        return best

    def _all_postings(self) -> Iterator[tuple[Fields, Postings]]:
        yield from zip(_BY_ID, (self._by_msg_id, self._by_correl_id, self._by_group_id), strict=True)
        for fields, index in self._indexes.items():
            yield fields, index.postings

    def _first(
        self, records: Iterator[Record], request: Request | None, clause: Clause | None
    ) -> Record | None:
        """The first of some messages that the request and the clause are for."""
        for record in records:
            self.statistics.looked_at += 1
            if (request is None or request.agrees(record)) and (clause is None or clause.holds(seen(record))):
                return record
        return None

    def _used(self, fields: Fields) -> None:
        """Move an index behind the others: that in front was not used for longest."""
        if next(reversed(self._indexes)) != fields:
            self._indexes[fields] = self._indexes.pop(fields)

    def _owe(self, fields: Fields, looked_at: int) -> None:
        """Count messages looked at for lack of an index, and make it when that has cost as much."""
        owed = self._owed.get(fields, 0) + looked_at
        if owed < self.order.count // 2:
            if len(self._owed) >= 1_000:  # whoever asks for ever new sets of fields gets no index
                self._owed.clear()
            self._owed[fields] = owed
            return
        self._owed.pop(fields, None)
        if len(self._indexes) >= MAX_INDEXES:
            del self._indexes[next(iter(self._indexes))]
        index = self._indexes[fields] = _Index(_key_of(fields), Postings())
        for record in self.order.walk():
            index.postings.add(index.key_of(record), record)
        self.statistics.indexes_made += 1


def _asked(request: Request) -> dict[Field, Any]:
    """The fields of the descriptor that a request gives, in the order in which they stand there."""
    return {field: value for field, value in enumerate(request[:5]) if value is not None}


def _fields_and_keys(request: Request) -> tuple[Fields, Keys]:
    asked = _asked(request)
    return tuple(asked), tuple(asked.values())


def _both(asked: dict[Field, Any], alternative: Alternative) -> tuple[Fields, Keys] | None:
    """What a request and an alternative ask for together; None if they contradict each other."""
    wanted = dict(zip(alternative.fields, alternative.keys, strict=True))
    for field, value in asked.items():
        if wanted.setdefault(field, value) != value:
            return None
    fields = tuple(sorted(wanted, key=lambda field: (isinstance(field, str), field)))
    return fields, tuple([wanted[field] for field in fields])


def _key_of(fields: Fields) -> Callable[[Record], Keys]:
    """What gives the values of some fields of a message, as keys where they are attributes."""
    of_descriptor = tuple(field for field in fields if isinstance(field, int))
    attributes = tuple(field for field in fields if isinstance(field, str))

    def key_of(record: Record) -> Keys:
        values = [record[field] for field in of_descriptor]
        if attributes:
            lookup = seen(record)
            values += [message_key(lookup(name)) for name in attributes]
        return tuple(values)

    return key_of


def place_in(msg_token: bytes) -> int:
    """Return the place that a token has in it."""
    return int.from_bytes(msg_token[8:], "big")
