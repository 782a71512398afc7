"""A stream whose outcomes are Delta tables, in Spark."""

import threading
from collections import Counter
from types import SimpleNamespace

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

from selectroute.spark import start_fanout
from selectroute.spark.audit.audit import audit
from selectroute.spark.stream.upkeep import TableUpkeep
from selectroute.spark.tables.delta import DeltaTables

RED, BLUE = {"properties": {"color": "red"}}, {"properties": {"color": "blue"}}


@pytest.mark.spark
def test_batches_are_appended_merged_and_continued_by_the_next_start(spark, delta):
    delta.publish(1, red="color = 'red'", any="color IS NOT NULL")
    warnings = []
    job = delta.job(max_files=1, compact_every=2)

    def run(numbers):
        for number in numbers:
            delta.drop_json(f"{number}.jsonl", RED, BLUE, {}, "{")
        reports = []
        query = start_fanout(
            spark, job, available_now=True, on_batch=reports.append, on_warning=warnings.append
        )
        query.wait()
        return [report.batch for report in reports]

    assert run(range(3)) == [0, 1, 2]
    assert run(range(3, 5)) == [3, 4]
    assert delta.deliveries() == Counter(
        (f"{number}.jsonl", row, name, 1)
        for number in range(5)
        for row, name in ((0, "red"), (0, "any"), (1, "any"))
    )
    assert list((delta.output / "deliveries").glob("merged-*"))
    found = audit(delta.output, recount=True)
    assert (found.findings, found.pending, warnings) == ([], [], [])


def test_what_the_upkeep_cannot_do_is_a_warning_and_is_tried_again():
    warnings, calls = [], []

    class Tables:
        def maintain(self, should_stop, is_busy):
            calls.append(should_stop())
            raise OSError(28, "No space left on device", "/out")

    upkeep = TableUpkeep(SimpleNamespace(tables=Tables()), warnings.append)
    upkeep.start()
    upkeep.wake()
    upkeep.finish(at_once=False)
    assert calls and not any(calls)
    (warning,) = warnings
    assert "it is tried again: " in warning and "No space left on device" in warning


def test_a_stream_is_busy_while_batches_follow_each_other(monkeypatch):
    monkeypatch.setattr("selectroute.spark.stream.upkeep._QUIET_SECONDS", 0.05)
    found, looked = [], threading.Event()

    class Tables:
        def maintain(self, should_stop, is_busy):
            found.append(is_busy())
            looked.set()

    upkeep = TableUpkeep(SimpleNamespace(tables=Tables()), print)
    upkeep.wake()
    upkeep.begin()  # the next batch, at once
    upkeep.start()
    assert looked.wait(60)
    looked.clear()
    upkeep.wake()
    assert looked.wait(60)
    upkeep.begin()
    upkeep.finish(at_once=False)  # a last look, after the last batch
    assert found == [True, False, False]


def test_an_upkeep_that_is_ended_at_once_is_told_to_stop(delta):
    told = []

    class Tables(DeltaTables):
        def maintain(self, should_stop, is_busy):
            told.append(should_stop())

    upkeep = TableUpkeep(Tables(delta.output), print)
    upkeep.start()
    upkeep.finish(at_once=True)
    assert told in ([], [True])
    upkeep.finish(at_once=True)
