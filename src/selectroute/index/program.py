"""Predicates to programs: the flat form in which the kernel judges what the access keys do not decide.

A program runs on a stack of (type tag, 64-bit payload) values and leaves one boolean or NULL, which is
UNKNOWN. It follows the reference evaluator step by step; see ``tables`` for the operations.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sized
from itertools import accumulate, chain

from selectroute.clauses.access import FALSE, TRUE, Key, literal_keys
from selectroute.clauses.normal_form import comparisons_of, simple_predicate
from selectroute.clauses.predicate import Condition, Levels, Literal, Matches, Missing, OneOf, Predicate, Test
from selectroute.index import tables as t
from selectroute.selector import ast
from selectroute.selector.like import LikeOp, compile_like
from selectroute.selector.truth import Truth
from selectroute.selector.values import Double, Float, Value, compare

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
_PUSHES = {
    t.LOAD,
    t.CONSTANT,
    t.IS_NULL,
    t.IS_KEY,
    t.IS_NOT_KEY,
    t.IN,
    t.NOT_IN,
    t.LIKE,
    t.NOT_LIKE,
    t.LEVELS,
}
_REPLACES = {t.NEGATE, t.PLUS, t.AS_TRUTH, t.NOT}


def bits_of(value: bool | Value) -> tuple[int, int]:
    """The tag and payload of a boolean or a number: an integer itself, a float or double the bits of the
    double.
    """
    if isinstance(value, bool):
        return t.BOOLEAN, int(value)
    if isinstance(value, Float | Double):
        tag = t.FLOAT if isinstance(value, Float) else t.DOUBLE
        return tag, struct.unpack("<q", struct.pack("<d", value.value))[0]
    if isinstance(value, str):
        raise AssertionError("a string constant is compared by its code")
    return t.LONG, value.value


class Programs:
    """The programs, sets and patterns of a snapshot; equal ones are stored once."""

    def __init__(self, attribute: Callable[[str], int], code: Callable[[int, Key], int]) -> None:
        self._attribute = attribute
        self._code = code
        self._programs: dict[Predicate, int] = {}
        self._residuals: dict[tuple[tuple[int, bool], ...], int] = {}
        self._items: dict[tuple[int, ...], int] = {}
        self._level_strings: dict[str, int] = {}
        self._steps: list[list[Step]] = []
        self.lanes: set[int] = set()
        """Attributes whose values programs read, not only their codes and types."""
        self.depth = 1
        """The deepest stack that a program needs."""

    def residual(self, literals: Iterable[Literal]) -> int:
        """The number of the conjunction of these literals."""
        terms = tuple((self._program(literal), literal.wanted) for literal in literals)
        return self._residuals.setdefault(terms, len(self._residuals))

    def _program(self, literal: Literal) -> int:
        predicate = literal.predicate
        number = self._programs.get(predicate)
        if number is None:
            steps = list(self._predicate(predicate))
            self.depth = max(self.depth, _depth(steps))
            number = self._programs[predicate] = len(self._steps)
            self._steps.append(steps)
        return number

    def _predicate(self, predicate: Predicate) -> Iterable[Step]:
        match predicate:
            case Test(name=name, op=op, constant=constant):
                return self._test(name, op, constant)
            case OneOf(name=name, values=values, negated=negated):
                return [self._one_of(name, values, negated)]
            case Matches(name=name, pattern=pattern, escape=escape, negated=negated):
                return [self._like(name, pattern, escape, negated)]
            case Missing(name=name):
                return [(t.IS_NULL, self._attribute(name), 0)]
            case Levels(name=name, pattern=levels):
                attribute = self._lane(name)
                symbols = tuple(self._level(level) for level in levels)
                return [(t.LEVELS, attribute, self._items.setdefault(symbols, len(self._items)))]
            case Condition(expr=expr):
                return self._condition(expr)

    def _lane(self, name: str) -> int:
        attribute = self._attribute(name)
        self.lanes.add(attribute)
        return attribute

    def _test(self, name: str, op: str, constant: Value) -> list[Step]:
        by_code = self._by_code(name, op, constant)
        if by_code is not None:
            return [by_code]
        return [(t.LOAD, self._lane(name), 0), (t.CONSTANT, *bits_of(constant)), (_COMPARISONS[op], 0, 0)]

    def _by_code(self, name: str, op: str, constant: Value) -> Step | None:
        """``=`` and ``<>`` with a string or boolean, and ``=`` with a number that has one exact key."""
        if op == "=":
            keys = literal_keys(Literal(Test(name, op, constant), True))
            if keys is None or not keys.exact or len(keys.keys) != 1:
                return None
            attribute = self._attribute(name)
            return t.IS_KEY, attribute, self._code(attribute, next(iter(keys.keys)))
        if op == "<>" and isinstance(constant, bool | str):
            attribute = self._attribute(name)
            tag = t.STRING if isinstance(constant, str) else t.BOOLEAN
            key = constant if isinstance(constant, str) else TRUE if constant else FALSE
            return t.IS_NOT_KEY, attribute, tag << 32 | self._code(attribute, key)
        return None

    def _one_of(self, name: str, values: Iterable[str], negated: bool) -> Step:
        attribute = self._attribute(name)
        codes = tuple(sorted({self._code(attribute, value) for value in values}))
        return t.NOT_IN if negated else t.IN, attribute, self._items.setdefault(codes, len(self._items))

    def _like(self, name: str, pattern: str, escape: str | None, negated: bool) -> Step:
        symbols = tuple(_symbol(op) for op in compile_like(pattern, escape))
        number = self._items.setdefault(symbols, len(self._items))
        return t.NOT_LIKE if negated else t.LIKE, self._lane(name), number

    def _level(self, level: str) -> int:
        if level in ("+", "#"):
            return t.ANY_ONE if level == "+" else t.ANY_MANY
        return self._level_strings.setdefault(level, len(self._level_strings))

    def _condition(self, expr: ast.Expr) -> list[Step]:
        """A whole condition in postorder, as the reference evaluator walks it. O(its size), without
        recursion.
        """
        steps: list[Step] = []
        waiting: list[ast.Expr | Step] = [expr]
        while waiting:
            item = waiting.pop()
            if isinstance(item, tuple):
                steps.append(item)
            else:
                waiting += reversed(list(self._parts(item)))
        return steps

    def _parts(self, node: ast.Expr) -> Iterable[ast.Expr | Step]:
        """A node as steps and smaller nodes, in the order in which they run."""
        match node:
            case ast.Literal(value=value):
                yield (t.CONSTANT, *bits_of(value))
            case ast.Identifier(name=name):
                yield t.LOAD, self._lane(name), 0
            case ast.Unary(op=op, operand=operand):
                yield operand
                yield _SIGNS[op], 0, 0
            case ast.Arithmetic(op=op, left=left, right=right):
                yield left
                yield right
                yield _ARITHMETIC[op], 0, 0
            case ast.Comparison():
                yield from self._comparison(node)
            case ast.Between():
                yield from comparisons_of(node)
                yield t.OR if node.negated else t.AND, 0, 0
            case ast.In() | ast.Like() | ast.IsNull():
                found = simple_predicate(node)
                assert found is not None
                predicate, holds = found
                yield from self._predicate(predicate)
                if not holds:
                    yield t.NOT, 0, 0
            case ast.Not(operand=operand):
                yield from _as_truth(operand)
                yield t.NOT, 0, 0
            case ast.And(operands=operands) | ast.Or(operands=operands):
                connective = t.AND if isinstance(node, ast.And) else t.OR
                for number, operand in enumerate(operands):
                    yield from _as_truth(operand)
                    if number:
                        yield connective, 0, 0

    def _comparison(self, node: ast.Comparison) -> Iterable[ast.Expr | Step]:
        op, left, right = node.op, node.left, node.right
        found = simple_predicate(node)
        if found is not None:
            yield from self._predicate(found[0])
        elif isinstance(left, ast.Literal) and isinstance(right, ast.Literal):
            # Two constants, perhaps strings, have the same truth on every message, and never UNKNOWN.
            yield t.CONSTANT, t.BOOLEAN, int(compare(op, left.value, right.value) is Truth.TRUE)
        else:
            yield left
            yield right
            yield _COMPARISONS[op], 0, 0

    def arrays(self) -> dict[str, t.Array]:
        """The arrays ``term_…``, ``step…``, ``item…`` and ``level_…`` of `Tables`."""
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


def _as_truth(operand: ast.Expr) -> Iterable[ast.Expr | Step]:
    yield operand
    if isinstance(operand, ast.Identifier):
        yield t.AS_TRUTH, 0, 0


def _symbol(operation: str | LikeOp) -> int:
    if isinstance(operation, str):
        return ord(operation)
    return t.ANY_ONE if operation is LikeOp.ANY_ONE else t.ANY_MANY


def stack_effect(operation: int) -> int:
    """By how much an operation changes the height of the stack; one that takes two operands leaves one."""
    return 1 if operation in _PUSHES else 0 if operation in _REPLACES else -1


def _depth(steps: Iterable[Step]) -> int:
    """The stack that a program needs."""
    height = deepest = 0
    for operation, _, _ in steps:
        height += stack_effect(operation)
        deepest = max(deepest, height)
    return deepest
