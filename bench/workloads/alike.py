"""Workload D, duplicates: a thousand selectors, however many subscribe to them.

Rule i is rule i mod 1,000 of Z, and the messages are those of Z. So of N rules, N a multiple of 1,000, a
message matches N / 1,000 times as many as of Z's first thousand.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bench.workloads.plain import Triples
from bench.workloads.plain import rules as rules_of

DISTINCT: Final = 1_000
"""The selectors."""


def rules(count: int) -> Triples:
    """Return the rules."""
    first = rules_of("Z", DISTINCT)
    number = np.arange(count) % DISTINCT
    return Triples(first.type[number], first.color[number], first.weight[number])
