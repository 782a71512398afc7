"""The indexes of messages on what selectors equate, made when lookups would have paid for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import bindparam, delete, func, select, update

from selectroute.queues.catalogue import MAX_INDEXES, Statistics
from selectroute.queues.record import PLACE, Record
from selectroute.queues.sql_lookup import Attributes, indexes_of
from selectroute.queues.sql_statements import PUT_KEY
from selectroute.queues.stored import BARE_COLUMNS, bare_record_of, key_of
from selectroute.queues.tables import key, message, queue
from selectroute.store.engine import Store

_ENOUGH: Final = 1_000
"""Messages looked at in vain for which an index is made, or half of the queue if that is more."""

_CHUNK: Final = 1_000

# Those who put wait for this row, so no message is put without the key of an index that is being made.
_ALONE: Final = (
    update(queue)
    .where(queue.c.id == bindparam("in_queue"))
    .values(indexes=queue.c.indexes)
    .returning(queue.c.indexes)
)
_KEEP: Final = update(queue).where(queue.c.id == bindparam("in_queue")).values(indexes=bindparam("as_text"))
_DROP: Final = delete(key).where(key.c.queue == bindparam("in_queue"), key.c.index == bindparam("of_index"))
_COUNT: Final = select(func.count()).select_from(message).where(message.c.queue == bindparam("in_queue"))
_ALL: Final = (
    select(*BARE_COLUMNS)
    .where(message.c.queue == bindparam("in_queue"), message.c.place > bindparam("after"))
    .order_by(message.c.place)
    .limit(_CHUNK)
    # No message goes away before it has its key; those that go are waited for.
    .with_for_update(read=True, key_share=True)
)


class SqlIndexes:
    """What lookups of this process owe to the indexes of a queue. Safe for threads, but for a count lost."""

    def __init__(self, store: Store, queue: int, statistics: Statistics) -> None:
        self._store = store
        self._queue = queue
        self._statistics = statistics
        self._owed: dict[Attributes, tuple[int, int]] = {}
        # How many were looked at in vain, and how many are enough; the queue is counted only then.

    def owe(self, vain: Mapping[Attributes, int]) -> None:
        """Count messages looked at for lack of indexes, and make those that this would have paid for.

        O(messages) where one is made, in one transaction; otherwise O(1).
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
            if len(self._owed) >= 1_000:  # whoever asks for ever new sets of attributes gets no index
                self._owed.clear()
            self._owed[attributes] = owed, enough

    def _count(self) -> int:
        with self._store.reading() as connection:
            return int(connection.execute(_COUNT, {"in_queue": self._queue}).scalar_one())

    def _make(self, attributes: Attributes) -> None:
        given = {"in_queue": self._queue}
        with self._store.writing(bulk=True) as connection:
            text = connection.execute(_ALONE, given).scalar_one_or_none()
            if text is None:
                return
            there = dict(indexes_of(text))
            if attributes in there.values():  # another process was faster
                return
            number = max(there, default=0) + 1
            if len(there) >= MAX_INDEXES:
                oldest = min(there)
                del there[oldest]
                connection.execute(_DROP, {**given, "of_index": oldest})
            there[number] = attributes
            connection.execute(_KEEP, {**given, "as_text": json.dumps(there)})
            after: int = -1
            while True:
                rows = connection.execute(_ALL, {**given, "after": after}).all()
                keys = [
                    one
                    for row in rows
                    for one in _keys_of(bare_record_of(row), self._queue, {number: attributes})
                ]
                if keys:
                    connection.execute(PUT_KEY, keys)
                if len(rows) < _CHUNK:
                    break
                after = rows[-1].place
        self._statistics.indexes_made += 1


def keys_of(record: Record, queue: int, indexes: str) -> list[dict[str, Any]]:
    """Return the rows by which the indexes of a queue find a message."""
    return _keys_of(record, queue, indexes_of(indexes)) if indexes != "{}" else []


def _keys_of(record: Record, queue: int, indexes: Mapping[int, Attributes]) -> list[dict[str, Any]]:
    found = []
    for number, attributes in indexes.items():
        octets = key_of(record, attributes)
        if octets is not None:
            found.append({"queue": queue, "index": number, "key": octets, "place": record[PLACE]})
    return found
