"""Summary of the record for pages that show a few rows of it: messages a second, mostly on workload Z."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bench.definition import short, sizes
from bench.measure import Sample
from bench.tables import line, median_rate, number

WORKLOAD: Final = "Z"


class Row(NamedTuple):
    """Row of the summary: the rates of one engine, or their shares of those of another one."""

    text: str
    benchmark: str
    engine: str
    ceiling: str | None = None
    workload: str = WORKLOAD


ROWS: Final = (
    Row("the kernel on one core: Arrow columns in, numbers of subscriptions out", "kernel", "kernel"),
    Row("that as a share of C written for this one shape", "kernel", "kernel", "c"),
    Row("the same share if all values are equally frequent (U)", "kernel", "kernel", "c", "U"),
    Row("`match_files` on Parquet, in Spark, without writing what it finds", "spark", "files-auto"),
    Row("`route`, through Spark's UDF boundary", "spark", "route"),
    Row("instead: Spark's broadcast join on the same equalities", "spark", "join"),
    Row("instead: event-ruler 2.0.1 on one core, the equalities only", "peers", "event-ruler-eq"),
    Row("instead: ActiveMQ's selectors one by one, on one core", "peers", "activemq"),
)


def summary_table(samples: Sequence[Sample]) -> str:
    """Return the summary in Markdown: a column for each number of subscriptions."""
    of_workload = {one.rules: one for one in sizes() if one.workload == WORKLOAD}
    lines = [
        line(["subscriptions", *map(short, of_workload)]),
        f"|---|{'---:|' * len(of_workload)}",
    ]
    lines += [line([row.text, *[_cell(samples, row, rules) for rules in of_workload]]) for row in ROWS]
    each = [f"{size.check.matches / size.checked:.0f}" for size in of_workload.values()]
    return "\n".join([*lines, line(["matches a message", *each])])


def _cell(samples: Sequence[Sample], row: Row, rules: int) -> str:
    rate = _rate(samples, row, row.engine, rules)
    if row.ceiling is None:
        return "–" if rate is None else number(rate)
    most = _rate(samples, row, row.ceiling, rules)
    return "–" if rate is None or most is None else f"{rate / most:.2f}"


def _rate(samples: Sequence[Sample], row: Row, engine: str, rules: int) -> float | None:
    """Return the median rate of an engine of a row at a size, None if it was not measured there."""
    found = [
        one
        for one in samples
        if (one.benchmark, one.workload, one.engine, one.rules)
        == (row.benchmark, row.workload, engine, rules)
    ]
    return median_rate(found) if found else None
