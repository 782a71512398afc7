"""A job whose folders are all in an object store, for tests that are the same on each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import selectroute as sr
from selectroute.spark import Job, start_fanout
from selectroute.spark.batch.router import BatchReport
from selectroute.spark.tables.delta_table import table_options
from selectroute.storage import Location
from tests.support.remote_world import for_workers
from tests.support.servers.object_stores import ObjectStore

RED, BLUE = ({"color": {"type": "string", "value": color}} for color in ("red", "blue"))


def publish(base: Location, **selectors: str) -> int:
    """Publish subscriptions by name."""
    return sr.publish(sr.build_snapshot([*selectors.items()]), base / "snapshots")


def drop(base: Location, name: str, *messages: Any) -> None:
    """Put a file of messages into the input folder."""
    lines = "".join(json.dumps({"properties": one}) + "\n" for one in messages)
    (base / "in" / name).put(lines.encode())


def job_of(base: Location, **options: Any) -> Job:
    """Return the job whose folders are below a location."""
    return Job.of(base / "in", base / "snapshots", base / "out", **options)


def run(
    spark: Any,
    store: ObjectStore,
    job: Job,
    on_batch: Callable[[BatchReport], object] = lambda _: None,
    **options: Any,
) -> list[BatchReport]:
    """Route what is there; the reports of the batches."""
    reports: list[BatchReport] = []

    def noted(report: BatchReport) -> None:
        reports.append(report)
        on_batch(report)

    with pytest.MonkeyPatch.context() as patched:
        for_workers(spark, patched, store.environment)
        start_fanout(spark, job, available_now=True, on_batch=noted, **options).wait()
    return reports


def deliveries(base: Location) -> Counter[tuple[Any, ...]]:
    """(source, offset, subscription, revision) of each delivery, with how often it is in the table."""
    from deltalake import DeltaTable

    out = base / "out"
    table = DeltaTable(str(out / "deliveries"), storage_options=table_options(out)).to_pyarrow_table()
    names = ("source", "offset", "subscription", "revision")
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))
