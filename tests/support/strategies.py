"""Hypothesis strategies for selectors and messages, shared by every property test of the project.

Names, strings and numbers come from small pools, so that equalities collide, types clash and properties are
missing; the pools hold the neighbours of every limit where Java's types round, wrap or overflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from selectroute.match.columns.from_messages import from_messages
from selectroute.selector import (
    DIALECTS,
    Byte,
    Double,
    Float,
    Int,
    Long,
    Message,
    Selector,
    Short,
    compile_like,
    to_text,
)
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.syntax.ast import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Expr,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Unary,
)
from selectroute.selector.values import UNSUPPORTED

PROPERTIES = ("a", "b", "c", "color", "weight", "é", "JMSXGroupSeq")
HEADERS = ("JMSType", "JMSCorrelationID", "JMSMessageID", "JMSPriority", "JMSTimestamp", "JMSDeliveryMode")
SYNONYMS = (
    "jms.Pri", "jms.Cid", "jms.Dlv", "mcd.Type", "mcd.Set", "Root.MQMD.MsgId", "Root.MQMD.CorrelId",
    "Root.MQMD.Priority", "Root.MQMD.PutDate", "Root.MQMD.BackoutCount", "JMSRedelivered", "JMSReplyTo",
)  # fmt: skip
DOTTED = ("x.y", "x.1", "mq_usr.a.b")
NAMES = {
    "jms": PROPERTIES + HEADERS,
    "ibm-jms": PROPERTIES + HEADERS,
    "ibm-mq": PROPERTIES + HEADERS + SYNONYMS + DOTTED,
    "mqe": (*PROPERTIES, *HEADERS, "JMSExpiration"),
}
"""Names that selectors of each dialect may read."""

INVALID = ("JMSFoo", "usr.JMSa", "in", "mq.a.b", "a.", "x.y.z")
"""Names of properties that break a rule of seed 003, the last one beside ``x.y``."""

STRINGS = (
    "", "a", "b", "ab", "abc", "A", "%", "_", "a%", "a_b", "it's", "1", "TRUE", "car", "\n", "é", "e\u0301",
    "😀", "ID:" + "00" * 24, "ID:" + "aB" * 24, "ID:0A", "mcd://d/s/t?format=f", "queue://QM/Q",
)  # fmt: skip
BYTES = (b"a", b"\0", b"ab", b"\xff", bytes(24), b"\xab" * 24, b"a".ljust(24, b"\0"))
EDGES = (0, 1, 2, 3, 7, 2**7, 2**8, 2**15, 2**16, 2**24, 2**31, 2**32, 2**53, 2**63)
DAY = 1_795_908_679_230
TIME_EDGES = (0, -1, 1, 2**31, 2**53, DAY, DAY * 1_000, DAY * 1_000_000, 2**63 - 1, -(2**63))
"""Numbers where milliseconds since 1970 are expected: among them a day of 2026 in milli-, micro- and
nanoseconds."""
NEAR = {sign * edge + step for edge in EDGES for step in (-1, 0, 1) for sign in (1, -1)}
INTEGERS = tuple(sorted(NEAR | set(TIME_EDGES)))
_POSITIVE = (0.0, 0.1, 0.5, 1.0, 1.1, 1.5, 3.0, 2.0**24, 2.0**24 + 2, 2.0**31, 2.0**53, 2.0**53 + 2, 2.0**63)
_EXTREME = (5e-324, 1.401298464324817e-45, 1e-40, 3.4028234663852886e38, 1e39, 1.7976931348623157e308)
FLOATS = tuple(sign * value for value in (*_POSITIVE, *_EXTREME) for sign in (1, -1))

integers = st.sampled_from(INTEGERS) | st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)
longs = integers.filter(lambda value: -(2**63) <= value < 2**63).map(Long)
doubles = (st.sampled_from(FLOATS) | st.floats(allow_nan=False, allow_infinity=False)).map(Double)
floats = (
    (st.sampled_from(FLOATS) | st.floats(width=32, allow_nan=False))
    .map(Float)
    .filter(lambda number: math.isfinite(number.value))
)
strings = st.sampled_from(STRINGS) | st.text("ab%_'😀", max_size=4)
byte_strings = st.sampled_from(BYTES) | st.binary(min_size=1, max_size=3)


def _fits(kind: type[Any]) -> st.SearchStrategy[Any]:
    limit = 1 << (kind.BITS - 1)
    return integers.map(lambda value: kind((value + limit) % (2 * limit) - limit))


values: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    strings,
    byte_strings,
    _fits(Byte),
    _fits(Short),
    _fits(Int),
    longs,
    doubles,
    floats,
    st.sampled_from([math.nan, math.inf, -math.inf]).flatmap(
        lambda value: st.sampled_from([Float(value), Double(value)])
    ),
)
"""Values of every type that a property can have, NaN and infinities included."""

_HEADER_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "JMSType": strings,
    "JMSCorrelationID": strings,
    "JMSMessageID": strings,
    "JMSPriority": st.integers(0, 9).map(Int),
    "JMSTimestamp": longs,
    "JMSDeliveryMode": st.sampled_from(["PERSISTENT", "NON_PERSISTENT"]),
}
_RARE_HEADER_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "JMSExpiration": st.sampled_from([0, 1, 2**62]),
    "JMSRedelivered": st.booleans(),
    "JMSReplyTo": strings,
}
_FIELD_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "jms.Pri": st.integers(0, 9).map(Int) | values,
    "jms.Cid": strings,
    "jms.Dlv": st.integers(0, 3).map(Int),
    "mcd.Type": strings | values,
    "Root.MQMD.MsgId": byte_strings,
    "Root.MQMD.CorrelId": byte_strings | strings,
    "Root.MQMD.Priority": st.integers(0, 9).map(Int) | st.integers(0, 9).map(Short),
    "Root.MQMD.BackoutCount": st.integers(-1, 2).map(Int),
    "Root.MQMD.ReplyToQ": strings,
}


_TIMES = st.sampled_from([time for time in TIME_EDGES if time >= 0]) | st.integers(0, 10**13)
_NUMBERS = st.integers(1, 999_999_999)
DESCRIPTOR_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "msg_id": st.binary(min_size=24, max_size=24),
    "msg_seq_number": _NUMBERS,
    "offset": _NUMBERS,
    "last_in_group": st.booleans(),
    "priority": st.integers(0, 9),
    "persistence": st.booleans(),
    "expiry": st.just(-1) | _NUMBERS,
    "timestamp": _TIMES,
    "expiration": _TIMES,
    "backout_count": st.integers(0, 10**6),
    "msg_token": st.binary(min_size=16, max_size=16),
}
"""Fields of messages on queues, but for correlation and group."""


_ABSENT = object()
_NONE_OR_ABSENT = st.sampled_from([_ABSENT, _ABSENT, None])


def _mostly(present: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 5).flatmap(lambda n: present if n else _NONE_OR_ABSENT)


def _mapping(strategies: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: _mostly(value) for name, value in strategies.items()}).map(
        lambda drawn: {name: value for name, value in drawn.items() if value is not _ABSENT}
    )


def _rarely(strategies: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def some(names: Iterable[str]) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries({name: strategies[name] for name in names})

    chosen = st.lists(st.sampled_from(list(strategies)), max_size=2, unique=True)
    return chosen.map(tuple).flatmap(cache(some))


def _merged(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(*parts).map(lambda drawn: {name: value for one in drawn for name, value in one.items()})


def messages() -> st.SearchStrategy[Message]:
    """Messages with most of the pool's names, of any type; one in six missing or NULL; some with a topic or
    with synonyms of header fields, and a few with names that break a rule.
    """
    nothing, broken = st.just({}), st.sampled_from(INVALID).map(lambda name: {name: Long(1)})
    invalid = st.integers(0, 5).flatmap(lambda n: nothing if n else broken)
    return st.builds(
        Message,
        headers=_merged(_mapping(_HEADER_VALUES), _rarely(_RARE_HEADER_VALUES)),
        properties=_merged(
            _mapping(dict.fromkeys(PROPERTIES, values)),
            _rarely(dict.fromkeys(DOTTED, values)),
            _rarely(_FIELD_VALUES),
            invalid,
        ),
        topic=st.sampled_from([None, "a", "a/b", "cars/eu/de"]),
    )


class TableRow(Message):
    """A message as a row of a table of which some columns have types that no property has."""

    __slots__ = ("unsupported",)

    def __init__(self, message: Message, unsupported: Iterable[str]) -> None:
        super().__init__(message.headers, message.properties, message.topic, message.body)
        self.unsupported = tuple(unsupported)
        self._values |= dict.fromkeys(self.unsupported, UNSUPPORTED)

    def __repr__(self) -> str:
        return f"TableRow({super().__repr__()}, unsupported={self.unsupported})"


def table_rows() -> st.SearchStrategy[Message]:
    """Messages, and rows with a value of a type that no property has under one name or two."""
    names = st.lists(st.sampled_from((*PROPERTIES, *HEADERS, "x.y", "jms.Pri")), max_size=2, unique=True)
    return messages() | st.builds(TableRow, messages(), names)


_OTHER_TYPES = (
    pa.array([0], pa.timestamp("us")), pa.array([0], pa.date32()), pa.array([1], pa.decimal128(38, 2)),
    pa.array([[1]]), pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), pa.array([1], pa.uint64()),
    pa.array([{"deep": {"list": [{"a": "x" * 100}] * 10}}]),
)  # fmt: skip


def table_of(batch: Sequence[Message], names: Sequence[str]) -> pa.RecordBatch:
    """Rows as columns: of a type that no property has where all values of a name are unsupported, otherwise
    of a type for each row.
    """
    table = from_messages(batch, names)
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    for place, name in enumerate(names):
        values = [message.value(name) for message in batch]
        if UNSUPPORTED in values and all(value is None or value is UNSUPPORTED for value in values):
            other = _OTHER_TYPES[place % len(_OTHER_TYPES)]
            places = [None if value is None else 0 for value in values]
            columns[name] = other.take(pa.array(places, pa.int32()))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)) if columns else table


def identifiers(dialect: str = "jms") -> st.SearchStrategy[Identifier]:
    """Names that a selector of the dialect may read."""
    return st.sampled_from(NAMES[dialect]).map(Identifier)


_numbers = (longs | doubles | floats).map(Literal)
_booleans = st.booleans().map(Literal)


def arithmetic(dialect: str = "jms") -> st.SearchStrategy[Expr]:
    """Expressions that can be numbers."""
    return st.recursive(
        identifiers(dialect) | _numbers,
        lambda inner: (
            st.builds(Unary, st.sampled_from("+-"), inner)
            | st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner)
        ),
        max_leaves=4,
    )


def _like(name: Identifier, pattern: str, escape: str | None, negated: bool) -> Like:
    try:
        compile_like(pattern, escape)
    except ValueError:
        escape = None
    return Like(name, pattern, escape, negated)


def _predicates(dialect: str) -> st.SearchStrategy[Expr]:
    numeric, names = arithmetic(dialect), identifiers(dialect)
    equal, ordered = st.sampled_from(["=", "<>"]), st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    literals = strings.map(Literal) | _booleans | _numbers
    if dialect == "ibm-mq":
        literals |= byte_strings.map(Literal)
    patterns = st.text("ab%_!'😀", max_size=6) | strings
    lists = st.lists(strings, min_size=1, max_size=4).map(tuple)
    return st.one_of(
        names,
        _booleans,
        st.builds(Comparison, equal, names, literals),
        st.builds(Comparison, equal, literals, names),
        st.builds(Comparison, equal, strings.map(Literal), strings.map(Literal)),
        st.builds(Comparison, equal, _booleans, _booleans),
        st.builds(Comparison, ordered, numeric, numeric),
        st.builds(Between, numeric, numeric, numeric, st.booleans()),
        st.builds(Between, names, _numbers, _numbers, st.booleans()),
        st.builds(In, names, lists, st.booleans()),
        st.builds(_like, names, patterns, st.sampled_from([None, "!", "a", "%", "😀"]), st.booleans()),
        st.builds(IsNull, names, st.booleans()),
    )


@cache
def expressions(max_leaves: int = 8, dialect: str = "jms") -> st.SearchStrategy[Expr]:
    """Trees of every selector that the dialect accepts: all operators, typed literals, nested."""

    def nested(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        chains = st.lists(inner, min_size=2, max_size=4).map(tuple)
        # A condition as an operand of = and <>, against what is or may be a boolean.
        boolean = inner.filter(lambda node: not isinstance(node, Literal) or isinstance(node.value, bool))
        return st.one_of(
            st.builds(Not, inner),
            st.builds(And, chains),
            st.builds(Or, chains),
            st.builds(Comparison, st.sampled_from(["=", "<>"]), boolean, boolean),
        )

    if dialect == "mqe":
        literals = (strings | st.booleans() | longs | doubles).map(Literal)
        operands = identifiers(dialect) | literals
        one = st.builds(Comparison, st.just("="), operands, operands)
        one |= st.builds(IsNull, identifiers(dialect))
        return one | st.lists(one, min_size=2, max_size=3).map(lambda parts: And(tuple(parts)))
    return st.recursive(_predicates(dialect), nested, max_leaves=max_leaves)


@cache
def selectors(max_leaves: int = 8, dialect: str = "jms") -> st.SearchStrategy[str]:
    """Texts of `expressions`."""
    return expressions(max_leaves, dialect).map(to_text)


def checked_selectors(max_leaves: int = 8) -> st.SearchStrategy[Selector]:
    """Selectors of all dialects."""
    in_each = {
        name: selectors(max_leaves, name).map(partial(Selector, dialect=name, limits=UNLIMITED))
        for name in DIALECTS
    }
    return st.sampled_from(list(DIALECTS)).flatmap(in_each.__getitem__)


# fmt: off
WORDS = (
    "a", "b", "JMSType", "JMSFoo", "NULL", "TRUE", "false", "NOT", "AND", "or", "BETWEEN", "LIKE",
    "IN", "IS", "ESCAPE", "(", ")", ",", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "1",
    "0", "09", "1_", "0x1F", "5.", ".5", "1e400", "1F", "9223372036854775808", "'x'", "'%'", "''",
    "'", '"', "==", "!=", "%", "&&", ".", "#", "é", "×", "😀", " ", "\t", "\n", "\u00a0",
)
# fmt: on


def texts() -> st.SearchStrategy[str]:
    """Texts that mostly are no selectors: any characters, words in any order, damaged selectors."""
    words = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
    touching = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)
    anything = st.text(st.characters(exclude_categories=()), max_size=30)
    return st.one_of(anything, words, touching, _damaged())


@st.composite
def _damaged(draw: st.DrawFn) -> str:
    text = draw(selectors(4))
    at = draw(st.integers(0, len(text)))
    cut = draw(st.integers(0, 3))
    return text[:at] + draw(st.sampled_from(["", *WORDS])) + text[at + cut :]
