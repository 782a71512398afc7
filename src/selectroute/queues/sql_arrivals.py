"""Giving messages their places on a queue in a database."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection

from selectroute.queues.admission import Admitted
from selectroute.queues.errors import MQRC_Q_FULL, MQRC_UNKNOWN_OBJECT_NAME, failed
from selectroute.queues.message import UNLIMITED
from selectroute.queues.places import place_of
from selectroute.queues.record import Record
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql_indexes import keys_of
from selectroute.queues.sql_statements import ARRIVE, BETWEEN, HELD, PUT, PUT_KEY
from selectroute.queues.stored import bare_record_of, row_of
from selectroute.selector.sentences import counted

_ID_PREFIX: Final = b"AMQ "


class Arrivals:
    """Puts messages on one queue, in the transaction of whoever puts them."""

    def __init__(self, queue: int, settings: QueueSettings) -> None:
        self._queue = queue
        self._settings = settings
        self._by_priority = settings.order == "priority"
        self._id_prefix = _ID_PREFIX + secrets.token_bytes(12)

    def add(
        self, connection: Connection, admitted: Admitted, marks: Mapping[str, int], now: Mapping[str, int]
    ) -> Record:
        """Give a message its place; `marks` say in which unit it is, if in one, and `now` in which queue and
        when. Raises MQError 2053 for a queue that is full, 2085 for one that is deleted.
        """
        body, msg_id, *fields, expiry, own = admitted
        timestamp = now["now_ms"]
        arrived = connection.execute(ARRIVE, now).one_or_none()
        if arrived is None:
            raise failed(MQRC_UNKNOWN_OBJECT_NAME, "the queue was deleted")
        limit = self._settings.max_depth
        if limit is not None and connection.execute(HELD, now).scalar_one() >= limit:
            raise failed(MQRC_Q_FULL, f"the queue holds {counted(limit, 'message')}, and takes no more")
        arrival, indexes = arrived
        record = (
            msg_id or self._id_prefix + arrival.to_bytes(8, "big"),
            *fields,
            expiry,
            timestamp,
            0,
            0 if expiry == UNLIMITED else timestamp + 100 * expiry,
            place_of(arrival, admitted.priority if self._by_priority else None),
            body,
            own,
        )
        row = {
            **row_of(record),
            "queue": self._queue,
            "owner": marks.get("own"),
            "unit": marks.get("of_unit"),
            "arriving": bool(marks),
        }
        connection.execute(PUT, row)
        keys = keys_of(record, self._queue, indexes)
        if keys:
            connection.execute(PUT_KEY, keys)
        return record

    def between(self, connection: Connection, after: int, upto: int, now: Mapping[str, int]) -> list[Record]:
        """Return the visible messages that arrived behind a number and up to another one, without bodies."""
        records: list[Record] = []
        for priority in range(10) if self._by_priority else (None,):
            ends = {"after": place_of(after, priority), "upto": place_of(upto, priority)}
            records += map(bare_record_of, connection.execute(BETWEEN, {**now, **ends}))
        return records
