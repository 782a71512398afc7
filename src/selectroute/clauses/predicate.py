"""Predicates on one message, and literals: a predicate with the truth value that it must have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from selectroute.selector.dialect import Dialect
from selectroute.selector.evaluate import Lookup, condition
from selectroute.selector.like import compile_like, like
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.syntax import ast
from selectroute.selector.syntax.ast import Expr
from selectroute.selector.syntax.check import BOOLEAN, BYTES, NUMBER, STRING
from selectroute.selector.values import VOID, Truth, Unsupported, Value, Void, compare


def kind_of(value: Value | Unsupported) -> str:
    """Return the kind of the value's type: only values of one kind compare. No literal has UNSUPPORTED's."""
    return _KINDS.get(type(value), NUMBER)


_KINDS: dict[type, str] = {bool: BOOLEAN, str: STRING, bytes: BYTES, Unsupported: "unsupported"}


@dataclass(frozen=True, slots=True)
class Test:
    """``name op constant``: an identifier compared with a literal.

    A bare boolean identifier ``b`` is ``b = TRUE``: both are TRUE for true, UNKNOWN for NULL and FALSE for
    anything else.
    """

    __test__ = False  # the name is the field's word; pytest must not collect it

    name: str
    op: str
    constant: Value
    dialect: Dialect

    @property
    def kind(self) -> str:
        """Kind of types that compare with the constant."""
        return kind_of(self.constant)

    def truth(self, lookup: Lookup) -> Truth | Void:
        """Return the truth on the message that `lookup` reads."""
        unlike, promotes = self.dialect.unlike_types, self.dialect.promotes
        return compare(self.op, lookup(self.name), self.constant, unlike, promotes=promotes)


@dataclass(frozen=True, slots=True)
class OneOf:
    """``name [NOT] IN (…)``. ``values`` are sorted and distinct."""

    name: str
    values: tuple[str, ...]
    negated: bool
    dialect: Dialect
    kind: ClassVar[str] = STRING

    def truth(self, lookup: Lookup) -> Truth | Void:
        """Return the truth on the message that `lookup` reads."""
        value = lookup(self.name)
        if value is None:
            return Truth.UNKNOWN
        if not isinstance(value, str):
            return self.dialect.unlike_types
        return Truth.of((value in self.values) is not self.negated)


@dataclass(frozen=True, slots=True)
class PatternTest:
    """``name [NOT] LIKE pattern [ESCAPE escape]``."""

    name: str
    pattern: str
    escape: str | None
    negated: bool
    dialect: Dialect
    kind: ClassVar[str] = STRING

    def truth(self, lookup: Lookup) -> Truth | Void:
        """Return the truth on the message that `lookup` reads."""
        value = lookup(self.name)
        if value is None:
            return Truth.UNKNOWN
        if not isinstance(value, str):
            return self.dialect.unlike_types
        return Truth.of(like(value, compile_like(self.pattern, self.escape)) is not self.negated)


@dataclass(frozen=True, slots=True)
class NullTest:
    """``name IS NULL``, two-valued. IS NOT NULL is a literal that wants it FALSE."""

    name: str

    def truth(self, lookup: Lookup) -> Truth:
        """Return the truth on the message that `lookup` reads."""
        return Truth.of(lookup(self.name) is None)


@dataclass(frozen=True, slots=True)
class ExpressionTest:
    """Other condition, judged as a whole: arithmetic, two identifiers, or a part too large to expand.

    ``reason`` says why it is not one of the predicates above.
    """

    expr: Expr
    reason: str
    dialect: Dialect
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once: the expression may be large and in many clauses, which are hashed.
        object.__setattr__(self, "_hash", hash(self.expr))

    def __hash__(self) -> int:
        return self._hash

    def truth(self, lookup: Lookup) -> Truth | Void:
        """Return the truth on the message that `lookup` reads."""
        return condition(self.expr, lookup, self.dialect)


@dataclass(frozen=True, slots=True)
class NotVoid:
    """Predicate that no operation makes the whole selector false: "the selector is always false" (seed 000).

    A clause has only some operations of its selector. This predicate covers all of them: each attribute of
    `types` is NULL or of one of the kinds given there, and none of the `conditions`, judged as a whole, is
    VOID. Two-valued.
    """

    types: tuple[tuple[str, frozenset[str]], ...]
    conditions: tuple[Expr, ...]
    dialect: Dialect
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.types, self.conditions)))  # once, as in `ExpressionTest`

    def __hash__(self) -> int:
        return self._hash

    def truth(self, lookup: Lookup) -> Truth:
        """Return the truth on the message that `lookup` reads."""
        for name, kinds in self.types:
            value = lookup(name)
            if value is not None and kind_of(value) not in kinds:
                return Truth.FALSE
        return Truth.of(all(condition(expr, lookup, self.dialect) is not VOID for expr in self.conditions))


@dataclass(frozen=True, slots=True)
class LevelsTest:
    """Topic string matches these levels: ``+`` is any one level, ``#`` any number of levels, also none.

    Filters with two or more ``#``, and those with more levels than are indexed, need this predicate; all
    others are equalities of single levels.
    """

    name: str
    pattern: tuple[str, ...]

    def truth(self, lookup: Lookup) -> Truth:
        """Return the truth on the message that `lookup` reads."""
        value = lookup(self.name)
        if value is None:
            return Truth.UNKNOWN
        if not isinstance(value, str):
            return Truth.FALSE
        return Truth.of(match_levels(value.split("/"), self.pattern))


Predicate = Test | OneOf | PatternTest | NullTest | ExpressionTest | NotVoid | LevelsTest


@dataclass(frozen=True, slots=True)
class ClauseLiteral:
    """Predicate with the truth value that it must have. UNKNOWN and VOID satisfy neither polarity."""

    predicate: Predicate
    wanted: bool

    def holds(self, lookup: Lookup) -> bool:
        """Return whether the predicate has the wanted truth value on the message."""
        return self.predicate.truth(lookup) is (Truth.TRUE if self.wanted else Truth.FALSE)


@dataclass(frozen=True, slots=True)
class Clause:
    """Conjunction of literals, TRUE without any; a selector is TRUE when one of its clauses holds.

    `valid_names`: the message must also not break the rules on property names.
    """

    literals: tuple[ClauseLiteral, ...]
    valid_names: bool = False

    def holds(self, lookup: Lookup) -> bool:
        """Return whether every literal holds on the message."""
        if self.valid_names and lookup(INVALID_NAMES) is True:
            return False
        return all(literal.holds(lookup) for literal in self.literals)


def match_levels(levels: list[str], pattern: tuple[str, ...]) -> bool:
    """Return whether topic levels match a filter's levels, in O(levels × pattern) at worst.

    The greedy method of wildcard matching: on a mismatch, only the latest ``#`` takes one level more.
    """
    at = want = 0
    resume_at = resume_want = -1
    while at < len(levels):
        if want < len(pattern) and pattern[want] == "#":
            resume_at, resume_want = at, want + 1
            want += 1
        elif want < len(pattern) and pattern[want] in ("+", levels[at]):
            at += 1
            want += 1
        elif resume_want >= 0:
            resume_at += 1
            at, want = resume_at, resume_want
        else:
            return False
    return all(level == "#" for level in pattern[want:])


Simple = Test | OneOf | PatternTest | NullTest

MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Operator of a comparison whose operands are swapped."""


def simple_predicate(node: Expr, dialect: Dialect) -> tuple[Simple, bool] | None:
    """Return the predicate of a condition on one property, and whether the condition holds when the predicate
    is TRUE or FALSE; None for any other condition.
    """
    field_of = dialect.field_of
    match node:
        case ast.Comparison(op, ast.Identifier(name), ast.Literal(value)):
            return Test(field_of(name), op, value, dialect), True
        case ast.Comparison(op, ast.Literal(value), ast.Identifier(name)):
            return Test(field_of(name), MIRRORED[op], value, dialect), True
        case ast.Identifier(name):
            return Test(field_of(name), "=", True, dialect), True
        case ast.In(ast.Identifier(name), values, negated):
            return OneOf(field_of(name), tuple(sorted(set(values))), negated, dialect), True
        case ast.Like(ast.Identifier(name), pattern, escape, negated):
            return PatternTest(field_of(name), pattern, escape, negated, dialect), True
        case ast.IsNull(ast.Identifier(name), negated):
            return NullTest(field_of(name)), not negated
        case _:
            return None


def of_one_property(node: ast.Between) -> bool:
    """Return whether a BETWEEN is of an identifier and two literals."""
    return (
        isinstance(node.operand, ast.Identifier)
        and isinstance(node.low, ast.Literal)
        and isinstance(node.high, ast.Literal)
    )


def comparisons_of(node: ast.Between) -> tuple[ast.Comparison, ast.Comparison]:
    """Return the two comparisons to which [NOT] BETWEEN is equivalent (seed 004)."""
    return (
        ast.Comparison("<" if node.negated else ">=", node.operand, node.low, span=node.span),
        ast.Comparison(">" if node.negated else "<=", node.operand, node.high, span=node.span),
    )
