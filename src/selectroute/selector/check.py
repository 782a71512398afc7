"""What is ill-typed whatever the message holds, found when a selector is presented.

A name may stand for any type, so it is never at fault; a literal, an arithmetic expression and a condition
have a type that is known. Each check raises Fault at the operand that is wrong.
"""

from __future__ import annotations

from typing import Final

from selectroute.selector.ast import Arithmetic, Comparison, Expr, Identifier, Literal, Unary
from selectroute.selector.errors import Fault

NUMBER: Final = "number"
STRING: Final = "string"
BOOLEAN: Final = "boolean"


def static_type(node: Expr) -> str | None:
    """Return NUMBER, STRING or BOOLEAN if the type of `node` is known from the text, else None."""
    kind = type(node)
    if kind is Identifier:
        return None
    if kind is Literal:
        literal = type(node.value)  # type: ignore[union-attr]
        return STRING if literal is str else BOOLEAN if literal is bool else NUMBER
    return NUMBER if kind is Arithmetic or kind is Unary else BOOLEAN


def condition(node: Expr) -> None:
    """Check an operand of NOT, AND or OR, or a whole selector: something true or false."""
    if static_type(node) not in (None, BOOLEAN):
        raise Fault("not-a-condition", node.span)


def number(node: Expr) -> None:
    """Check an operand of arithmetic or of BETWEEN: something that can be a number."""
    if static_type(node) not in (None, NUMBER):
        raise Fault("not-a-number", node.span)


def comparison(node: Comparison) -> None:
    """Check a comparison: two operands that can be of like types, in an order only if they can be numbers."""
    left, right = static_type(node.left), static_type(node.right)
    if node.op != "=" and node.op != "<>":
        for operand, known in ((node.left, left), (node.right, right)):
            if known is STRING:
                raise Fault("string-order", operand.span)
            if known is BOOLEAN:
                raise Fault("boolean-order", operand.span)
    elif left != right and left and right:
        raise Fault("unlike-types", node.span)
