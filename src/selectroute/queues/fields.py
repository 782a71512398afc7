"""Fields that a lookup asks for, of the descriptor and attributes together, and their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from selectroute.clauses.access import message_key
from selectroute.queues.record import Record, seen
from selectroute.queues.request import Request
from selectroute.queues.selection import Alternative, Field

Fields = tuple[Field, ...]
Keys = tuple[Any, ...]


def asked_fields(request: Request) -> dict[Field, Any]:
    """Return the fields of the descriptor that a request gives, in the order in which they stand there."""
    return {field: value for field, value in enumerate(request[:5]) if value is not None}


def fields_and_keys(request: Request) -> tuple[Fields, Keys]:
    """Return the fields of the descriptor that a request gives, and their values."""
    asked = asked_fields(request)
    return tuple(asked), tuple(asked.values())


def both(asked: dict[Field, Any], alternative: Alternative) -> tuple[Fields, Keys] | None:
    """Return what a request and an alternative ask for together; None if they contradict each other."""
    wanted = dict(zip(alternative.fields, alternative.keys, strict=True))
    for field, value in asked.items():
        if wanted.setdefault(field, value) != value:
            return None
    fields = tuple(sorted(wanted, key=lambda field: (isinstance(field, str), field)))
    return fields, tuple([wanted[field] for field in fields])


def key_of_fields(fields: Fields) -> Callable[[Record], Keys]:
    """Return what gives the values of some fields of a message, as keys where they are attributes."""
    of_descriptor = tuple(field for field in fields if isinstance(field, int))
    attributes = tuple(field for field in fields if isinstance(field, str))

    def key_of(record: Record) -> Keys:
        values = [record[field] for field in of_descriptor]
        if attributes:
            lookup = seen(record)
            values += [message_key(lookup(name)) for name in attributes]
        return tuple(values)

    return key_of
