"""Static type checks, made when a selector is presented: errors that no message could make valid.

A name may have any type, so it is never an error; the type of a literal, an arithmetic expression and a
condition is known. Each check raises SelectorFault with the span of the wrong operand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from selectroute.selector.dialect import Dialect
from selectroute.selector.errors import SelectorFault
from selectroute.selector.fields import id_from_text
from selectroute.selector.syntax.ast import Arithmetic, Comparison, Expr, Identifier, Literal, MatchId, Unary
from selectroute.selector.values import Int, Long

NUMBER: Final = "number"
STRING: Final = "string"
BOOLEAN: Final = "boolean"
BYTES: Final = "byte string"

_LITERALS: Final[dict[type, str]] = {str: STRING, bool: BOOLEAN, bytes: BYTES}
_NO_ORDER: Final = {STRING: "string-order", BOOLEAN: "boolean-order", BYTES: "byte-string-order"}


def static_type(node: Expr) -> str | None:
    """Return NUMBER, STRING, BOOLEAN or BYTES if the type of `node` is known from the text, else None."""
    kind = type(node)
    if kind is Identifier:
        return None
    if kind is Literal:
        return _LITERALS.get(type(node.value), NUMBER)  # type: ignore[union-attr]
    return NUMBER if kind is Arithmetic or kind is Unary else BOOLEAN


def condition(node: Expr, dialect: Dialect) -> None:
    """Check that an operand of NOT, AND or OR, or a whole selector, can be true or false."""
    if static_type(node) not in (None, BOOLEAN):
        raise SelectorFault("not-a-condition", node.span, ("a condition",))
    if not dialect.bare_conditions and isinstance(node, Identifier | Literal):
        raise SelectorFault("not-in-dialect", node.span, hint="compare it with something")


def whole(expression: Expr, dialect: Dialect) -> Expr:
    """Check and return a whole selector; as a MatchId if it compares an id with an ``ID:`` string."""
    condition(expression, dialect)
    match expression:
        case Comparison("=", Identifier(name) as identifier, Literal(value)) | Comparison(
            "=", Literal(value), Identifier(name) as identifier
        ) if name in dialect.id_fields:
            octets = id_from_text(value)
            if octets is not None:
                return MatchId(identifier, octets, expression.span)
    return expression


def number(node: Expr) -> None:
    """Check that an operand of arithmetic or of BETWEEN can be a number."""
    if static_type(node) not in (None, NUMBER):
        raise SelectorFault("not-a-number", node.span, ("a number", "a name"))


def comparison(node: Comparison, dialect: Dialect) -> Comparison:
    """Check that the operands of a comparison can be of like types, and of ``<`` and the like, numbers.

    Return the comparison with its literal in the type that the dialect compares with the identifier.
    """
    left, right = static_type(node.left), static_type(node.right)
    if node.op != "=" and node.op != "<>":
        for operand, known in ((node.left, left), (node.right, right)):
            if known in _NO_ORDER:
                raise SelectorFault(_NO_ORDER[known], operand.span, ("a number", "a name"))
    elif left != right and left and right and not (dialect.unlike_literals and _are_literals(node)):
        raise SelectorFault("unlike-types", node.span)
    return _typed(node, dialect) if dialect.int_identifiers else node


def _are_literals(node: Comparison) -> bool:
    """Return whether both operands are literals, possibly signed."""
    operands = [side.operand if isinstance(side, Unary) else side for side in (node.left, node.right)]
    return all(isinstance(operand, Literal) for operand in operands)


def _typed(node: Comparison, dialect: Dialect) -> Comparison:
    """Return the comparison with an exact literal in the type of the field it is compared with (seed 001)."""
    match node:
        case Comparison(left=Identifier(name), right=Literal(Long(value)) as literal):
            if name in dialect.int_identifiers and _fits_int(value):
                return replace(node, right=replace(literal, value=Int(value)))
        case Comparison(left=Literal(Long(value)) as literal, right=Identifier(name)):
            if name in dialect.int_identifiers and _fits_int(value):
                return replace(node, left=replace(literal, value=Int(value)))
        case _:
            pass
    return node


def _fits_int(value: int) -> bool:
    return -(2**31) <= value < 2**31
