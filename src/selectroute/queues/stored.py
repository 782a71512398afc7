"""A message as a queue in a database stores it: to a row and back, and its attributes as keys."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

from sqlalchemy import ColumnElement

from selectroute.clauses.access import Key, message_key
from selectroute.queues.message import NO_ID
from selectroute.queues.positions import CORREL_ID, GROUP_ID, LAST_IN_GROUP, PERSISTENCE
from selectroute.queues.properties import properties_of, text_of
from selectroute.queues.record import PLACE, PROPERTIES, Record, seen
from selectroute.queues.tables import message
from selectroute.selector.fields import PREFIX

FIELDS: Final = (
    "msg_id",
    "correl_id",
    "group_id",
    "msg_seq_number",
    "offset",
    "last_in_group",
    "priority",
    "persistence",
    "expiry",
    "timestamp",
    "backout_count",
    "expiration",
    "place",
)
"""The columns of the fields of a record, up to the place."""

COLUMNS: Final[tuple[ColumnElement[Any], ...]] = tuple(
    message.c[name] for name in (*FIELDS, "body", "properties")
)
"""The columns of a record, in its order."""

BARE_COLUMNS: Final = (*COLUMNS[:PLACE], message.c.place, message.c.properties)
"""The same without the body, which no lookup reads."""


def row_of(record: Record) -> dict[str, Any]:
    """Return the columns of a record."""
    row = dict(zip(FIELDS, record, strict=False))
    for name in ("correl_id", "group_id"):
        if row[name] == NO_ID:
            row[name] = None
    body, properties = record[PLACE + 1 :]
    row["body"] = body
    row["properties"] = None if properties is None else text_of(properties)
    return row


def record_of(row: Any) -> Record:
    """Return the record of a row of `COLUMNS`, as SQLAlchemy has it or as the driver does."""
    fields = list(row)
    for field in (CORREL_ID, GROUP_ID):
        if fields[field] is None:
            fields[field] = NO_ID
    for field in (LAST_IN_GROUP, PERSISTENCE):  # where a statement is run without SQLAlchemy, 0 or 1
        fields[field] = bool(fields[field])
    if fields[PROPERTIES] is not None:
        fields[PROPERTIES] = properties_of(fields[PROPERTIES])
    return tuple(fields)


def bare_record_of(row: Any) -> Record:
    """Return the record of a row of `BARE_COLUMNS`; its body is empty."""
    return record_of((*row[:-1], b"", row[-1]))


_COUNTING: Final = ("JMSRedelivered", "JMSXDeliveryCount")


def is_lasting(attribute: str) -> bool:
    """Return whether a message has the same value of an attribute all its life, so that it may be indexed."""
    return attribute not in _COUNTING and not attribute.startswith(PREFIX)


def key_of(record: Record, attributes: Iterable[str]) -> bytes | None:
    """Return the key of a message in the index of some attributes; None where a selector can equal none."""
    lookup = seen(record)
    keys = [message_key(lookup(name)) for name in attributes]
    return None if None in keys else digest_of([one for one in keys if one is not None])


def digest_of(keys: Iterable[Key]) -> bytes:
    """Return 16 bytes that stand for keys of attributes. Others may have the same: messages found by it are
    judged.
    """
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
