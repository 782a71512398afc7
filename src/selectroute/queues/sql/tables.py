"""Tables of queues, and the rows of messages; may be in a registry's database.

::

    queue          name → its settings, how many messages arrived, which attributes are indexed
    queue_message  queue, place → descriptor, body, properties; its unit, if in one
    queue_body     id → body of several messages, which is there until the last one is gone
    queue_key      queue, index, key, place         messages by values of several attributes
    queue_held     queue → how many messages it has, and how many of them are in units; see `held`
    queue_owner    id                               processes that have units; see `units`
    queue_delivered  job, stream or side batches, task → batch, plan, how far it is put; see `deliveries`

A message is in exactly one row, or removed. A message in a unit stays in its row, invisible: `owner` and
``unit`` name the unit, `arriving` says whether it was put or got there. `place` is the queue key of the code:
the sort key of a message on its queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    event,
    func,
    select,
    text,
)

from selectroute.clauses.access import Key, message_key
from selectroute.queues.message.message import properties_of, text_of
from selectroute.queues.message.record import DESCRIPTOR_FIELDS, StoredMessage, selector_values
from selectroute.selector.fields import NO_ID, PREFIX

metadata: Final = MetaData()

# Names are compared byte by byte: the locale of a database could make different ones equal.
_NAME: Final = String().with_variant(String(collation="C"), "postgresql")
_NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")

queue: Final = Table(
    "queue",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", _NAME, nullable=False, unique=True),
    Column("order", Text, nullable=False),
    Column("default_priority", Integer, nullable=False),
    Column("default_persistence", Boolean, nullable=False),
    Column("max_depth", _NUMBER),
    Column("max_message_length", _NUMBER, nullable=False),
    Column("dialect", Text, nullable=False),
    Column("token_prefix", LargeBinary, nullable=False),
    Column("arrivals", _NUMBER, nullable=False, server_default=text("0")),
    # Counts the units that released messages; with the arrivals, tells waiting calls when to look again.
    Column("releases", _NUMBER, nullable=False, server_default=text("0")),
    # The attributes of each index, as JSON: {"1": ["color", "weight"]}.
    Column("indexes", Text, nullable=False, server_default=text("'{}'")),
    # Ids are never reused: a process that still has a deleted queue open must not put to a newer one.
    sqlite_autoincrement=True,
)

message: Final = Table(
    "queue_message",
    metadata,
    Column("queue", Integer, primary_key=True),
    Column("place", _NUMBER, primary_key=True),
    Column("msg_id", LargeBinary, nullable=False),
    Column("correl_id", LargeBinary),
    Column("group_id", LargeBinary),
    Column("msg_seq_number", Integer, nullable=False),
    Column("offset", Integer, nullable=False),
    Column("last_in_group", Boolean, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("persistence", Boolean, nullable=False),
    Column("expiry", Integer, nullable=False),
    Column("timestamp", _NUMBER, nullable=False),
    Column("backout_count", Integer, nullable=False),
    Column("expiration", _NUMBER, nullable=False),
    Column("properties", Text),
    Column("owner", _NUMBER),
    Column("unit", _NUMBER),
    Column("arriving", Boolean, nullable=False),
    Column("is_amqp", Boolean, nullable=False),
    # The body, or the row of `queue_body` that has it.
    Column("body", LargeBinary),
    Column("shared_body", _NUMBER),
)
# In delivery order, so that the first message with an id is the first in the index.
Index("queue_message_msg_id", message.c.queue, message.c.msg_id, message.c.place)


def _after(table: Table, dialect: str, *statements: str) -> None:
    """Run statements when a table has been created."""
    for statement in statements:
        made = DDL(statement).execute_if(dialect=dialect)  # type: ignore[no-untyped-call]
        event.listen(table, "after_create", made)


def _partial_index(name: str, *columns: Column[Any], where: ColumnElement[bool]) -> None:
    """Add an index of the rows that satisfy a condition."""
    Index(name, *columns, sqlite_where=where, postgresql_where=where)


for _id in (message.c.correl_id, message.c.group_id):
    _partial_index(f"queue_message_{_id.name}", message.c.queue, _id, message.c.place, where=_id.is_not(None))
_partial_index("queue_message_owner", message.c.owner, message.c.unit, where=message.c.owner.is_not(None))
_partial_index(
    "queue_message_expiration", message.c.queue, message.c.expiration, where=message.c.expiration > text("0")
)

_partial_index("queue_message_shared_body", message.c.shared_body, where=message.c.shared_body.is_not(None))

shared_body: Final = Table(
    "queue_body",
    metadata,
    Column("id", _NUMBER, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
shared_body.add_is_dependent_on(message)  # for the triggers


key: Final = Table(
    "queue_key",
    metadata,
    Column("queue", Integer, primary_key=True),
    Column("index", Integer, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("place", _NUMBER, primary_key=True),
    ForeignKeyConstraint(
        ["queue", "place"], ["queue_message.queue", "queue_message.place"], ondelete="CASCADE"
    ),
    Index("queue_key_place", "queue", "place"),
    sqlite_with_rowid=False,
)
# SQLite enforces foreign keys only if each connection enables it; a trigger works for all connections.
_after(
    key,
    "sqlite",
    "CREATE TRIGGER queue_key_gone AFTER DELETE ON queue_message BEGIN"
    " DELETE FROM queue_key WHERE queue = OLD.queue AND place = OLD.place; END",
)

held: Final = Table(
    "queue_held",
    metadata,
    Column("id", _NUMBER, primary_key=True),
    Column("queue", Integer, nullable=False),
    Column("messages", _NUMBER, nullable=False),
    Column("in_units", _NUMBER, nullable=False),
    Index("queue_held_queue", "queue"),
)
"""The depth of a queue is the sum of its rows, which triggers on the messages keep.

In SQLite, which has one writer, a queue has one row. In PostgreSQL two gets would wait for each other there:
each statement adds a row of its own, and `statements.JOINED` makes one row of many.
"""
held.add_is_dependent_on(message)  # for the triggers


_after(
    shared_body,
    "sqlite",
    "CREATE TRIGGER queue_body_gone AFTER DELETE ON queue_message WHEN OLD.shared_body IS NOT NULL BEGIN"
    " DELETE FROM queue_body WHERE id = OLD.shared_body AND NOT EXISTS"
    " (SELECT 1 FROM queue_message WHERE shared_body = OLD.shared_body); END",
)
# Of two transactions at once that remove the last two messages, neither sees that of the other removed: see
# `QueueDatabase.remove_orphans_if_due`.
_after(
    shared_body,
    "postgresql",
    "CREATE OR REPLACE FUNCTION queue_body_gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " DELETE FROM queue_body WHERE id IN (SELECT shared_body FROM removed WHERE shared_body IS NOT NULL) AND"
    " NOT EXISTS (SELECT 1 FROM queue_message WHERE shared_body = queue_body.id); RETURN NULL; END $$",
    "CREATE TRIGGER queue_body_gone AFTER DELETE ON queue_message REFERENCING OLD TABLE AS removed"
    " FOR EACH STATEMENT EXECUTE FUNCTION queue_body_gone()",
)


def _counts(messages: str, in_units: str, of: str) -> str:
    """Return the statement that adds to the only row of a queue in SQLite."""
    return (
        f"UPDATE queue_held SET messages = messages + {messages}, in_units = in_units + {in_units}"
        f" WHERE queue = {of}.queue;"
    )


_put, _gone = _counts("1", "(NEW.owner IS NOT NULL)", "NEW"), _counts("-1", "-(OLD.owner IS NOT NULL)", "OLD")
_after(
    held,
    "sqlite",
    f"CREATE TRIGGER queue_held_put AFTER INSERT ON queue_message BEGIN {_put} END",
    f"CREATE TRIGGER queue_held_gone AFTER DELETE ON queue_message BEGIN {_gone} END",
    f"CREATE TRIGGER queue_held_moved AFTER UPDATE OF queue, owner ON queue_message BEGIN {_gone} {_put} END",
    "CREATE TRIGGER queue_held_created AFTER INSERT ON queue BEGIN"
    " INSERT INTO queue_held (queue, messages, in_units) VALUES (NEW.id, 0, 0); END",
)


def _trigger(change: str, tables: str, rows: str) -> tuple[str, str]:
    """Return the function and the trigger that add the counts of one statement in PostgreSQL.

    ``rows`` selects the queue, a number of messages, and how many of them are in units.
    """
    return (
        f"CREATE OR REPLACE FUNCTION queue_held_{change}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" INSERT INTO queue_held (queue, messages, in_units)"
        f" SELECT queue, sum(messages), sum(in_units) FROM ({rows}) changed GROUP BY queue"
        f" HAVING sum(messages) <> 0 OR sum(in_units) <> 0; RETURN NULL; END $$",
        f"CREATE TRIGGER queue_held_{change} AFTER {change} ON queue_message REFERENCING {tables}"
        f" FOR EACH STATEMENT EXECUTE FUNCTION queue_held_{change}()",
    )


_added = "SELECT queue, 1 AS messages, (owner IS NOT NULL)::int AS in_units FROM added"
_removed = "SELECT queue, -1 AS messages, -(owner IS NOT NULL)::int AS in_units FROM removed"
_after(
    held,
    "postgresql",
    *_trigger("insert", "NEW TABLE AS added", _added),
    *_trigger("delete", "OLD TABLE AS removed", _removed),
    *_trigger("update", "NEW TABLE AS added OLD TABLE AS removed", f"{_added} UNION ALL {_removed}"),
)

owner: Final = Table("queue_owner", metadata, Column("id", _NUMBER, primary_key=True, autoincrement=False))

delivered: Final = Table(
    "queue_delivered",
    metadata,
    Column("job", _NAME, primary_key=True),
    Column("backfill", Boolean, primary_key=True),
    Column("task", Integer, primary_key=True),
    Column("batch", _NUMBER, nullable=False),
    # The number of messages put.
    Column("done", _NUMBER, nullable=False),
    # The queues that are gone, held and full, with the first delivery concerned: [{"ORDERS": 17}, {}, {}].
    Column("queues", Text, nullable=False),
    # The digest of the plan by which the deliveries are numbered.
    Column("plan", Text, nullable=False),
    # The number of the next delivery, which may have more than 64 bits.
    Column("next", Text, nullable=False),
    # Counts the attempts that went on after another one.
    Column("attempt", Integer, nullable=False),
)

FIELDS: Final = (*StoredMessage._fields[:DESCRIPTOR_FIELDS], "place")
"""Columns of a record up to its key, which the table calls `place`."""

BODY: Final = func.coalesce(
    message.c.body,
    select(shared_body.c.body).where(shared_body.c.id == message.c.shared_body).scalar_subquery(),
)
"""Body of a message, shared or not."""

_AFTER_BODY: Final = (message.c.properties, message.c.is_amqp)
COLUMNS: Final[tuple[ColumnElement[Any], ...]] = (*(message.c[name] for name in FIELDS), BODY, *_AFTER_BODY)
"""Columns of a record, in its order."""

BARE_COLUMNS: Final = (*(message.c[name] for name in FIELDS), *_AFTER_BODY)
"""Columns without the body, which lookups do not read."""


_NULLABLE: Final = tuple(map(FIELDS.index, ("correl_id", "group_id")))
_BOOLEANS: Final = (*map(FIELDS.index, ("last_in_group", "persistence")), -1)


def row_of(record: StoredMessage, queue: int, marks: Mapping[str, int]) -> dict[str, Any]:
    """Return the row of a message of a queue; `marks` name the unit of the put, if any."""
    row: dict[str, Any] = dict(zip(FIELDS, record, strict=False))
    for name in ("correl_id", "group_id"):
        if row[name] == NO_ID:
            row[name] = None
    row |= {"body": record.body, "shared_body": None, "is_amqp": record.is_amqp}
    row["properties"] = None if record.properties is None else text_of(record.properties)
    row |= {"queue": queue, "owner": marks.get("own"), "unit": marks.get("of_unit"), "arriving": bool(marks)}
    return row


def record_of(row: Any) -> StoredMessage:
    """Return the record of a row of `COLUMNS`, from SQLAlchemy or from the driver."""
    fields = list(row)
    for index in _NULLABLE:
        if fields[index] is None:
            fields[index] = NO_ID
    for index in _BOOLEANS:  # 0 or 1 if a statement is run without SQLAlchemy
        fields[index] = bool(fields[index])
    if fields[-2] is not None:
        fields[-2] = properties_of(fields[-2])
    return StoredMessage._make(fields)


def bare_record_of(row: Any) -> StoredMessage:
    """Return the record of a row of `BARE_COLUMNS`; its body is empty."""
    return record_of((*row[:-2], b"", *row[-2:]))


_COUNTING: Final = ("JMSRedelivered", "JMSXDeliveryCount")


def is_lasting(attribute: str) -> bool:
    """Return whether an attribute of a message never changes, so that it may be indexed."""
    return attribute not in _COUNTING and not attribute.startswith(PREFIX)


def key_of(record: StoredMessage, attributes: Iterable[str]) -> bytes | None:
    """Return the key of a message in an index on attributes; None if a selector cannot equal one."""
    lookup = selector_values(record)
    keys = [message_key(lookup(name)) for name in attributes]
    return None if None in keys else digest_of([value for value in keys if value is not None])


def digest_of(keys: Iterable[Key]) -> bytes:
    """Return a 16-byte digest of keys of attributes. Messages found by a digest are re-evaluated."""
    digest = blake2b(digest_size=16)
    for value in keys:
        parts = value if isinstance(value, tuple) else (value,)
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
