"""Workload Q, messages on a queue: what they are, and what holds them beside ours.

Message i has the CorrelId of draws 3 i to 3 i + 2 of the stream of seed 5, 24 bytes, and is one of a group of
ten: number ``i % 10 + 1`` in that with the GroupId of the draws of ``i // 10`` in the stream of seed 6. Its
MsgId is made by the queue. Its body is its number in 100 digits. With properties it has an ``order`` of its
own, a ``customer`` that ten share and a ``weight``.

They are asked for in the order ``k * 7,368,787 mod N``, which goes through all of them and is nowhere near
that of their arrival.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from sortedcontainers import SortedDict

import selectroute as sr
from bench.workloads.plain import Draws, Ints, splitmix64_at

BODY_BYTES: Final = 100
GROUP: Final = 10
_CORREL_SEED, _GROUP_SEED, _DRAWS = 5, 6, 3
_ID_BYTES: Final = 24
_STRIDE: Final = 7_368_787
_CHUNK: Final = 10_000

_TABLE: Final = "CREATE TABLE message (id INTEGER PRIMARY KEY, correl_id BLOB, body BLOB)"
_INDEX: Final = "CREATE INDEX message_correl_id ON message (correl_id)"
_INSERT: Final = "INSERT INTO message (correl_id, body) VALUES (?, ?)"


def ids(seed: int, numbers: Ints) -> list[bytes]:
    """Return the ids of some numbers."""
    places: Draws = (numbers[:, None] * _DRAWS + np.arange(_DRAWS)).astype(np.uint64).ravel()
    octets = splitmix64_at(seed, places).astype(">u8").tobytes()
    return [octets[first : first + _ID_BYTES] for first in range(0, len(octets), _ID_BYTES)]


def correl_ids(numbers: Ints) -> list[bytes]:
    """Return the CorrelIds of some messages."""
    return ids(_CORREL_SEED, numbers)


def group_ids(numbers: Ints) -> list[bytes]:
    """Return the GroupIds of some messages."""
    return ids(_GROUP_SEED, numbers // GROUP)


def bodies(numbers: Ints) -> list[bytes]:
    """Return the bodies of some messages."""
    return [b"%0*d" % (BODY_BYTES, number) for number in numbers.tolist()]


def asked(messages: int, start: int, number: int) -> Ints:
    """Return the messages that are asked for as number `start` and following, of so many."""
    return np.arange(start, start + number) * _STRIDE % messages


class Holder(ABC):
    """What holds messages, to begin with those of 0 to `size`."""

    own_bytes = 0
    """Bytes of what it knows of messages for the benchmark alone."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._start = 0
        for first in range(0, size, _CHUNK):
            self.put(self.prepared(np.arange(first, min(first + _CHUNK, size))))

    def next(self, number: int) -> Ints:
        """Return the messages that are asked for next."""
        self._start += number
        return asked(self.size, self._start - number, number)

    def wanted(self, kind: str, numbers: Ints) -> list[Any]:
        """Return what each of some messages is asked for by, made before the clock starts."""
        return correl_ids(numbers)

    @abstractmethod
    def prepared(self, numbers: Ints) -> list[Any]:
        """Return some messages as they are put, made before the clock starts."""

    @abstractmethod
    def put(self, prepared: Sequence[Any]) -> None:
        """Put messages: this is timed."""

    @abstractmethod
    def take(self, wanted: Sequence[Any]) -> list[bytes]:
        """Take messages out and return their bodies: this is timed."""

    def close(self) -> None:
        """Give back what is held outside this process."""
        return None


class DictHolder(Holder):
    """A plain dictionary of the bodies by CorrelId."""

    def __init__(self, size: int) -> None:
        self._bodies: dict[bytes, bytes] = {}
        super().__init__(size)

    def prepared(self, numbers: Ints) -> list[Any]:
        """See `Holder`."""
        return list(zip(correl_ids(numbers), bodies(numbers), strict=True))

    def put(self, prepared: Sequence[Any]) -> None:
        """See `Holder`."""
        own = self._bodies
        for id, body in prepared:
            own[id] = body

    def take(self, wanted: Sequence[Any]) -> list[bytes]:
        """See `Holder`."""
        pop = self._bodies.pop
        return [pop(id) for id in wanted]


class SortedHolder(Holder):
    """Messages as a program would hold them with dictionaries and `sortedcontainers`: by their place in the
    order, and their places by MsgId, CorrelId and GroupId.
    """

    def __init__(self, size: int) -> None:
        self._arrivals = 0
        self._messages: SortedDict = SortedDict()
        self._by_msg_id: dict[bytes, int] = {}
        self._by_correl_id: dict[bytes, int] = {}
        self._by_group_id: dict[bytes, list[int]] = {}
        super().__init__(size)

    def prepared(self, numbers: Ints) -> list[Any]:
        """See `Holder`."""
        return list(zip(correl_ids(numbers), group_ids(numbers), bodies(numbers), strict=True))

    def put(self, prepared: Sequence[Any]) -> None:
        """See `Holder`."""
        for correl_id, group_id, body in prepared:
            self._arrivals = place = self._arrivals + 1
            msg_id = place.to_bytes(_ID_BYTES, "big")
            self._messages[place] = msg_id, correl_id, group_id, body
            self._by_msg_id[msg_id] = self._by_correl_id[correl_id] = place
            self._by_group_id.setdefault(group_id, []).append(place)

    def take(self, wanted: Sequence[Any]) -> list[bytes]:
        """See `Holder`."""
        found = []
        for id in wanted:
            place = self._by_correl_id.pop(id)
            msg_id, _, group_id, body = self._messages.pop(place)
            del self._by_msg_id[msg_id]
            group = self._by_group_id[group_id]
            group.remove(place)
            if not group:
                del self._by_group_id[group_id]
            found.append(body)
        return found


class TableHolder(Holder):
    """A SQLite table with an index on the CorrelId: in memory, or in a file and as durable as a queue."""

    def __init__(self, size: int, path: Path | None = None) -> None:
        self._table = sqlite3.connect(path or ":memory:", isolation_level=None)
        self._durable = path is not None
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", _TABLE, _INDEX):
            self._table.execute(statement)
        self._table.execute("BEGIN")
        super().__init__(size)
        self._table.execute("COMMIT")

    def prepared(self, numbers: Ints) -> list[Any]:
        """See `Holder`."""
        return list(zip(correl_ids(numbers), bodies(numbers), strict=True))

    def put(self, prepared: Sequence[Any]) -> None:
        """See `Holder`."""
        execute = self._table.execute
        for row in prepared:
            execute(_INSERT, row)

    def take(self, wanted: Sequence[Any]) -> list[bytes]:
        """See `Holder`. In memory by one statement; in a file by a SELECT and a DELETE in a transaction."""
        execute = self._table.execute
        if not self._durable:
            taken = "DELETE FROM message WHERE correl_id = ? RETURNING body"
            return [execute(taken, (id,)).fetchall()[0][0] for id in wanted]
        found = []
        for id in wanted:
            execute("BEGIN IMMEDIATE")
            row, body = execute("SELECT id, body FROM message WHERE correl_id = ? LIMIT 1", (id,)).fetchone()
            execute("DELETE FROM message WHERE id = ?", (row,))
            execute("COMMIT")
            found.append(body)
        return found

    def close(self) -> None:
        """See `Holder`."""
        self._table.close()


_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "msg-id": ("msg_id",),
    "correl-id": ("correl_id",),
    "group-id": ("group_id",),
    "group-number": ("group_id", "msg_seq_number"),
    "all-ids": ("msg_id", "correl_id", "group_id"),
}
"""What a get asks for, by the name of its engine."""

_SELECTORS: Final[Mapping[str, Callable[[int, bytes], str]]] = {
    "id-selector": lambda number, id: f"JMSCorrelationID = 'ID:{id.hex()}'",
    "equality": lambda number, id: f"order = 'o{number}'",
    "equality-range": lambda number, id: (
        f"customer = 'c{number // GROUP}' AND weight BETWEEN {number} AND {number}"
    ),
}


class QueueHolder(Holder):
    """A queue: ours."""

    def __init__(self, size: int, queue: sr.MemoryQueue | sr.SqlQueue, properties: bool = False) -> None:
        self.queue = queue
        self._properties = properties
        # The MsgId of each message, which would be objects by the million in a list.
        self._msg_ids = bytearray(_ID_BYTES * size)
        self.own_bytes = len(self._msg_ids)
        self._columns: Mapping[str, Callable[[Ints], list[Any]]] = {
            "msg_id": self._msg_ids_of,
            "correl_id": correl_ids,
            "group_id": group_ids,
            "msg_seq_number": lambda numbers: (numbers % GROUP + 1).tolist(),
        }
        super().__init__(size)

    def prepared(self, numbers: Ints) -> list[Any]:
        """See `Holder`."""
        return [
            (
                number,
                body,
                {
                    "correl_id": correl_id,
                    "group_id": group_id,
                    "msg_seq_number": number % GROUP + 1,
                    "properties": self._properties_of(number) if self._properties else None,
                },
            )
            for number, body, correl_id, group_id in zip(
                numbers.tolist(), bodies(numbers), correl_ids(numbers), group_ids(numbers), strict=True
            )
        ]

    def put(self, prepared: Sequence[Any]) -> None:
        """See `Holder`."""
        put, msg_ids = self.queue.put, self._msg_ids
        for number, body, fields in prepared:
            made = put(body, **fields)
            if number < self.size:
                msg_ids[_ID_BYTES * number : _ID_BYTES * (number + 1)] = made.msg_id

    def wanted(self, kind: str, numbers: Ints) -> list[Any]:
        """See `Holder`."""
        if kind in _SELECTORS:
            text = _SELECTORS[kind]
            each = zip(numbers.tolist(), correl_ids(numbers), strict=True)
            return [{"selector": text(number, correl_id)} for number, correl_id in each]
        names = _BY[kind]
        columns = [self._columns[name](numbers) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _msg_ids_of(self, numbers: Ints) -> list[bytes]:
        places = (numbers * _ID_BYTES).tolist()
        return [bytes(self._msg_ids[place : place + _ID_BYTES]) for place in places]

    def take(self, wanted: Sequence[Any]) -> list[bytes]:
        """See `Holder`."""
        get = self.queue.get
        return [get(**one).body for one in wanted]

    def close(self) -> None:
        """See `Holder`."""
        self.queue.close()

    def _properties_of(self, number: int) -> dict[str, Any]:
        return {"order": f"o{number}", "customer": f"c{number // GROUP}", "weight": number}
