"""A fan-out beside a publisher of deltas and a collector of old revisions."""

import threading
from collections import Counter

import pytest

import selectroute as sr
from selectroute.index import snapshot_files as file_format
from selectroute.index.publisher import Publisher
from selectroute.index.retention import collect
from selectroute.index.snapshot_files import locked, revisions
from selectroute.spark.batch.pins import pin
from selectroute.spark.columns import snapshot_ref
from selectroute.storage import Location

RED = {"properties": {"color": "red"}}


@pytest.fixture(autouse=True)
def as_told(monkeypatch):
    """Nothing is opened yet, and only what a test asks for is merged."""
    monkeypatch.setattr(snapshot_ref, "_opened", {})
    monkeypatch.setattr("selectroute.index.publisher.merge_due", lambda *_: None)


def test_each_batch_is_routed_by_the_newest_deltas_and_dead_ordinals_deliver_nothing(world):
    router = world.router()
    with Publisher(world.snapshots) as publisher:
        publisher.apply([sr.Add("a", "color = 'red'"), sr.Add("b", "color = 'red'")])
        publisher.merge()
        router.route(0, [world.drop_json("0.jsonl", RED)], "q")
        publisher.apply([sr.Remove("a"), sr.Add("c", "color = 'red'")])
        second = publisher.apply([sr.Replace("b", "color = 'blue'")])
        router.route(1, [world.drop_json("1.jsonl", RED)], "q")
        merged = publisher.merge()
        router.route(2, [world.drop_json("2.jsonl", RED)], "q")
    first = router.commits.read(0)["revision"]
    assert first < second < merged
    expected = [("0.jsonl", 0, "a", first), ("0.jsonl", 0, "b", first), ("1.jsonl", 0, "c", second)]
    assert world.deliveries() == Counter([*expected, ("2.jsonl", 0, "c", merged)])


def test_a_worker_opens_only_what_a_revision_adds(world, monkeypatch):
    index = sr.Index()
    index.add("a", "color = 'red'")
    sr.publish(index.freeze(), world.snapshots)
    publisher = Publisher(world.snapshots)
    refs = [snapshot_ref.refer(publisher.snapshot)]
    for number in range(2):
        publisher.apply([sr.Add(f"b{number}", "color = 'red'")])
        refs.append(snapshot_ref.refer(publisher.snapshot))
    del publisher
    read = []
    real = file_format.read_table
    monkeypatch.setattr(file_format, "read_table", lambda *given: (read.append(given[1]), real(*given))[1])
    opened = [snapshot_ref.open_once(ref) for ref in refs]
    assert [len(one.segments) for one in opened] == [1, 2, 3]
    assert opened[2].segments[:2] == opened[1].segments
    assert len(read) == len(set(read)) <= 6, "each file once"


def test_what_a_batch_was_pinned_to_is_not_collected_until_a_later_one_is(world):
    router = world.router()
    world.publish(1, red="color = 'red'")
    router.route(0, [world.drop_json("0.jsonl", RED)], "q")
    world.publish(2, blue="color = 'red'")
    world.publish(3, green="color = 'red'")
    assert collect(world.snapshots, keep=1, grace_seconds=0).revisions == ()
    router.route(1, [world.drop_json("1.jsonl", RED)], "q")
    assert collect(world.snapshots, keep=1, grace_seconds=0).revisions == (1, 2)
    assert revisions(world.snapshots) == [3]
    router.route(2, [world.drop_json("2.jsonl", RED)], "q")
    assert {revision for *_, revision in world.deliveries()} == {1, 3}


def test_a_pin_waits_while_revisions_are_removed(world):
    """Otherwise the newest revision could go between its being read and its being leased."""
    world.publish(1, red="color = 'red'")
    pinned = []
    with locked(world.snapshots, exclusive=True):
        pins = threading.Thread(
            target=lambda: pinned.append(
                pin(0, Location.of(world.output / "pins"), Location.of(world.snapshots), "q")
            )
        )
        pins.start()
        pins.join(0.3)
        assert not pinned
        newer = sr.Index().freeze(2)
        publishing = threading.Thread(target=sr.publish, args=(newer, world.snapshots))
        publishing.start()
        publishing.join(0.3)
        assert revisions(world.snapshots) == [1]
    pins.join(60)
    publishing.join(60)
    assert pinned[0].revision in (1, 2) and revisions(world.snapshots) == [1, 2]
