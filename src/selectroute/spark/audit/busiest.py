"""Subscriptions with the most deliveries, from a job's output folder."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from selectroute.spark.batch.commits import Commits
from selectroute.spark.job.job import job_record
from selectroute.spark.sinks.schemas import DELIVERIES
from selectroute.storage.location import Where


class Busiest(NamedTuple):
    """Subscriptions with the most deliveries as (id, count), by descending count, then by id. ``absent`` is
    the number of delivery files that were moved away and are not counted.
    """

    counts: list[tuple[str, int]]
    absent: int


def busiest(output: Where, top: int) -> Busiest:
    """Count the deliveries of each subscription in committed batches, backfills and replays. Memory is
    proportional to the number of subscriptions with deliveries.

    Raises:
        JobError: the folder is not a job's.
    """
    job_record(output)
    commits = Commits(output)
    totals = _NONE_COUNTED
    pending: list[pa.Table] = []
    absent = waiting = 0
    files = (file for commit in commits.all() for file in commit["files"])
    for batch in commits.tables.scan(DELIVERIES, ["subscription"], files):
        if batch is None:
            absent += 1
            continue
        counts = pc.value_counts(batch.column(0).cast(pa.string()))
        pending.append(pa.table(list(counts.flatten()), _NONE_COUNTED.schema.names))
        waiting += len(counts)
        if waiting > len(totals) + _COUNTED_ROWS:
            totals, pending, waiting = _summed([totals, *pending]), [], 0
    totals = _summed([totals, *pending])
    order = [("count", "descending"), ("subscription", "ascending")]
    first = totals.sort_by(order).slice(0, top)
    ids, counts_of_ids = (first[name].to_pylist() for name in ("subscription", "count"))
    return Busiest(list(zip(ids, counts_of_ids, strict=True)), absent)


_NONE_COUNTED: Final = pa.table(
    {"subscription": pa.array([], pa.string()), "count": pa.array([], pa.int64())}
)
_COUNTED_ROWS: Final = 1 << 18
"""Counts to collect before they are summed."""


def _summed(parts: list[pa.Table]) -> pa.Table:
    summed = pa.concat_tables(parts).group_by("subscription").aggregate([("count", "sum")])
    return summed.select(["subscription", "count_sum"]).rename_columns(_NONE_COUNTED.schema.names)
