"""What is removed of a snapshot folder, and what never is."""

import os

import pytest

import selectroute as sr
from selectroute.durable.disk import sealed
from selectroute.index.changes import Add, Remove
from selectroute.index.retention import Collected, collect
from selectroute.index.snapshot_files import published, revisions
from tests.support.merging import merge


def files(folder):
    return sorted(
        str(path.relative_to(folder)) for part in ("segments", "ids") for path in (folder / part).iterdir()
    )


@pytest.fixture
def folder(tmp_path):
    """Revisions 1 to 4: a base, two deltas, and a merge of all."""
    index = sr.Index()
    index.add("a", "x = 1")
    snapshot = published(index.freeze(), tmp_path)
    for change in (Add("b"), Remove("a")):
        snapshot = sr.Snapshot.of(published(snapshot.changed([change]), tmp_path))
    published(merge(snapshot), tmp_path)
    assert revisions(tmp_path) == [1, 2, 3, 4] and len(files(tmp_path)) == 8
    return tmp_path


def opens(folder, *numbers):
    return [len(sr.Snapshot.open(folder, number)) for number in numbers]


def test_files_that_a_kept_revision_names_stay(folder):
    assert collect(folder, keep=2, grace_seconds=0).revisions == (1, 2)
    assert revisions(folder) == [3, 4]
    assert len(files(folder)) == 8, "revision 3 is made of all segments but the merged one"
    assert opens(folder, 3, 4) == [1, 1]
    found = collect(folder, keep=1, grace_seconds=0)
    assert (found.revisions, found.files) == ((3,), 6) and found.bytes > 0
    assert len(files(folder)) == 2 and opens(folder, 4) == [1]
    assert collect(folder, keep=1, grace_seconds=0) == Collected((), 0, 0)


def test_what_a_lease_may_need_stays(folder):
    (folder / "leases").mkdir()
    for query, revision in (("q", 2), ("r", 4)):
        (folder / "leases" / f"{query}.json").write_text(sealed({"query": query, "revision": revision}))
    assert collect(folder, keep=1, grace_seconds=0).revisions == (1,)
    assert opens(folder, 2, 3, 4) == [2, 1, 1]


def test_what_was_the_newest_not_long_ago_stays(folder):
    assert collect(folder, keep=1).revisions == ()
    long_ago = 1_000_000
    for number in (1, 2, 3):
        os.utime(folder / f"manifest-{number}.json", (long_ago, long_ago))
    assert collect(folder, keep=1).revisions == (1, 2), "3 was the newest until 4 came just now"
    assert opens(folder, 3, 4) == [1, 1]


def test_files_of_a_crashed_publisher_go_when_they_are_old(folder):
    left = [folder / name for name in ("segments/9-x-base.arrow", "ids/9-x.arrow", ".manifest-9-x.tmp")]
    for path in left:
        path.write_bytes(b"half")
    collect(folder, keep=4)
    assert all(path.exists() for path in left)
    for path in left:
        os.utime(path, (1, 1))
    assert collect(folder, keep=4) == Collected((), 3, 12)
    assert not any(path.exists() for path in left)


def test_what_cannot_be_read_removes_nothing(folder):
    before = files(folder)
    (folder / "leases").mkdir()
    turned = sealed({"query": "q", "revision": 2}).replace('"revision": 2', '"revision": 4')
    for text in ("{", "{}", sealed({"revision": "2"}), "[]", turned):
        (folder / "leases" / "q.json").write_text(text)
        with pytest.raises(sr.SnapshotError, match="lease"):
            collect(folder, keep=1, grace_seconds=0)
    (folder / "leases" / "q.json").unlink()
    (folder / "manifest-4.json").write_text("{}")
    with pytest.raises(sr.SnapshotError, match=r"manifest-4.*damaged"):
        collect(folder, keep=1, grace_seconds=0)
    assert files(folder) == before and revisions(folder) == [1, 2, 3, 4]


def test_what_keeps_nothing_is_refused_and_without_revisions_nothing_is_done(folder, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    assert collect(empty) == Collected((), 0, 0) and list(empty.iterdir()) == []
    for wrong in ({"keep": 0}, {"grace_seconds": -1.0}, {"grace_seconds": float("nan")}):
        with pytest.raises(ValueError, match="keep must be at least 1"):
            collect(folder, **wrong)


@pytest.mark.parametrize("step", range(9))
def test_a_crash_between_two_removals_leaves_every_revision_whole(folder, step, monkeypatch):
    """A fault at each removal in turn: what is left opens, and the next run removes the rest."""
    left = [step]
    unlink = type(folder).unlink

    def failing(path, **options):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        unlink(path, **options)

    monkeypatch.setattr(type(folder), "unlink", failing)
    with pytest.raises(KeyboardInterrupt):
        collect(folder, keep=1, grace_seconds=0)
    monkeypatch.undo()
    opens(folder, *revisions(folder))
    collect(folder, keep=1, grace_seconds=0)
    assert revisions(folder) == [4] and len(files(folder)) == 2


def test_a_publisher_that_relied_on_removed_files_writes_them_again(folder):
    old = sr.Snapshot.open(folder, 3)
    collect(folder, keep=1, grace_seconds=0)
    assert published(old.changed([Add("c")]), folder).revision == 5
    assert opens(folder, 5) == [2]
