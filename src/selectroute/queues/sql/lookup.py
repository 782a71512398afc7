"""Lookups in a database: by ids, by indexes on attributes in selectors' equalities, else by a scan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select

from selectroute.queues.lookup import (
    MAX_INDEXES,
    MAX_SCANNED_BEFORE_INDEX,
    Alternative,
    KeyField,
    LookupStatistics,
    Match,
    check_budget,
    find_by_token,
    first_of,
    ways_of,
)
from selectroute.queues.message.record import Field, StoredMessage, selector_values
from selectroute.queues.sql.statements import AT, MESSAGES, PUT_KEY, UPDATE_QUEUE, shape_of, walk
from selectroute.queues.sql.tables import (
    BARE_COLUMNS,
    bare_record_of,
    digest_of,
    is_lasting,
    key,
    key_of,
    message,
    queue,
    record_of,
)
from selectroute.store.engine import Store

_ENOUGH: Final = 1_000
"""Messages compared in vain after which an index is made, or half of the queue if this is more."""

_CHUNK: Final = 1_000

# Locks the queue's row, which every put updates: no put misses the key of an index being made.
_ALONE: Final = UPDATE_QUEUE.values(indexes=queue.c.indexes).returning(queue.c.indexes)
_KEEP: Final = UPDATE_QUEUE.values(indexes=bindparam("as_text"))
_DROP: Final = delete(key).where(key.c.queue == bindparam("in_queue"), key.c.index == bindparam("of_index"))
_ALL: Final = (
    select(*BARE_COLUMNS)
    .where(message.c.queue == bindparam("in_queue"), message.c.place > bindparam("after"))
    .order_by(message.c.place)
    .limit(_CHUNK)
    # Locked, so that no message is removed before its key is inserted.
    .with_for_update(read=True, key_share=True)
)


class SqlIndexes:
    """Indexes of a queue, made when the scans of this process have cost as much.

    Safe for threads, except that a count may be lost.
    """

    def __init__(self, store: Store, queue: int, statistics: LookupStatistics) -> None:
        self._store = store
        self._queue = queue
        self._statistics = statistics
        self._owed: dict[Attributes, tuple[int, int]] = {}
        # (messages compared in vain, threshold); the queue's length is only counted at the threshold.

    def owe(self, vain: Mapping[Attributes, int]) -> None:
        """Count messages compared for lack of indexes, and make indexes that would have cost less.

        O(messages) if one is made, in one transaction; otherwise O(1).
        """
        for attributes, looked_at in vain.items():
            owed, enough = self._owed.get(attributes, (0, _ENOUGH))
            owed += looked_at
            if owed >= enough:
                enough = max(_ENOUGH, self._count() // 2)
            if owed >= enough:
                self._owed.pop(attributes, None)
                self._make(attributes)
                continue
            if len(self._owed) >= 1_000:  # clients that ask for ever new sets of attributes get no index
                self._owed.clear()
            self._owed[attributes] = owed, enough

    def _count(self) -> int:
        with self._store.reading() as connection:
            return int(connection.execute(MESSAGES, {"in_queue": self._queue}).scalar_one())

    def _make(self, attributes: Attributes) -> None:
        parameters = {"in_queue": self._queue}
        with self._store.writing(bulk=True) as connection:
            text = connection.execute(_ALONE, parameters).scalar_one_or_none()
            if text is None:
                return
            existing = dict(indexes_of(text))
            if attributes in existing.values():  # another process was faster
                return
            number = max(existing, default=0) + 1
            if len(existing) >= MAX_INDEXES:
                oldest = min(existing)
                del existing[oldest]
                connection.execute(_DROP, {**parameters, "of_index": oldest})
            existing[number] = attributes
            connection.execute(_KEEP, {**parameters, "as_text": json.dumps(existing)})
            after: int = -1
            while True:
                rows = connection.execute(_ALL, {**parameters, "after": after}).all()
                keys = [
                    row_of_key
                    for row in rows
                    for row_of_key in _keys_of(bare_record_of(row), self._queue, {number: attributes})
                ]
                if keys:
                    connection.execute(PUT_KEY, keys)
                if len(rows) < _CHUNK:
                    break
                after = rows[-1].place
        self._statistics.indexes_made += 1


def keys_of(record: StoredMessage, queue: int, indexes: str) -> list[dict[str, Any]]:
    """Return the rows of a message in the indexes of a queue."""
    return _keys_of(record, queue, indexes_of(indexes)) if indexes != "{}" else []


def _keys_of(record: StoredMessage, queue: int, indexes: Mapping[int, Attributes]) -> list[dict[str, Any]]:
    rows = []
    for number, attributes in indexes.items():
        octets = key_of(record, attributes)
        if octets is not None:
            rows.append({"queue": queue, "index": number, "key": octets, "place": record.queue_key})
    return rows


# ---- finding messages

_FIRST_CHUNK: Final = 16
_LARGEST_CHUNK: Final = 256
"""Messages read at once: few at first, because usually one of them matches, then more and more."""

Attributes = tuple[str, ...]


class AccessPath(NamedTuple):
    """Access path: required descriptor fields, and optionally an index and its key."""

    match: Match
    number: int | None = None
    key: bytes | None = None


class SqlLookup:
    """Visible messages of a queue in one transaction, found without their bodies.

    ``parameters`` are the queue and the time, ``indexes`` is that column of the queue. ``vain``
    counts the messages compared for lack of an index, by the attributes of that index.
    """

    def __init__(
        self,
        connection: Connection,
        parameters: Mapping[str, int],
        indexes: str,
        token_prefix: bytes,
        statistics: LookupStatistics,
    ) -> None:
        self._connection = connection
        self._parameters = parameters
        self._indexes = indexes_of(indexes)
        self.token_prefix = token_prefix
        self._statistics = statistics
        self.vain: dict[Attributes, int] = {}

    def find(self, match: Match, after: int = -1) -> StoredMessage | None:
        """Return the first visible message that matches after a key."""
        if match.msg_token is not None:
            return find_by_token(match, after, self.token_prefix, self._at, self._statistics)
        if match.selection is None:
            first = next(self._walk(AccessPath(match), after, 1), None)
            self._statistics.looked_at += first is not None
            return first
        return first_of(self._search(*way, after) for way in ways_of(match))

    def candidates(self, match: Match, after: int = -1) -> Iterator[tuple[StoredMessage, bool]]:
        """Yield the messages after a key that may match, and whether each does, in order, without bodies.

        Messages are read as the iteration goes on: a reader that stops early has read a chunk too many at
        most.
        """
        if match.msg_token is not None:
            first = self.find(match, after)
            if first is not None:
                yield first, True
            return
        if match.selection is None:
            for record in self._walk(AccessPath(match), after, _LARGEST_CHUNK):
                self._statistics.looked_at += 1
                yield record, True
            return
        ways: dict[AccessPath, list[Alternative]] = {}
        for fields, keys, alternative in ways_of(match):
            ways.setdefault(self._way(fields, keys), []).append(alternative)
        each = [self._compared(way, alternatives, after) for way, alternatives in ways.items()]
        for _, same in groupby(merge(*each, key=_key_of_candidate), key=_key_of_candidate):
            seen = list(same)
            yield seen[0][0], any(is_match for _, is_match in seen)

    def _compared(
        self, way: AccessPath, alternatives: Sequence[Alternative], after: int
    ) -> Iterator[tuple[StoredMessage, bool]]:
        """Yield all messages on an access path, and whether each satisfies one of the alternatives."""
        for record in self._walk(way, after, _FIRST_CHUNK):
            check_budget()
            self._statistics.looked_at += 1
            read = selector_values(record)
            yield record, any(alternative.whole.holds(read) for alternative in alternatives)

    def _at(self, queue_key: int) -> StoredMessage | None:
        row = self._connection.execute(AT, {**self._parameters, "at_place": queue_key}).one_or_none()
        return None if row is None else record_of(row)

    def _search(
        self, fields: tuple[KeyField, ...], keys: tuple[Any, ...], alternative: Alternative, after: int
    ) -> StoredMessage | None:
        """Return the first message whose fields have these values and that satisfies an alternative."""
        attributes = _lasting(fields)
        way = self._way(fields, keys)
        number = way.number
        if number is None and not any(isinstance(field, int) for field in fields):
            self._statistics.scans += 1
        before = self._statistics.looked_at
        try:
            for record in self._walk(way, after, _FIRST_CHUNK):
                check_budget()
                self._statistics.looked_at += 1
                if alternative.whole.holds(selector_values(record)):
                    return record
            return None
        finally:
            looked_at = self._statistics.looked_at - before
            if (
                attributes
                and looked_at > MAX_SCANNED_BEFORE_INDEX
                and (number is None or self._indexes[number] != attributes)
            ):
                self.vain[attributes] = self.vain.get(attributes, 0) + looked_at

    def _way(self, fields: tuple[KeyField, ...], keys: tuple[Any, ...]) -> AccessPath:
        """Return the access path to the messages whose fields have these values."""
        wanted = dict(zip(fields, keys, strict=True))
        of_descriptor = Match(*(wanted.get(field) for field in Field))
        number = self._index_for(_lasting(fields))
        if number is None:
            return AccessPath(of_descriptor)
        return AccessPath(of_descriptor, number, digest_of([wanted[name] for name in self._indexes[number]]))

    def _index_for(self, attributes: Attributes) -> int | None:
        """Return the number of the index on most of these attributes."""
        usable = [number for number, of in self._indexes.items() if set(of) <= set(attributes)]
        return max(usable, key=lambda number: len(self._indexes[number]), default=None)

    def _walk(self, way: AccessPath, after: int, chunk: int) -> Iterator[StoredMessage]:
        """Yield visible messages after a key, in order, read chunk by chunk."""
        shape, parameters = shape_of(way.match)
        parameters.update(self._parameters)
        if way.number is not None:
            parameters |= {"of_index": way.number, "with_key": way.key}
        statement = walk(shape, way.number is not None)
        while True:
            rows = self._connection.execute(statement, {**parameters, "after": after, "most": chunk}).all()
            for row in rows:
                yield bare_record_of(row)
            if len(rows) < chunk:
                return
            after, chunk = rows[-1].place, min(4 * chunk, _LARGEST_CHUNK)


def _lasting(fields: tuple[KeyField, ...]) -> Attributes:
    """Return the attributes among fields that may be indexed."""
    return tuple(name for name in fields if isinstance(name, str) and is_lasting(name))


def _key_of_candidate(candidate: tuple[StoredMessage, bool]) -> int:
    return candidate[0].queue_key


def indexes_of(text: str) -> Mapping[int, Attributes]:
    """Return the attributes of each index of a queue by its number."""
    return {int(number): tuple(names) for number, names in json.loads(text).items()}
