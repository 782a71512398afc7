"""Guard of a selector that an operation may make false as a whole: see `NotVoid`."""

from __future__ import annotations

from collections.abc import Sequence

from selectroute.clauses.predicate import Condition, Literal, Matches, Missing, NotVoid, OneOf, Test
from selectroute.clauses.simple import comparisons_of, of_one_property, simple_predicate
from selectroute.selector.dialect import Dialect
from selectroute.selector.syntax import ast
from selectroute.selector.syntax.ast import Expr


def type_guard(expr: Expr, dialect: Dialect) -> NotVoid:
    """Return the predicate that no operation of the selector is VOID. O(size of the selector)."""
    types: dict[str, frozenset[str]] = {}
    conditions: dict[Expr, None] = {}
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.And | ast.Or | ast.Not):
            waiting += reversed(ast.children(node))
            continue
        found = [simple_predicate(part, dialect) for part in _parts(node)]
        for one in found:
            if one is None:
                if any(isinstance(part, ast.Identifier) for part in ast.postorder(node)):
                    conditions[node] = None  # a constant that is VOID has no clauses
            elif not isinstance(one[0], Missing):
                kind = frozenset({one[0].kind})
                types[one[0].name] = types.get(one[0].name, kind) & kind
    return NotVoid(tuple(types.items()), tuple(conditions), dialect)


def _parts(node: Expr) -> Sequence[Expr]:
    """Return the parts of a condition, one of which is VOID exactly when the condition is: mostly itself."""
    if isinstance(node, ast.Literal):
        return ()
    if isinstance(node, ast.Between) and of_one_property(node):
        return comparisons_of(node)
    return (node,)


def implied(guard: NotVoid, literals: Sequence[Literal]) -> bool:
    """Return whether the literals, if they hold, imply the guard."""
    judged = {id(literal.predicate.expr) for literal in literals if isinstance(literal.predicate, Condition)}
    kinds = {}
    for predicate in (literal.predicate for literal in literals):
        if isinstance(predicate, Test | OneOf | Matches):
            kinds[predicate.name] = predicate.kind
    absent = {
        literal.predicate.name
        for literal in literals
        if isinstance(literal.predicate, Missing) and literal.wanted
    }
    return judged.issuperset(map(id, guard.conditions)) and all(
        name in absent or kinds.get(name) in allowed for name, allowed in guard.types
    )
