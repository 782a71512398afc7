"""SQL statements of queues: constants, and builders of those whose text depends on which fields are compared.

Values are always parameters. A message is *visible* if a get can return it: not in a unit, not expired.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Delete,
    FromClause,
    Integer,
    LargeBinary,
    ScalarSelect,
    Select,
    Update,
    and_,
    bindparam,
    cast,
    delete,
    func,
    insert,
    null,
    or_,
    select,
    text,
    update,
)

from selectroute.queues.lookup import Match, asked_fields
from selectroute.queues.message.record import ARRIVALS, Field
from selectroute.queues.sql.tables import (
    BARE_COLUMNS,
    BODY,
    COLUMNS,
    FIELDS,
    held,
    key,
    message,
    owner,
    queue,
)

Shape = tuple[Field, ...]
"""Given fields of the descriptor."""


def _back_out(which: ColumnElement[bool]) -> tuple[Delete, Update]:
    """Return the statements that remove the puts of units, and return their gets to the queues.

    The backout counts are raised by the parameter `raised`, which is one if it is left out.
    """
    again = message.c.backout_count + bindparam("raised", 1)
    gets = update(message).where(which).values(owner=None, unit=None, backout_count=again)
    return delete(message).where(which, message.c.arriving), gets


_IN_UNIT: Final = and_(message.c.owner == bindparam("own"), message.c.unit == bindparam("of_unit"))

_THIS_QUEUE: Final = queue.c.id == bindparam("in_queue")
UPDATE_QUEUE: Final = update(queue).where(_THIS_QUEUE)

ARRIVE: Final = UPDATE_QUEUE.values(arrivals=queue.c.arrivals + 1).returning(
    queue.c.arrivals, queue.c.indexes
)
"""Increments the arrivals. The next put waits until this transaction has ended."""

ARRIVE_MANY: Final = UPDATE_QUEUE.values(
    arrivals=queue.c.arrivals + bindparam("count", type_=queue.c.arrivals.type)
).returning(queue.c.arrivals)
"""Adds several arrivals, and returns the number of the last one."""

PUT: Final = insert(message)
PUT_KEY: Final = insert(key)
RELEASED: Final = UPDATE_QUEUE.values(releases=queue.c.releases + 1)
CHANGES: Final = select(queue.c.arrivals, queue.c.releases).where(_THIS_QUEUE)
INDEXES: Final = select(queue.c.indexes).where(_THIS_QUEUE)

COMMIT: Final = (
    update(message).where(_IN_UNIT, message.c.arriving).values(owner=None, unit=None, arriving=False),
    delete(message).where(_IN_UNIT, message.c.arriving.is_(False)),
)
"""Make the puts of a unit visible, and remove its gets."""

BACK_OUT: Final = _back_out(_IN_UNIT)

_OF_OWNER: Final = message.c.owner == bindparam("own")
OWNERS: Final = select(owner.c.id)
_OWNER: Final = select(owner.c.id).where(owner.c.id == bindparam("own"))
OWNER_KEPT: Final = _OWNER.with_for_update(read=True)
OWNER_LOCKED: Final = _OWNER.with_for_update()
OWNER_ENTERS: Final = insert(owner)
OWNER_LEAVES: Final = delete(owner).where(owner.c.id == bindparam("own"))
_QUEUES_OF_OWNER: Final = queue.c.id.in_(select(message.c.queue).where(_OF_OWNER))
RELEASED_BY_OWNER: Final = update(queue).where(_QUEUES_OF_OWNER).values(releases=queue.c.releases + 1)
BACK_OUT_OWNER: Final = _back_out(_OF_OWNER)
BACK_OUT_OWNER_HERE: Final = _back_out(and_(_OF_OWNER, message.c.queue == bindparam("in_queue")))

_EXPIRED: Final = and_(
    message.c.queue == bindparam("in_queue"),
    message.c.expiration > text("0"),  # as in the index: a parameter could be anything, and would not use it
    message.c.expiration <= bindparam("now_ms"),
    message.c.owner.is_(None),
)
ANY_EXPIRED: Final = select(message.c.place).where(_EXPIRED).limit(1)
EXPIRE: Final = delete(message).where(_EXPIRED)


def _visible(of: FromClause) -> ColumnElement[bool]:
    return and_(
        of.c.queue == bindparam("in_queue"),
        of.c.owner.is_(None),
        or_(of.c.expiration == 0, of.c.expiration > bindparam("now_ms")),
    )


def _counted(count: ColumnElement[int]) -> ScalarSelect[int]:
    """Return the sum of a count over the rows of a queue in ``queue_held``."""
    whole = cast(func.coalesce(func.sum(count), 0), BigInteger)
    return select(whole).where(held.c.queue == bindparam("in_queue")).scalar_subquery()


MESSAGES: Final = select(_counted(held.c.messages))
"""Returns the number of all messages of a queue. O(1)."""

_ALSO_EXPIRED: Final = select(func.count()).select_from(message).where(_EXPIRED).scalar_subquery()
DEPTH: Final = select(_counted(held.c.messages - held.c.in_units) - _ALSO_EXPIRED)
"""Returns the number of visible messages. O(messages that have expired and are not removed yet)."""

HELD: Final = select(_counted(held.c.messages) - _ALSO_EXPIRED)
"""Returns the number of messages that count towards `max_depth`, including those in units. O(as `DEPTH`)."""

HELD_ROWS: Final = select(func.count()).select_from(held).where(held.c.queue == bindparam("in_queue"))
_FREE_ROWS: Final = (
    select(held.c.id).where(held.c.queue == bindparam("in_queue")).with_for_update(skip_locked=True)
)
JOINED: Final = (
    delete(held).where(held.c.id.in_(_FREE_ROWS)).returning(held.c.messages, held.c.in_units),
    insert(held),
)
"""Removes the rows of ``queue_held`` that no other transaction removes; adds their sum as one row."""

FIRST: Final = (
    select(message.c.place, message.c.timestamp)
    .where(_visible(message), message.c.place > bindparam("after"))
    .order_by(message.c.place)
    .limit(1)
)

BETWEEN: Final = (
    select(*BARE_COLUMNS)
    .where(_visible(message), message.c.place > bindparam("after"), message.c.place <= bindparam("upto"))
    .order_by(message.c.place)
)
"""Selects the visible messages after one key and up to another."""

AT: Final = select(*COLUMNS).where(_visible(message), message.c.place == bindparam("at_place"))


_PLACES: Final[BindParameter[Any]] = bindparam("places", expanding=True)
LOCK_QUEUES: Final = (
    select(queue.c.id, queue.c.indexes)
    .where(queue.c.id.in_(bindparam("queues", expanding=True)))
    .order_by(queue.c.id)  # one lock order for all, against deadlocks
    .with_for_update()
)
"""Locks queues: until the transaction ends nothing is put to them, and no index of them is made."""

LOCK_FREE: Final = (
    select(message.c.place, func.length(BODY))
    .where(_visible(message), message.c.place.in_(_PLACES))
    .with_for_update(skip_locked=True)
)
"""Locks the visible messages with some keys, without those that another transaction takes, and returns the
lengths of their bodies in bytes."""

REMOVE: Final = delete(message).where(message.c.queue == bindparam("in_queue"), message.c.place.in_(_PLACES))
REMOVE_KEYS: Final = delete(key).where(key.c.queue == bindparam("in_queue"), key.c.place.in_(_PLACES))
MOVE: Final = (
    update(message)
    .where(message.c.queue == bindparam("in_queue"), message.c.place == bindparam("at_place"))
    .values(
        queue=bindparam("to_queue", type_=message.c.queue.type),
        place=bindparam("to_place", type_=message.c.place.type),
        backout_count=0,
    )
)
"""Moves a message, whole, to another queue, where its backout count begins at 0. Its keys must be removed."""


def shape_of(match: Match) -> tuple[Shape, dict[str, Any]]:
    """Return the descriptor fields that match options give, and their values as parameters."""
    fields = asked_fields(match)
    return tuple(fields), {f"field_{field}": value for field, value in fields.items()}


def _agrees(of: FromClause, shape: Shape) -> list[ColumnElement[bool]]:
    """Return the conditions for these fields; with a MsgId, only its condition can use an index.

    SQLite picks any index with an equality, but a CorrelId may have many messages where a MsgId has one.
    """
    conditions: list[ColumnElement[bool]] = []
    for field in shape:
        column: ColumnElement[Any] = of.c[FIELDS[field]]
        if field in (Field.CORREL_ID, Field.GROUP_ID) and Field.MSG_ID in shape:
            column = func.coalesce(column, null())  # no index has this
        conditions.append(column == bindparam(f"field_{field}", type_=of.c[FIELDS[field]].type))
    return conditions


@lru_cache(maxsize=1_000)
def walk(shape: Shape, indexed: bool) -> Select[Any]:
    """Return the select of visible messages with these fields after a key, through an index if `indexed`."""
    statement = select(*BARE_COLUMNS).where(_visible(message), *_agrees(message, shape))
    place: ColumnElement[int] = message.c.place
    if indexed:
        statement = statement.join_from(
            key, message, and_(key.c.queue == message.c.queue, key.c.place == message.c.place)
        ).where(
            key.c.queue == bindparam("in_queue"),
            key.c.index == bindparam("of_index", type_=Integer),
            key.c.key == bindparam("with_key", type_=LargeBinary),
        )
        place = key.c.place
    return statement.where(place > bindparam("after")).order_by(place).limit(bindparam("most", type_=Integer))


@lru_cache(maxsize=1_000)
def count(shape: Shape) -> Select[Any]:
    """Return the count of visible messages with these fields, after a key, that arrived up to a number."""
    arrival = message.c.place.bitwise_and(ARRIVALS)
    return (
        select(func.count())
        .select_from(message)
        .where(_visible(message), *_agrees(message, shape))
        .where(message.c.place > bindparam("after"), arrival <= bindparam("last_arrival"))
    )


@lru_cache(maxsize=1_000)
def take(shape: Shape, in_unit: bool) -> Delete | Update:
    """Return the statement that takes the first visible message with these fields, finally or into a unit."""
    return _taken(message.c.place == _first(shape, 1).scalar_subquery(), in_unit)


@lru_cache(maxsize=2)
def take_at(in_unit: bool) -> Delete | Update:
    """Return the statement that takes the message with a key, if it is visible."""
    return _taken(message.c.place == bindparam("at_place"), in_unit)


@lru_cache(maxsize=1_000)
def take_first(shape: Shape) -> Delete | Update:
    """Return the statement that takes the first visible messages with these fields into a unit."""
    return _taken(message.c.place.in_(_first(shape, bindparam("most", type_=Integer))), True)


def _first(shape: Shape, most: Any) -> Select[Any]:
    """Return the select of the keys of the first visible messages with these fields.

    Messages locked by other transactions are skipped (PostgreSQL); SQLite has a single writer.
    """
    inner = message.alias()
    return (
        select(inner.c.place)
        .where(_visible(inner), *_agrees(inner, shape))
        .order_by(inner.c.place)
        .limit(most)
        .with_for_update(skip_locked=True, key_share=True)
    )


def _taken(which: ColumnElement[bool], in_unit: bool) -> Delete | Update:
    this = (_visible(message), which)
    if in_unit:
        marked = {"owner": bindparam("own"), "unit": bindparam("of_unit"), "arriving": False}
        return update(message).where(*this).values(marked).returning(*COLUMNS)
    return delete(message).where(*this).returning(*COLUMNS)


TAKE_ALL_AT: Final = _taken(message.c.place.in_(_PLACES), True)
"""Takes the messages with some keys, those that are visible, into a unit."""
