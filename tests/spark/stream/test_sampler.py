"""Samples of the messages of batches: one a second, without bodies, and never in the way of a stream."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import selectroute as sr
from selectroute.registry.model import MAX_SAMPLED
from selectroute.registry.publisher import RegistryPublisher
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.message import Message
from selectroute.spark import Job, JobError, start_fanout
from selectroute.spark.sources.files.lister import PlannedFile
from selectroute.spark.sources.files.source import FileSource
from selectroute.spark.stream.reports import Sampler


class Registry:
    def __init__(self, error=None):
        self.error, self.said = error, []

    def note_messages(self, query, messages):
        self.said.append((query, [dict(one) for one in messages]))
        if self.error is not None:
            raise self.error


class Source:
    def __init__(self, found):
        self.found, self.asked = found, []

    def sample(self, inputs, count):
        self.asked.append((inputs, count))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


RED = Message(properties={"color": "red"}, topic="t", body="a body")


def sampler(found, each=3):
    now = [100.0]
    source = Source(found)
    return Sampler(source, each, lambda: now[0]), source, now


def test_the_newest_batch_of_a_second_is_sampled_without_bodies():
    long = Message(properties={"text": "x" * MAX_SAMPLED})
    made, source, now = sampler([RED, long])
    registry = Registry()
    made.send(registry, "q")
    made.note("one")
    made.send(registry, "q")
    made.note("two")
    made.note("three")
    now[0] += 0.5
    made.send(registry, "q")
    assert source.asked == [("one", 3)]
    now[0] += 0.5
    made.send(registry, "q")
    made.send(registry, "q")
    made.note("four")
    made.send(registry, "q", at_once=True)
    assert [inputs for inputs, _ in source.asked] == ["one", "three", "four"]
    assert registry.said == [("q", [{"properties": {"color": "red"}, "topic": "t"}])] * 3


@pytest.mark.parametrize("error", [OSError(5, "gone"), SelectRouteError("gone"), pa.ArrowInvalid("torn")])
def test_what_cannot_be_read_is_left_out(error):
    made, _, _ = sampler(error)
    registry = Registry()
    made.note("one")
    made.send(registry, "q")
    assert registry.said == []


def test_errors_of_the_registry_are_raised():
    made, _, _ = sampler([RED])
    made.note("one")
    with pytest.raises(SelectRouteError, match="away"):
        made.send(Registry(SelectRouteError("away")), "q")


def test_without_samples_nothing_is_read():
    made, source, _ = sampler([RED], each=0)
    made.note("one")
    made.send(Registry(), "q", at_once=True)
    assert source.asked == []


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_messages_of_the_last_file_are_spread_over_it_and_have_all_their_properties(tmp_path, kind):
    for number in range(2):
        rows = [{"weight": 100 * number + row, "never read": row % 2 == 0} for row in range(50)]
        if kind == "json":
            lines = (json.dumps({"properties": row}) for row in rows)
            (tmp_path / f"{number}.json").write_text("\n".join(["{", *lines]))
        else:
            pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{number}.parquet")
    job = Job.of(tmp_path, tmp_path / "snapshots", tmp_path.with_name("out"), file_format=kind)
    source = FileSource(job, None, 2)
    files = [PlannedFile(path.name, path.stat().st_size) for path in sorted(tmp_path.iterdir())]
    found = source.sample(files, 5)
    weights = [one.properties["weight"].value for one in found]
    assert len(weights) == 5 and min(weights) == 100 and max(weights) == 149 and sorted(weights) == weights
    assert all("never read" in one.properties for one in found)
    assert len(source.sample(files, 200)) == 50 and source.sample([], 5) == []


@pytest.mark.spark
@pytest.mark.slow
def test_a_stream_sends_some_messages_of_its_batches(spark, world):
    url = f"sqlite:///{world.root}/registry.db"
    lines = [{"properties": {"color": "red", "number": number}} for number in range(30)]
    world.drop_json("0.jsonl", *lines)
    with sr.Registry.open(url) as registry, RegistryPublisher(registry) as published:
        registry.register(sr.SubscriptionSpec("color = 'red'"))
        published.catch_up()
        job = Job.of(world.input, registry.snapshots_folder, world.output, sample_messages=10)
        start_fanout(spark, job, available_now=True, registry=registry).wait()
        found = registry.streams.recent_messages()
        assert len(found) == 10 and {one.message["properties"]["color"] for one in found} == {"red"}
        assert {one.query for one in found} == {one.query for one in registry.streams.all()}


def test_more_than_a_service_takes_at_once_is_refused(tmp_path):
    with pytest.raises(JobError, match="from 0 to 200"):
        Job.of(tmp_path / "in", tmp_path / "s", tmp_path / "out", sample_messages=201)
