"""Clauses under their access keys."""

from __future__ import annotations

from dataclasses import dataclass

from selectroute.clauses.access import Equalities, Key
from selectroute.clauses.predicate import Clause, Literal
from selectroute.index.plan.access_key import Attributes


@dataclass(slots=True, eq=False)
class FiledClause:
    """Clause of a subscription: its access key, and the residual literals to judge."""

    subscription: str
    clause: Clause
    attributes: Attributes
    keys: tuple[tuple[Key, ...], ...]
    residual: tuple[Literal, ...]


def file_clause(subscription: str, clause: Clause, found: Equalities, attributes: Attributes) -> FiledClause:
    """Return a clause with its keys of the attributes, and the literals that the keys do not decide."""
    covered = [literal for name in attributes for literal in found.covered.get(name, ())]
    residual = clause.literals
    if covered:
        decided = set(map(id, covered))
        residual = tuple([literal for literal in residual if id(literal) not in decided])
    keys = tuple([tuple(found.keys[name]) for name in attributes])
    return FiledClause(subscription, clause, attributes, keys, residual)
