"""Match options: the conditions of a get or browse, checked once, and their fields as keys of indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypedDict

from selectroute.clauses.access import message_key
from selectroute.queues.errors import (
    MQRC_CORREL_ID_ERROR,
    MQRC_GROUP_ID_ERROR,
    MQRC_MSG_ID_ERROR,
    MQRC_MSG_TOKEN_ERROR,
    failed,
)
from selectroute.queues.lookup.selection import Alternative, KeyField, PreparedSelector, selection_of
from selectroute.queues.message.message import TOKEN_BYTES
from selectroute.queues.message.put_validation import bytes_of, id_of, offset_of, sequence_of
from selectroute.queues.message.record import Field, StoredMessage, selector_values
from selectroute.selector.selector import Selector

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
