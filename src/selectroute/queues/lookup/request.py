"""Requests: checked arguments of a get or browse, and their fields as keys of indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from selectroute.clauses.access import message_key
from selectroute.queues.errors import (
    MQRC_CORREL_ID_ERROR,
    MQRC_GROUP_ID_ERROR,
    MQRC_MSG_ID_ERROR,
    MQRC_MSG_TOKEN_ERROR,
    failed,
)
from selectroute.queues.lookup.match_options import (
    CORREL_ID,
    DEFAULT_MATCH,
    GROUP_ID,
    MSG_ID,
    MSG_SEQ_NUMBER,
    MSG_TOKEN,
    OFFSET,
    mask_of,
)
from selectroute.queues.lookup.selection import Alternative, KeyField, Selection, selection_of
from selectroute.queues.message.field_checks import bytes_of, id_of, offset_of, sequence_of
from selectroute.queues.message.message import NO_ID, NO_TOKEN, TOKEN_BYTES
from selectroute.queues.message.record import Field, Record, selector_values
from selectroute.selector.selector import Selector

Fields = tuple[KeyField, ...]
Keys = tuple[Any, ...]

_FIELDS: Final = tuple(Field)


def asked_fields(request: Request) -> dict[Field, Any]:
    """Return the descriptor fields that a request gives, in the order of `Field`."""
    return {field: value for field, value in zip(_FIELDS, request, strict=False) if value is not None}


def fields_and_keys(request: Request) -> tuple[Fields, Keys]:
    """Return the descriptor fields that a request gives, and their values."""
    asked = asked_fields(request)
    return tuple(asked), tuple(asked.values())


def both(asked: Mapping[Field, Any], alternative: Alternative) -> tuple[Fields, Keys] | None:
    """Return the conditions of a request and an alternative together; None if they contradict each other."""
    wanted: dict[KeyField, Any] = dict(zip(alternative.fields, alternative.keys, strict=True))
    for field, value in asked.items():
        if wanted.setdefault(field, value) != value:
            return None
    fields = tuple(sorted(wanted, key=lambda field: (isinstance(field, str), field)))
    return fields, tuple([wanted[field] for field in fields])


def key_of_fields(fields: Fields) -> Callable[[Record], Keys]:
    """Return a function that returns the values of some fields of a message, attributes as keys."""
    of_descriptor = tuple(field for field in fields if isinstance(field, int))
    attributes = tuple(field for field in fields if isinstance(field, str))

    def key_of(record: Record) -> Keys:
        values: list[Any] = [record[field] for field in of_descriptor]
        if attributes:
            lookup = selector_values(record)
            values += [message_key(lookup(name)) for name in attributes]
        return tuple(values)

    return key_of


_made = tuple.__new__  # a NamedTuple's own constructor takes twice as long


class Request(NamedTuple):
    """Fields that must agree (None: any value), and the selector that must be satisfied."""

    msg_id: bytes | None = None
    correl_id: bytes | None = None
    group_id: bytes | None = None
    msg_seq_number: int | None = None
    offset: int | None = None
    msg_token: bytes | None = None
    selection: Selection | None = None

    def agrees(self, record: Record) -> bool:
        """Return whether all fields of a message agree; token and selector are ignored. O(1)."""
        msg_id, correl_id, group_id, msg_seq_number, offset, _, _ = self
        return (
            (msg_id is None or record.msg_id == msg_id)
            and (correl_id is None or record.correl_id == correl_id)
            and (group_id is None or record.group_id == group_id)
            and (msg_seq_number is None or record.msg_seq_number == msg_seq_number)
            and (offset is None or record.offset == offset)
        )

    def is_satisfied(self, record: Record) -> bool:
        """Return whether a message's fields agree, except the token, and it satisfies the selector."""
        return self.agrees(record) and self.is_selected(record)

    def is_selected(self, record: Record) -> bool:
        """Return whether a message satisfies the selector, if there is one."""
        return self.selection is None or self.selection.selects(selector_values(record))


def request_of(
    dialect: str,
    match: int = DEFAULT_MATCH,
    msg_id: bytes = NO_ID,
    correl_id: bytes = NO_ID,
    group_id: bytes = NO_ID,
    msg_seq_number: int = 1,
    offset: int = 0,
    msg_token: bytes = NO_TOKEN,
    selector: str | Selector | None = None,
) -> Request:
    """Check the arguments of `Queue.get` and return them as a request. Raises MQError as `Queue.get` does.

    `dialect` is that of a selector given as text; for the others see `Queue.get`.

    "Fields for which the corresponding match option is not specified are ignored": any value is accepted.
    """
    mask = mask_of(match)
    request = _made(
        Request,
        (
            id_of(msg_id, MQRC_MSG_ID_ERROR) if mask & MSG_ID and msg_id is not NO_ID else None,
            id_of(correl_id, MQRC_CORREL_ID_ERROR) if mask & CORREL_ID and correl_id is not NO_ID else None,
            id_of(group_id, MQRC_GROUP_ID_ERROR) if mask & GROUP_ID and group_id is not NO_ID else None,
            sequence_of(msg_seq_number) if mask & MSG_SEQ_NUMBER else None,
            offset_of(offset) if mask & OFFSET else None,
            _token_of(msg_token) if mask & MSG_TOKEN else None,
            None,
        ),
    )
    return request if selector is None else _selecting(request, selection_of(selector, dialect))


def _selecting(request: Request, selection: Selection | None) -> Request:
    """Return a request with a selector; one that only equates an id becomes that match option (seed 000)."""
    if selection is None:
        return request
    if selection.only_id is not None:
        field, value = selection.only_id
        if request[field] in (None, value):
            return Request._make((*request[:field], value, *request[field + 1 :]))
    return request._replace(selection=selection)


def _token_of(given: bytes) -> bytes:
    token = bytes_of(given, MQRC_MSG_TOKEN_ERROR)
    if len(token) != TOKEN_BYTES:
        raise failed(MQRC_MSG_TOKEN_ERROR, f"a message token must be {TOKEN_BYTES} bytes, not {len(token)}")
    return token
