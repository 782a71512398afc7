"""Queue in memory: messages by key and by id in dictionaries, their order in sorted containers, one lock."""

from __future__ import annotations

import secrets
import time
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, NamedTuple

from sortedcontainers import SortedList

from selectroute.clauses.predicate import Clause
from selectroute.queues.errors import MQRC_HOBJ_ERROR, MQRC_NO_MSG_AVAILABLE, MQError, failed, queue_full
from selectroute.queues.lookup import (
    ID_FIELDS,
    MAX_INDEXES,
    MAX_SCANNED_BEFORE_INDEX,
    Alternative,
    Fields,
    Handle,
    KeyField,
    Keys,
    Lookup,
    LookupStatistics,
    Match,
    fields_and_keys,
    find_by_token,
    first_of,
    key_of_fields,
    ways_of,
)
from selectroute.queues.message.message import Descriptor, QueuedMessage
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.message.record import (
    StoredMessage,
    arrived,
    backed_out,
    current_message_of,
    descriptor_of,
    new_id_prefix,
    selector_values,
)
from selectroute.queues.queue import Queue
from selectroute.queues.settings import QueueSettings
from selectroute.queues.unit import UnitOfWork, move
from selectroute.queues.waiting import Waiter, Waiters
from selectroute.selector.fields import NO_ID

# ---- Queue keys by a value that several messages may share

_RUN: Final = 10
_WITHIN: Final = (1 << _RUN) - 1

QueueKeys = Any
"""Queue key of a message; or of several, in order: a list, and of many a SortedList (which has no types)."""

_FEW: Final = 64
"""Most queue keys in a list, where adding or removing one moves all behind it."""

_ByValue = dict[Hashable, QueueKeys]


def _add(index: _ByValue, value: Hashable, queue_key: int) -> None:
    """Add the key of a message with a value. O(log n) of the messages that share the value."""
    present = index.get(value)
    if present is None:
        index[value] = queue_key
    elif type(present) is int:
        index[value] = [present, queue_key] if present < queue_key else [queue_key, present]
    elif type(present) is list:
        insort(present, queue_key)
        if len(present) > _FEW:
            index[value] = SortedList(present)
    else:
        present.add(queue_key)


def _remove(index: _ByValue, value: Hashable, queue_key: int) -> None:
    """Remove the key of a message with a value. O(log n) of the messages that share the value."""
    present = index[value]
    if type(present) is int:
        del index[value]
    elif type(present) is list:
        del present[bisect_left(present, queue_key)]
        if len(present) == 1:
            index[value] = present[0]
    else:
        present.remove(queue_key)
        if len(present) == _FEW // 2:
            index[value] = list(present)


def _behind(queue_keys: QueueKeys | None, after: int) -> Iterable[int]:
    """Return the keys behind one, in order. They must not change meanwhile."""
    if queue_keys is None:
        return ()
    if type(queue_keys) is int:
        return (queue_keys,) if queue_keys > after else ()
    if type(queue_keys) is list:
        return queue_keys if after < 0 else queue_keys[bisect_right(queue_keys, after) :]
    behind: Iterator[int] = queue_keys.irange(after + 1)
    return behind


def _size(queue_keys: QueueKeys) -> int:
    return 1 if type(queue_keys) is int else len(queue_keys)


class _Order:
    """Queue keys in order. Those that differ in their last ten bits alone are a run: the bits of one number.

    A sorted container of the keys themselves would read twenty of its numbers for each that is removed, all
    over the memory: at a million messages that takes as long as everything else of a get.
    """

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}
        self._runs: SortedList = SortedList()

    def add(self, queue_key: int) -> None:
        """Add a key. O(1), of a new run O(log n)."""
        run = queue_key >> _RUN
        bits = self._bits.get(run)
        if bits is None:
            bits = 0
            self._runs.add(run)
        self._bits[run] = bits | 1 << (queue_key & _WITHIN)

    def remove(self, queue_key: int) -> None:
        """Remove a key. O(1), of the last one of a run O(log n)."""
        run = queue_key >> _RUN
        bits = self._bits[run] ^ 1 << (queue_key & _WITHIN)
        if bits:
            self._bits[run] = bits
        else:
            del self._bits[run]
            self._runs.remove(run)

    def walk(self, after: int) -> Iterator[int]:
        """Yield the keys behind one, in order. They must not change meanwhile."""
        begin = after + 1
        for run in self._runs.irange(begin >> _RUN):
            bits = self._bits[run]
            if run == begin >> _RUN:
                bits &= -1 << (begin & _WITHIN)
            while bits:
                lowest = bits & -bits
                yield run << _RUN | lowest.bit_length() - 1
                bits ^= lowest


class _Index(NamedTuple):
    """Index of messages by the values of several fields together."""

    values_of: Callable[[StoredMessage], Keys]
    by_values: _ByValue


class _Messages:
    """Messages by key, in the order of their keys, and by MsgId, CorrelId and GroupId.

    Any other set of fields in lookups, several ids together or attributes in equalities of selectors, gets an
    index when lookups have compared as many messages in vain as the index costs to make. Not safe for
    threads: the store holds the lock.

    invariant: the key of a message is in the order, under each of its ids other than zeros, in every index,
    and in ``expiring`` if the message expires.
    """

    def __init__(self, statistics: LookupStatistics, token_prefix: bytes) -> None:
        self.statistics = statistics
        self.token_prefix = token_prefix
        self.expiring: SortedList = SortedList()
        """(expiration, key) of the messages that expire."""
        self._records: dict[int, StoredMessage] = {}
        self._order = _Order()
        self._by_msg_id: _ByValue = {}
        self._by_correl_id: _ByValue = {}
        self._by_group_id: _ByValue = {}
        self._indexes: dict[Fields, _Index] = {}
        self._owed: dict[Fields, int] = {}

    def __len__(self) -> int:
        return len(self._records)

    def get(self, queue_key: int) -> StoredMessage | None:
        """Return the message with a key. O(1)."""
        return self._records.get(queue_key)

    def add(self, record: StoredMessage) -> None:
        """Add a message. O(log n)."""
        msg_id, correl_id, group_id = record[:3]
        queue_key = record.queue_key
        self._records[queue_key] = record
        self._order.add(queue_key)
        _add(self._by_msg_id, msg_id, queue_key)
        if correl_id != NO_ID:
            _add(self._by_correl_id, correl_id, queue_key)
        if group_id != NO_ID:
            _add(self._by_group_id, group_id, queue_key)
        if record.expiration:
            self.expiring.add((record.expiration, queue_key))
        for index in self._indexes.values():
            _add(index.by_values, index.values_of(record), queue_key)

    def remove(self, record: StoredMessage) -> None:
        """Remove a message. O(log n)."""
        msg_id, correl_id, group_id = record[:3]
        queue_key = record.queue_key
        del self._records[queue_key]
        self._order.remove(queue_key)
        _remove(self._by_msg_id, msg_id, queue_key)
        if correl_id != NO_ID:
            _remove(self._by_correl_id, correl_id, queue_key)
        if group_id != NO_ID:
            _remove(self._by_group_id, group_id, queue_key)
        if record.expiration:
            self.expiring.remove((record.expiration, queue_key))
        for index in self._indexes.values():
            _remove(index.by_values, index.values_of(record), queue_key)
        if not self._records:
            # An empty dictionary keeps the memory of all that it ever held until it is cleared.
            of_indexes = [index.by_values for index in self._indexes.values()]
            for by_id in (self._by_msg_id, self._by_correl_id, self._by_group_id, *of_indexes):
                by_id.clear()
            self._records.clear()

    def find(self, match: Match, after: int = -1) -> StoredMessage | None:
        """Return the first message that matches after a key. O(log n), with an index."""
        msg_id, correl_id, group_id, msg_seq_number, offset, msg_token, selection = match
        if selection is not None or msg_token is not None:
            return self._find_selected(match, after)
        if msg_id is not None:
            queue_keys = self._by_msg_id.get(msg_id)
        elif correl_id is not None:
            queue_keys = self._by_correl_id.get(correl_id)
        elif group_id is not None:
            queue_keys = self._by_group_id.get(group_id)
        elif msg_seq_number is None and offset is None:
            return next(self._walk(after), None)
        else:
            return self._search(*fields_and_keys(match), None, match, after)
        if queue_keys is None:
            return None
        if type(queue_keys) is not int:
            if len(queue_keys) > MAX_SCANNED_BEFORE_INDEX and match[:5].count(None) < 4:
                return self._search(*fields_and_keys(match), None, match, after)
        elif queue_keys > after:  # the usual case, without an iterator
            self.statistics.looked_at += 1
            record = self._records[queue_keys]
            return record if match.agrees(record) else None
        return self._first(self._of(_behind(queue_keys, after)), match, None)

    def _find_selected(self, match: Match, after: int) -> StoredMessage | None:
        if match.msg_token is not None:
            return find_by_token(match, after, self.token_prefix, self._records.get, self.statistics)
        return first_of(self._search(*way, match, after) for way in ways_of(match))

    def _search(
        self, fields: Fields, keys: Keys, alternative: Alternative | None, match: Match, after: int
    ) -> StoredMessage | None:
        """Return the first message whose fields have these values and that satisfies an alternative."""
        index = self._indexes.get(fields)
        if index is not None:
            self._indexes[fields] = self._indexes.pop(fields)  # the first one is the least recently used
            rest = None if alternative is None else alternative.rest
            return self._first(self._of(_behind(index.by_values.get(keys), after)), None, rest)
        indexed = list(self._usable(dict(zip(fields, keys, strict=True))))
        if any(queue_keys is None for _, queue_keys in indexed):
            return None
        used: Fields | None = None
        if indexed:
            used, queue_keys = min(indexed, key=lambda pair: _size(pair[1]))
            records = self._of(_behind(queue_keys, after))
        else:
            self.statistics.scans += 1
            records = self._walk(after)
        before = self.statistics.looked_at
        record = self._first(records, match, None if alternative is None else alternative.whole)
        looked_at = self.statistics.looked_at - before
        if fields and fields != used and looked_at > MAX_SCANNED_BEFORE_INDEX:
            self._owe(fields, looked_at)
        return record

    def _usable(self, wanted: dict[KeyField, Any]) -> Iterator[tuple[Fields, QueueKeys | None]]:
        """Yield the fields of every usable index, and the keys of the messages with the wanted values."""
        of_ids = (self._by_msg_id, self._by_correl_id, self._by_group_id)
        for id_field, by_id in zip(ID_FIELDS, of_ids, strict=True):
            if id_field in wanted:
                yield (id_field,), by_id.get(wanted[id_field])
        for fields, index in self._indexes.items():
            if all(name in wanted for name in fields):
                yield fields, index.by_values.get(tuple([wanted[name] for name in fields]))

    def _walk(self, after: int) -> Iterator[StoredMessage]:
        """Return the messages behind a key, in order. They must not change meanwhile."""
        return self._of(self._order.walk(after))

    def _of(self, queue_keys: Iterable[int]) -> Iterator[StoredMessage]:
        return map(self._records.__getitem__, queue_keys)

    def _first(
        self, records: Iterable[StoredMessage], match: Match | None, clause: Clause | None
    ) -> StoredMessage | None:
        """Return the first message that agrees with the match options and satisfies the clause."""
        for record in records:
            self.statistics.looked_at += 1
            if (match is None or match.agrees(record)) and (
                clause is None or clause.holds(selector_values(record))
            ):
                return record
        return None

    def _owe(self, fields: Fields, looked_at: int) -> None:
        """Count messages compared for lack of an index, and make the index when that has cost as much."""
        owed = self._owed.get(fields, 0) + looked_at
        if owed < len(self) // 2:
            if len(self._owed) >= 1_000:  # clients that ask for ever new sets of fields get no index
                self._owed.clear()
            self._owed[fields] = owed
            return
        self._owed.pop(fields, None)
        if len(self._indexes) >= MAX_INDEXES:
            del self._indexes[next(iter(self._indexes))]
        index = self._indexes[fields] = _Index(key_of_fields(fields), {})
        for record in self._walk(-1):
            _add(index.by_values, index.values_of(record), record.queue_key)
        self.statistics.indexes_made += 1


# ---- Messages, units of work and waiting calls


@dataclass(slots=True)
class UnitMessages:
    """Messages put and got in a unit of work."""

    puts: list[StoredMessage] = field(default_factory=list)
    gets: list[StoredMessage] = field(default_factory=list)


Unit = UnitOfWork[UnitMessages]


class MemoryStore:
    """`MessageStore` in memory. Safe for threads.

    invariant: a message that was put and is not gone is either available or in one unit.
    """

    def __init__(self, settings: QueueSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.statistics = LookupStatistics()
        self._clock = clock
        self._lock = Lock()
        self._waiters = Waiters(self.statistics)
        self._by_priority = settings.order == "priority"
        self._arrivals = 0
        self._in_units = 0
        self._id_prefix = new_id_prefix()
        self._token_prefix = secrets.token_bytes(8)
        self._messages = _Messages(self.statistics, self._token_prefix)
        self._forgotten: deque[UnitMessages] = deque()
        self._closed = False

    @property
    def depth(self) -> int:
        """Number of messages available to a get now."""
        with self._lock:
            self._begin(None)
            return len(self._messages)

    def put(self, message: ValidatedPut, unit: Unit | None) -> Descriptor:
        """Store a message, on the queue or in the unit."""
        now_ms = int(self._clock() * 1000)
        woken: list[Waiter] = []
        with self._lock:
            self._begin(unit)
            limit = self.settings.max_depth
            if limit is not None and len(self._messages) + self._in_units >= limit:
                raise queue_full(limit)
            self._arrivals += 1
            record = arrived(message, self._arrivals, self._by_priority, self._id_prefix, now_ms)
            if unit is not None:
                unit.state.puts.append(record)
                self._in_units += 1
            elif self._waiters.count:
                woken = self._arrive((record,))
            else:
                self._messages.add(record)
        self._finish(woken)
        return descriptor_of(record, self._token_prefix)

    def take(self, lookup: Lookup, unit: Unit | None, waiter: Waiter | None) -> StoredMessage | None:
        """Take the first match off the queue; without one, add `waiter` to the waiting calls."""
        with self._lock:
            self._begin(unit)
            record = lookup.find(self._messages)
            if record is not None:
                self._messages.remove(record)
                if unit is not None or lookup.handle is not None:
                    self._taken(record, unit, lookup.handle)
            elif waiter is not None:
                self._waiters.add(waiter)
        self._finish()
        return record

    def browse(self, lookup: Lookup, waiter: Waiter | None) -> StoredMessage | None:
        """Return the first match, left on the queue; without one, add `waiter` to the waiting calls."""
        with self._lock:
            self._begin(None)
            record = lookup.find(self._messages)
            if record is None and waiter is not None:
                self._waiters.add(waiter)
        self._finish()
        return record

    def at(self, queue_key: int) -> StoredMessage | None:
        """Return the message with a key."""
        with self._lock:
            self._begin(None)
            return self._messages.get(queue_key)

    def take_at(self, queue_key: int, unit: Unit | None) -> StoredMessage | None:
        """Take the message with a key off the queue."""
        with self._lock:
            self._begin(unit)
            record = self._messages.get(queue_key)
            if record is not None:
                self._messages.remove(record)
                self._taken(record, unit, None)
        self._finish()
        return record

    def put_back(self, record: StoredMessage, *, counts: bool) -> None:
        """Return a message that was taken to its place, as a backout does; see `UnitOfWork.backout`."""
        with self._lock:
            self._begin(None)
            woken = self._arrive((backed_out(record) if counts else record,))
        self._finish(woken)

    def wait(self, waiter: Waiter, seconds: float) -> StoredMessage:
        """Wait for the message of a waiter. Raises MQError 2033 after the timeout."""
        try:
            waiter.wait(seconds)
        except BaseException:  # a KeyboardInterrupt: put back a message that was handed over in the meantime
            woken: list[Waiter] = []
            with self._lock:
                record = waiter.record
                if record is not None and not waiter.browses and waiter.unit is None:
                    woken = self._arrive((record,))
                self._waiters.remove(waiter)
            self._finish(woken)
            raise
        with self._lock:
            self._waiters.remove(waiter)
            if waiter.record is None:
                raise failed(MQRC_HOBJ_ERROR if self._closed else MQRC_NO_MSG_AVAILABLE)
            return waiter.record

    def begin_unit(self) -> Unit:
        """Begin a unit of work."""
        return UnitOfWork(self, UnitMessages())

    @property
    def unit_scope(self) -> object:
        """Store itself: a unit is of one queue in memory."""
        return self

    def end_unit(self, unit: Unit, *, commit: bool, counts: bool = True) -> None:
        """Commit a unit or back it out. O(puts) or O(gets)."""
        with self._lock:
            self._begin(unit)
            unit.ended = True
            if not commit:
                unit.restore_positions()
            woken = self._release(unit.state, commit=commit, counts=counts)
        self._finish(woken)

    def forget_unit(self, state: UnitMessages) -> None:
        """Back out an unreachable unit; called when its memory is freed.

        The call may come inside a method of this object that holds the lock; then that method backs the unit
        out after it has released the lock.
        """
        if not state.puts and not state.gets:
            return
        self._forgotten.append(state)
        if self._lock.acquire(blocking=False):
            self._lock.release()
            self._finish()

    def close(self) -> None:
        """Drop all messages and wake all waiting calls."""
        with self._lock:
            self._closed = True
            woken = self._waiters.all()
            self._waiters = Waiters(self.statistics)
            self._messages = _Messages(self.statistics, self._token_prefix)
        self._finish(woken)

    def to_message(self, record: StoredMessage) -> QueuedMessage:
        """Return a record as a message for callers, with its remaining expiry."""
        return current_message_of(record, self._token_prefix, self._clock)

    # ---- called with the lock

    def _begin(self, unit: Unit | None) -> None:
        """Check that queue and unit have not ended, and drop expired messages."""
        if self._closed:
            raise failed(MQRC_HOBJ_ERROR, "the queue is closed")
        if unit is not None:
            unit.check()
        expiring = self._messages.expiring
        if expiring:
            now = int(self._clock() * 1000)
            while expiring and expiring[0][0] <= now:
                record = self._messages.get(expiring[0][1])
                assert record is not None
                self._messages.remove(record)

    def _arrive(self, records: Iterable[StoredMessage]) -> list[Waiter]:
        """Put messages on the queue or hand them to waiting calls; return these calls."""
        woken: list[Waiter] = []
        for record in records:
            if record.expiration and record.expiration <= self._clock() * 1000:
                continue
            offered = self._waiters.offer(record) if self._waiters.count else []
            woken += offered
            if offered and not offered[-1].browses:
                self._taken(record, offered[-1].unit, offered[-1].lookup.handle)
            else:
                self._messages.add(record)
        return woken

    def _taken(self, record: StoredMessage, unit: Unit | None, handle: Handle | None) -> None:
        """Record in the unit and the group of a get that a message was taken."""
        if handle is not None:
            move(handle, record, unit)
        if unit is not None:
            unit.state.gets.append(record)
            self._in_units += 1

    def _release(self, state: UnitMessages, *, commit: bool, counts: bool = True) -> list[Waiter]:
        """Put the puts of a committed unit, or the gets of a backed out one, on the queue."""
        self._in_units -= len(state.puts) + len(state.gets)
        if commit:
            return self._arrive(state.puts)
        return self._arrive(map(backed_out, state.gets) if counts else state.gets)

    # ---- called without the lock

    def _finish(self, woken: Iterable[Waiter] = ()) -> None:
        """Wake the calls that have their message, and back out the units that were forgotten."""
        for waiter in woken:
            waiter.hand_over()
        while self._forgotten:
            with self._lock:
                if self._closed:
                    self._forgotten.clear()
                woken = self._release(self._forgotten.popleft(), commit=False) if self._forgotten else ()
            for waiter in woken:
                waiter.hand_over()


class MemoryQueue(Queue[MemoryStore]):
    """Queue in the memory of its process. See `Queue` for its methods.

    >>> queue = MemoryQueue()
    >>> made = queue.put(b"hello", correl_id=b"order-7".ljust(24, b"\\0"), properties={"weight": 3000})
    >>> queue.get(selector="weight > 2500").body
    b'hello'

    A put or get is O(log n), if its fields are indexed; `depth` and `unit` are O(1).
    ``statistics`` counts the comparisons of lookups and wake-ups. ``clock`` returns the seconds since 1970.
    """

    def __init__(
        self, settings: QueueSettings | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(MemoryStore(settings or QueueSettings(), clock))

    def __repr__(self) -> str:
        try:
            depth = self.depth
        except MQError:  # it is closed
            return "MemoryQueue(closed)"
        return f"MemoryQueue({depth:,} message{'' if depth == 1 else 's'})"
