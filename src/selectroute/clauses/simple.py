"""Conditions on one property: those that become a predicate of their own."""

from __future__ import annotations

from selectroute.clauses.predicate import Matches, Missing, OneOf, Test
from selectroute.selector.dialect import Dialect
from selectroute.selector.syntax import ast
from selectroute.selector.syntax.ast import Expr

Simple = Test | OneOf | Matches | Missing

_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def simple_predicate(node: Expr, dialect: Dialect) -> tuple[Simple, bool] | None:
    """Return the predicate of a condition on one property, and whether the condition holds when the predicate
    is TRUE or FALSE; None for any other condition.
    """
    field_of = dialect.field_of
    match node:
        case ast.Comparison(op, ast.Identifier(name), ast.Literal(value)):
            return Test(field_of(name), op, value, dialect), True
        case ast.Comparison(op, ast.Literal(value), ast.Identifier(name)):
            return Test(field_of(name), _MIRRORED[op], value, dialect), True
        case ast.Identifier(name):
            return Test(field_of(name), "=", True, dialect), True
        case ast.In(ast.Identifier(name), values, negated):
            return OneOf(field_of(name), tuple(sorted(set(values))), negated, dialect), True
        case ast.Like(ast.Identifier(name), pattern, escape, negated):
            return Matches(field_of(name), pattern, escape, negated, dialect), True
        case ast.IsNull(ast.Identifier(name), negated):
            return Missing(field_of(name)), not negated
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
    ops: tuple[ast.ComparisonOp, ast.ComparisonOp] = ("<", ">") if node.negated else (">=", "<=")
    lower, upper = ops
    return (
        ast.Comparison(lower, node.operand, node.low, span=node.span),
        ast.Comparison(upper, node.operand, node.high, span=node.span),
    )
