"""Rows of messages: conversion from and to records, and index keys of attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

from sqlalchemy import ColumnElement

from selectroute.clauses.access import Key, message_key
from selectroute.queues.message.message import properties_of, text_of
from selectroute.queues.message.record import DESCRIPTOR_FIELDS, Record, selector_values
from selectroute.queues.sql.tables import message
from selectroute.selector.fields import NO_ID, PREFIX

FIELDS: Final = (*Record._fields[:DESCRIPTOR_FIELDS], "place")
"""Columns of a record up to its key, which the table calls `place`."""

COLUMNS: Final[tuple[ColumnElement[Any], ...]] = tuple(
    message.c[name] for name in (*FIELDS, "body", "properties")
)
"""Columns of a record, in its order."""

BARE_COLUMNS: Final = (*COLUMNS[:-2], message.c.properties)
"""Columns without the body, which lookups do not read."""


_NULLABLE: Final = tuple(map(FIELDS.index, ("correl_id", "group_id")))
_BOOLEANS: Final = tuple(map(FIELDS.index, ("last_in_group", "persistence")))


def row_of(record: Record, queue: int, marks: Mapping[str, int]) -> dict[str, Any]:
    """Return the row of a message of a queue; `marks` name the unit of the put, if any."""
    row: dict[str, Any] = dict(zip(FIELDS, record, strict=False))
    for name in ("correl_id", "group_id"):
        if row[name] == NO_ID:
            row[name] = None
    row["body"] = record.body
    row["properties"] = None if record.properties is None else text_of(record.properties)
    row |= {"queue": queue, "owner": marks.get("own"), "unit": marks.get("of_unit"), "arriving": bool(marks)}
    return row


def record_of(row: Any) -> Record:
    """Return the record of a row of `COLUMNS`, from SQLAlchemy or from the driver."""
    fields = list(row)
    for index in _NULLABLE:
        if fields[index] is None:
            fields[index] = NO_ID
    for index in _BOOLEANS:  # 0 or 1 if a statement is run without SQLAlchemy
        fields[index] = bool(fields[index])
    if fields[-1] is not None:
        fields[-1] = properties_of(fields[-1])
    return Record._make(fields)


def bare_record_of(row: Any) -> Record:
    """Return the record of a row of `BARE_COLUMNS`; its body is empty."""
    return record_of((*row[:-1], b"", row[-1]))


_COUNTING: Final = ("JMSRedelivered", "JMSXDeliveryCount")


def is_lasting(attribute: str) -> bool:
    """Return whether an attribute of a message never changes, so that it may be indexed."""
    return attribute not in _COUNTING and not attribute.startswith(PREFIX)


def key_of(record: Record, attributes: Iterable[str]) -> bytes | None:
    """Return the key of a message in an index on attributes; None if a selector cannot equal one."""
    lookup = selector_values(record)
    keys = [message_key(lookup(name)) for name in attributes]
    return None if None in keys else digest_of([one for one in keys if one is not None])


def digest_of(keys: Iterable[Key]) -> bytes:
    """Return a 16-byte digest of keys of attributes. Messages found by a digest are re-evaluated."""
    digest = blake2b(digest_size=16)
    for one in keys:
        parts = one if isinstance(one, tuple) else (one,)
        for part in parts:
            octets = (
                part
                if isinstance(part, bytes)
                else part.hex().encode()
                if isinstance(part, float)
                else part.encode(errors="surrogatepass")
            )
            kind = type(part).__name__
            digest.update(f"{kind}{len(octets)}:".encode() + octets)
        digest.update(b".")
    return digest.digest()
