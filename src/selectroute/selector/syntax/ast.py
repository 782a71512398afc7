"""Expression tree, faithful to the text: a span on every node, and printable back to an equal tree.

Nodes are immutable. A selector may nest 100,000 levels deep, so comparing, hashing, showing and copying a
tree never recurse: two trees are equal when their preorder sequences of labels (type, own fields, number of
children) are, and a copy of an immutable tree is the tree itself. Spans take no part in equality.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from typing import Literal as OneOf

from selectroute.selector.syntax.source import NOWHERE, Span
from selectroute.selector.values import Double, Float, Int, Long

LiteralValue = bool | str | bytes | Int | Long | Float | Double
Sign = OneOf["+", "-"]
ArithmeticOp = OneOf["+", "-", "*", "/"]
ComparisonOp = OneOf["=", "<>", "<", "<=", ">", ">="]

_T = TypeVar("_T", bound="Node")

_read: Any = property  # mypy would refuse a property that is not made by the decorator


class Node:
    """Base of every node: equality, hash, representation and copy, all without recursion."""

    __slots__ = ()
    span: Span

    @property
    def _children(self) -> tuple[Expr, ...]:
        """Operands, in the order of the text: see `children`."""
        return ()

    @property
    def _own(self) -> tuple[object, ...]:
        """Content of the node except its children: operator, name, value, negation."""
        return ()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Node):
            return NotImplemented
        # Labels hold the number of children, so two sequences that agree label by label end together.
        return all(map(operator.eq, _labels(self), _labels(other)))

    def __hash__(self) -> int:
        return hash(tuple(_labels(self)))

    def __repr__(self) -> str:
        pieces: list[str] = []
        waiting: list[Node | str] = [self]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                pieces.append(item)
                continue
            pieces.append(f"{type(item).__name__}({', '.join(map(repr, item._own))}")
            waiting.append(")")
            for number, child in reversed(list(enumerate(item._children))):
                waiting += (child, ", ") if number or item._own else (child,)
        return "".join(pieces)

    def __copy__(self: _T) -> _T:
        return self

    def __deepcopy__(self: _T, memo: dict[int, Any]) -> _T:
        return self


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(Node):
    """String, byte string, TRUE or FALSE, or a number: an exact one is a long, an approximate one a double,
    unless the dialect differs. A sign directly before a number belongs to the literal.
    """

    value: LiteralValue
    span: Span = NOWHERE

    _own = _read(lambda node: (node.value,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Identifier(Node):
    """Name of a header or property; alone, a condition that holds when its value is TRUE."""

    name: str
    span: Span = NOWHERE

    _own = _read(lambda node: (node.name,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Node):
    """Sign before an operand that is not a bare numeric literal."""

    op: Sign
    operand: Expr
    span: Span = NOWHERE

    _children = _read(lambda node: (node.operand,))
    _own = _read(lambda node: (node.op,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Arithmetic(Node):
    """``left op right`` for ``+ - * /``."""

    op: ArithmeticOp
    left: Expr
    right: Expr
    span: Span = NOWHERE

    _children = _read(lambda node: (node.left, node.right))
    _own = _read(lambda node: (node.op,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Node):
    """``left op right`` for ``= <> < <= > >=``."""

    op: ComparisonOp
    left: Expr
    right: Expr
    span: Span = NOWHERE

    _children = _read(lambda node: (node.left, node.right))
    _own = _read(lambda node: (node.op,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Between(Node):
    """``operand [NOT] BETWEEN low AND high``."""

    operand: Expr
    low: Expr
    high: Expr
    negated: bool = False
    span: Span = NOWHERE

    _children = _read(lambda node: (node.operand, node.low, node.high))
    _own = _read(lambda node: (node.negated,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class In(Node):
    """``identifier [NOT] IN (values)``, the values as in the text: repeated ones too."""

    identifier: Identifier
    values: tuple[str, ...]
    negated: bool = False
    span: Span = NOWHERE

    _children = _read(lambda node: (node.identifier,))
    _own = _read(lambda node: (node.values, node.negated))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Like(Node):
    """``identifier [NOT] LIKE pattern [ESCAPE escape]``, the pattern as in the text."""

    identifier: Identifier
    pattern: str
    escape: str | None = None
    negated: bool = False
    span: Span = NOWHERE

    _children = _read(lambda node: (node.identifier,))
    _own = _read(lambda node: (node.pattern, node.escape, node.negated))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IsNull(Node):
    """``identifier IS [NOT] NULL``."""

    identifier: Identifier
    negated: bool = False
    span: Span = NOWHERE

    _children = _read(lambda node: (node.identifier,))
    _own = _read(lambda node: (node.negated,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MatchId(Node):
    """``identifier = 'ID:…'`` alone: MQMO_MATCH of 24 bytes, not a comparison of strings (seed 000)."""

    identifier: Identifier
    id: bytes
    span: Span = NOWHERE

    _children = _read(lambda node: (node.identifier,))
    _own = _read(lambda node: (node.id,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Node):
    """``NOT operand``."""

    operand: Expr
    span: Span = NOWHERE

    _children = _read(lambda node: (node.operand,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class And(Node):
    """Chain ``a AND b AND c``: two operands or more. A chain in parentheses is an operand of its own."""

    operands: tuple[Expr, ...]
    span: Span = NOWHERE

    _children = _read(lambda node: node.operands)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Or(Node):
    """Chain ``a OR b OR c``: two operands or more. A chain in parentheses is an operand of its own."""

    operands: tuple[Expr, ...]
    span: Span = NOWHERE

    _children = _read(lambda node: node.operands)


Predicate = Comparison | Between | In | Like | IsNull | MatchId
"""Condition on operands."""

Expr = Literal | Identifier | Unary | Arithmetic | Predicate | Not | And | Or
"""Any node."""

CONDITIONS = (Comparison, Between, In, Like, IsNull, MatchId, Not, And, Or)
"""Nodes that have a truth, not a value. An Identifier or boolean Literal is also allowed as a condition."""


def children(node: Expr) -> tuple[Expr, ...]:
    """Return the operands of `node` in the order of the text."""
    return node._children


def postorder(expr: Expr) -> Iterator[Expr]:
    """Yield every node after its children, in the order of the text. O(n), without recursion."""
    waiting: list[tuple[Expr, bool]] = [(expr, False)]
    while waiting:
        node, opened = waiting.pop()
        operands = node._children
        if opened or not operands:
            yield node
            continue
        waiting.append((node, True))
        waiting += [(child, False) for child in reversed(operands)]


def _labels(root: Node) -> Iterator[tuple[object, ...]]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        operands = node._children
        yield type(node), node._own, len(operands)
        waiting += reversed(operands)
