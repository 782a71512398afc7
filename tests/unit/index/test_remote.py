"""Snapshots in an object store: published, followed, collected, and read through a cache."""

import subprocess
import sys
import time
import uuid

import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.index import retention
from selectroute.index.errors import SnapshotError
from selectroute.index.retention import collect
from selectroute.index.snapshot_files import revisions
from selectroute.storage import Location
from selectroute.storage.objects import ObjectStorage
from tests.support.servers.s3 import BUCKET, clients_of

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(s3, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with clients_of(s3):
        yield f"s3://{BUCKET}/{uuid.uuid4().hex}/snapshots"


def subscriptions(count):
    return [(f"s{number}", f"JMSType = 't{number % 50}' AND weight > {number}") for number in range(count)]


def matches(snapshot):
    messages = pa.record_batch({"JMSType": ["t1", "t2"], "weight": pa.array([500, 60], pa.int64())})
    found = snapshot.match(messages)
    ids = snapshot.subscriptions["id"].to_pylist()
    return [
        sorted(ids[one] for one in found.ordinals[found.offsets[row] : found.offsets[row + 1]])
        for row in range(2)
    ]


def test_a_published_snapshot_is_opened_and_matches_as_it_did(folder):
    built = sr.build_snapshot(subscriptions(400))
    assert sr.publish(built, folder) == 1
    opened = sr.Snapshot.open(folder)
    assert (opened.revision, str(opened.folder)) == (1, folder)
    assert matches(opened) == matches(built)
    assert opened.find(["s7", "none"]).tolist() == [7, -1]


def test_a_revision_is_never_written_twice(folder):
    snapshot = sr.build_snapshot(subscriptions(3), 5)
    sr.publish(snapshot, folder)
    with pytest.raises(SnapshotError, match="revision 5 is already published in s3://"):
        sr.publish(sr.build_snapshot(subscriptions(2), 5), folder)
    assert len(sr.Snapshot.open(folder)) == 3


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_after_a_change_a_reader_fetches_only_what_is_new(folder, monkeypatch, count):
    fetched = []
    download = ObjectStorage.download

    def counted(storage, key, path):
        download(storage, key, path)
        fetched.append(path.stat().st_size)

    monkeypatch.setattr(ObjectStorage, "download", counted)
    with sr.Publisher(folder) as publisher:
        publisher.apply(
            sr.Add(f"s{number}", selector) for number, (_, selector) in enumerate(subscriptions(count))
        )
        sr.Snapshot.open(folder)
        assert sum(fetched) > 20 * count
        fetched.clear()
        publisher.apply([sr.Replace("s7", "JMSType = 't2'")])
        changed = sr.Snapshot.open(folder)
    assert "s7" in matches(changed)[1]
    assert 0 < sum(fetched) < 100_000, "kilobytes"
    fetched.clear()
    sr.Snapshot.open(folder)
    assert fetched == []


READER = """
import random, sys
import selectroute as sr
folder, seed = sys.argv[1:]
chance = random.Random(seed)
for _ in range(60):
    revision = chance.randrange(1, 7)
    assert len(sr.Snapshot.open(folder, revision)) == 100 * revision
"""


def test_processes_that_share_a_cache_which_is_too_small_for_them_read_all_the_same(folder, monkeypatch):
    for revision in range(1, 7):
        sr.publish(sr.build_snapshot(subscriptions(100 * revision)), folder)
    monkeypatch.setenv("SELECTROUTE_CACHE_BYTES", "40000")
    commands = [[sys.executable, "-c", READER, folder, str(seed)] for seed in range(4)]
    readers = [subprocess.Popen(one, stderr=subprocess.PIPE, text=True) for one in commands]
    for one in readers:
        _, said = one.communicate(timeout=600)
        assert one.returncode == 0, said


def test_a_second_publisher_is_noticed(folder):
    first, second = sr.Publisher(folder), sr.Publisher(folder)
    first.apply([sr.Add("a", None)])
    with pytest.raises(SnapshotError, match="another publisher published revision"):
        second.apply([sr.Add("b", None)])


def test_what_nobody_needs_is_removed(folder, monkeypatch):
    monkeypatch.setattr(retention, "REMOTE_GRACE_SECONDS", 0)
    for count in range(1, 5):
        sr.publish(sr.build_snapshot(subscriptions(count)), folder)
    where = Location.of(folder)
    (where / "leases" / "q.json").put_json({"query": "q", "revision": 2})
    time.sleep(1.1)  # the store's times are whole seconds
    assert collect(folder, grace_seconds=0).revisions == (1,)
    assert retention.floor(where) == 2
    (where / "leases" / "q.json").delete()
    gone = collect(folder, keep=1, grace_seconds=0)
    assert (gone.revisions, revisions(folder)) == ((2, 3), [4])
    assert len(sr.Snapshot.open(folder)) == 4


def test_a_grace_is_kept_where_there_is_no_lock(folder):
    for count in range(1, 4):
        sr.publish(sr.build_snapshot(subscriptions(count)), folder)
    assert collect(folder, keep=1, grace_seconds=0).revisions == ()


def test_a_lease_on_what_is_being_removed_is_refused(folder):
    from selectroute.spark.columns.snapshot_ref import lease

    sr.publish(sr.build_snapshot(subscriptions(2)), folder)
    (Location.of(folder) / "_floor.json").put_json({"revision": 7})
    with pytest.raises(SnapshotError, match=r"revision 6 in s3://.* is being removed"):
        lease(Location.of(folder), "q", 6)
    lease(Location.of(folder), "q", 7)


def test_a_copy_that_was_damaged_is_named(folder, tmp_path):
    sr.publish(sr.build_snapshot(subscriptions(50)), folder)
    sr.Snapshot.open(folder)
    copies = [one for one in (tmp_path / "cache").rglob("*") if one.is_file() and not one.suffix]
    assert len(copies) == 2
    for one in copies:
        data = bytearray(one.read_bytes())
        data[len(data) // 2] ^= 1
        one.write_bytes(data)
    assert len(sr.Snapshot.open(folder)) == 50, "it is downloaded again"
