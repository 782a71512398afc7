"""Finding messages of a queue in a database: by their ids, by what selectors equate, else by walking."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from selectroute.queues.catalogue import Statistics
from selectroute.queues.fields import asked_fields, both
from selectroute.queues.places import place_in
from selectroute.queues.record import PLACE, Record, seen
from selectroute.queues.request import Request
from selectroute.queues.selection import Alternative, Field
from selectroute.queues.sql_statements import AT, shape_of, walk
from selectroute.queues.stored import bare_record_of, digest_of, is_lasting, record_of

_FIRST_CHUNK: Final = 16
_LARGEST_CHUNK: Final = 1_024
"""Messages that are read at once: few, because mostly one of the first is it, and more and more."""

PATIENCE: Final = 16
"""Messages that a lookup may look at in vain before it counts towards an index of its own."""

Attributes = tuple[str, ...]


class Way(NamedTuple):
    """How messages are come by: fields of the descriptor that they have, and perhaps a key of an index."""

    request: Request
    number: int | None = None
    key: bytes | None = None


class SqlLookup:
    """The visible messages of a queue as one transaction sees them, looked for without their bodies.

    ``given`` are the queue and the time, and ``indexes`` those of the queue as it has them. ``vain`` has, for
    attributes that are not indexed together, how many messages were looked at for that.
    """

    def __init__(
        self,
        connection: Connection,
        given: Mapping[str, int],
        indexes: str,
        token_prefix: bytes,
        statistics: Statistics,
    ) -> None:
        self._connection = connection
        self._given = given
        self._indexes = indexes_of(indexes)
        self._token_prefix = token_prefix
        self._statistics = statistics
        self.vain: dict[Attributes, int] = {}

    def has_token(self, record: Record, msg_token: bytes) -> bool:
        """Return whether a message has this token."""
        return self._token_prefix == msg_token[:8] and record[PLACE] == place_in(msg_token)

    def find(self, request: Request, after: int = -1) -> Record | None:
        """Return the first visible message behind a place that the request is for."""
        if request.msg_token is not None:
            return self._find_token(request, after)
        if request.selection is None:
            first = next(self._walk(Way(request), after, 1), None)
            self._statistics.looked_at += first is not None
            return first
        asked = asked_fields(request)
        best: Record | None = None
        for alternative in request.selection.alternatives:
            wanted = both(asked, alternative)
            if wanted is not None:
                found = self._search(*wanted, alternative, after)
                if found is not None and (best is None or found[PLACE] < best[PLACE]):
                    best = found
        return best

    def _find_token(self, request: Request, after: int) -> Record | None:
        token = request.msg_token
        assert token is not None
        place = place_in(token)
        if self._token_prefix != token[:8] or place <= after or place >= 1 << 63:
            return None
        row = self._connection.execute(AT, {**self._given, "at_place": place}).one_or_none()
        if row is None:
            return None
        self._statistics.looked_at += 1
        record = record_of(row)
        if not request.agrees(record):
            return None
        return record if request.selection is None or request.selection.selects(seen(record)) else None

    def _search(
        self, fields: tuple[Field, ...], keys: tuple[Any, ...], alternative: Alternative, after: int
    ) -> Record | None:
        """The first message whose fields have these keys and that satisfies an alternative."""
        wanted = dict(zip(fields, keys, strict=True))
        of_descriptor = Request(*(wanted.get(field) for field in range(5)))
        attributes = tuple(name for name in fields if isinstance(name, str) and is_lasting(name))
        number = self._index_for(attributes)
        if number is not None:
            of_index = [wanted[name] for name in self._indexes[number]]
            way = Way(of_descriptor, number, digest_of(of_index))
        else:
            way = Way(of_descriptor)
            if not any(isinstance(field, int) for field in fields):
                self._statistics.scans += 1
        before = self._statistics.looked_at
        found = None
        for record in self._walk(way, after, _FIRST_CHUNK):
            self._statistics.looked_at += 1
            if alternative.whole.holds(seen(record)):
                found = record
                break
        looked_at = self._statistics.looked_at - before
        if attributes and looked_at > PATIENCE and (number is None or self._indexes[number] != attributes):
            self.vain[attributes] = self.vain.get(attributes, 0) + looked_at
        return found

    def _index_for(self, attributes: Attributes) -> int | None:
        """The number of the index of the most of some attributes."""
        usable = [number for number, of in self._indexes.items() if set(of) <= set(attributes)]
        return max(usable, key=lambda number: len(self._indexes[number]), default=None)

    def _walk(self, way: Way, after: int, chunk: int) -> Iterator[Record]:
        """Visible messages behind a place, in order, read chunk by chunk."""
        shape, given = shape_of(way.request)
        given.update(self._given)
        if way.number is not None:
            given |= {"of_index": way.number, "with_key": way.key}
        statement = walk(shape, way.number is not None)
        while True:
            rows = self._connection.execute(statement, {**given, "after": after, "most": chunk}).all()
            for row in rows:
                yield bare_record_of(row)
            if len(rows) < chunk:
                return
            after, chunk = rows[-1].place, min(4 * chunk, _LARGEST_CHUNK)


def indexes_of(text: str) -> Mapping[int, Attributes]:
    """Return the attributes of each index of a queue by its number."""
    return {int(number): tuple(names) for number, names in json.loads(text).items()}
