"""Changes to a folder: every reader sees whole revisions, and merges go on behind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

import selectroute as sr
from selectroute.index import publisher as publisher_module
from selectroute.index.changes import MOST_SEGMENTS, Add, Remove, Replace
from selectroute.index.errors import UnknownSubscriptionError
from selectroute.index.invariants import verify_snapshot
from selectroute.index.publisher import Publisher
from selectroute.index.snapshot_files import publish, revisions
from tests.support.merging import merge
from tests.unit.index.changing import expected, found, live_ids, random_changes, random_messages


def test_changes_are_revisions_of_the_folder(tmp_path):
    with Publisher(tmp_path) as publisher:
        assert publisher.apply([Add("a", "weight > 5"), Add("b")]) == 2
        assert publisher.apply([Remove("b")]) == 3
    assert [live_ids(sr.Snapshot.open(tmp_path, n)) for n in (1, 2, 3)] == [[], ["a", "b"], ["a"]]
    with Publisher(tmp_path) as publisher:
        assert publisher.apply([Replace("a", "weight > 6")]) == 4
        assert publisher.snapshot.digest == sr.Snapshot.open(tmp_path).digest


def test_a_refused_change_publishes_nothing(tmp_path):
    with Publisher(tmp_path) as publisher:
        publisher.apply([Add("a")])
        with pytest.raises(UnknownSubscriptionError):
            publisher.apply([Add("b"), Remove("none")])
        with pytest.raises(ValueError, match="numbers revisions itself"):
            publisher.apply([Add("b")], 7)
        assert revisions(tmp_path) == [1, 2]
        assert publisher.apply([Add("b")]) == 3


def test_another_publisher_is_noticed(tmp_path):
    publisher = Publisher(tmp_path)
    publish(sr.Index().freeze(), tmp_path)
    with pytest.raises(sr.SnapshotError, match="another publisher published revision 2"):
        publisher.apply([Add("a")])


def test_given_revisions_ascend_and_merges_ride_on_them(tmp_path, monkeypatch):
    monkeypatch.setattr(publisher_module, "AT_ONCE", 0)
    publisher = Publisher(tmp_path, own_revisions=False)
    assert publisher.apply([Add("a"), Add("b"), Add("c")], 10) == 10
    publisher.close()
    assert revisions(tmp_path) == [0, 10], "no revision that nobody gave"
    with pytest.raises(ValueError, match="above 10"):
        publisher.apply([Add("d")], 10)
    with pytest.raises(ValueError, match="above 10"):
        publisher.apply([Add("d")])
    publisher.apply([Add("d")], 12)
    assert [segment.rows for segment in publisher.snapshot.segments] == [3, 1], "the base was empty before"
    assert publisher.merge(timeout=60) == 12
    assert publisher.roll_in(20) == 20 and publisher.roll_in(21) is None
    assert [segment.rows for segment in publisher.snapshot.segments] == [4]
    found = ["".join(live_ids(sr.Snapshot.open(tmp_path, n))) for n in (10, 12, 20)]
    assert found == ["abc", "abcd", "abcd"]


@pytest.mark.parametrize("in_thread", [8_192, 0], ids=["in a thread", "in a process"])
def test_a_merge_goes_on_behind_while_changes_come(tmp_path, monkeypatch, in_thread):
    monkeypatch.setattr(publisher_module, "AT_ONCE", 0)
    monkeypatch.setattr(publisher_module, "IN_THREAD", in_thread)
    chance = Random(in_thread)
    live: dict[str, tuple[str, str | None]] = {}
    with Publisher(tmp_path) as publisher:
        publisher.apply(random_changes(chance, live, 40))
        for _ in range(5):
            publisher.apply(random_changes(chance, live, 3))
        publisher.merge(timeout=60)
        newest = sr.Snapshot.open(tmp_path)
        assert len(newest.segments) == 1 and newest.dead is None
        messages = random_messages(chance, 20)
        assert found(newest, messages) == [expected(live, message) for message in messages]
        assert publisher.apply([Add("last")]) == newest.revision + 1


def test_a_change_during_a_merge_is_in_the_next_revision_and_in_the_merged_one(tmp_path, monkeypatch):
    publisher = Publisher(tmp_path)
    publisher.apply([Add(f"s{n}") for n in range(50)])
    publisher.apply([Add("x")])
    begun, go_on = threading.Event(), threading.Event()
    merged_part = publisher_module.merged_part

    def slow(*arguments):
        begun.set()
        assert go_on.wait(60)
        return merged_part(*arguments)

    monkeypatch.setattr(publisher_module, "merged_part", slow)
    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(publisher.merge, timeout=60)
        assert begun.wait(60)
        during = publisher.apply([Remove("s7"), Replace("x", "weight = 1")])
        assert "s7" not in live_ids(sr.Snapshot.open(tmp_path, during))
        go_on.set()
        merging.result(60)
    newest = sr.Snapshot.open(tmp_path)
    assert newest.revision == during + 1
    assert ([one.rows for one in newest.segments], [*newest.deaths]) == ([51, 1], [2, 0])
    assert live_ids(newest) == sorted([*(f"s{n}" for n in range(50) if n != 7), "x"])
    verify_snapshot(newest)


def test_a_merge_runs_no_module_of_the_working_directory(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    for name in ("numpy", "json", "selectroute"):
        (here / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write('{name}')\nraise SystemExit(1)"
        )
    monkeypatch.chdir(here)
    monkeypatch.setattr(publisher_module, "AT_ONCE", 0)
    monkeypatch.setattr(publisher_module, "IN_THREAD", 0)
    with Publisher(tmp_path / "snapshots") as publisher:
        publisher.apply([Add("a")])
        publisher.merge(timeout=60)
    assert not (tmp_path / "ran").exists()


def test_a_merge_that_fails_is_a_warning_and_changes_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(publisher_module, "AT_ONCE", 0)
    monkeypatch.setattr(publisher_module, "IN_THREAD", -1)
    monkeypatch.setattr(publisher_module.sys, "executable", "false")
    publisher = Publisher(tmp_path)
    with pytest.warns(RuntimeWarning, match="a merge of .* failed"):
        publisher.apply([Add("a")])
        publisher.close()
    for number in range(3):
        publisher.apply([Add(f"b{number}")])
    assert len(publisher.snapshot.segments) == 5
    with pytest.warns(RuntimeWarning), pytest.raises(sr.SnapshotError, match="failed"):
        publisher.merge(timeout=60)
    monkeypatch.undo()
    publisher.merge(timeout=60)
    assert len(publisher.snapshot.segments) == 1 and len(publisher.snapshot) == 4


def test_segments_stay_few_under_many_small_changes(tmp_path):
    chance = Random(3)
    live: dict[str, tuple[str, str | None]] = {}
    with Publisher(tmp_path) as publisher:
        for _ in range(120):
            publisher.apply(random_changes(chance, live, 1))
            assert len(publisher.snapshot.segments) <= MOST_SEGMENTS
            assert 4 * sum(publisher.snapshot.deaths) <= len(publisher.snapshot.ids)
    assert live_ids(sr.Snapshot.open(tmp_path)) == sorted(live)


@pytest.mark.slow
def test_readers_see_some_whole_revision_while_a_publisher_changes_and_merges(tmp_path, monkeypatch):
    """Every match is that of the revision which the reader opened, by the reference evaluator."""
    monkeypatch.setattr(publisher_module, "AT_ONCE", 2)
    chance = Random(5)
    messages = random_messages(chance, 12)
    live: dict[str, tuple[str, str | None]] = {}
    states: dict[int, dict[str, tuple[str, str | None]]] = {1: {}}
    publisher = Publisher(tmp_path)
    sr.warm()  # the kernel is there before anybody reads
    stop = threading.Event()

    def read():
        seen = []
        while not stop.is_set():
            snapshot = sr.Snapshot.open(tmp_path)
            seen.append((snapshot.revision, live_ids(snapshot), found(snapshot, messages)))
        return seen

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for _ in range(40):
                revision = publisher.apply(random_changes(chance, live, chance.choice([1, 1, 8])))
                states[revision] = dict(live)
        finally:
            publisher.close()
            stop.set()
        seen = [one for reader in readers for one in reader.result(60)]
    assert len({revision for revision, _, _ in seen}) > 3
    wanted: dict[int, list[list[str]]] = {}
    for revision, ids, matches in seen:
        state = states[max(number for number in states if number <= revision)]  # a merge changes no state
        if revision not in wanted:
            wanted[revision] = [expected(state, message) for message in messages]
        assert ids == sorted(state)
        assert matches == wanted[revision]


def test_a_publisher_goes_on_from_a_merged_folder(tmp_path):
    index = sr.Index()
    index.add("a")
    publish(merge(index.freeze().changed([Add("b")])), tmp_path)
    with Publisher(tmp_path) as publisher:
        publisher.apply([Remove("a")])
    assert live_ids(sr.Snapshot.open(tmp_path)) == ["b"]
