"""Static analysis of a selector: how it is indexed, and probable mistakes.

A selector that can never be true is valid and matches nothing (seed 002 has a reason code for it), so all
warnings are advice. A warning is only given if it is certain: see `outcomes`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from selectroute.clauses.access import equalities, prefixed, scan_reason
from selectroute.clauses.normal_form import clauses_of
from selectroute.clauses.outcomes import Leaf, Outcomes, outcomes_by_name, satisfiable, truths
from selectroute.clauses.predicate import Clause, Condition, Missing, OneOf, Test
from selectroute.clauses.samples import domain
from selectroute.selector.dialect import Dialect
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.explain.sentences import printable
from selectroute.selector.fields import identifier_of
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.selector import Selector
from selectroute.selector.selector_type import EXTENDED
from selectroute.selector.syntax.ast import And, Arithmetic, Comparison, Expr, Identifier, Literal, postorder
from selectroute.selector.syntax.printer import to_text
from selectroute.selector.syntax.source import Span, excerpt, place
from selectroute.selector.values.truth import Truth
from selectroute.selector.values.values import Long

MQRC_SELECTOR_ALWAYS_FALSE: Final = 2504

ALWAYS_FALSE: Final = "always-false"
ALWAYS_TRUE: Final = "always-true"
CONTRADICTORY: Final = "contradictory-equalities"
IMPOSSIBLE: Final = "impossible-comparison"
NOT_INDEXABLE: Final = "not-indexable"
COMPARES_PROPERTIES: Final = "compares-properties"
SUBTRACTS_PROPERTIES: Final = "subtracts-properties"
DATE_ARITHMETIC: Final = "date-arithmetic"

_DATE: Final = re.compile(r"\d{4}-\d\d?-\d\d?|\d{4}/\d\d?/\d\d?|\d\d?-\d\d?-\d{4}|\d\d?/\d\d?/\d{4}")
"""Arithmetic written like a date: no spaces, and a year of four digits first or last."""

SHOWN: Final = 1_000
"""Characters of a canonical text in ``str()``; `to_dict` has the full text."""

MAX_WARNINGS: Final = 32
"""Maximum number of warnings about parts of one selector: generated selectors repeat mistakes."""


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
        return {
            "kind": self.kind,
            "message": self.sentence,
            **place(text, self.span),
            "reason": self.reason,
        }

    def __str__(self) -> str:
        code = "" if self.reason is None else f" (reason {self.reason})"
        return f"{self.kind}: {self.sentence}{code}"


@dataclass(frozen=True, slots=True)
class Access:
    """Access path of clauses in a snapshot: the values or prefixes of these attributes, or a scan."""

    attributes: tuple[str, ...]
    reason: str | None
    """Reason why the clauses are judged for every message; None if they are not."""

    clauses: int
    """Number of clauses with this access path."""

    by_prefix: bool = False
    """True if the clauses are found by a prefix of the value, for LIKE, not by the value."""

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
            "access": [
                {
                    "attributes": list(one.attributes),
                    "by_prefix": one.by_prefix,
                    "reason": one.reason,
                    "clauses": one.clauses,
                }
                for one in self.access
            ],
            "warnings": [warning.to_dict(self.text) for warning in self.warnings],
        }

    def _lines(self) -> Iterator[str]:
        canonical = printable(self.canonical, SHOWN)
        yield f"canonical  {canonical}" if canonical else "no selector: every message matches"
        yield f"reads      {printable(', '.join(self.identifiers), SHOWN) or 'no property'}"
        for one in self.access:
            yield f"found by   {printable(str(one), SHOWN)}"
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
    """Return the analysis of a selector. O(n), plus a bounded search for always-false and always-true."""
    dialect = dialect_named(selector.dialect)
    clauses = clauses_of(selector.expression, dialect)
    known = {} if selector.expression is None else outcomes_by_name(selector.expression, dialect)
    possible = satisfiable((one for one in clauses if equalities(one).satisfiable), known, dialect)
    warnings: tuple[SelectorWarning, ...] = ()
    if selector.expression is not None:
        warnings = tuple(_warnings(selector.expression, selector.text, possible, known, dialect))
    if any(warning.kind == ALWAYS_FALSE for warning in warnings):
        possible = []
    return Analysis(
        selector.text,
        selector.dialect,
        selector.canonical,
        selector.identifiers,
        _access(possible),
        warnings,
    )


def warnings_of(selector: Selector) -> tuple[SelectorWarning, ...]:
    """Return the warnings of `analyse`. Most selectors of large applications are equalities: without a search
    it is known that there are none.
    """
    if _only_equalities(selector.expression, dialect_named(selector.dialect)):
        return ()
    return analyse(selector).warnings


def registered_warnings(
    text: str, dialect: str, seltype: str | None, limits: Limits = DEFAULT_LIMITS
) -> list[dict[str, Any]]:
    """Return the warnings about a subscription's selector as plain data; none where `analyse_registered`
    returns None.
    """
    selector = _registered(text, dialect, seltype, limits)
    return [] if selector is None else [warning.to_dict(text) for warning in warnings_of(selector)]


def analyse_registered(
    text: str, dialect: str, seltype: str | None, limits: Limits = DEFAULT_LIMITS
) -> Analysis | None:
    """Return the analysis of a subscription's selector; None if it is empty, EXTENDED or beyond the limits,
    which may have changed since it was registered.
    """
    selector = _registered(text, dialect, seltype, limits)
    return None if selector is None else analyse(selector)


def _registered(text: str, dialect: str, seltype: str | None, limits: Limits) -> Selector | None:
    if not text or (seltype or "").upper() == EXTENDED:
        return None
    try:
        return Selector(text, dialect, limits=limits)
    except SelectRouteError:
        return None


def _only_equalities(expr: Expr | None, dialect: Dialect) -> bool:
    """Return whether a selector is one or more equalities joined by AND, each of another field, with a value
    that this field has on some message.
    """
    parts = expr.operands if isinstance(expr, And) else (expr,)
    fields = set()
    for part in parts:
        match part:
            case Comparison(op="=", left=Identifier(name=name), right=Literal(value=str() | Long() as value)):
                values = domain(name, dialect)
                if values.values is not None or type(value) not in values.types:
                    return False
                fields.add(dialect.field_of(name))
            case _:
                return False
    return len(fields) == len(parts)


def _access(clauses: list[Clause]) -> tuple[Access, ...]:
    counts: Counter[tuple[tuple[str, ...], str | None, bool]] = Counter()
    for clause in clauses:
        keys = sorted(equalities(clause).keys)
        attributes = tuple(map(identifier_of, keys or prefixed(clause.literals)))
        counts[attributes, None if attributes else scan_reason(clause), bool(attributes and not keys)] += 1
    return tuple(
        Access(attributes, reason, count, by_prefix)
        for (attributes, reason, by_prefix), count in counts.items()
    )


def _warnings(
    expr: Expr, text: str, possible: list[Clause], known: Mapping[str, Outcomes], dialect: Dialect
) -> Iterator[SelectorWarning]:
    whole = Span(0, len(text))
    verdicts = truths(expr, known, dialect) if possible else frozenset[Truth]()
    never = not possible or (verdicts is not None and Truth.TRUE not in verdicts)
    always = verdicts == frozenset({Truth.TRUE})
    if never:
        sentence = "no message can satisfy the selector"
        yield SelectorWarning(ALWAYS_FALSE, sentence, whole, MQRC_SELECTOR_ALWAYS_FALSE)
    if always:
        sentence = "every message satisfies the selector"
        if dialect.name_rules:
            sentence += " whose properties have valid names"
        yield SelectorWarning(ALWAYS_TRUE, sentence, whole)
    parts = [
        *islice(_contradictions(expr, known), MAX_WARNINGS),
        *islice(_impossible(known, dialect), MAX_WARNINGS),
        *islice(_unquoted(expr, text), MAX_WARNINGS),
    ]
    yield from sorted(parts, key=lambda warning: warning.span)[:MAX_WARNINGS]
    if not never and not always:
        yield from _not_indexable(whole, possible)


def _not_indexable(whole: Span, clauses: list[Clause]) -> Iterator[SelectorWarning]:
    reasons: dict[str, Span] = {}
    for clause in clauses:
        if not equalities(clause).keys and not prefixed(clause.literals):
            judged = [one.predicate.expr for one in clause.literals if isinstance(one.predicate, Condition)]
            reasons.setdefault(scan_reason(clause), judged[0].span if judged else whole)
    for reason, span in reasons.items():
        part = "the selector" if len(clauses) == 1 else "a part of the selector"
        yield SelectorWarning(NOT_INDEXABLE, f"{part} is judged for every message: {reason}", span)


def _impossible(known: Mapping[str, Outcomes], dialect: Dialect) -> Iterator[SelectorWarning]:
    for name, outcomes in known.items():
        described = domain(name, dialect).described
        never = (
            f"no value of `{name}` makes"
            if described is None
            else f"`{name}` is {described}, which never makes"
        )
        for number, leaf in enumerate(outcomes.leaves):
            if not outcomes.true_rows(number):
                yield SelectorWarning(IMPOSSIBLE, f"{never} this true", leaf.node.span)


def _unquoted(expr: Expr, text: str) -> Iterator[SelectorWarning]:
    """Yield strings and dates written without quotes, which are read as properties and arithmetic."""
    for node in postorder(expr):
        match node:
            case Comparison(op="=" | "<>" as op, left=Identifier(name=left), right=Identifier(name=right)):
                quoted = f"{printable(left, 40)} {op} '{printable(right, 40)}'"
                sentence = f"this compares two properties; for a string write {quoted}"
                yield SelectorWarning(COMPARES_PROPERTIES, sentence, node.span)
            case Comparison(op="=" | "<>", left=Arithmetic() as minus, right=Literal(value=value)):
                if getattr(value, "value", value) != 0:  # to test whether two properties differ is plausible
                    yield from _hyphenated(minus, text)
            case Arithmetic(op="-" | "/"):
                written = text[slice(*node.span)].strip("()")
                if _DATE.fullmatch(written):
                    sentence = f"{written} is arithmetic on three numbers; for a string write '{written}'"
                    yield SelectorWarning(DATE_ARITHMETIC, sentence, node.span)


def _hyphenated(node: Arithmetic, text: str) -> Iterator[SelectorWarning]:
    """Yield a difference of two properties written like one name, as in ``order-id = 5``."""
    if node.op == "-" and isinstance(node.left, Identifier) and isinstance(node.right, Identifier):
        written = f"{node.left.name}-{node.right.name}"
        if text[slice(*node.span)].strip("()") == written:
            left, right = printable(node.left.name, 40), printable(node.right.name, 40)
            sentence = (
                f"`{left}-{right}` is `{left}` minus `{right}`, because names have no hyphens; "
                f"for one property write {left}_{right}, for the difference {left} - {right}"
            )
            yield SelectorWarning(SUBTRACTS_PROPERTIES, sentence, node.span)


def _contradictions(expr: Expr, known: Mapping[str, Outcomes]) -> Iterator[SelectorWarning]:
    """Yield equalities of one name, joined by AND, that no value satisfies together."""
    places = {
        id(leaf.node): (outcomes, number)
        for outcomes in known.values()
        for number, leaf in enumerate(outcomes.leaves)
        if _is_equality(leaf) and outcomes.true_rows(number)
    }
    inner: set[int] = set()
    for node in reversed(list(postorder(expr))):  # the outermost AND before those in its parentheses
        if not isinstance(node, And) or id(node) in inner:
            continue
        together: dict[str, tuple[frozenset[int], list[int]]] = {}
        waiting: list[Expr] = [node]
        while waiting:
            part = waiting.pop()
            if isinstance(part, And):
                inner.add(id(part))
                waiting += reversed(part.operands)
            elif id(part) in places:
                outcomes, number = places[id(part)]
                true = outcomes.true_rows(number)
                left, before = together.get(outcomes.name, (true, []))
                if left & true:
                    together[outcomes.name] = left & true, [*before, number]
                else:
                    yield _contradiction(outcomes, before, number)


def _contradiction(outcomes: Outcomes, before: list[int], number: int) -> SelectorWarning:
    true = outcomes.true_rows(number)
    other = next((one for one in before if not outcomes.true_rows(one) & true), before[0])
    nodes = [outcomes.leaves[one].node for one in sorted((other, number))]
    first, second = (printable(to_text(node), 40) for node in nodes)
    sentence = f"no value of `{outcomes.name}` makes both `{first}` and `{second}` true"
    return SelectorWarning(CONTRADICTORY, sentence, Span(nodes[0].span.start, nodes[1].span.end))


def _is_equality(leaf: Leaf) -> bool:
    match leaf.predicates:
        case (Test(op="="),) | (OneOf(negated=False),):
            return True
        case (Missing(),):
            return not getattr(leaf.node, "negated", False)
        case _:
            return False
