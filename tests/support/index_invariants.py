"""Invariants of a mutable index, each with a sentence."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np

from selectroute.clauses.access import equalities
from selectroute.index.compile.keys import MAX_PAIRS, FiledClause, KeyStatistics
from selectroute.index.errors import require
from selectroute.index.index import Index


def verify_index(index: Index) -> None:
    """Check a mutable index. Raises `InvariantError`. O(size of the index)."""
    filed: Counter[FiledClause] = Counter()
    for attributes, buckets in index._buckets.items():
        require(buckets, f"the tuple {attributes} has a bucket")
        for keys, bucket in buckets.items():
            require(bucket, f"the key {keys} has an entry")
            for entry in bucket:
                require(entry.attributes == attributes, "an entry is filed under its own attributes")
                require(keys in set(product(*entry.keys)), "an entry is filed under its own keys only")
                filed[entry] += 1
    statistics = KeyStatistics()
    pairs: Counter[tuple[str, ...]] = Counter()
    for subscription in index:
        entries = index._filed[subscription.id]
        satisfiable = [clause for clause in subscription.clauses if equalities(clause).satisfiable]
        require([entry.clause for entry in entries] == satisfiable, "each satisfiable clause is filed")
        for entry in entries:
            copies = int(np.prod([len(keys) for keys in entry.keys], initial=1))
            require(filed.pop(entry, 0) == copies, "an entry is filed under each of its keys")
            statistics.add(equalities(entry.clause))
            if len(entry.attributes) == 2:
                pairs[entry.attributes] += 1
    require(not filed, "an entry belongs to a subscription")
    require(set(index._filed) == set(index._subscriptions), "the filed subscriptions are the registered ones")
    require(statistics.counts == index.statistics.counts, "the statistics count the filed clauses")
    require(statistics._squares == index.statistics._squares, "the sums of squares belong to the counts")
    require(pairs == index._plan.pairs, "the plan counts the entries of each pair")
    require(len(pairs) <= MAX_PAIRS, "no more pairs are in use than the plan allows")
