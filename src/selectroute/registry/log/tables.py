"""Tables of a registry: the change log, the source of truth, and tables derived from it.

::

    counter       revision, digest, changes, subscriptions     one row, locked by each writer
    setting       name → value                                 of the registry, such as its id
    change        revision, seq → op, id, body, …, digest      the log; a digest covers all earlier rows
    subscription  id → revision, seq, …                        position of its state in the log
    label         name, value, id                              index of labels
    token         id → hash, role, topics, queues, kafka        who may do what
    request       subject, key → answer                        changes that are not made twice
    query         query → source, can_replay                   streams that have announced themselves
    batch         query, revision → batch                      the first batch that used a revision
    stream        query → time, body                           the state of each stream, as it last reported
    report        query, batch → body                          the newest batches of each stream
    creator       id → token                               who added a subscription, if tokens have a quota
    activity      id → query, batch, time, deliveries          the newest batch that names a subscription
    sample        time, query, number → body                   the newest messages that streams send

The body of a change is the subscription after the change as a line of JSON, so that the log is complete by
itself. Tokens, settings and idempotency keys are sealed row by row. What streams report is not: it is only
shown.
"""

from __future__ import annotations

from typing import Any, Final

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

from selectroute.store.engine import row_digest

FORMAT: Final = "3"
"""Version of these tables, in the setting ``format``."""

metadata: Final = MetaData()

# Ids are compared byte by byte everywhere; the locale of a database would order them differently.
_KEY: Final = String().with_variant(String(collation="C"), "postgresql")
_REVISION: Final = BigInteger().with_variant(Integer(), "sqlite")

EVENTS: Final = ("pause", "remove", "resume")
"""Operations in a partial index: streams read resumes alone. Adds and replaces, up to a million in one
revision, are not in that index.
"""

IS_EVENT: Final = "op IN ('pause', 'remove', 'resume')"


def _table(name: str, *parts: Column[Any] | Index) -> Table:
    return Table(name, metadata, *parts, sqlite_with_rowid=False)


def row_seal(row: Any) -> bytes:
    """Return the seal of a row of ``setting``, ``request`` or ``token``: it covers all columns before it."""
    return row_digest(*tuple(row)[:-1])


setting: Final = _table(
    "setting",
    Column("name", _KEY, primary_key=True),
    Column("value", Text, nullable=False),
    Column("seal", LargeBinary, nullable=False),
)

counter: Final = _table(
    "counter",
    Column("name", _KEY, primary_key=True),
    Column("revision", _REVISION, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("changes", BigInteger, nullable=False),
    Column("subscriptions", BigInteger, nullable=False),
    Column("seal", LargeBinary, nullable=False),
)

change: Final = _table(
    "change",
    Column("revision", _REVISION, primary_key=True, autoincrement=False),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("op", _KEY, nullable=False),
    Column("id", _KEY, nullable=False),
    Column("body", Text),
    Column("resume_from", _KEY),
    Column("paused_at", BigInteger),
    Column("time", _KEY, nullable=False),
    Column("actor", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Index("change_of", "id", "revision", "seq"),
    Index(
        "change_event", "op", "revision", "seq", sqlite_where=text(IS_EVENT), postgresql_where=text(IS_EVENT)
    ),
)

subscription: Final = _table(
    "subscription",
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
)

label: Final = _table(
    "label",
    Column("name", _KEY, primary_key=True),
    Column("value", _KEY, primary_key=True),
    Column("id", _KEY, primary_key=True),
    Index("label_of", "id"),
)

creator: Final = _table(
    "creator",
    Column("id", _KEY, primary_key=True),
    Column("token", _KEY, nullable=False),
    Index("creator_token", "token"),
)

request: Final = _table(
    "request",
    Column("subject", _KEY, primary_key=True),
    Column("key", _KEY, primary_key=True),
    Column("digest", _KEY, nullable=False),
    Column("answer", Text, nullable=False),
    Column("time", _KEY, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    Index("request_time", "time"),
)

query: Final = _table(
    "query",
    Column("query", _KEY, primary_key=True),
    Column("source", Text, nullable=False),
    Column("can_replay", Boolean, nullable=False),
    Column("reason", Text),
)

batch: Final = _table(
    "batch",
    Column("query", _KEY, primary_key=True),
    Column("revision", _REVISION, primary_key=True, autoincrement=False),
    Column("batch", BigInteger, nullable=False),
)

stream: Final = _table(
    "stream",
    Column("query", _KEY, primary_key=True),
    Column("time", _KEY, nullable=False),
    Column("body", Text, nullable=False),
)

report: Final = _table(
    "report",
    Column("query", _KEY, primary_key=True),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("time", _KEY, nullable=False),
    Column("body", Text, nullable=False),
    Index("report_time", "query", "time", "batch"),
)

activity: Final = _table(
    "activity",
    Column("id", _KEY, primary_key=True),
    Column("query", _KEY, nullable=False),
    Column("batch", BigInteger, nullable=False),
    Column("time", _KEY, nullable=False),
    Column("deliveries", BigInteger, nullable=False),
)

sample: Final = _table(
    "sample",
    Column("time", _KEY, primary_key=True),
    Column("query", _KEY, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)

token: Final = _table(
    "token",
    Column("id", _KEY, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", _KEY, nullable=False),
    Column("topics", Text, nullable=False),
    Column("hash", _KEY, nullable=False),
    Column("created", _KEY, nullable=False),
    Column("queues", Text, nullable=False),
    Column("kafka", Text, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    Index("token_hash", "hash", unique=True),
)
