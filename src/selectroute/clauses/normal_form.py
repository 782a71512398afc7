"""Normal form of an expression: a bounded OR of ANDs with the polarity on the leaves.

Three passes, each linear and without recursion. `_Reducer` turns the expression into a tree of a few
connectives over predicates. ``_measure`` estimates how many clauses and literals each node expands to, and
makes a node *opaque* that would exceed the bound: it stays whole, as one ``ExpressionTest``. ``_expand``
builds the clauses.

Contribution of a node that must be TRUE (·T) or FALSE (·F), in Kleene's logic:

======================  ==============================  ==============================
node                    ·T                              ·F
======================  ==============================  ==============================
``ALL`` (AND)           every child·T                   one child·F
``ANY`` (OR)            one child·T                     every child·F
``NOT``                 child·F                         child·T
``EITHER(x, yes, no)``  x·T and yes·T, x·F and no·T     x·T and yes·F, x·F and no·F
======================  ==============================  ==============================

``EITHER`` is a comparison of conditions: ``(a > 1) = b`` is "if a > 1 then b = TRUE, else b = FALSE", and
UNKNOWN when ``a > 1`` is. BETWEEN is ALL and NOT BETWEEN is ANY of its two comparisons (seed 004, "is
equivalent to"); in a dialect where NULL decides the result, also of "is not NULL" or "is NULL".

Where unlike types make the whole selector false, VOID satisfies neither polarity of a literal. In a clause
that holds, no literal is VOID; a `NotVoid` literal is added for the other operations of the selector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from selectroute.clauses.predicate import (
    Clause,
    ClauseLiteral,
    ExpressionTest,
    NotVoid,
    NullTest,
    OneOf,
    PatternTest,
    Predicate,
    Test,
    comparisons_of,
    of_one_property,
    simple_predicate,
)
from selectroute.selector.dialect import Dialect
from selectroute.selector.evaluate import condition as condition_of
from selectroute.selector.fields import NO_ID
from selectroute.selector.syntax import ast
from selectroute.selector.syntax.ast import Expr
from selectroute.selector.values import VOID, Truth

MAX_CLAUSES = 1_024
"""Maximum number of clauses; beyond it, parts of the selector stay whole. An OR of 1,000 branches fits."""

MAX_LITERALS = 8_192
"""Maximum number of literals of all clauses of one selector together."""

MAX_EXPANDED = 256
"""Maximum number of literals if the expansion more than doubles those of the text. A text of 340 characters
can expand to 7,680, each a step of every index build (10 microseconds, 600 bytes); selectors written to be
found by equalities come nowhere near this bound.
"""

TOO_LARGE = f"its normal form exceeds {MAX_CLAUSES} clauses or {MAX_EXPANDED} literals"
NOT_ONE_PROPERTY = "it does not compare one property with a constant"

_CONDITIONAL = ast.CONDITIONS
_POLARITIES = (True, False)

_Conjunction = tuple[ClauseLiteral, ...]


class _Kind(Enum):
    LEAF = "a predicate"
    FIXED = "the same truth on every message"
    ALL = "AND"
    ANY = "OR"
    NOT = "NOT"
    EITHER = "a condition compared with another"


@dataclass(slots=True, eq=False)
class _Node:
    kind: _Kind
    source: Expr
    children: Sequence[_Node] = ()
    predicate: Predicate | None = None
    fixed: Truth = Truth.UNKNOWN
    clauses: dict[bool, int] = field(default_factory=dict)
    literals: dict[bool, int] = field(default_factory=dict)
    opaque: set[bool] = field(default_factory=set)

    def alternatives(self, wanted: bool) -> list[list[tuple[_Node, bool]]]:
        """Return the table of the module docstring: a disjunction of conjunctions of (child, wanted)."""
        match self.kind:
            case _Kind.ALL | _Kind.ANY if (self.kind is _Kind.ALL) is wanted:
                return [[(child, wanted) for child in self.children]]
            case _Kind.ALL | _Kind.ANY:
                return [[(child, wanted)] for child in self.children]
            case _Kind.NOT:
                return [[(self.children[0], not wanted)]]
            case _:
                condition, yes, no = self.children
                return [[(condition, True), (yes, wanted)], [(condition, False), (no, wanted)]]

    def make_opaque(self, wanted: bool) -> None:
        self.opaque.add(wanted)
        self.clauses[wanted] = self.literals[wanted] = 1


def clauses_of(expr: Expr | None, dialect: Dialect) -> tuple[Clause, ...]:
    """Return the clauses of a selector, which is TRUE on a message exactly when one of the clauses holds.

    ``None`` (no selector) has one clause without literals. A selector that is never true may have no clause.
    O(size of the selector + size of the result), and the result is bounded.
    """
    if expr is None:
        return (Clause(()),)
    return tuple(Clause(literals, dialect.name_rules) for literals in _conjunctions(expr, dialect))


def _conjunctions(expr: Expr, dialect: Dialect) -> list[_Conjunction]:
    if isinstance(expr, ast.MatchId):
        field = dialect.id_fields[expr.identifier.name]
        return [() if expr.id == NO_ID else (ClauseLiteral(Test(field, "=", expr.id, dialect), True),)]
    literals = conjunction(expr, dialect)
    # Most selectors: nothing to expand, and all operations that may be VOID are in the one clause.
    if literals is not None and len(literals) <= MAX_LITERALS:
        return [tuple(literals)]
    nodes = _Reducer(dialect).nodes(expr)
    if nodes is None:
        return []
    written = sum(node.kind is _Kind.LEAF for node in nodes)
    most = min(max(2 * written, MAX_EXPANDED), MAX_LITERALS)
    for node in nodes:
        _measure(node, most)
    conjunctions = _expand(nodes, dialect)
    if dialect.unlike_types is not VOID:
        return conjunctions
    guard = _type_guard(expr, dialect)
    return [
        literals if _implied(guard, literals) else (*literals, ClauseLiteral(guard, True))
        for literals in conjunctions
    ]


# ---- 1. expression to connectives over predicates


class _Reducer:
    """Builder of the nodes of a selector, in postorder.

    A class, because nested functions would refer to each other: after each import the garbage collector would
    stop all threads of a service to collect these cycles.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._order: list[_Node] = []
        self._nodes: dict[int, _Node] = {}
        self._is_void = False

    def nodes(self, expr: Expr) -> list[_Node] | None:
        """Return the nodes, the root last; ``None`` if a constant makes the whole selector false."""
        for node in ast.postorder(expr):
            reduced = self._node(node)
            if reduced is not None:
                self._nodes[id(node)] = reduced
        self._condition(expr)  # adds the root where it is a bare identifier or TRUE / FALSE
        return None if self._is_void else self._order

    def _node(self, node: Expr) -> _Node | None:
        """Return the node of a condition; ``None`` for arithmetic and operands, parts of comparisons."""
        match node:
            case ast.And():
                return self._add(_Node(_Kind.ALL, node, [self._condition(child) for child in node.operands]))
            case ast.Or():
                children = self._merge_equalities([self._condition(child) for child in node.operands])
                return self._add(_Node(_Kind.ANY, node, children))
            case ast.Not():
                return self._add(_Node(_Kind.NOT, node, (self._condition(node.operand),)))
            case ast.Between():
                return self._between(node)
            case ast.Comparison():
                return self._comparison(node)
            case ast.In() | ast.Like() | ast.IsNull():
                simple = simple_predicate(node, self._dialect)
                assert simple is not None
                return self._simple(node, *simple)
            case _:
                return None

    def _condition(self, node: Expr) -> _Node:
        """Return the node of an operand of AND, OR or NOT, possibly a bare identifier or TRUE / FALSE."""
        if isinstance(node, ast.Literal):
            return self._add(_Node(_Kind.FIXED, node, fixed=Truth.of(node.value is True)))
        simple = simple_predicate(node, self._dialect) if isinstance(node, ast.Identifier) else None
        return self._simple(node, *simple) if simple is not None else self._nodes[id(node)]

    def _comparison(self, node: ast.Comparison) -> _Node:
        simple = simple_predicate(node, self._dialect)
        if simple is not None:
            return self._simple(node, *simple)
        if isinstance(node.left, _CONDITIONAL) or isinstance(node.right, _CONDITIONAL):
            return self._either(node)
        return self._whole(node)

    def _between(self, node: ast.Between) -> _Node:
        null_decides = self._dialect.between_on_null is not None
        if null_decides and not of_one_property(node):
            return self._whole(node)
        parts = [self._comparison(part) for part in comparisons_of(node)]
        if null_decides:
            assert isinstance(node.operand, ast.Identifier)
            null = ast.IsNull(node.operand, not node.negated, span=node.span)
            simple = simple_predicate(null, self._dialect)
            assert simple is not None
            parts.append(self._simple(null, *simple))
        return self._add(_Node(_Kind.ANY if node.negated else _Kind.ALL, node, parts))

    def _either(self, node: ast.Comparison) -> _Node:
        left, right = node.left, node.right
        if not isinstance(left, _CONDITIONAL):
            left, right = right, left
        equal = node.op == "="
        if isinstance(right, _CONDITIONAL):
            same = self._nodes[id(right)]
            other = self._add(_Node(_Kind.NOT, ast.Not(right, span=node.span), (same,)))
            yes, no = (same, other) if equal else (other, same)
        else:
            yes, no = (
                self._comparison(
                    ast.Comparison(node.op, right, ast.Literal(value, span=node.span), span=node.span)
                )
                for value in (True, False)
            )
        return self._add(_Node(_Kind.EITHER, node, (self._nodes[id(left)], yes, no)))

    def _whole(self, node: ast.Comparison | ast.Between) -> _Node:
        """Return a condition on several properties, on arithmetic, or on constants alone."""
        if any(isinstance(part, ast.Identifier) for part in ast.postorder(node)):
            return self._leaf(node, ExpressionTest(node, NOT_ONE_PROPERTY, self._dialect))
        truth = condition_of(node, lambda name: None, self._dialect)
        if truth is VOID:
            self._is_void = True
            truth = Truth.FALSE
        return self._add(_Node(_Kind.FIXED, node, fixed=truth))

    def _simple(self, node: Expr, predicate: Predicate, holds: bool) -> _Node:
        only = self._leaf(node, predicate)
        return only if holds else self._add(_Node(_Kind.NOT, node, (only,)))

    def _leaf(self, source: Expr, predicate: Predicate) -> _Node:
        return self._add(_Node(_Kind.LEAF, source, predicate=predicate))

    def _add(self, node: _Node) -> _Node:
        self._order.append(node)
        return node

    def _merge_equalities(self, children: list[_Node]) -> list[_Node]:
        """Merge ``c = 'a' OR c = 'b'`` to ``c IN ('a', 'b')`` (seed 004): one literal with two keys."""
        equalities = [_string_equality(child) for child in children]
        groups: dict[str, list[tuple[str, ...]]] = {}
        for name, values in filter(None, equalities):
            groups.setdefault(name, []).append(values)
        result: dict[str | int, _Node] = {}
        for child, equality in zip(children, equalities, strict=True):
            if equality is None or len(groups[equality[0]]) == 1:
                result[id(child)] = child
            elif equality[0] not in result:
                name, strings = equality[0], set().union(*groups[equality[0]])
                equal = OneOf(name, tuple(sorted(strings)), False, self._dialect)
                result[name] = self._leaf(child.source, equal)
        return list(result.values())


def conjunction(expr: Expr, dialect: Dialect) -> list[ClauseLiteral] | None:
    """Return the literals of a plain AND of predicates, their negations and BETWEEN; else ``None``."""
    literals: list[ClauseLiteral] = []
    for node in expr.operands if isinstance(expr, ast.And) else (expr,):
        negated = isinstance(node, ast.Not)
        part = node.operand if isinstance(node, ast.Not) else node
        if isinstance(part, ast.Between) and not part.negated and not negated:
            predicates = [simple_predicate(comparison, dialect) for comparison in comparisons_of(part)]
        else:
            predicates = [simple_predicate(part, dialect)]
        for simple in predicates:
            if simple is None:
                return None
            predicate, holds = simple
            literals.append(ClauseLiteral(predicate, holds is not negated))
    return literals


def _string_equality(node: _Node) -> tuple[str, tuple[str, ...]] | None:
    """Return the name and the strings of an equality or IN; None for any other node."""
    match node.predicate:
        case Test(name=name, op="=", constant=str() as value):
            return name, (value,)
        case OneOf(name=name, values=values, negated=False):
            return name, values
    return None


# ---- 2. the size of each node


def _measure(node: _Node, most: int) -> None:
    """Set the sizes of a node whose children are measured; make it opaque beyond `most` literals."""
    for wanted in _POLARITIES:
        if node.kind is _Kind.LEAF:
            node.clauses[wanted] = node.literals[wanted] = 1
            continue
        if node.kind is _Kind.FIXED:
            node.clauses[wanted] = int(node.fixed is Truth.of(wanted))
            node.literals[wanted] = 0
            continue
        sizes = [_product(factors, most) for factors in node.alternatives(wanted)]
        node.clauses[wanted] = sum(clauses for clauses, _ in sizes)
        node.literals[wanted] = sum(literals for _, literals in sizes)
        if not _fits(node.clauses[wanted], node.literals[wanted], most):
            node.make_opaque(wanted)


def _product(factors: list[tuple[_Node, bool]], most: int) -> tuple[int, int]:
    """Return the size of a conjunction. If it would not fit, its large factors are made opaque first."""
    clauses, literals = _size(factors)
    if not _fits(clauses, literals, most):
        for child, wanted in sorted(factors, key=lambda factor: factor[0].clauses[factor[1]], reverse=True):
            if child.clauses[wanted] <= 1:
                break
            child.make_opaque(wanted)
        clauses, literals = _size(factors)
    return clauses, literals


def _size(factors: list[tuple[_Node, bool]]) -> tuple[int, int]:
    clauses = 1
    for child, wanted in factors:
        clauses = min(clauses * child.clauses[wanted], MAX_CLAUSES + 1)
    each = sum(child.literals[wanted] / max(child.clauses[wanted], 1) for child, wanted in factors)
    return clauses, int(clauses * each)


def _fits(clauses: int, literals: int, most: int) -> bool:
    return clauses <= MAX_CLAUSES and literals <= most


# ---- 3. the clauses


def _expand(nodes: list[_Node], dialect: Dialect) -> list[_Conjunction]:
    root = nodes[-1]
    needed = {(id(root), True)}
    for node in reversed(nodes):
        if node.children:
            for wanted in _POLARITIES:
                if (id(node), wanted) in needed and wanted not in node.opaque:
                    needed |= {(id(n), w) for factors in node.alternatives(wanted) for n, w in factors}
    built: dict[tuple[int, bool], list[_Conjunction]] = {}
    for node in nodes:
        for wanted in _POLARITIES:
            if (id(node), wanted) in needed:
                built[id(node), wanted] = _build(node, wanted, built, dialect)
    return built[id(root), True]


def _build(
    node: _Node, wanted: bool, built: dict[tuple[int, bool], list[_Conjunction]], dialect: Dialect
) -> list[_Conjunction]:
    if node.predicate is not None:
        return [(ClauseLiteral(node.predicate, wanted),)]
    if node.kind is _Kind.FIXED:
        return [()] if node.fixed is Truth.of(wanted) else []
    if wanted in node.opaque:
        return [(ClauseLiteral(ExpressionTest(node.source, TOO_LARGE, dialect), wanted),)]
    result: dict[_Conjunction, None] = {}
    for factors in node.alternatives(wanted):
        if not all(built[id(child), polarity] for child, polarity in factors):
            continue  # one factor is never satisfied: multiplying out the others would be unbounded
        product: list[_Conjunction] = [()]
        for child, polarity in factors:
            product = [left + right for left in product for right in built[id(child), polarity]]
        result.update(dict.fromkeys(tuple(dict.fromkeys(literals)) for literals in product))
    return list(result)


# ---- the guard of a selector that an operation may make false as a whole: see `NotVoid`


def _type_guard(expr: Expr, dialect: Dialect) -> NotVoid:
    """Return the predicate that no operation of the selector is VOID. O(size of the selector)."""
    types: dict[str, frozenset[str]] = {}
    conditions: dict[Expr, None] = {}
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.And | ast.Or | ast.Not):
            waiting += reversed(ast.children(node))
            continue
        predicates = [simple_predicate(part, dialect) for part in _parts(node)]
        for simple in predicates:
            if simple is None:
                if any(isinstance(part, ast.Identifier) for part in ast.postorder(node)):
                    conditions[node] = None  # a constant that is VOID has no clauses
            elif not isinstance(simple[0], NullTest):
                kind = frozenset({simple[0].kind})
                types[simple[0].name] = types.get(simple[0].name, kind) & kind
    return NotVoid(tuple(types.items()), tuple(conditions), dialect)


def _parts(node: Expr) -> Sequence[Expr]:
    """Return the parts of a condition, one of which is VOID exactly when the condition is: mostly itself."""
    if isinstance(node, ast.Literal):
        return ()
    if isinstance(node, ast.Between) and of_one_property(node):
        return comparisons_of(node)
    return (node,)


def _implied(guard: NotVoid, literals: Sequence[ClauseLiteral]) -> bool:
    """Return whether the literals, if they hold, imply the guard."""
    judged, kinds, absent = set(), {}, set()
    for literal in literals:
        match literal.predicate:
            case ExpressionTest(expr=expr):
                judged.add(id(expr))
            case Test(name=name) | OneOf(name=name) | PatternTest(name=name) as predicate:
                kinds[name] = predicate.kind
            case NullTest(name=name) if literal.wanted:
                absent.add(name)
    return judged.issuperset(map(id, guard.conditions)) and all(
        name in absent or kinds.get(name) in allowed for name, allowed in guard.types
    )
