"""Residuals, the conditions that keys and ranges do not decide, as programs.

A program runs on a stack of (type tag, 64-bit payload) values and leaves one boolean, or NULL for UNKNOWN.
It follows the reference evaluator step by step; see ``tables`` for the operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from itertools import accumulate, chain
from typing import TypeAlias

from selectroute.arrays import tables as t
from selectroute.clauses.access import FALSE, TRUE, Key, literal_keys
from selectroute.clauses.predicate import (
    ClauseLiteral,
    ExpressionTest,
    LevelsTest,
    NotVoid,
    NullTest,
    OneOf,
    PatternTest,
    Predicate,
    Test,
    comparisons_of,
    simple_predicate,
)
from selectroute.index.compile.dictionary import AttributeCodes
from selectroute.match.columns.from_messages import mixed_row
from selectroute.selector.dialect import Dialect
from selectroute.selector.like import LikeOp, compile_like
from selectroute.selector.syntax import ast
from selectroute.selector.syntax.check import BOOLEAN, BYTES, NUMBER, STRING
from selectroute.selector.values import VOID, Truth, Value, compare

Step = tuple[int, int, int]
"""Operation, attribute (or type tag), argument."""

_ARITHMETIC = {"+": t.ADD, "-": t.SUBTRACT, "*": t.MULTIPLY, "/": t.DIVIDE}
_SIGNS = {"+": t.PLUS, "-": t.NEGATE}
_COMPARISONS = {
    "=": t.EQUAL,
    "<>": t.UNEQUAL,
    "<": t.LESS,
    "<=": t.LESS_EQUAL,
    ">": t.GREATER,
    ">=": t.GREATER_EQUAL,
}
_PUSHES = {t.LOAD, t.CONSTANT, *range(t.IS_NULL, t.LEVELS + 1), t.HAS_TYPE}
_REPLACES = {t.NEGATE, t.PLUS, t.AS_TRUTH, t.NOT, t.CHECK_TYPE, t.IS_SOUND}
_REDUCE_THREE = {t.BETWEEN, t.NOT_BETWEEN}
_TYPE_BITS = {
    NUMBER: sum(1 << tag for tag in range(t.BYTE, t.DOUBLE + 1)),
    STRING: 1 << t.STRING,
    BOOLEAN: 1 << t.BOOLEAN,
    BYTES: 1 << t.BYTES,
}


def bits_of(value: bool | Value) -> tuple[int, int]:
    """Return the tag and payload of a boolean or a number: an integer, or the bits of a double."""
    assert not isinstance(value, str | bytes), "a string constant is compared by its code"
    return mixed_row(value)[:2]


def _mode(dialect: Dialect) -> int:
    """Return the mode bits of steps: the dialect's rules for arithmetic and comparison."""
    return (
        (t.VOIDS if dialect.unlike_types is VOID else 0)
        | (0 if dialect.negative_zero else t.POSITIVE_ZERO)
        | (0 if dialect.promotes else t.SAME_TYPE)
    )


class Programs:
    """Programs, sets and patterns of a snapshot; equal ones are stored once."""

    def __init__(self, attributes: AttributeCodes) -> None:
        self._attributes = attributes
        self._programs: dict[Predicate, int] = {}
        self._residuals: dict[tuple[tuple[int, bool], ...], int] = {}
        self._items: dict[tuple[int, ...], int] = {}
        self._level_strings: dict[str, int] = {}
        self._steps: list[list[Step]] = []
        self.lanes: set[int] = set()
        """Attributes whose values are read by programs, not only codes and types."""
        self.depth = 1
        """Deepest stack that a program needs."""

    def residual(self, literals: Iterable[ClauseLiteral]) -> int:
        """Return the number of the conjunction of these literals."""
        terms = tuple((self._program(literal), literal.wanted) for literal in literals)
        return self._residuals.setdefault(terms, len(self._residuals))

    def _program(self, literal: ClauseLiteral) -> int:
        predicate = literal.predicate
        number = self._programs.get(predicate)
        if isinstance(predicate, NullTest):
            self._attributes.number(
                predicate.name
            )  # one program for all dialects, each of which reads the attribute
        if number is None:
            steps = list(self._predicate(predicate))
            self.depth = max(self.depth, _depth(steps))
            number = self._programs[predicate] = len(self._steps)
            self._steps.append(steps)
        return number

    def _predicate(self, predicate: Predicate) -> Iterable[Step]:
        match predicate:
            case Test():
                return self._test(predicate)
            case OneOf(name=name, values=values, negated=negated, dialect=dialect):
                return [self._one_of(name, values, negated), *self._check(name, STRING, dialect)]
            case PatternTest(name=name, pattern=pattern, escape=escape, negated=negated, dialect=dialect):
                return [self._like(name, pattern, escape, negated), *self._check(name, STRING, dialect)]
            case NullTest(name=name):
                return [(t.IS_NULL, self._attributes.number(name), 0)]
            case LevelsTest(name=name, pattern=levels):
                attribute = self._lane(name)
                symbols = tuple(self._level(level) for level in levels)
                return [(t.LEVELS, attribute, self._items.setdefault(symbols, len(self._items)))]
            case ExpressionTest(expr=expr, dialect=dialect):
                return self._condition(expr, dialect)
            case NotVoid():
                return self._sound(predicate)

    def _sound(self, predicate: NotVoid) -> list[Step]:
        checks: list[list[Step]] = []
        for name, kinds in predicate.types:
            bits = 1 << t.NULL | sum(_TYPE_BITS[kind] for kind in kinds)
            checks.append([(t.HAS_TYPE, self._attributes.number(name), bits)])
        for expr in predicate.conditions:
            checks.append([*self._condition(expr, predicate.dialect), (t.IS_SOUND, 0, 0)])
        steps = checks[0]  # a selector without any operation has no guard
        for check in checks[1:]:
            steps += [*check, (t.AND, 0, 0)]
        return steps

    def _check(self, name: str, kind: str, dialect: Dialect) -> list[Step]:
        """Return the type check after a lookup by code, which is only valid for values of this type."""
        if dialect.unlike_types is not VOID:
            return []
        return [(t.CHECK_TYPE, self._attributes.number(name), 1 << t.NULL | _TYPE_BITS[kind])]

    def _lane(self, name: str) -> int:
        attribute = self._attributes.number(name)
        self.lanes.add(attribute)
        return attribute

    def _test(self, test: Test) -> list[Step]:
        by_code = self._by_code(test)
        if by_code is not None:
            return [by_code, *self._check(test.name, test.kind, test.dialect)]
        constant = (t.CONSTANT, *bits_of(test.constant))
        return [(t.LOAD, self._lane(test.name), 0), constant, (_COMPARISONS[test.op], _mode(test.dialect), 0)]

    def _by_code(self, test: Test) -> Step | None:
        """Return a lookup for ``=`` or ``<>`` with a non-number, or ``=`` with a number of one exact key."""
        constant = test.constant
        if test.op == "=":
            keys = literal_keys(ClauseLiteral(test, True))
            if keys is None or not keys.exact or len(keys.keys) != 1:
                return None
            attribute = self._attributes.number(test.name)
            return t.IS_KEY, attribute, self._attributes.code(attribute, next(iter(keys.keys)))
        if test.op == "<>" and isinstance(constant, bool | str | bytes):
            attribute = self._attributes.number(test.name)
            key: Key
            if isinstance(constant, bool):
                tag, key = t.BOOLEAN, TRUE if constant else FALSE
            else:
                tag, key = t.STRING if isinstance(constant, str) else t.BYTES, constant
            return t.IS_NOT_KEY, attribute, tag << 32 | self._attributes.code(attribute, key)
        return None

    def _one_of(self, name: str, values: Iterable[str], negated: bool) -> Step:
        attribute = self._attributes.number(name)
        codes = tuple(sorted({self._attributes.code(attribute, value) for value in values}))
        return t.NOT_IN if negated else t.IN, attribute, self._items.setdefault(codes, len(self._items))

    def _like(self, name: str, pattern: str, escape: str | None, negated: bool) -> Step:
        symbols = tuple(_symbol(op) for op in compile_like(pattern, escape))
        number = self._items.setdefault(symbols, len(self._items))
        return t.NOT_LIKE if negated else t.LIKE, self._lane(name), number

    def _level(self, level: str) -> int:
        if level in ("+", "#"):
            return t.ANY_ONE if level == "+" else t.ANY_MANY
        return self._level_strings.setdefault(level, len(self._level_strings))

    def _condition(self, expr: ast.Expr, dialect: Dialect) -> list[Step]:
        """Return the steps of a condition in postorder, as in the reference evaluator. O(n), no recursion."""
        steps: list[Step] = []
        waiting: list[ast.Expr | Step] = [*reversed(list(_as_truth(expr, dialect)))]
        while waiting:
            item = waiting.pop()
            if isinstance(item, tuple):
                steps.append(item)
            else:
                waiting += reversed(list(self._parts(item, dialect)))
        return steps

    def _parts(self, node: ast.Expr, dialect: Dialect) -> Iterable[ast.Expr | Step]:
        """Yield a node as steps and smaller nodes, in the order of execution."""
        mode = _mode(dialect)
        match node:
            case ast.Literal(value=value):
                yield (t.CONSTANT, *bits_of(value))
            case ast.Identifier(name=name):
                yield t.LOAD, self._lane(dialect.field_of(name)), 0
            case ast.Unary(op=op, operand=operand):
                yield operand
                yield _SIGNS[op], mode, 0
            case ast.Arithmetic(op=op, left=left, right=right):
                yield left
                yield right
                yield _ARITHMETIC[op], mode, 0
            case ast.Comparison():
                yield from self._comparison(node, dialect)
            case ast.Between(operand=operand, low=low, high=high, negated=negated):
                if dialect.between_on_null is None:
                    yield from comparisons_of(node)
                    yield t.OR if negated else t.AND, 0, 0
                else:
                    yield operand
                    yield low
                    yield high
                    yield t.NOT_BETWEEN if negated else t.BETWEEN, 0, 0
            case ast.In() | ast.Like() | ast.IsNull():
                simple = simple_predicate(node, dialect)
                assert simple is not None
                predicate, holds = simple
                yield from self._predicate(predicate)
                if not holds:
                    yield t.NOT, 0, 0
            case ast.Not(operand=operand):
                yield from _as_truth(operand, dialect)
                yield t.NOT, 0, 0
            case ast.And(operands=operands) | ast.Or(operands=operands):
                connective = t.AND if isinstance(node, ast.And) else t.OR
                for number, operand in enumerate(operands):
                    yield from _as_truth(operand, dialect)
                    if number:
                        yield connective, 0, 0
            case ast.MatchId():
                raise AssertionError("a match of ids is a whole selector, and a simple predicate")

    def _comparison(self, node: ast.Comparison, dialect: Dialect) -> Iterable[ast.Expr | Step]:
        op, left, right = node.op, node.left, node.right
        simple = simple_predicate(node, dialect)
        if simple is not None:
            yield from self._predicate(simple[0])
        elif isinstance(left, ast.Literal) and isinstance(right, ast.Literal):
            # Two constants have the same truth on every message, and never UNKNOWN: unlike types were
            # rejected.
            truth = compare(op, left.value, right.value, Truth.FALSE)
            yield t.CONSTANT, t.BOOLEAN, int(truth is Truth.TRUE)
        else:
            yield left
            yield right
            yield _COMPARISONS[op], _mode(dialect), 0

    def arrays(self) -> dict[str, t.Array]:
        """Return the arrays ``term_…``, ``step…``, ``item…`` and ``level_…`` of `Tables`."""
        terms = list(chain.from_iterable(self._residuals))
        steps = list(chain.from_iterable(self._steps))
        levels = [level.encode("utf-8", "surrogatepass") for level in self._level_strings]
        columns: dict[str, Iterable[int]] = {
            "term_first": _firsts(self._residuals),
            "term_program": [program for program, _ in terms],
            "term_wanted": [wanted for _, wanted in terms],
            "step_first": _firsts(self._steps),
            "step": chain.from_iterable(steps),
            "item_first": _firsts(self._items),
            "item": chain.from_iterable(self._items),
            "level_first": _firsts(levels),
            "level_bytes": b"".join(levels),
        }
        return {name: t.as_array(name, list(column)) for name, column in columns.items()}


def _firsts(rows: Iterable[Sized]) -> list[int]:
    return [0, *accumulate(map(len, rows))]


def _as_truth(operand: ast.Expr, dialect: Dialect) -> Iterable[ast.Expr | Step]:
    yield operand
    if isinstance(operand, ast.Identifier):
        yield t.AS_TRUTH, _mode(dialect), 0


def _symbol(operation: str | LikeOp) -> int:
    if isinstance(operation, str):
        return ord(operation)
    return t.ANY_ONE if operation is LikeOp.ANY_ONE else t.ANY_MANY


def stack_effect(operation: int) -> int:
    """Return the change of the stack's height by an operation."""
    if operation in _PUSHES:
        return 1
    if operation in _REPLACES:
        return 0
    return -2 if operation in _REDUCE_THREE else -1


def _depth(steps: Iterable[Step]) -> int:
    """Return the height of the stack that a program needs."""
    height = deepest = 0
    for operation, _, _ in steps:
        height += stack_effect(operation)
        deepest = max(deepest, height)
    return deepest


Others: TypeAlias = dict[str, t.Array]
"""Arrays of programs and constants, see `Tables`."""
