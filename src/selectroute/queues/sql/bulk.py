"""Purge and move of many messages of a queue: chunk by chunk, each chunk in one transaction.

A moved message is never on both queues or on neither: it is one row, whose queue is changed. Whatever stops
the work in between, whole chunks are done, and the same call again goes on. Messages in units of work, and
those that others are getting, are left alone.
"""

from __future__ import annotations

import math
from typing import Any, Final

from sqlalchemy import Connection

from selectroute.queues.errors import (
    MQRC_OBJECT_NAME_ERROR,
    MQRC_UNKNOWN_OBJECT_NAME,
    CountChangedError,
    ScanLimitError,
    failed,
)
from selectroute.queues.lookup import Match
from selectroute.queues.message.record import ARRIVALS, StoredMessage, queue_key_of
from selectroute.queues.queue import BulkPosition, BulkResult, MessageCount, Stayed
from selectroute.queues.sql.database import Defined
from selectroute.queues.sql.lookup import keys_of
from selectroute.queues.sql.statements import (
    ARRIVE_MANY,
    CHANGES,
    HELD,
    LOCK_FREE,
    LOCK_QUEUES,
    MOVE,
    PUT_KEY,
    REMOVE,
    REMOVE_KEYS,
    count,
    shape_of,
)
from selectroute.queues.sql.store import SqlStore

MOST_COMPARED: Final = 100_000
"""Messages that are compared with a selector at most to count its matches."""

CHUNK: Final = 1_000
"""Messages that are removed or moved in one transaction at most."""

_CHUNK_BYTES: Final = 1 << 24
"""Bytes of bodies that are moved in one transaction at most, but one message always is."""

_COMPARED_AT_ONCE: Final = 10_000
"""Messages that are compared in one transaction at most to find a chunk."""

_START: Final = BulkPosition()


class Bulk:
    """Purge of all matching messages, or their move to the end of another queue of the database.

    `count` counts them once; messages that arrive later are not touched. Then each `step` does a chunk, until
    it returns False. Not safe for threads.

    Args:
        store: the queue.
        match: the lookup.
        to: the name of the queue to move the messages to; None to remove them.

    Raises MQError 2085 if there is no such queue, 2152 if it is this one.
    """

    def __init__(self, store: SqlStore, match: Match, to: str | None) -> None:
        self._store = store
        self._database = store.database.store
        self._queue = store.defined.id
        self._match = match
        self._to = None if to is None else store.database.find(to)
        if self._to is not None and self._to.id == self._queue:
            raise failed(MQRC_OBJECT_NAME_ERROR, "messages cannot be moved to the queue on which they are")
        self._last_arrival, self._after = _START
        self.result: BulkResult
        """Result so far, from the count on."""

    @property
    def position(self) -> BulkPosition:
        """Position from which another object goes on."""
        return BulkPosition(self._last_arrival, self._after)

    def count(self, expected: int | None = None, position: BulkPosition = _START) -> MessageCount:
        """Count the messages that match now; with a position, those that are left from there.

        Messages without a selector are counted in the database; of those that are compared with one, the
        first `MOST_COMPARED` are.

        Raises CountChangedError if `expected` is given and another number.
        """
        self._store.begin()
        with self._database.reading() as connection:
            row = connection.execute(CHANGES, {"in_queue": self._queue}).one_or_none()
            arrivals = 0 if row is None else row.arrivals
            self._last_arrival, self._after = min(position.last_arrival, arrivals), position.after
            matched = self._counted(connection)
        if expected is not None and matched.count != expected:
            raise CountChangedError(expected, matched.count)
        self.result = BulkResult(matched, position=str(self.position))
        return matched

    def step(self) -> bool:
        """Do the next chunk; return whether there may be more.

        Raises MQError 2085 if a queue was deleted, 2019 if it is closed.
        """
        self._store.begin()
        most, result, is_last = CHUNK, self.result, True
        if result.matched.exact:  # what came back since, from a unit that was backed out, is not counted
            most = min(most, result.matched.count - result.done - result.stayed.total)
        if most > 0 and not result.is_complete:
            with self._database.reading() as connection:
                records, after, is_last = self._next(connection, most)
            if records:
                after, is_last = self._change(records, after, is_last)
            self._after = after
        result.position = None if is_last else str(self.position)
        return not is_last

    def _counted(self, connection: Connection) -> MessageCount:
        """Return the number of matches that are left."""
        match = self._match
        if match.selection is None and match.msg_token is None:
            shape, parameters = shape_of(match)
            parameters |= {**self._store.now(), "after": self._after, "last_arrival": self._last_arrival}
            number = int(connection.execute(count(shape), parameters).scalar_one())
            return MessageCount(number, True)
        matches = 0
        candidates = self._store.finder(connection).candidates(match, self._after)
        for compared, (record, is_match) in enumerate(candidates):
            if compared == MOST_COMPARED:
                return MessageCount(matches, False)
            matches += is_match and self._is_old(record)
        return MessageCount(matches, True)

    def _is_old(self, record: StoredMessage) -> bool:
        """Return whether a message arrived before the count."""
        return record.queue_key & ARRIVALS <= self._last_arrival

    def _next(self, connection: Connection, most: int) -> tuple[list[StoredMessage], int, bool]:
        """Return the next matches, the key up to which was looked, and whether that is the end."""
        records: list[StoredMessage] = []
        after = self._after
        candidates = self._store.finder(connection).candidates(self._match, after)
        try:
            for compared, (record, is_match) in enumerate(candidates):
                if len(records) == most or compared == _COMPARED_AT_ONCE:
                    return records, after, False
                after = record.queue_key
                if is_match and self._is_old(record):
                    records.append(record)
        except ScanLimitError:  # the next step goes on from here
            return records, after, False
        return records, after, True

    def _change(self, records: list[StoredMessage], after: int, is_last: bool) -> tuple[int, bool]:
        """Remove or move messages; return the key up to which all is done, and whether that is all.

        In one transaction. `after` and `is_last` are these if all of the messages are dealt with.
        """
        stayed = Stayed()
        with self._database.writing() as connection:
            if self._to is None:
                done = self._remove(connection, records, stayed)
            else:
                done, undone = self._move(connection, self._to, records, stayed)
                if undone is not None:
                    after, is_last = undone - 1, False
        self.result.done += done
        self.result.stayed.too_long += stayed.too_long
        self.result.stayed.in_use += stayed.in_use
        if stayed.full:
            self._after = after
            with self._database.reading() as connection:
                self.result.stayed.full = self._counted(connection).count
            is_last = True
        return after, is_last

    def _remove(self, connection: Connection, records: list[StoredMessage], stayed: Stayed) -> int:
        self._lock(connection, self._queue)
        free = self._free(connection, records)
        parameters = {"in_queue": self._queue, "places": list(free)}
        if free:
            connection.execute(REMOVE, parameters)
        stayed.in_use = len(records) - len(free)
        return len(free)

    def _move(
        self, connection: Connection, to: Defined, records: list[StoredMessage], stayed: Stayed
    ) -> tuple[int, int | None]:
        """Move messages up to the first without room; return their number, and the key of that message.

        The target, or the transaction, has no room for it.
        """
        indexes = self._lock(connection, self._queue, to.id)[to.id]
        lengths = self._free(connection, records)
        limit = to.settings.max_depth
        room = math.inf
        if limit is not None:
            room = limit - connection.execute(HELD, {**self._store.now(), "in_queue": to.id}).scalar_one()
        moved: list[StoredMessage] = []
        size = 0
        undone: int | None = None
        for record in records:
            length = lengths.get(record.queue_key)
            if length is None:
                stayed.in_use += 1
            elif length > to.settings.max_message_length:
                stayed.too_long += 1
            elif len(moved) >= room or (moved and size + length > _CHUNK_BYTES):
                stayed.full = len(moved) >= room
                undone = record.queue_key
                break
            else:
                moved.append(record)
                size += length
        if moved:
            self._put(connection, to, moved, indexes)
        return len(moved), undone

    def _put(self, connection: Connection, to: Defined, records: list[StoredMessage], indexes: str) -> None:
        """Put locked messages on the end of another queue, in their order."""
        arrivals = {"in_queue": to.id, "count": len(records)}
        before = connection.execute(ARRIVE_MANY, arrivals).scalar_one() - len(records)
        by_priority = to.settings.order == "priority"
        rows: list[dict[str, Any]] = []
        keys: list[dict[str, Any]] = []
        for arrival, record in enumerate(records, start=before + 1):
            place = queue_key_of(arrival, record.priority if by_priority else None)
            source = {"in_queue": self._queue, "at_place": record.queue_key}
            rows.append({**source, "to_queue": to.id, "to_place": place})
            keys += keys_of(record._replace(queue_key=place), to.id, indexes)
        places = [record.queue_key for record in records]
        connection.execute(REMOVE_KEYS, {"in_queue": self._queue, "places": places})
        connection.execute(MOVE, rows)
        if keys:
            connection.execute(PUT_KEY, keys)

    def _lock(self, connection: Connection, *queues: int) -> dict[int, str]:
        """Lock queues; return the indexes of each. Raises MQError 2085 if one was deleted."""
        indexes = {row.id: row.indexes for row in connection.execute(LOCK_QUEUES, {"queues": queues})}
        if len(indexes) < len(queues):
            raise failed(MQRC_UNKNOWN_OBJECT_NAME, "the queue was deleted")
        return indexes

    def _free(self, connection: Connection, records: list[StoredMessage]) -> dict[int, int]:
        """Lock the messages that are free; return the length of the body of each by its key."""
        parameters = {**self._store.now(), "places": [record.queue_key for record in records]}
        return {place: length for place, length in connection.execute(LOCK_FREE, parameters)}
