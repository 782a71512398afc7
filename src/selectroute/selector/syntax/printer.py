"""Printer of expressions: canonical text with the fewest parentheses that preserve the tree."""

from __future__ import annotations

import math
from typing import Final

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
    LiteralValue,
    MatchId,
    Not,
    Or,
    Unary,
)
from selectroute.selector.values import Double, Float, Int, Long, to_float32

# Precedence of each node; an operand of lower precedence than its context demands gets parentheses.
_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _SIGNED, _PRIMARY = range(8)
_LEVEL: Final = {
    Or: _OR,
    And: _AND,
    Not: _NOT,
    Comparison: _PREDICATE,
    Between: _PREDICATE,
    In: _PREDICATE,
    Like: _PREDICATE,
    IsNull: _PREDICATE,
    MatchId: _PREDICATE,
    Unary: _SIGNED,
    Literal: _PRIMARY,
    Identifier: _PRIMARY,
}

_Piece = str | tuple[Expr, int]
"""Text, or a node with the precedence that its context demands."""


def to_text(expr: Expr) -> str:
    """Return canonical text for `expr`: keywords in capitals, one space between words, numbers in decimal.

    ``parse(to_text(expr)) == expr`` for every tree of the parser, and any other whose names are identifiers.
    O(n), without recursion. Raises ValueError for a number that no literal can spell (NaN, infinity).
    """
    text: list[str] = []
    waiting: list[_Piece] = [(expr, _OR)]
    while waiting:
        piece = waiting.pop()
        if isinstance(piece, str):
            text.append(piece)
            continue
        node, demanded = piece
        pieces = _pieces(node)
        if _level(node) < demanded:
            pieces = ["(", *pieces, ")"]
        waiting += reversed(pieces)
    return "".join(text)


def literal_text(value: LiteralValue) -> str:
    """Return the literal that parses to exactly `value`; the shortest one for a float or double."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f'"0x{value.hex().upper()}"'
    if isinstance(value, Int | Long):
        return str(value.value)
    if not math.isfinite(value.value):
        raise ValueError(f"no literal spells {value!r}")
    if isinstance(value, Double):
        return repr(value.value)
    return f"{_shortest_float32(value)}F"


def _level(node: Expr) -> int:
    if isinstance(node, Arithmetic):
        return _SUM if node.op in "+-" else _PRODUCT
    return _LEVEL[type(node)]


def _pieces(node: Expr) -> list[_Piece]:
    match node:
        case Literal(value):
            return [literal_text(value)]
        case Identifier(name):
            return [name]
        case Unary(op, operand):
            if isinstance(operand, Literal):  # without parentheses the sign would become part of the literal
                return [op, "(", (operand, _OR), ")"]
            apart = " " if isinstance(operand, Unary) else ""
            return [op, apart, (operand, _SIGNED)]
        case Arithmetic(op, left, right):
            level = _level(node)
            return [(left, level), f" {op} ", (right, level + 1)]
        case Comparison(op, left, right):
            return [(left, _SUM), f" {op} ", (right, _SUM)]
        case Between(operand, low, high, negated):
            return [(operand, _SUM), _word("BETWEEN", negated), (low, _SUM), " AND ", (high, _SUM)]
        case In(identifier, values, negated):
            return [identifier.name, _word("IN", negated), "(", ", ".join(map(literal_text, values)), ")"]
        case Like(identifier, pattern, escape, negated):
            ending = "" if escape is None else f" ESCAPE {literal_text(escape)}"
            return [identifier.name, _word("LIKE", negated), literal_text(pattern), ending]
        case IsNull(identifier, negated):
            return [identifier.name, " IS NOT NULL" if negated else " IS NULL"]
        case MatchId(identifier, octets):
            return [f"{identifier.name} = {literal_text(f'ID:{octets.hex().upper()}')}"]
        case Not(operand):
            return ["NOT ", (operand, _NOT)]
        case And(operands):
            return _chain(" AND ", operands, _NOT)
        case Or(operands):
            return _chain(" OR ", operands, _AND)


def _chain(word: str, operands: tuple[Expr, ...], demanded: int) -> list[_Piece]:
    pieces: list[_Piece] = []
    for operand in operands:
        pieces += (word, (operand, demanded))
    return pieces[1:]


def _word(keyword: str, negated: bool) -> str:
    return f" NOT {keyword} " if negated else f" {keyword} "


def _shortest_float32(value: Float) -> str:
    for digits in range(1, 9):
        text = f"{value.value:.{digits}g}"
        if to_float32(float(text)) == value.value:
            return text
    return f"{value.value:.9g}"  # nine digits always suffice
