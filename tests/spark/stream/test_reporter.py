"""Reports of batches to a registry: each once, a sign of life in between, none lost while it is away."""

import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from selectroute.registry.reports import MAX_CHARACTERS
from selectroute.selector.errors import SelectRouteError
from selectroute.service.http.models import ReportsBody
from selectroute.service.limits import ServiceLimits
from selectroute.spark import BatchReport
from selectroute.spark.stream.reports import (
    END_SECONDS,
    LIFE_SECONDS,
    BatchReporter,
    offsets_behind,
    summary_of,
)
from selectroute.spark.tables.schemas import BUSIEST, Counts

COUNTS = Counts(10, 7, 2, 1, deliveries=30, refused=3, queued=4, sent=5, reasons={"no JSON": 1})


class Registry:
    def __init__(self):
        self.error, self.said = None, []

    def note_reports(self, query, batches, state):
        if self.error is not None:
            raise self.error
        self.said.append((query, [one["batch"] for one in batches], state))


@pytest.fixture
def reporter():
    now = [0.0]
    made = BatchReporter(lambda: {"waiting": {}, "behind": 3}, lambda: now[0])
    made.now = now
    return made


def batch(number, **options):
    return BatchReport(number, 4, 1, COUNTS, {"match": 0.25}, **options)


def test_batches_are_reported_together_and_a_sign_of_life_comes_without_them(reporter):
    registry, state = Registry(), {"waiting": {}, "behind": 3}
    reporter.send(registry, "q")
    for number in range(3):
        reporter.note(batch(number))
    reporter.note(batch(3, skipped=True))
    reporter.send(registry, "q")
    assert registry.said == [("q", [], state)], "not twice within a second"
    reporter.now[0] = 1.5
    reporter.send(registry, "q")
    reporter.now[0] += LIFE_SECONDS - 1
    reporter.send(registry, "q")
    reporter.now[0] += 1
    reporter.send(registry, "q")
    assert [one[1] for one in registry.said[1:]] == [[0, 1, 2], []]
    reporter.note(batch(4))
    reporter.send(registry, "q", at_once=True)
    assert registry.said[-1][1] == [4]


def test_what_could_not_be_reported_is_reported_later_and_the_oldest_are_left_out(reporter):
    registry = Registry()
    registry.error = SelectRouteError("nobody answers")
    for number in range(1_200):
        reporter.note(batch(number))
    with pytest.raises(SelectRouteError):
        reporter.send(registry, "q")
    registry.error = None
    for reporter.now[0] in range(0, 50, 2):
        reporter.send(registry, "q")
    assert [number for one in registry.said for number in one[1]] == list(range(200, 1_200))
    assert max(len(one[1]) for one in registry.said) == 40


def test_at_the_end_all_is_reported_and_how_the_stream_ends(reporter):
    registry, state = Registry(), {"waiting": {}, "behind": 3}
    for number in range(100):
        reporter.note(batch(number))
    reporter.finish(registry, "q", "stopped")
    assert [len(one[1]) for one in registry.said] == [40, 40, 20, 0]
    assert [number for one in registry.said for number in one[1]] == [*range(100)]
    assert [one[2] for one in registry.said] == [*[state] * 3, {**state, "ended": "stopped"}]
    ReportsBody.model_validate({"state": registry.said[-1][2]})


def test_at_the_end_a_slow_registry_is_waited_for_for_some_seconds(reporter):
    class Slow(Registry):
        def note_reports(self, *given):
            super().note_reports(*given)
            reporter.now[0] += END_SECONDS / 2

    registry = Slow()
    for number in range(1_000):
        reporter.note(batch(number))
    reporter.finish(registry, "q", "ended")
    assert [len(one[1]) for one in registry.said] == [40, 40, 0]


def test_a_service_accepts_every_summary():
    told = summary_of(batch(-3, kind="backfill", busiest={"b": 2, "a": 1}))
    body = ReportsBody.model_validate({"batches": [told], "state": {"waiting": {"queue": 1}, "behind": None}})
    assert body.batches[0].model_dump() == told
    assert (told["messages"], told["sent"], told["reasons"]) == (10, 5, {"no JSON": 1})
    assert told["busiest"] == {"b": 2, "a": 1}


def test_the_longest_batches_fit_a_registry_and_a_request_to_a_service(reporter):
    reasons = {str(number).ljust(64, "x"): 2**40 for number in range(60)}
    busiest = {str(number).ljust(128, "x"): 2**40 for number in range(BUSIEST)}
    counts = replace(COUNTS, reasons=reasons)
    steps = dict.fromkeys(("pin", "plan", "match", "commit", "publish"), 1234.5678)
    long = BatchReport(2**40, 2**40, 1, counts, steps, kind="backfill", busiest=busiest)
    assert len(json.dumps(summary_of(long))) < MAX_CHARACTERS
    sent = []
    registry = SimpleNamespace(note_reports=lambda *given: sent.append(given))
    for _ in range(100):
        reporter.note(long)
    reporter.send(registry, "q")
    ((_, batches, state),) = sent
    body = {"batches": batches, "state": state}
    assert len(json.dumps(body)) < ServiceLimits().body_bytes
    ReportsBody.model_validate(body)


def test_batches_are_noted_while_others_are_sent(reporter):
    """A queue that changes while it is iterated raises RuntimeError."""
    registry, numbers = Registry(), iter(range(10**9))
    ended = threading.Event()

    def note():
        while not ended.is_set():
            reporter.note(batch(next(numbers)))

    noting = threading.Thread(target=note)
    noting.start()
    try:
        for reporter.now[0] in range(0, 2_000, 2):
            reporter.send(registry, "q")
    finally:
        ended.set()
        noting.join()
    told = [number for one in registry.said for number in one[1]]
    assert told == sorted(set(told)) and told


def test_a_source_of_kafka_says_how_far_each_partition_is_behind():
    source = {"endOffset": {"t": {"0": 5, "1": 9}}, "latestOffset": {"t": {"0": 7, "1": 30}}}
    assert list(offsets_behind({"sources": [source, {"endOffset": "{}", "latestOffset": None}]})) == [
        ("t", [2, 21])
    ]
    assert list(offsets_behind({})) == []
