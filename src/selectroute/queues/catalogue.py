"""The messages of a queue by place, by each of their ids, and by whatever else they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sortedcontainers import SortedList

from selectroute.clauses.predicate import Clause
from selectroute.queues.blocks import Blocks
from selectroute.queues.fields import Fields, Keys, asked_fields, both, fields_and_keys, key_of_fields
from selectroute.queues.ids import Ids
from selectroute.queues.listed import Listed, first_of, size_of, walk
from selectroute.queues.message import NO_ID
from selectroute.queues.msg_ids import PREFIX_BYTES, MsgIds
from selectroute.queues.places import place_in
from selectroute.queues.positions import CORREL_ID, EXPIRATION, GROUP_ID, MSG_ID
from selectroute.queues.postings import Postings
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


class _Index(NamedTuple):
    """Messages by the values of some fields together."""

    key_of: Callable[[Record], Keys]
    postings: Postings


class Catalogue:
    """Messages by place and by MsgId, CorrelId and GroupId.

    Any other set of fields that lookups ask for, several ids together or attributes that selectors equate,
    gets an index when lookups by it have looked at so many messages in vain that making it costs no more.
    Not safe for threads: the queue has the lock.

    invariant: a message is in its block, and its place under each of its ids that is not none, and in every
    index; one that expires is in ``expiring``.
    """

    __slots__ = (
        "_blocks",
        "_by_correl_id",
        "_by_group_id",
        "_by_msg_id",
        "_indexes",
        "_owed",
        "expiring",
        "statistics",
        "token_prefix",
    )

    def __init__(self, statistics: Statistics, token_prefix: bytes, id_prefix: bytes) -> None:
        self.statistics = statistics
        self.token_prefix = token_prefix
        self.expiring: SortedList = SortedList()
        """(expiration, place) of the messages that expire."""
        self._blocks = Blocks()
        self._by_msg_id = MsgIds(id_prefix, self._blocks)
        self._by_correl_id = Ids()
        self._by_group_id = Ids()
        self._indexes: dict[Fields, _Index] = {}
        self._owed: dict[Fields, int] = {}

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self._blocks.count

    def get(self, place: int) -> Record | None:
        """Return the message in a place. O(1)."""
        return self._blocks.get(place)

    def add(self, record: Record) -> None:
        """Add a message. O(1) but for shared ids."""
        place = record[PLACE]
        self._blocks.add(record)
        self._by_msg_id.add(record[MSG_ID], place)
        if record[CORREL_ID] != NO_ID:
            self._by_correl_id.add(record[CORREL_ID], place)
        if record[GROUP_ID] != NO_ID:
            self._by_group_id.add(record[GROUP_ID], place)
        if record[EXPIRATION]:
            self.expiring.add((record[EXPIRATION], place))
        if self._indexes:
            for index in self._indexes.values():
                index.postings.add(index.key_of(record), place)

    def remove(self, record: Record) -> None:
        """Take a message out. O(1) but for shared ids."""
        place = record[PLACE]
        self._blocks.remove(place)
        self._by_msg_id.remove(record[MSG_ID], place)
        if record[CORREL_ID] != NO_ID:
            self._by_correl_id.remove(record[CORREL_ID], place)
        if record[GROUP_ID] != NO_ID:
            self._by_group_id.remove(record[GROUP_ID], place)
        if record[EXPIRATION]:
            self.expiring.remove((record[EXPIRATION], place))
        if self._indexes:
            for index in self._indexes.values():
                index.postings.remove(index.key_of(record), place)
        if not self._blocks.count:
            for _, ids in self._ids():
                ids.clear()

    def find(self, request: Request, after: int = -1) -> Record | None:
        """Return the first message behind a place that the request is for. O(1), with an index."""
        msg_id, correl_id, group_id, msg_seq_number, offset, msg_token, selection = request
        if selection is not None or msg_token is not None:
            return self._find_selected(request, after)
        if msg_id is not None:
            if not self._by_msg_id.borrowed and msg_id.startswith(self._by_msg_id.prefix):
                record = self._blocks.arrived(int.from_bytes(msg_id[PREFIX_BYTES:], "big"))
                self.statistics.looked_at += record is not None
                there = record is not None and record[PLACE] > after and request.agrees(record)
                return record if there else None
            listed = self._by_msg_id.get(msg_id)
        elif correl_id is not None:
            listed = self._by_correl_id.get(correl_id)
        elif group_id is not None:
            listed = self._by_group_id.get(group_id)
        elif msg_seq_number is None and offset is None:
            return self._blocks.first() if after < 0 else next(self._blocks.walk(after), None)
        else:
            return self._search(*fields_and_keys(request), request, None, after)
        if listed is None:
            return None
        if type(listed) is not int and size_of(listed) > _PATIENCE and request[:5].count(None) < 4:
            return self._search(*fields_and_keys(request), request, None, after)
        # What nearly every lookup comes to: one message, or the first of those with the id asked for.
        place = first_of(listed)
        if place > after:
            self.statistics.looked_at += 1
            record = self._blocks.get(place)
            if record is not None and request.agrees(record):
                return record
            after = place
        return None if type(listed) is int else self._first(self._in(walk(listed, after)), request, None)

    def has_token(self, record: Record, msg_token: bytes) -> bool:
        """Return whether a message has this token."""
        return self.token_prefix == msg_token[:8] and record[PLACE] == place_in(msg_token)

    def _find_selected(self, request: Request, after: int) -> Record | None:
        if request.msg_token is not None:
            return self._find_token(request, after)
        assert request.selection is not None
        asked = asked_fields(request)
        best: Record | None = None
        for alternative in request.selection.alternatives:
            fields, keys = alternative.fields, alternative.keys
            if asked:
                wanted = both(asked, alternative)
                if wanted is None:
                    continue
                fields, keys = wanted
            found = self._search(fields, keys, request, alternative, after)
            if found is not None and (best is None or found[PLACE] < best[PLACE]):
                best = found
        return best

    def _find_token(self, request: Request, after: int) -> Record | None:
        assert request.msg_token is not None
        record = self._blocks.get(place_in(request.msg_token))
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
            listed = index.postings.get(keys)
            rest = None if alternative is None else alternative.rest
            return None if listed is None else self._first(self._in(walk(listed, after)), None, rest)
        found, listed = self._smallest(fields, keys)
        if found is not None and listed is None:
            return None
        if found is None:
            self.statistics.scans += 1
        whole = None if alternative is None else alternative.whole
        records = self._blocks.walk(after) if found is None else self._in(walk(listed, after))
        before = self.statistics.looked_at
        result = self._first(records, request, whole)
        looked_at = self.statistics.looked_at - before
        if fields and fields != found and looked_at > _PATIENCE:
            self._owe(fields, looked_at)
        return result

    def _smallest(self, fields: Fields, keys: Keys) -> tuple[Fields | None, Listed | None]:
        """The index, by its fields, that leaves the fewest messages to look at, and these; or None."""
        wanted = dict(zip(fields, keys, strict=True))
        best: tuple[Fields | None, Listed | None] = (None, None)
        for of, listed in self._usable(wanted):
            if listed is None:
                return of, None
            if best[1] is None or size_of(listed) < size_of(best[1]):
                best = of, listed
        return best

    def _usable(self, wanted: dict[Field, Any]) -> Iterator[tuple[Fields, Listed | None]]:
        """The fields of every index that has some of those wanted, and the messages with their values."""
        for field, ids in self._ids():
            if field in wanted:
                yield (field,), ids.get(wanted[field])
        for fields, index in self._indexes.items():
            if all(field in wanted for field in fields):
                yield fields, index.postings.get(tuple([wanted[field] for field in fields]))

    def _ids(self) -> Iterator[tuple[int, Ids | MsgIds]]:
        yield MSG_ID, self._by_msg_id
        yield CORREL_ID, self._by_correl_id
        yield GROUP_ID, self._by_group_id

    def _in(self, places: Iterator[int]) -> Iterator[Record]:
        """The messages in places that are listed."""
        return map(self._blocks.get, places)  # type: ignore[arg-type]  # what is listed is there

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
        if owed < self.count // 2:
            if len(self._owed) >= 1_000:  # whoever asks for ever new sets of fields gets no index
                self._owed.clear()
            self._owed[fields] = owed
            return
        self._owed.pop(fields, None)
        if len(self._indexes) >= MAX_INDEXES:
            del self._indexes[next(iter(self._indexes))]
        index = self._indexes[fields] = _Index(key_of_fields(fields), Postings())
        for record in self._blocks.walk():
            index.postings.add(index.key_of(record), record[PLACE])
        self.statistics.indexes_made += 1
