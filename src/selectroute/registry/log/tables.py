"""Tables of a registry: the change log, which is the truth, and beside it what can be made again from it.

::

    counter       revision, digest, changes, subscriptions     one row, locked by whoever writes
    change        revision, seq → op, id, body, …, digest      the log; a digest vouches for all before it
    subscription  id → revision, seq, …                        where in the log its state stands
    label         name, value, id                              the same by its labels

The body of a change is the subscription after it as a line of JSON, so that the log is complete by itself.
The other tables (tokens, keys of requests, what queries reported) are sealed row by row.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

from selectroute.store.engine import ADDED

FORMAT: Final = "1"
"""The version of these tables, in the setting ``format``."""

metadata: Final = MetaData()

# Ids are compared byte by byte everywhere; a database's own language would put them in another order.
_KEY: Final = String().with_variant(String(collation="C"), "postgresql")
_REVISION: Final = BigInteger().with_variant(Integer(), "sqlite")

EVENTS: Final = ("pause", "remove", "resume")
"""What is done to single subscriptions, and read by itself: streams look for what was resumed. What adds and
replaces, a million at a time, is not in the index of these.
"""

IS_EVENT: Final = "op IN ('pause', 'remove', 'resume')"

setting: Final = Table(
    "setting",
    metadata,
    Column("name", _KEY, primary_key=True),
    Column("value", Text, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

counter: Final = Table(
    "counter",
    metadata,
    Column("name", _KEY, primary_key=True),
    Column("revision", _REVISION, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("changes", BigInteger, nullable=False),
    Column("subscriptions", BigInteger, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

change: Final = Table(
    "change",
    metadata,
    Column("revision", _REVISION, primary_key=True, autoincrement=False),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("op", _KEY, nullable=False),
    Column("id", _KEY, nullable=False),
    Column("body", Text),
    Column("resume_from", _KEY),
    Column("paused_at", BigInteger),
    Column("time", _KEY, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Index("change_of", "id", "revision", "seq"),
    Index(
        "change_event",
        "op",
        "revision",
        "seq",
        sqlite_where=text(IS_EVENT),
        postgresql_where=text(IS_EVENT),
    ),
    sqlite_with_rowid=False,
)

subscription: Final = Table(
    "subscription",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("name", _KEY, nullable=False),
    Column("topic_key", _KEY),
    Column("dialect", _KEY, nullable=False),
    Column("status", _KEY, nullable=False),
    Column("revision", _REVISION, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    Index("subscription_name", "name", unique=True),
    Index("subscription_topic", "topic_key", "id"),
    Index("subscription_dialect", "dialect", "id"),
    Index("subscription_status", "status", "id"),
    sqlite_with_rowid=False,
)

label: Final = Table(
    "label",
    metadata,
    Column("name", _KEY, primary_key=True),
    Column("value", _KEY, primary_key=True),
    Column("id", _KEY, primary_key=True),
    Index("label_of", "id"),
    sqlite_with_rowid=False,
)

request: Final = Table(
    "request",
    metadata,
    Column("subject", _KEY, primary_key=True),
    Column("key", _KEY, primary_key=True),
    Column("digest", _KEY, nullable=False),
    Column("answer", Text, nullable=False),
    Column("time", _KEY, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    Index("request_time", "time"),
    sqlite_with_rowid=False,
)

query: Final = Table(
    "query",
    metadata,
    Column("query", _KEY, primary_key=True),
    Column("source", Text, nullable=False),
    Column("can_replay", Boolean, nullable=False),
    Column("reason", Text),
    Column("seal", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

batch: Final = Table(
    "batch",
    metadata,
    Column("query", _KEY, primary_key=True),
    Column("revision", _REVISION, primary_key=True, autoincrement=False),
    Column("batch", BigInteger, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

token: Final = Table(
    "token",
    metadata,
    Column("id", _KEY, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", _KEY, nullable=False),
    Column("topics", Text, nullable=False),
    Column("hash", _KEY, nullable=False),
    Column("created", _KEY, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    # NULL for none: databases of the first release have tokens without them.
    Column("queues", Text, info={ADDED: True}),
    Column("kafka", Text, info={ADDED: True}),
    Index("token_hash", "hash", unique=True),
    sqlite_with_rowid=False,
)
