"""Workload G, growth: as many matches a message however many rules there are.

The shape and the streams are those of U, with types enough for every number of rules. Of N rules, N a
multiple of 1,000, rule i is ``JMSType = 't{t}' AND color = 'c{c}' AND weight > {w}`` with draws 3 i to 3 i +
2 of seed 1: t = ranint(N / 100), c = ranint(10), w = ranint(10000). Message j takes draws 3 j to 3 j + 2 of
seed 2 in the same way. So a pair of type and color has 10 rules on average, of which a message matches half.
"""

from __future__ import annotations

import pyarrow as pa

from bench.workloads.plain import WEIGHTS, Triples, named, ranint, splitmix64

_RULE_SEED, _MESSAGE_SEED, _DRAWS = 1, 2, 3
_COLORS = 10
_RULES_A_TYPE = 100


def rules(count: int) -> Triples:
    """Return the rules."""
    return _triples(_RULE_SEED, count, count, 0)


def messages(rules: int, count: int, start: int = 0) -> tuple[Triples, pa.RecordBatch]:
    """Return messages ``start`` to ``start + count`` for a number of rules."""
    triples = _triples(_MESSAGE_SEED, rules, count, start)
    columns = {
        "JMSType": named("t", triples.type, rules // _RULES_A_TYPE),
        "color": named("c", triples.color, _COLORS),
        "weight": pa.array(triples.weight, pa.int32()),
    }
    return triples, pa.RecordBatch.from_pydict(columns)


def _triples(seed: int, rules: int, count: int, start: int) -> Triples:
    t, c, w = splitmix64(seed, start * _DRAWS, count * _DRAWS).reshape(count, _DRAWS).T
    return Triples(ranint(t, rules // _RULES_A_TYPE), ranint(c, _COLORS), ranint(w, WEIGHTS))
