"""Lookups: match options, checked once; selectors, prepared; groups; and the rules common to all stores.

A selector is split into the fields that it compares for equality, which are looked up in indexes, and the
rest, which is evaluated.

In logical order the messages of a group are got one after the other, wherever they are on the queue: "If
there is no current group or logical message, only messages that have MsgSeqNumber equal to 1 and Offset equal
to 0 are eligible for return. … If there is a current group or logical message, only the next message in the
group or next segment in the logical message is eligible" (IBM MQ, MatchOptions). The position of a group is
that of its first message.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from typing import Any, Final, NamedTuple, Protocol, TypedDict, TypeVar

from selectroute.clauses.access import Key, equalities, message_key
from selectroute.clauses.normal_form import clauses_of
from selectroute.clauses.predicate import Clause
from selectroute.queues.errors import (
    MQRC_CORREL_ID_ERROR,
    MQRC_GROUP_ID_ERROR,
    MQRC_MATCH_OPTIONS_ERROR,
    MQRC_MSG_ID_ERROR,
    MQRC_MSG_TOKEN_ERROR,
    MQRC_SELECTION_STRING_ERROR,
    ScanLimitError,
    failed,
)
from selectroute.queues.message.message import TOKEN_BYTES
from selectroute.queues.message.put_validation import bytes_of, id_of, offset_of, sequence_of
from selectroute.queues.message.record import MAX_KEY, Field, StoredMessage, queue_key_in, selector_values
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.evaluate import Lookup as ValueReader
from selectroute.selector.fields import (
    CORRELATION_ID,
    MESSAGE_ID,
    NO_ID,
    PREFIX,
    id_from_any_text,
    id_from_text,
    id_to_text,
)
from selectroute.selector.selector import Selector

KeyField = Field | str
"""Field of the descriptor by its position, or an attribute that selectors read."""

MAX_ALTERNATIVES: Final = 64
"""Keys at most under which a clause is looked up (IN lists multiply); the rest is evaluated."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Way to satisfy a selector: `fields` have the values `keys`, and `rest` holds.

    `whole` is the complete clause, for messages found in another way.
    """

    fields: tuple[KeyField, ...]
    keys: tuple[Key, ...]
    rest: Clause | None
    whole: Clause


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSelector:
    """Selector as alternatives: satisfied exactly if one of them is."""

    selector: Selector
    alternatives: tuple[Alternative, ...]
    clauses: tuple[Clause, ...]
    only_id: tuple[Field, bytes] | None
    """Field and value, if the selector is only the equality of one id."""

    name: str
    """Digest of dialect and text."""

    def selects(self, read: ValueReader) -> bool:
        """Return whether the message whose values `read` returns satisfies the selector."""
        return any(clause.holds(read) for clause in self.clauses)


_READY: Final[OrderedDict[tuple[str, str], PreparedSelector]] = OrderedDict()
_MOST_READY: Final = 10_000


def selection_of(selector: str | Selector, dialect: str) -> PreparedSelector | None:
    """Prepare a selector, text in the given dialect; return None for an empty text. Cached.

    Raises MQError 2519 for anything but a text or Selector, and with the selector's own reason, 2551 or 2459,
    for an invalid one.
    """
    if type(selector) is Selector:
        key = selector.text, selector.dialect
    elif isinstance(selector, str):
        key = selector, dialect
    else:
        raise failed(MQRC_SELECTION_STRING_ERROR, f"expected a selector, not a {type(selector).__name__}")
    ready = _READY.get(key)
    if ready is not None:
        return ready
    if not key[0]:
        return None
    if isinstance(selector, str):
        try:
            selector = Selector(*key)
        except InvalidSelectorError as error:
            raise failed(error.reason, str(error)) from error
    ready = _READY[key] = _prepared(selector)
    if len(_READY) > _MOST_READY:
        _READY.popitem(last=False)
    return ready


def _prepared(selector: Selector) -> PreparedSelector:
    clauses = clauses_of(selector.expression, dialect_named(selector.dialect))
    alternatives = [alternative for clause in clauses for alternative in _alternatives(clause)]
    only_id = None
    if len(alternatives) == 1 and alternatives[0].rest is None:
        (alternative,) = alternatives
        if len(alternative.fields) == 1 and alternative.fields[0] in (
            Field.MSG_ID,
            Field.CORREL_ID,
            Field.GROUP_ID,
        ):
            only_id = alternative.fields[0], alternative.keys[0]
    name = sha256(f"{selector.dialect} {selector.text}".encode("utf-8", "surrogatepass")).hexdigest()
    return PreparedSelector(selector, tuple(alternatives), clauses, only_id, name)  # type: ignore[arg-type]  # ids are bytes


def _alternatives(clause: Clause) -> Iterable[Alternative]:
    equated = equalities(clause)
    if not equated.satisfiable:
        return
    keys: dict[KeyField, frozenset[Key]] = {}
    decided: set[int] = set()
    many = 1
    for attribute, values in sorted(equated.keys.items(), key=lambda item: (len(item[1]), item[0])):
        if many * len(values) > MAX_ALTERNATIVES:
            break
        field, meant, exact = _as_field(attribute, values)
        if field in keys:  # two names of one id
            meant &= keys[field]
        keys[field] = meant
        many *= len(meant)
        if exact:
            decided |= {id(literal) for literal in equated.covered.get(attribute, ())}
    rest = tuple(literal for literal in clause.literals if id(literal) not in decided)
    left = Clause(rest, clause.valid_names) if rest or clause.valid_names else None
    # Sorted, fields of the descriptor first, so that equal sets of fields are equal tuples.
    fields = tuple(sorted(keys, key=lambda field: (isinstance(field, str), field)))
    for combination in product(*(sorted(keys[field], key=repr) for field in fields)):
        yield Alternative(fields, combination, left, clause)


@dataclass(frozen=True, slots=True)
class _Id:
    """Attribute that is an id: its field, the conversion of a key to the id, and whether that is exact."""

    field: Field
    meant: Callable[[Key], bytes | None]
    exact: bool


def _message_id(key: Key) -> bytes | None:
    octets = id_from_text(key) if isinstance(key, str) else None
    return octets if octets is not None and id_to_text(octets) == key else None


def _octets(key: Key) -> bytes | None:
    return key if isinstance(key, bytes) else None


def _any_text(key: Key) -> bytes | None:
    return id_from_any_text(key) if isinstance(key, str) else None


# Several texts have the same 24 bytes, and a message may have a JMSMessageID of its own: a match by text is
# re-evaluated.
_IDS: Final[Mapping[str, _Id]] = {
    "JMSMessageID": _Id(Field.MSG_ID, _message_id, False),
    f"{PREFIX}JMSMessageID": _Id(Field.MSG_ID, _message_id, False),
    f"{PREFIX}{MESSAGE_ID}": _Id(Field.MSG_ID, _octets, True),
    f"{PREFIX}Root.MQMD.MsgId": _Id(Field.MSG_ID, _octets, True),
    "JMSCorrelationID": _Id(Field.CORREL_ID, _any_text, False),
    f"{PREFIX}JMSCorrelationID": _Id(Field.CORREL_ID, _any_text, False),
    f"{PREFIX}jms.Cid": _Id(Field.CORREL_ID, _any_text, False),
    f"{PREFIX}{CORRELATION_ID}": _Id(Field.CORREL_ID, _octets, True),
    f"{PREFIX}Root.MQMD.CorrelId": _Id(Field.CORREL_ID, _octets, True),
    "JMSXGroupID": _Id(Field.GROUP_ID, _any_text, False),
    f"{PREFIX}JMSXGroupID": _Id(Field.GROUP_ID, _any_text, False),
    f"{PREFIX}jms.Gid": _Id(Field.GROUP_ID, _any_text, False),
    f"{PREFIX}Root.MQMD.GroupId": _Id(Field.GROUP_ID, _octets, True),
}


def _as_field(attribute: str, keys: frozenset[Key]) -> tuple[KeyField, frozenset[Key], bool]:
    """Return the id field of an attribute and the ids, if all keys are ids; else the attribute itself."""
    known = _IDS.get(attribute)
    if known is not None:
        ids = frozenset(known.meant(key) for key in keys)
        # All zeros means no id, so they are not looked up.
        if all(octets is not None and len(octets) == len(NO_ID) and octets != NO_ID for octets in ids):
            return known.field, frozenset(octets for octets in ids if octets is not None), known.exact
    return attribute, keys, True


Fields = tuple[KeyField, ...]
Keys = tuple[Any, ...]

_FIELDS: Final = tuple(Field)


class MatchOptions(TypedDict, total=False):
    """Conditions on a message, by the names of IBM MQ's match options; all must agree.

    An option that is left out, or None, matches any message, and so does an id of 24 zero bytes (MQMI_NONE,
    MQCI_NONE, MQGI_NONE).
    """

    msg_id: bytes | None
    correl_id: bytes | None
    group_id: bytes | None
    msg_seq_number: int | None
    offset: int | None
    msg_token: bytes | None
    selector: str | Selector | None
    """Text in the dialect of the queue, or a Selector of any."""


def asked_fields(match: Match) -> dict[Field, Any]:
    """Return the descriptor fields that match options give, in the order of `Field`."""
    return {field: value for field, value in zip(_FIELDS, match, strict=False) if value is not None}


def fields_and_keys(match: Match) -> tuple[Fields, Keys]:
    """Return the descriptor fields that match options give, and their values."""
    asked = asked_fields(match)
    return tuple(asked), tuple(asked.values())


def ways_of(match: Match) -> Iterator[tuple[Fields, Keys, Alternative]]:
    """Yield each alternative of a selector with what it and the fields of the match equate.

    An alternative that contradicts the fields is left out.
    """
    asked = asked_fields(match)
    assert match.selection is not None
    for alternative in match.selection.alternatives:
        wanted: dict[KeyField, Any] = dict(zip(alternative.fields, alternative.keys, strict=True))
        if all(wanted.setdefault(field, value) == value for field, value in asked.items()):
            fields = tuple(sorted(wanted, key=lambda field: (isinstance(field, str), field)))
            yield fields, tuple([wanted[field] for field in fields]), alternative


def key_of_fields(fields: Fields) -> Callable[[StoredMessage], Keys]:
    """Return a function that returns the values of some fields of a message, attributes as keys."""
    of_descriptor = tuple(field for field in fields if isinstance(field, int))
    attributes = tuple(field for field in fields if isinstance(field, str))

    def key_of(record: StoredMessage) -> Keys:
        values: list[Any] = [record[field] for field in of_descriptor]
        if attributes:
            lookup = selector_values(record)
            values += [message_key(lookup(name)) for name in attributes]
        return tuple(values)

    return key_of


_made = tuple.__new__  # a NamedTuple's own constructor takes twice as long


class Match(NamedTuple):
    """Checked match options: fields that must agree (None: any value), and the selector, prepared."""

    msg_id: bytes | None = None
    correl_id: bytes | None = None
    group_id: bytes | None = None
    msg_seq_number: int | None = None
    offset: int | None = None
    msg_token: bytes | None = None
    selection: PreparedSelector | None = None

    def agrees(self, record: StoredMessage) -> bool:
        """Return whether all fields of a message agree; token and selector are ignored. O(1)."""
        msg_id, correl_id, group_id, msg_seq_number, offset, _, _ = self
        return (
            (msg_id is None or record.msg_id == msg_id)
            and (correl_id is None or record.correl_id == correl_id)
            and (group_id is None or record.group_id == group_id)
            and (msg_seq_number is None or record.msg_seq_number == msg_seq_number)
            and (offset is None or record.offset == offset)
        )

    def is_satisfied(self, record: StoredMessage) -> bool:
        """Return whether a message's fields agree, except the token, and it satisfies the selector."""
        return self.agrees(record) and self.is_selected(record)

    def is_selected(self, record: StoredMessage) -> bool:
        """Return whether a message satisfies the selector, if there is one."""
        return self.selection is None or self.selection.selects(selector_values(record))


def match_of(
    dialect: str,
    *,
    msg_id: bytes | None = None,
    correl_id: bytes | None = None,
    group_id: bytes | None = None,
    msg_seq_number: int | None = None,
    offset: int | None = None,
    msg_token: bytes | None = None,
    selector: str | Selector | None = None,
) -> Match:
    """Check `MatchOptions`; `dialect` is that of a selector given as text. Raises MQError as `Queue.get`."""
    match = _made(
        Match,
        (
            None if msg_id is None else id_of(msg_id, MQRC_MSG_ID_ERROR),
            None if correl_id is None else id_of(correl_id, MQRC_CORREL_ID_ERROR),
            None if group_id is None else id_of(group_id, MQRC_GROUP_ID_ERROR),
            None if msg_seq_number is None else sequence_of(msg_seq_number),
            None if offset is None else offset_of(offset),
            None if msg_token is None else _token_of(msg_token),
            None,
        ),
    )
    return match if selector is None else _selecting(match, selection_of(selector, dialect))


def _selecting(match: Match, selection: PreparedSelector | None) -> Match:
    """Return a match with a selector; one that only equates an id becomes that option (seed 000)."""
    if selection is None:
        return match
    if selection.only_id is not None:
        field, value = selection.only_id
        if match[field] in (None, value):
            return Match._make((*match[:field], value, *match[field + 1 :]))
    return match._replace(selection=selection)


def _token_of(octets: bytes) -> bytes:
    token = bytes_of(octets, MQRC_MSG_TOKEN_ERROR)
    if len(token) != TOKEN_BYTES:
        raise failed(MQRC_MSG_TOKEN_ERROR, f"a message token must be {TOKEN_BYTES} bytes, not {len(token)}")
    return token


MAX_INDEXES: Final = 8
"""Maximum indexes made on demand: a new one replaces the least recently used, in a database the oldest."""

MAX_SCANNED_BEFORE_INDEX: Final = 16
"""Messages that a lookup may compare in vain before it counts towards a new index."""


_T = TypeVar("_T")


class ScanBudget:
    """Time for which lookups may compare messages with selectors. Other lookups have no limit."""

    def __init__(self) -> None:
        self._until = math.inf
        self._is_cancelled = False

    def run(self, seconds: float, function: Callable[[], _T]) -> _T:
        """Call a function, the lookups of which raise ScanLimitError after `seconds` or `cancel`."""
        self._until = time.monotonic() + seconds
        token = _BUDGET.set(self)
        try:
            return function()
        finally:
            _BUDGET.reset(token)

    def cancel(self) -> None:
        """End the running lookup at its next message; called by any thread."""
        self._is_cancelled = True  # and not the time, which `run` may be about to set

    def check(self) -> None:
        """Raise ScanLimitError if the time is over, or the lookup is cancelled."""
        if self._is_cancelled or time.monotonic() > self._until:
            raise ScanLimitError


_BUDGET: Final[ContextVar[ScanBudget | None]] = ContextVar("budget", default=None)


def check_budget() -> None:
    """Raise ScanLimitError if the budget of this thread's lookup is spent: before each message."""
    budget = _BUDGET.get()
    if budget is not None:
        budget.check()


@dataclass(slots=True)
class LookupStatistics:
    """Counts of the cost of lookups since the queue was opened."""

    looked_at: int = 0
    """Messages that were compared with match options."""

    scans: int = 0
    """Lookups that scanned the queue because no requested field was indexed."""

    indexes_made: int = 0
    waiters_looked_at: int = 0
    """Waiting calls that were compared with an arriving message."""


def has_token(record: StoredMessage, msg_token: bytes, token_prefix: bytes) -> bool:
    """Return whether a message has this token, on the queue with this token prefix."""
    return msg_token[:8] == token_prefix and record.queue_key == queue_key_in(msg_token)


def find_by_token(
    match: Match,
    after: int,
    token_prefix: bytes,
    get: Callable[[int], StoredMessage | None],
    statistics: LookupStatistics,
) -> StoredMessage | None:
    """Return the message with the token of the match options, if it is after a key and matches. O(1).

    Args:
        match: one with a token.
        after: the key after which to look.
        token_prefix: of the queue's tokens.
        get: returns the message with a key.
        statistics: where the comparison is counted.
    """
    token = match.msg_token
    assert token is not None
    queue_key = queue_key_in(token)
    if token[:8] != token_prefix or not after < queue_key <= MAX_KEY:
        return None
    record = get(queue_key)
    if record is None:
        return None
    statistics.looked_at += 1
    return record if match.is_satisfied(record) else None


def first_of(records: Iterable[StoredMessage | None]) -> StoredMessage | None:
    """Return the record with the lowest key."""
    return min(filter(None, records), key=lambda record: record.queue_key, default=None)


ID_FIELDS: Final = (Field.MSG_ID, Field.CORREL_ID, Field.GROUP_ID)


class MessageSearch(Protocol):
    """Messages of a queue, to be searched."""

    def find(self, match: Match, after: int = -1) -> StoredMessage | None:
        """Return the first message that matches after a key."""

    @property
    def token_prefix(self) -> bytes:
        """Prefix of the queue's tokens."""


class GroupPosition(NamedTuple):
    """Position in an unfinished group: after one of its messages."""

    group_id: bytes
    msg_seq_number: int
    end: int
    """Offset of the next segment of the same logical message, in bytes."""

    begun: int
    """Key of the first message of the group."""

    def is_next(self, record: StoredMessage) -> bool:
        """Return whether a message is the next segment or the first of the next logical message."""
        numbers = record.msg_seq_number, record.offset
        return record.group_id == self.group_id and numbers in (self._segment, self._successor)

    def find(self, messages: MessageSearch) -> StoredMessage | None:
        """Return the next message of the group: a further segment before the next logical message."""
        for msg_seq_number, offset in (self._segment, self._successor):
            record = messages.find(
                Match(group_id=self.group_id, msg_seq_number=msg_seq_number, offset=offset)
            )
            if record is not None:
                return record
        return None

    @property
    def _segment(self) -> tuple[int, int]:
        return self.msg_seq_number, self.end or -1  # an empty message has no further segment

    @property
    def _successor(self) -> tuple[int, int]:
        return self.msg_seq_number + 1, 0


class Handle:
    """Current group of a thread or cursor that gets or browses in logical order."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position: GroupPosition | None = None


def position_after(record: StoredMessage, before: GroupPosition | None) -> GroupPosition | None:
    """Return the position in logical order after a message; None at the end of a group or outside a group."""
    if record.group_id == NO_ID or record.last_in_group:
        return None
    end = record.offset + len(record.body)
    begun = record.queue_key if before is None else before.begun
    return GroupPosition(record.group_id, record.msg_seq_number, end, begun)


class Lookup(NamedTuple):
    """Lookup of a get or browse: its conditions, the key after which to begin, a handle for logical order."""

    match: Match
    after: int = -1
    handle: Handle | None = None

    def find(self, messages: MessageSearch) -> StoredMessage | None:
        """Return the first match.

        Raises MQError 2247 if options that do not apply disagree with the match: "the value of the relevant
        field in the MsgDesc parameter must match the value of the corresponding field in the message".
        """
        match, after, handle = self
        if handle is None:
            return messages.find(match, after)
        if handle.position is None:
            begins = match._replace(msg_seq_number=1, offset=0, msg_token=None)
            record = messages.find(begins, after)
        else:
            record = handle.position.find(messages)
            if record is not None and not match.is_selected(record):
                return None
        if record is None:
            return None
        token = match.msg_token
        same_token = token is None or has_token(record, token, messages.token_prefix)
        if not same_token or not match.agrees(record):
            raise failed(MQRC_MATCH_OPTIONS_ERROR, "options that do not apply in logical order disagree")
        return record

    def find_all(self, messages: MessageSearch, most: int) -> list[StoredMessage]:
        """Return the first matches, at most `most`; see `find`."""
        records: list[StoredMessage] = []
        lookup = self
        while len(records) < most and (record := lookup.find(messages)) is not None:
            records.append(record)
            lookup = lookup._replace(after=record.queue_key)
        return records

    def wants(self, record: StoredMessage) -> bool:
        """Return whether an arriving message matches."""
        match, after, handle = self
        if not match.is_satisfied(record):
            return False
        if handle is not None and handle.position is not None:
            return handle.position.is_next(record)
        begins = handle is None or (record.msg_seq_number == 1 and record.offset == 0)
        return begins and after < record.queue_key

    @property
    def ids(self) -> tuple[tuple[Field, bytes], ...]:
        """Ids, as field and value, that every match has."""
        group_id = self.match.group_id
        if self.handle is not None and self.handle.position is not None:
            group_id = self.handle.position.group_id
        ids = (self.match.msg_id, self.match.correl_id, group_id)
        return tuple((field, value) for field, value in zip(ID_FIELDS, ids, strict=True) if value is not None)
