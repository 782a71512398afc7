"""Tables of queues; a registry's database may hold them too.

::

    queue          name → its settings, how many messages arrived, which attributes are indexed
    queue_message  queue, place → descriptor, body, properties; while it is in a unit, whose
    queue_key      queue, index, key, place         messages by the values of attributes together
    queue_owner    id                               processes that have units; see `unit_owners`
    queue_delivered  job, stream or backfill → batch, how much of it is on the queues; see `deliveries`

A message is in exactly one row, or gone. One in a unit stays in its row, invisible: `owner` and ``unit`` say
whose it is, `arriving` whether it was put in that unit or got. `place` is what the
code calls the queue key: the sort key of a message on its queue.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    event,
    text,
)

metadata: Final = MetaData()

# Names are compared byte by byte: a database's own language would find others equal.
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
    Column("body", LargeBinary, nullable=False),
)
# In the order in which messages are got, so that the first of those with an id is the first in the index.
Index("queue_message_msg_id", message.c.queue, message.c.msg_id, message.c.place)
for _id in (message.c.correl_id, message.c.group_id):
    Index(
        f"queue_message_{_id.name}",
        message.c.queue,
        _id,
        message.c.place,
        sqlite_where=_id.is_not(None),
        postgresql_where=_id.is_not(None),
    )
_in_unit = message.c.owner.is_not(None)
Index(
    "queue_message_owner",
    message.c.owner,
    message.c.unit,
    sqlite_where=_in_unit,
    postgresql_where=_in_unit,
)
_expires = message.c.expiration > text("0")
Index(
    "queue_message_expiration",
    message.c.queue,
    message.c.expiration,
    sqlite_where=_expires,
    postgresql_where=_expires,
)

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
# SQLite heeds foreign keys only where each connection asks for it; a trigger does it for every one.
event.listen(
    key,
    "after_create",
    DDL(  # type: ignore[no-untyped-call]
        "CREATE TRIGGER queue_key_gone AFTER DELETE ON queue_message BEGIN"
        " DELETE FROM queue_key WHERE queue = OLD.queue AND place = OLD.place; END"
    ).execute_if(dialect="sqlite"),
)

owner: Final = Table("queue_owner", metadata, Column("id", _NUMBER, primary_key=True, autoincrement=False))

delivered: Final = Table(
    "queue_delivered",
    metadata,
    Column("job", _NAME, primary_key=True),
    Column("backfill", Boolean, primary_key=True),
    Column("batch", _NUMBER, nullable=False),
    Column("done", _NUMBER, nullable=False),
    # Queues that were gone, and from which delivery of the batch on, as JSON: {"ORDERS": 17}; of those that
    # have no room {"ORDERS": ["held", 17]}, or ["full", 17] when that was given up.
    Column("gone", Text, nullable=False),
)
