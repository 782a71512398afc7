"""Every workload by its name: the texts of its rules, their conditions for brute force, and its messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from bench.workloads import adversarial, alike, growth, mixed, plain, replies
from bench.workloads.conditions import And, Compare, Condition
from bench.workloads.plain import Triples

Messages = Callable[[int, int, int], pa.RecordBatch]
"""Columns by the number of rules, the number of messages, and the first message."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Rules and messages; the messages of some depend on how many rules there are."""

    texts: Callable[[int], Iterable[str]]
    """The selectors of a number of rules."""
    conditions: Callable[[int], Iterable[Condition]]
    """The same selectors, for brute force."""
    messages: Messages
    triples: Callable[[int], Triples] | None = None
    """What decides, of the workloads whose rules are all type, color and weight."""


def _triple_conditions(triples: Triples) -> Iterator[Condition]:
    each = (triples.type.tolist(), triples.color.tolist(), triples.weight.tolist())
    for t, c, w in zip(*each, strict=True):
        equal = Compare("JMSType", "=", f"t{t}"), Compare("color", "=", f"c{c}")
        yield And((*equal, Compare("weight", ">", w)))


def _of_triples(triples: Callable[[int], Triples], messages: Messages) -> Workload:
    return Workload(
        texts=lambda rules: plain.selectors(triples(rules)),
        conditions=lambda rules: _triple_conditions(triples(rules)),
        messages=messages,
        triples=triples,
    )


def _of_conditions(conditions: Callable[[int], Iterator[Condition]], messages: Messages) -> Workload:
    return Workload(
        texts=lambda rules: (one.text() for one in conditions(rules)),
        conditions=conditions,
        messages=messages,
    )


WORKLOADS: Final[dict[str, Workload]] = {
    "Z": _of_triples(lambda rules: plain.rules("Z", rules), adversarial.plain_messages),
    "U": _of_triples(lambda rules: plain.rules("U", rules), adversarial.plain_messages),
    "R": Workload(
        texts=replies.selectors,
        conditions=lambda rules: (
            Compare("JMSCorrelationID", "=", text.split("'")[1]) for text in replies.selectors(rules)
        ),
        messages=replies.messages,
    ),
    "M": _of_conditions(mixed.conditions, lambda _rules, count, start: mixed.messages(count, start)),
    "D": _of_triples(alike.rules, adversarial.plain_messages),
    "G": _of_triples(growth.rules, lambda rules, count, start: growth.messages(rules, count, start)[1]),
    **{name: _of_conditions(*row) for name, row in adversarial.ROWS.items()},
}
