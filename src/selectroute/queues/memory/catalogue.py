"""Catalogue of the messages of a queue in memory: by key, by each id, and by indexes made on demand."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sortedcontainers import SortedList

from selectroute.clauses.predicate import Clause
from selectroute.queues.lookup.finding import (
    MAX_INDEXES,
    MAX_SCANNED_BEFORE_INDEX,
    Statistics,
    find_by_token,
)
from selectroute.queues.lookup.request import (
    Fields,
    Keys,
    Request,
    asked_fields,
    both,
    fields_and_keys,
    key_of_fields,
)
from selectroute.queues.lookup.selection import Alternative, KeyField
from selectroute.queues.memory.blocks import Blocks
from selectroute.queues.memory.id_table import Ids
from selectroute.queues.memory.postings import (
    NUMBER_BITS,
    NUMBERS,
    Listed,
    Postings,
    posting_of,
    size_of,
    walk,
    with_number,
)
from selectroute.queues.message.message import NO_ID
from selectroute.queues.message.queue_key import ARRIVALS
from selectroute.queues.message.record import ID_PREFIX_BYTES, Field, Record, selector_values


class MsgIds:
    """Postings by MsgId. Ids made by the queue contain the arrival number; only others need a table.

    A message may be put with an id that the queue has made for another one; ``borrowed`` counts such
    messages. Then several messages share the id, and all but one are in the table.
    """

    __slots__ = ("_blocks", "_given", "borrowed", "prefix")

    def __init__(self, prefix: bytes, blocks: Blocks) -> None:
        self.prefix = prefix
        self.borrowed = 0
        self._blocks = blocks
        self._given = Ids()

    def get(self, id: bytes) -> Listed | None:
        """Return the postings of messages that may have an id, None if none has it. O(1)."""
        if not id.startswith(self.prefix):
            return self._given.get(id)
        record = self._blocks.arrived(int.from_bytes(id[ID_PREFIX_BYTES:], "big"))
        given = self._given.get(id) if self.borrowed else None
        if record is None:
            return given
        own = posting_of(record)
        if given is None:
            return own
        return array("q", sorted({own, *walk(given)}))

    def add(self, id: bytes, posting: int) -> None:
        """Add the posting of a message. O(1), of a shared id O(log n) of its messages."""
        if id == self.prefix + (posting >> NUMBER_BITS & ARRIVALS).to_bytes(8, "big"):
            return
        if id.startswith(self.prefix):
            self.borrowed += 1
        self._given.add(id, posting)

    def remove(self, id: bytes, posting: int) -> None:
        """Remove the posting of a message. O(1), of a shared id O(log n) of its messages."""
        if id == self.prefix + (posting >> NUMBER_BITS & ARRIVALS).to_bytes(8, "big"):
            return
        if id.startswith(self.prefix):
            self.borrowed -= 1
        self._given.remove(id, posting)

    def clear(self) -> None:
        """Free the memory of an empty table."""
        self._given.clear()

    def walk(self) -> Iterator[tuple[int, Listed]]:
        """Yield the hash of every id that is in the table, and the postings with it."""
        return self._given.walk()


class _Index(NamedTuple):
    """Index of messages by the values of several fields together."""

    key_of: Callable[[Record], Keys]
    postings: Postings


class Catalogue:
    """Messages by key and by MsgId, CorrelId and GroupId.

    Any other set of fields in lookups, several ids together or attributes in equalities of selectors, gets an
    index when lookups have compared as many messages in vain as the index costs to make. Not safe for
    threads: the store holds the lock.

    invariant: a message is in its block, its posting under each of its ids other than zeros and in every
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
        """(expiration, key) of the messages that expire."""
        self._blocks = Blocks()
        self._by_msg_id = MsgIds(id_prefix, self._blocks)
        self._by_correl_id = Ids()
        self._by_group_id = Ids()
        self._indexes: dict[Fields, _Index] = {}
        self._owed: dict[Fields, int] = {}

    @property
    def count(self) -> int:
        """Number of messages."""
        return self._blocks.count

    def get(self, queue_key: int) -> Record | None:
        """Return the message with a key. O(1)."""
        return self._blocks.get(queue_key)

    def add(self, record: Record) -> None:
        """Add a message. O(1) except for shared ids."""
        msg_id, correl_id, group_id, msg_seq_number = record[:4]  # four reads by name take twice as long
        queue_key, expiration = record.queue_key, record.expiration
        posting = queue_key << NUMBER_BITS | msg_seq_number & NUMBERS
        self._blocks.add(record)
        self._by_msg_id.add(msg_id, posting)
        if correl_id != NO_ID:
            self._by_correl_id.add(correl_id, posting)
        if group_id != NO_ID:
            self._by_group_id.add(group_id, posting)
        if expiration:
            self.expiring.add((expiration, queue_key))
        if self._indexes:
            for index in self._indexes.values():
                index.postings.add(index.key_of(record), posting)

    def remove(self, record: Record) -> None:
        """Remove a message. O(1) except for shared ids."""
        msg_id, correl_id, group_id, msg_seq_number = record[:4]  # four reads by name take twice as long
        queue_key, expiration = record.queue_key, record.expiration
        posting = queue_key << NUMBER_BITS | msg_seq_number & NUMBERS
        self._blocks.remove(queue_key)
        self._by_msg_id.remove(msg_id, posting)
        if correl_id != NO_ID:
            self._by_correl_id.remove(correl_id, posting)
        if group_id != NO_ID:
            self._by_group_id.remove(group_id, posting)
        if expiration:
            self.expiring.remove((expiration, queue_key))
        if self._indexes:
            for index in self._indexes.values():
                index.postings.remove(index.key_of(record), posting)
        if not self._blocks.count:
            for _, ids in self._ids():
                ids.clear()

    def find(self, request: Request, after: int = -1) -> Record | None:
        """Return the first match of a request after a key. O(1), with an index."""
        msg_id, correl_id, group_id, msg_seq_number, offset, msg_token, selection = request
        if selection is not None or msg_token is not None:
            return self._find_selected(request, after)
        if msg_id is not None:
            if not self._by_msg_id.borrowed and msg_id.startswith(self._by_msg_id.prefix):
                record = self._blocks.arrived(int.from_bytes(msg_id[ID_PREFIX_BYTES:], "big"))
                self.statistics.looked_at += record is not None
                there = record is not None and record.queue_key > after and request.agrees(record)
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
        if type(listed) is int:
            posting = listed
        elif len(listed) > MAX_SCANNED_BEFORE_INDEX and request[:5].count(None) < 4:
            return self._search(*fields_and_keys(request), request, None, after)
        elif msg_seq_number is None:
            posting = listed[0]
        else:
            bits = msg_seq_number & NUMBERS
            for posting in listed:
                if posting & NUMBERS == bits:
                    break
            else:
                return None
        # The usual case: one message, or the first of those that may have what is asked for.
        queue_key = posting >> NUMBER_BITS
        if queue_key > after:
            self.statistics.looked_at += 1
            record = self._blocks.get(queue_key)
            if record is not None and request.agrees(record):
                return record
            after = queue_key
        if type(listed) is int:
            return None
        if msg_seq_number is not None:
            listed = with_number(listed, msg_seq_number)
        return self._first(self._in(listed, after), request, None)

    def _find_selected(self, request: Request, after: int) -> Record | None:
        if request.msg_token is not None:
            return find_by_token(request, after, self.token_prefix, self._blocks.get, self.statistics)
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
            if found is not None and (best is None or found.queue_key < best.queue_key):
                best = found
        return best

    def _search(
        self, fields: Fields, keys: Keys, request: Request, alternative: Alternative | None, after: int
    ) -> Record | None:
        """Return the first message whose fields have these values and that satisfies an alternative."""
        index = self._indexes.get(fields)
        if index is not None:
            self._used(fields)
            listed = index.postings.get(keys)
            rest = None if alternative is None else alternative.rest
            return None if listed is None else self._first(self._in(listed, after), None, rest)
        found, listed = self._smallest(fields, keys)
        if found is not None and listed is None:
            return None
        if found is None:
            self.statistics.scans += 1
        whole = None if alternative is None else alternative.whole
        records = self._blocks.walk(after) if found is None else self._in(listed, after)
        before = self.statistics.looked_at
        result = self._first(records, request, whole)
        looked_at = self.statistics.looked_at - before
        if fields and fields != found and looked_at > MAX_SCANNED_BEFORE_INDEX:
            self._owe(fields, looked_at)
        return result

    def _smallest(self, fields: Fields, keys: Keys) -> tuple[Fields | None, Listed | None]:
        """Return the fields of the most selective index, and the postings that it leaves; or None."""
        wanted = dict(zip(fields, keys, strict=True))
        best: tuple[Fields | None, Listed | None] = (None, None)
        for of, listed in self._usable(wanted):
            if listed is None:
                return of, None
            if best[1] is None or size_of(listed) < size_of(best[1]):
                best = of, listed
        return best

    def _usable(self, wanted: dict[KeyField, Any]) -> Iterator[tuple[Fields, Listed | None]]:
        """Yield the fields of every usable index, and the postings of messages with the wanted values."""
        for field, ids in self._ids():
            if field in wanted:
                yield (field,), ids.get(wanted[field])
        for fields, index in self._indexes.items():
            if all(field in wanted for field in fields):
                yield fields, index.postings.get(tuple([wanted[field] for field in fields]))

    def _ids(self) -> Iterator[tuple[Field, Ids | MsgIds]]:
        yield Field.MSG_ID, self._by_msg_id
        yield Field.CORREL_ID, self._by_correl_id
        yield Field.GROUP_ID, self._by_group_id

    def _in(self, listed: Listed, after: int) -> Iterator[Record]:
        """Yield the listed messages behind a key, in order."""
        get = self._blocks.get
        for posting in walk(listed, after << NUMBER_BITS | NUMBERS):
            record = get(posting >> NUMBER_BITS)
            assert record is not None, "what is listed is there"
            yield record

    def _first(
        self, records: Iterator[Record], request: Request | None, clause: Clause | None
    ) -> Record | None:
        """Return the first message that agrees with the request and satisfies the clause."""
        for record in records:
            self.statistics.looked_at += 1
            if (request is None or request.agrees(record)) and (
                clause is None or clause.holds(selector_values(record))
            ):
                return record
        return None

    def _used(self, fields: Fields) -> None:
        """Move an index to the end: the first one is the least recently used."""
        if next(reversed(self._indexes)) != fields:
            self._indexes[fields] = self._indexes.pop(fields)

    def _owe(self, fields: Fields, looked_at: int) -> None:
        """Count messages compared for lack of an index, and make the index when that has cost as much."""
        owed = self._owed.get(fields, 0) + looked_at
        if owed < self.count // 2:
            if len(self._owed) >= 1_000:  # clients that ask for ever new sets of fields get no index
                self._owed.clear()
            self._owed[fields] = owed
            return
        self._owed.pop(fields, None)
        if len(self._indexes) >= MAX_INDEXES:
            del self._indexes[next(iter(self._indexes))]
        index = self._indexes[fields] = _Index(key_of_fields(fields), Postings())
        for record in self._blocks.walk():
            index.postings.add(index.key_of(record), posting_of(record))
        self.statistics.indexes_made += 1
