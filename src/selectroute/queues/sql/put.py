"""Puts to a queue in a database."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from selectroute.queues.errors import MQRC_Q_FULL, MQRC_UNKNOWN_OBJECT_NAME, failed
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.message.queue_key import queue_key_of
from selectroute.queues.message.record import Record, arrived, new_id_prefix
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.lookup import keys_of
from selectroute.queues.sql.rows import bare_record_of, row_of
from selectroute.queues.sql.statements import ARRIVE, BETWEEN, HELD, PUT, PUT_KEY
from selectroute.selector.explain.sentences import counted


class Arrivals:
    """Puts to one queue, in the caller's transaction."""

    def __init__(self, queue: int, settings: QueueSettings) -> None:
        self._queue = queue
        self._settings = settings
        self._by_priority = settings.order == "priority"
        self._id_prefix = new_id_prefix()

    def add(
        self, connection: Connection, message: ValidatedPut, marks: Mapping[str, int], now: Mapping[str, int]
    ) -> Record:
        """Insert a message. Raises MQError 2053 for a full queue, 2085 for a deleted one.

        Args:
            connection: of the transaction.
            message: the validated put.
            marks: columns that mark the message as in a unit; empty without a unit.
            now: the queue and the time, as parameters.
        """
        counter = connection.execute(ARRIVE, now).one_or_none()
        if counter is None:
            raise failed(MQRC_UNKNOWN_OBJECT_NAME, "the queue was deleted")
        limit = self._settings.max_depth
        if limit is not None and connection.execute(HELD, now).scalar_one() >= limit:
            raise failed(MQRC_Q_FULL, f"the queue holds {counted(limit, 'message')}, its maximum depth")
        arrival, indexes = counter
        record = arrived(message, arrival, self._by_priority, self._id_prefix, now["now_ms"])
        connection.execute(PUT, row_of(record, self._queue, marks))
        keys = keys_of(record, self._queue, indexes)
        if keys:
            connection.execute(PUT_KEY, keys)
        return record

    def between(self, connection: Connection, after: int, upto: int, now: Mapping[str, int]) -> list[Record]:
        """Return the visible messages with arrival numbers above `after` and up to `upto`, without bodies."""
        records: list[Record] = []
        for priority in range(10) if self._by_priority else (None,):
            ends = {"after": queue_key_of(after, priority), "upto": queue_key_of(upto, priority)}
            records += map(bare_record_of, connection.execute(BETWEEN, {**now, **ends}))
        return records
