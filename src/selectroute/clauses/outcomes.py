"""Possible outcomes of a selector over all messages, as far as they are certain.

The conditions of a selector are cut into *leaves*, each on one name or opaque. The values of a name are
`samples`: one or more of each class that the leaves distinguish. An opaque leaf (arithmetic, two names) may
have any outcome, the same wherever it is repeated. So every message is covered by one combination of
outcomes, and the reference evaluator judges the selector on each combination. Some combinations are
impossible: only a result that holds on all of them is certain, and nothing else is claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from selectroute.clauses.predicate import Clause, Matches
from selectroute.clauses.samples import Sample, domain, mentioned_numbers, samples
from selectroute.clauses.simple import Simple, comparisons_of, simple_predicate
from selectroute.selector.dialect import Dialect
from selectroute.selector.evaluate import Result, as_truth, condition, judge
from selectroute.selector.fields import NO_ID
from selectroute.selector.syntax import ast
from selectroute.selector.syntax.ast import Expr
from selectroute.selector.values.truth import VOID, Truth

MAX_COMBINATIONS: Final = 4_096
"""Maximum number of combinations of outcomes; beyond it, nothing is claimed about the whole selector."""

MAX_STEPS: Final = 200_000
"""Maximum number of judgements of leaves, and of connectives."""

MAX_NUMBERS: Final = 64
"""Maximum number of numeric constants examined: each costs a millisecond."""

_NO_BOOLEAN: Final = ""
"""Sample of a bare name's values that are not boolean: as a condition, all have the same outcome."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """Condition on one name: its node, the name, and its predicates."""

    node: Expr
    name: str
    predicates: tuple[Simple, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Leaves on one name, its samples, and for each sample the outcome of each leaf."""

    name: str
    leaves: tuple[Leaf, ...]
    samples: tuple[Sample, ...]
    rows: tuple[tuple[Result, ...], ...]

    def true_rows(self, leaf: int) -> frozenset[int]:
        """Return the indices of the samples that make a leaf TRUE."""
        return frozenset(number for number, row in enumerate(self.rows) if _is_true(row[leaf]))


def leaf_of(node: Expr, dialect: Dialect) -> Leaf | None:
    """Return a condition on one name as a leaf; None for any other."""
    parts: Sequence[Expr] = (node,)
    if isinstance(node, ast.Between):
        if not isinstance(node.operand, ast.Identifier):
            return None
        parts = comparisons_of(node)
    found = [simple_predicate(part, dialect) for part in parts]
    predicates = tuple(one[0] for one in found if one is not None)
    if len(predicates) < len(parts):
        return None
    (name,) = {part.name for part in ast.postorder(node) if isinstance(part, ast.Identifier)}
    return Leaf(node, name, predicates)


def outcomes_by_name(expr: Expr, dialect: Dialect) -> dict[str, Outcomes]:
    """Return the outcomes of the leaves on each name for which they can be listed. O(n) times a bound."""
    leaves: dict[str, list[Leaf]] = {}
    for node, inner in _skeleton(expr):
        leaf = None if inner else leaf_of(node, dialect)
        if leaf is not None:
            leaves.setdefault(leaf.name, []).append(leaf)
    found = {}
    numbers, steps = MAX_NUMBERS, MAX_STEPS  # the remaining budget
    for name, group in leaves.items():
        predicates = [one for leaf in group for one in leaf.predicates]
        numbers -= len(mentioned_numbers(predicates))
        if numbers < 0:
            break
        listed = samples(predicates, domain(name, dialect))
        if listed is not None:
            weight = len(listed) * sum(len(getattr(leaf.node, "values", ".")) for leaf in group)
            if weight <= steps:
                steps -= weight
                rows = tuple(tuple(_outcome(leaf, one, dialect) for leaf in group) for one in listed)
                found[name] = Outcomes(name, tuple(group), listed, rows)
    return found


def truths(expr: Expr, known: Mapping[str, Outcomes], dialect: Dialect) -> frozenset[Truth] | None:
    """Return every truth that the selector can have on some message, and perhaps others; None if there are
    too many combinations.
    """
    nodes = _skeleton(expr)
    variables: dict[object, tuple[list[int], list[tuple[Result, ...]]]] = {}
    for name, one in known.items():
        variables[name] = ([], list(dict.fromkeys(one.rows)))
    fixed: dict[int, Result] = {}
    for place, (node, inner) in enumerate(nodes):
        if inner:
            continue
        leaf = leaf_of(node, dialect)
        if leaf is not None and leaf.name in known:
            variables[leaf.name][0].append(place)
        elif isinstance(node, ast.Literal):
            fixed[place] = node.value
        elif isinstance(node, ast.MatchId) and node.id == NO_ID:
            fixed[place] = Truth.TRUE  # zeros match any message
        elif not any(isinstance(part, ast.Identifier) for part in ast.postorder(node)):
            fixed[place] = condition(node, lambda name: None, dialect)
        else:
            variables.setdefault(node, ([], _free(node, dialect)))[0].append(place)
    combinations = prod(len(rows) for _, rows in variables.values())
    if combinations > MAX_COMBINATIONS or combinations * len(nodes) > MAX_STEPS:
        return None
    seen = set()
    for chosen in product(*(rows for _, rows in variables.values())):
        given = dict(fixed)
        for (where, _), row in zip(variables.values(), chosen, strict=True):
            # All occurrences of an opaque leaf have the same outcome.
            given.update(zip(where, row if len(row) == len(where) else row * len(where), strict=True))
        seen.add(_judged(nodes, given, dialect))
        if len(seen) == len(Truth):
            break
    return frozenset(seen)


def satisfiable(clauses: Iterable[Clause], known: Mapping[str, Outcomes], dialect: Dialect) -> list[Clause]:
    """Return the clauses without those that no message satisfies: literals on one name contradict."""
    samples_of = {dialect.field_of(name): one.samples for name, one in known.items()}
    masks: dict[tuple[Simple, bool], int] = {}

    def mask(predicate: Simple, wanted: bool) -> int:
        """Return the samples on which a literal holds, as bits."""
        bits = masks.get((predicate, wanted))
        if bits is None:
            truths = (sample.truth(predicate) for sample in samples_of[predicate.name])
            bits = sum(1 << place for place, truth in enumerate(truths) if truth is Truth.of(wanted))
            masks[predicate, wanted] = bits
        return bits

    possible = []
    for clause in clauses:
        left: dict[str, int] = {}
        for literal in clause.literals:
            predicate = literal.predicate
            if isinstance(predicate, Simple) and predicate.name in samples_of:
                left[predicate.name] = left.get(predicate.name, -1) & mask(predicate, literal.wanted)
        if all(left.values()):
            possible.append(clause)
    return possible


def _skeleton(expr: Expr) -> list[tuple[Expr, tuple[int, ...]]]:
    """Return the connectives and leaves in postorder, each with the indices of its operands."""
    order: list[Expr] = []
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if _connects(node):
            waiting += ast.children(node)
    order.reverse()  # every node now follows its operands, which are in the order of the text
    nodes: list[tuple[Expr, tuple[int, ...]]] = []
    open_: list[int] = []
    for node in order:
        operands: tuple[int, ...] = ()
        if _connects(node):
            count = len(ast.children(node))
            operands = tuple(open_[len(open_) - count :])
            del open_[len(open_) - count :]
        open_.append(len(nodes))
        nodes.append((node, operands))
    return nodes


def _connects(node: Expr) -> bool:
    """Return whether a node is NOT, AND, OR, or a comparison of conditions."""
    if isinstance(node, ast.Comparison):
        return isinstance(node.left, ast.CONDITIONS) or isinstance(node.right, ast.CONDITIONS)
    return isinstance(node, ast.And | ast.Or | ast.Not)


def _judged(
    nodes: Sequence[tuple[Expr, tuple[int, ...]]], given: Mapping[int, Result], dialect: Dialect
) -> Truth:
    results: list[Result] = []
    for place, (node, operands) in enumerate(nodes):
        if operands:
            results.append(judge(node, [results[one] for one in operands], lambda name: None, dialect))
        else:
            results.append(given[place])
    truth = as_truth(results[-1], dialect)
    return truth if isinstance(truth, Truth) else Truth.FALSE


def _outcome(leaf: Leaf, sample: Sample, dialect: Dialect) -> Result:
    if isinstance(leaf.node, ast.Identifier):
        return sample.value if isinstance(sample.value, bool | None) else _NO_BOOLEAN
    predicate = leaf.predicates[0]
    if isinstance(predicate, Matches):
        return sample.truth(predicate)
    return condition(leaf.node, lambda name: sample.value, dialect)


def _free(node: Expr, dialect: Dialect) -> list[tuple[Result, ...]]:
    """Return every outcome that an opaque leaf may have."""
    if isinstance(node, ast.Identifier):
        return [(True,), (False,), (None,), (_NO_BOOLEAN,)]
    free: tuple[Result, ...] = (*Truth, VOID) if dialect.unlike_types is VOID else tuple(Truth)
    return [(result,) for result in free]


def _is_true(result: Result) -> bool:
    return result is Truth.TRUE or result is True
