"""Static analysis of a selector: how it is indexed, and probable mistakes.

A selector that can never be true is valid and matches nothing (seed 002 has a reason code for it), so all
warnings are advice. Every warning is certain, but only usual mistakes are looked for: a selector without a
warning may still be always false or always true.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from selectroute.clauses.access import LARGE_FLOAT, LARGE_LONG, equalities, prefixed, scan_reason
from selectroute.clauses.normal_form import clauses_of, conjunction
from selectroute.clauses.predicate import (
    Clause,
    ClauseLiteral,
    ExpressionTest,
    NullTest,
    OneOf,
    PatternTest,
    Simple,
    Test,
)
from selectroute.selector.dialect import EXTENDED, Dialect
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import DELIVERY_MODE_INT, DELIVERY_MODE_OF_MQ, PREFIX, identifier_of
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.message import DELIVERY_MODES, HEADER_TYPES
from selectroute.selector.names import FOREIGN_NAMES
from selectroute.selector.selector import Selector
from selectroute.selector.sentences import printable
from selectroute.selector.syntax import ast
from selectroute.selector.syntax.ast import Expr
from selectroute.selector.syntax.check import BOOLEAN, NUMBER, STRING
from selectroute.selector.syntax.printer import to_text
from selectroute.selector.syntax.source import Span, excerpt, place
from selectroute.selector.values import TYPE_NAMES, UNSUPPORTED, Double, Int, Number, Unsupported, Value

MQRC_SELECTOR_ALWAYS_FALSE: Final = 2504

ALWAYS_FALSE: Final = "always-false"
ALWAYS_TRUE: Final = "always-true"
CONTRADICTORY: Final = "contradictory-conditions"
IMPOSSIBLE: Final = "impossible-comparison"
NOT_INDEXABLE: Final = "not-indexable"
COMPARES_PROPERTIES: Final = "compares-properties"
SUBTRACTS_PROPERTIES: Final = "subtracts-properties"
DATE_ARITHMETIC: Final = "date-arithmetic"
FOREIGN_NAME: Final = "foreign-name"

_DATE: Final = re.compile(r"\d{4}-\d\d?-\d\d?|\d{4}/\d\d?/\d\d?|\d\d?-\d\d?-\d{4}|\d\d?/\d\d?/\d{4}")
"""Arithmetic written like a date: no spaces, and a year of four digits first or last."""

SHOWN: Final = 1_000
"""Characters of a canonical text in ``str()``; `to_dict` has the full text."""

MAX_WARNINGS: Final = 32
"""Maximum number of warnings about parts of one selector: generated selectors repeat mistakes."""

_COMPARED: Final = 8
"""Conditions on one property in one AND that the others are compared with: generated selectors may have
thousands.
"""

_MAX_VALUES: Final = 32
"""Values of an equality or a header that are tried; longer lists of IN are not."""


@dataclass(frozen=True, slots=True)
class SelectorWarning:
    """Probable mistake: its kind, a sentence, its span, and the MQ reason code if any."""

    kind: str
    sentence: str
    span: Span
    reason: int | None = None

    def to_dict(self, text: str) -> dict[str, Any]:
        """Return plain data; `text` is the selector's, in which offset and length count code points, line and
        column start at 1.
        """
        return {"kind": self.kind, "message": self.sentence, **place(text, self.span), "reason": self.reason}

    def __str__(self) -> str:
        code = "" if self.reason is None else f" (reason {self.reason})"
        return f"{self.kind}: {self.sentence}{code}"


@dataclass(frozen=True, slots=True)
class Access:
    """Access path of clauses in a snapshot: the values or prefixes of these attributes, or a scan."""

    attributes: tuple[str, ...]
    by_prefix: bool
    """True if the clauses are found by a prefix of the value, for LIKE, not by the value."""

    reason: str | None
    """Reason why the clauses are judged for every message; None if they are not."""

    clauses: int
    """Number of clauses with this access path."""

    def __str__(self) -> str:
        way = ", ".join(self.attributes) if self.reason is None else f"every message: {self.reason}"
        if self.by_prefix:
            way = f"prefixes of {way}"
        return way if self.clauses == 1 else f"{way} ({self.clauses:,} clauses)"


@dataclass(frozen=True, slots=True)
class Analysis:
    """Facts about a valid selector. ``str()`` renders a text, `to_dict` gives plain data."""

    text: str
    dialect: str
    canonical: str
    identifiers: tuple[str, ...]
    access: tuple[Access, ...]
    """Access paths of the clauses; empty if no message can satisfy one."""

    warnings: tuple[SelectorWarning, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; offset and length count code points, line and column start at 1."""
        return {
            "dialect": self.dialect,
            "canonical": self.canonical,
            "identifiers": list(self.identifiers),
            "access": [asdict(access) | {"attributes": list(access.attributes)} for access in self.access],
            "warnings": [warning.to_dict(self.text) for warning in self.warnings],
        }

    def _lines(self) -> Iterator[str]:
        canonical = printable(self.canonical, SHOWN)
        yield f"canonical  {canonical}" if canonical else "no selector: every message matches"
        yield f"reads      {printable(', '.join(self.identifiers), SHOWN) or 'no property'}"
        for access in self.access:
            yield f"found by   {printable(str(access), SHOWN)}"
        for warning in self.warnings:
            yield f"warning    {warning}"
            if warning.span != (0, len(self.text)):
                yield from (f"           {line}" for line in excerpt(self.text, warning.span))


def check(text: str, dialect: str = "jms") -> Analysis:
    """Return the static analysis of a selector: how it is indexed, and warnings.

    >>> [warning.kind for warning in check("JMSPriority > 9 OR color = 'red'").warnings]
    ['impossible-comparison']

    Raises InvalidSelectorError for an invalid text, UnknownDialectError for an unknown dialect.
    """
    return analyse(Selector(text, dialect))


def analyse(selector: Selector) -> Analysis:
    """Return the analysis of a selector. O(size of the selector and of its clauses)."""
    warnings, possible = _warnings(selector)
    text, dialect = selector.text, selector.dialect
    access = _access(possible)
    return Analysis(text, dialect, selector.canonical, selector.identifiers, access, warnings)


def registered_warnings(
    text: str, dialect: str, seltype: str | None, limits: Limits = DEFAULT_LIMITS
) -> tuple[SelectorWarning, ...]:
    """Return the warnings about a subscription's selector; none if it is empty, EXTENDED or beyond the
    limits, which may have changed since it was registered.
    """
    if not text or (seltype or "").upper() == EXTENDED:
        return ()
    try:
        return _warnings(Selector(text, dialect, limits=limits))[0]
    except SelectRouteError:
        return ()


def _access(clauses: list[Clause]) -> tuple[Access, ...]:
    counts: Counter[tuple[tuple[str, ...], bool, str | None]] = Counter()
    for clause in clauses:
        keys = sorted(equalities(clause).keys)
        attributes = tuple(map(identifier_of, keys or prefixed(clause.literals)))
        counts[attributes, bool(attributes and not keys), None if attributes else scan_reason(clause)] += 1
    return tuple(Access(*path, count) for path, count in counts.items())


def _warnings(selector: Selector) -> tuple[tuple[SelectorWarning, ...], list[Clause]]:
    """Return the warnings about a selector, and its clauses without those that no message satisfies."""
    expr, text, dialect = selector.expression, selector.text, dialect_named(selector.dialect)
    possible = [clause for clause in clauses_of(expr, dialect) if not _is_contradictory(clause)]
    if expr is None:
        return (), possible
    whole = Span(0, len(text))
    warnings = [
        *islice(_contradictions(expr, dialect), MAX_WARNINGS),
        *islice(_unquoted(expr, text), MAX_WARNINGS),
    ]
    warnings = sorted(warnings, key=lambda warning: warning.span)[:MAX_WARNINGS]
    if not possible:
        sentence = "no message can satisfy the selector"
        warnings.insert(0, SelectorWarning(ALWAYS_FALSE, sentence, whole, MQRC_SELECTOR_ALWAYS_FALSE))
    elif not all(clause.literals for clause in possible):
        sentence = "every message satisfies the selector"
        if dialect.name_rules:
            sentence += " whose properties have valid names"
        warnings.insert(0, SelectorWarning(ALWAYS_TRUE, sentence, whole))
    else:
        warnings += _not_indexable(whole, possible)
    return tuple(warnings), possible


def _not_indexable(whole: Span, clauses: list[Clause]) -> Iterator[SelectorWarning]:
    reasons: dict[str, Span] = {}
    for clause in clauses:
        if not equalities(clause).keys and not prefixed(clause.literals):
            predicates = (literal.predicate for literal in clause.literals)
            spans = (test.expr.span for test in predicates if isinstance(test, ExpressionTest))
            reasons.setdefault(scan_reason(clause), next(spans, whole))
    for reason, span in reasons.items():
        part = "the selector" if len(clauses) == 1 else "a part of the selector"
        yield SelectorWarning(NOT_INDEXABLE, f"{part} is judged for every message: {reason}", span)


def _unquoted(expr: Expr, text: str) -> Iterator[SelectorWarning]:
    """Yield strings and dates written without quotes, and names of headers in other brokers: they are read as
    properties and arithmetic.
    """
    for node in ast.postorder(expr):
        match node:
            case ast.Identifier(name=name) if name in FOREIGN_NAMES:
                sentence = f"{name} is a property here; the header is {FOREIGN_NAMES[name]}"
                yield SelectorWarning(FOREIGN_NAME, sentence, node.span)
            case ast.Comparison("=" | "<>" as op, ast.Identifier(name=left), ast.Identifier(name=right)):
                quoted = f"{printable(left, 40)} {op} '{printable(right, 40)}'"
                sentence = f"this compares two properties; for a string write {quoted}"
                yield SelectorWarning(COMPARES_PROPERTIES, sentence, node.span)
            case ast.Comparison("=" | "<>", ast.Arithmetic() as minus, ast.Literal(value=value)):
                if getattr(value, "value", value) != 0:  # to test whether two properties differ is plausible
                    yield from _hyphenated(minus, text)
            case ast.Arithmetic(op="-" | "/"):
                written = text[slice(*node.span)].strip("()")
                if _DATE.fullmatch(written):
                    sentence = f"{written} is arithmetic on three numbers; for a string write '{written}'"
                    yield SelectorWarning(DATE_ARITHMETIC, sentence, node.span)


def _hyphenated(node: ast.Arithmetic, text: str) -> Iterator[SelectorWarning]:
    """Yield a difference of two properties written like one name, as in ``order-id = 5``."""
    if node.op == "-" and isinstance(node.left, ast.Identifier) and isinstance(node.right, ast.Identifier):
        written = f"{node.left.name}-{node.right.name}"
        if text[slice(*node.span)].strip("()") == written:
            left, right = printable(node.left.name, 40), printable(node.right.name, 40)
            sentence = (
                f"`{left}-{right}` is `{left}` minus `{right}`, because names have no hyphens; "
                f"for one property write {left}_{right}, for the difference {left} - {right}"
            )
            yield SelectorWarning(SUBTRACTS_PROPERTIES, sentence, node.span)


# ---- contradictions

_Value = Value | Unsupported | None


def _contradictions(expr: Expr, dialect: Dialect) -> Iterator[SelectorWarning]:
    """Yield conditions that no message makes true, and pairs of conditions on one property, joined by AND,
    that no message makes true together.
    """
    waiting = [expr]
    while waiting:
        together: dict[str, list[tuple[Expr, list[ClauseLiteral]]]] = {}
        parts = [waiting.pop()]
        while parts:
            part = parts.pop()
            if isinstance(part, ast.And):
                parts += reversed(part.operands)
                continue
            if isinstance(part, ast.Or | ast.Not):
                waiting += ast.children(part)
            for name, literals in _by_attribute(conjunction(part, dialect) or ()).items():
                before = together.setdefault(name, [])
                if _contradict(name, literals):
                    yield SelectorWarning(IMPOSSIBLE, f"{_never(name)} this true", part.span)
                elif other := next(
                    (n for n, earlier in before if _contradict(name, earlier + literals)), None
                ):
                    first, second = (printable(to_text(node), 40) for node in (other, part))
                    makes = f"no value of `{identifier_of(name)}` makes both"
                    sentence = f"{makes} `{first}` and `{second}` true"
                    yield SelectorWarning(CONTRADICTORY, sentence, Span(other.span.start, part.span.end))
                elif len(before) < _COMPARED:
                    before.append((part, literals))


def _never(attribute: str) -> str:
    name, header = identifier_of(attribute), _HEADERS.get(attribute)
    return f"`{name}` is {header.text}, which never makes" if header else f"no value of `{name}` makes"


def _is_contradictory(clause: Clause) -> bool:
    groups = _by_attribute(clause.literals).items()
    return not equalities(clause).satisfiable or any(_contradict(*group) for group in groups)


def _by_attribute(literals: Iterable[ClauseLiteral]) -> dict[str, list[ClauseLiteral]]:
    groups: dict[str, list[ClauseLiteral]] = {}
    for literal in literals:
        if isinstance(literal.predicate, Simple):
            groups.setdefault(literal.predicate.name, []).append(literal)
    return groups


def _contradict(attribute: str, literals: Sequence[ClauseLiteral]) -> bool:
    """Return whether it is certain that no value of an attribute satisfies all these literals on it.

    Types and bounds are compared; where an equality or a header leaves few values, they are tried.
    O(literals).
    """
    header = _HEADERS.get(attribute)
    if header is None and len(literals) == 1 and isinstance(literals[0].predicate, Test):
        return False  # most literals: some value of a property compares so
    predicates = [literal.predicate for literal in literals if literal.wanted]
    kinds = {p.kind for p in predicates if isinstance(p, Test | OneOf | PatternTest)}
    if kinds and header is not None:
        kinds.add(header.kind)
    if len(kinds) > 1 or _is_empty(p for p in predicates if isinstance(p, Test)):
        return True
    values = header and header.values
    if values is None:
        equal = [values for literal in literals if (values := _equal_values(literal)) is not None]
        values = min(equal, key=len, default=None)
    return (
        values is not None
        and len(values) <= _MAX_VALUES
        and not any(_hold(literals, value) for value in values)
    )


def _hold(literals: Iterable[ClauseLiteral], value: _Value) -> bool:
    return all(literal.holds(lambda _: value) for literal in literals)


def _equal_values(literal: ClauseLiteral) -> tuple[_Value, ...] | None:
    """Return values that represent all on which an equality holds; None for any other literal.

    Numbers of several types equal a constant. Below 2^24 all of them compare alike with every other constant;
    the float 16777216, but not the double, equals 16777217.
    """
    match literal.predicate:
        case NullTest() if literal.wanted:
            return (None,)
        case OneOf(values=values, negated=False) if literal.wanted:
            return values
        case Test(op="=", constant=constant) if literal.wanted:
            is_large = isinstance(constant, Number) and abs(constant.value) >= LARGE_FLOAT
            return None if is_large else (constant,)
    return None


def _is_empty(tests: Iterable[Test]) -> bool:
    """Return whether no number is within the bounds that comparisons set.

    Comparisons round their operands, which keeps the order: `a > c` after rounding implies `a > c` before. It
    may make two numbers equal: `a >= c` is only a bound if no number less than `c` rounds to `c`.
    """
    lows: list[tuple[float, bool]] = [(-math.inf, False)]  # the number, and whether it is excluded
    highs: list[tuple[float, bool]] = [(math.inf, True)]  # the number, and whether it is included
    for test in tests:
        if isinstance(test.constant, Number):
            number, is_strict = test.constant.value, test.op in ("<", ">")
            limit = LARGE_LONG if isinstance(test.constant, Double) else LARGE_FLOAT
            if is_strict or abs(number) < limit:
                if test.op in (">", ">=", "="):
                    lows.append((number, is_strict))
                if test.op in ("<", "<=", "="):
                    highs.append((number, not is_strict))
    (low, is_excluded), (high, is_included) = max(lows), min(highs)
    return low > high or (low == high and (is_excluded or not is_included))


class _Header(NamedTuple):
    text: str
    kind: str
    values: tuple[_Value, ...] | None = None
    """All values of the header, and on messages with columns a value of another type."""


_KINDS: Final = {str: STRING, bool: BOOLEAN}
_MODES: Final = _Header("the int 1 or 2", NUMBER, (None, UNSUPPORTED, Int(1), Int(2)))
_HEADERS: Final = {
    **{
        attribute: _Header(f"{'an' if kind is Int else 'a'} {TYPE_NAMES[kind]}", _KINDS.get(kind, NUMBER))
        for name, kind in HEADER_TYPES.items()
        for attribute in (name, PREFIX + name)
    },
    "JMSPriority": _Header("an int from 0 to 9", NUMBER, (None, UNSUPPORTED, *map(Int, range(10)))),
    "JMSDeliveryMode": _Header(
        " or ".join(map(repr, DELIVERY_MODES)), STRING, (None, UNSUPPORTED, *DELIVERY_MODES)
    ),
    PREFIX + DELIVERY_MODE_INT: _MODES,
    PREFIX + DELIVERY_MODE_OF_MQ: _MODES,
}
"""Attributes that are headers. A priority that other names give, as in `ibm-mq`, may be any int."""
