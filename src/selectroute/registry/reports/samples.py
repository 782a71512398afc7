"""Sample of recent messages: what streams have seen of late, to try a change on before it is made.

A stream sends some messages of its batches, without their bodies, if its operator turns this on. The newest
`KEPT` of all queries are kept. Like reports, they are for people to look at, and may be lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, delete, insert, select, tuple_

from selectroute.index.errors import InvalidSpecError
from selectroute.registry.log.header_rows import read_counter
from selectroute.registry.log.tables import sample
from selectroute.registry.model import MAX_SAMPLED, sampled_text, time_of, time_text

KEPT: Final = 10_000
"""Messages that are kept of all queries together."""

Key = tuple[str, str, int]
"""Time at which a message was reported, query, and number in its report.

A message that is added later has a greater key, whichever service adds it: if the clock of a service is
behind the newest message, that message's time and a microsecond count.
"""


class SampledMessage(NamedTuple):
    """Message of the sample, in the wire form of `Message.from_json`."""

    key: Key
    message: Mapping[str, Any]

    @property
    def query(self) -> str:
        """Query whose batch had the message."""
        return self.key[1]

    @property
    def time(self) -> str:
        """Time at which it was reported, RFC 3339."""
        return self.key[0]


_KEY: Final = (sample.c.time, sample.c.query, sample.c.number)
_NEWEST_FIRST: Final = tuple(column.desc() for column in _KEY)


def note_messages(
    connection: Connection, query: str, messages: Sequence[Mapping[str, Any]], now: datetime
) -> None:
    """Add messages of a query to the sample, the oldest first, and remove the oldest of all above `KEPT`.

    Raises `InvalidSpecError` for a message that is too long.
    """
    if not messages:
        return
    read_counter(connection, lock=True)  # other streams wait: keys ascend in the order of commits
    newest = connection.execute(select(sample.c.time).order_by(*_NEWEST_FIRST).limit(1)).scalar()
    if newest is not None:
        now = max(now, time_of(newest) + timedelta(microseconds=1))
    time = time_text(now)
    rows = []
    for number, message in enumerate(messages[-KEPT:]):
        body = sampled_text(message)
        if len(body) > MAX_SAMPLED:
            raise InvalidSpecError("/messages", f"a message has at most {MAX_SAMPLED:,} characters")
        rows.append({"time": time, "query": query, "number": number, "body": body})
    connection.execute(insert(sample), rows)
    keep_newest(connection, KEPT, _KEY)


def keep_newest(
    connection: Connection, count: int, key: Sequence[Column[Any]], *which: ColumnElement[bool]
) -> None:
    """Delete the rows of a table, or some of them, but those with the greatest keys."""
    newest = select(*key).where(*which).order_by(*(column.desc() for column in key))
    if (oldest := connection.execute(newest.offset(count - 1).limit(1)).one_or_none()) is not None:
        connection.execute(delete(key[0].table).where(*which, tuple_(*key) < tuple_(*oldest)))


def messages_after(connection: Connection, key: Key | None) -> list[SampledMessage]:
    """Return the messages of the sample after that of a key, all for None; the oldest first."""
    wanted = select(sample).order_by(*_NEWEST_FIRST).limit(KEPT)
    if key is not None:
        wanted = wanted.where(tuple_(*_KEY) > tuple_(*key))
    return [
        SampledMessage((row.time, row.query, row.number), json.loads(row.body))
        for row in reversed(connection.execute(wanted).all())
    ]
