"""Snapshots of more subscriptions than a segment has: several segments, built and merged piece by piece."""

from __future__ import annotations

import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.index import changes as merge_module
from selectroute.index.changes import Add, Remove, merge_due, merged, merged_part
from selectroute.index.compile import build as build_module
from selectroute.index.invariants import verify_snapshot
from selectroute.index.publisher import Publisher
from selectroute.index.snapshot_files import revisions
from tests.unit.index.changing import live_ids

ROWS = 8
"""As many as a segment may have here."""


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(build_module, "SEGMENT_ROWS", ROWS)
    monkeypatch.setattr(merge_module, "SEGMENT_ROWS", ROWS)
    monkeypatch.setattr(merge_module, "FULL_ROWS", ROWS // 2)


def table(count, first=0, prefix="s"):
    numbers = range(first, first + count)
    return pa.table({"id": [f"{prefix}{n}" for n in numbers], "selector": [f"weight > {n}" for n in numbers]})


def sizes(snapshot):
    return [segment.rows for segment in snapshot.segments]


def matched(snapshot, weight):
    return sorted(snapshot.ids.take(snapshot.match(pa.table({"weight": [weight]})).ordinals).to_pylist())


@pytest.mark.parametrize(("count", "rows"), [(0, [0]), (8, [8]), (9, [8, 1]), (20, [8, 8, 4])])
def test_a_table_of_more_rows_becomes_several_segments(count, rows):
    snapshot = sr.build_snapshot(table(count), 3)
    verify_snapshot(snapshot)
    assert (sizes(snapshot), snapshot.revision) == (rows, 3)
    for weight in (0, 1, 9, 20):
        assert matched(snapshot, weight) == sorted(f"s{n}" for n in range(min(weight, count)))


def test_errors_name_the_row_of_the_whole_table():
    rows = table(20).to_pylist()
    rows[17]["selector"] = "weight >"
    rows[19]["selector"] = "= 3"
    with pytest.raises(sr.BuildError) as wrong:
        sr.build_snapshot(pa.Table.from_pylist(rows))
    assert (wrong.value.row, wrong.value.id, list(wrong.value.causes)) == (17, "s17", [17, 19])
    assert "(row 17)" in str(wrong.value)


def test_an_id_of_another_segment_is_refused():
    rows = table(20).to_pylist()
    rows[18]["id"], rows[13]["id"] = "s2", "s7"
    with pytest.raises(sr.BuildError, match=r"in row 13: .*'s7'"):
        sr.build_snapshot(pa.Table.from_pylist(rows))


def test_progress_counts_all_rows(monkeypatch):
    monkeypatch.setattr(build_module, "SEGMENT_ROWS", 10_000)
    told: list[int] = []
    sr.build_snapshot(table(30_000), progress=told.append)
    assert told == [10_000, 20_000, 30_000]


def test_full_segments_are_not_merged_until_a_quarter_is_dead():
    snapshot = sr.build_snapshot(table(24))
    for n in range(3):
        snapshot = snapshot.changed([Add(f"new{n}")])
    assert merge_due(snapshot) == 3, "the three small ones"
    snapshot = snapshot.changed([Remove(f"s{n}") for n in range(0, 16, 2)])
    assert merge_due(snapshot) == 0
    after = merged(snapshot, 0, merged_part(snapshot, 0))
    verify_snapshot(after)
    assert (sizes(after), after.dead) == ([4, 4, 8, 3], None)


class TestLoad:
    def test_parts_become_segments_of_one_revision(self, tmp_path):
        with Publisher(tmp_path) as publisher:
            assert publisher.load([table(10), [("x", "weight > 3")], table(8, 10)]) == 2
            assert publisher.load([]) == 2
            assert publisher.apply([Remove("s0")]) == 3
        assert revisions(tmp_path) == [1, 2, 3]
        loaded = sr.Snapshot.open(tmp_path, 2)
        verify_snapshot(loaded)
        assert sizes(loaded) == [8, 2, 1, 8]
        assert matched(loaded, 12) == sorted([*(f"s{n}" for n in range(12)), "x"])
        assert "s0" not in matched(sr.Snapshot.open(tmp_path), 12)

    def test_a_part_is_written_before_the_next_one_is_asked_for(self, tmp_path):
        written: list[int] = []

        def parts():
            for n in range(3):
                written.append(len(list((tmp_path / "segments").iterdir())))
                yield table(8, 8 * n)

        with Publisher(tmp_path) as publisher:
            publisher.load(parts())
        assert written == [1, 2, 3]

    @pytest.mark.parametrize(
        "wrong", [table(2, 7), table(1, prefix="old"), [("x", "weight >")], [("s1",)], [("y y", None)]]
    )
    def test_what_is_refused_leaves_the_folder_as_it_was(self, tmp_path, wrong):
        with Publisher(tmp_path) as publisher:
            publisher.apply([Add("old0")])
            with pytest.raises((sr.BuildError, ValueError)):
                publisher.load([table(8), wrong])
            assert (publisher.snapshot.revision, revisions(tmp_path)) == (2, [1, 2])
            assert publisher.load([table(8)]) == 3
        assert live_ids(sr.Snapshot.open(tmp_path)) == sorted(["old0", *(f"s{n}" for n in range(8))])

    def test_a_removed_id_may_come_again(self, tmp_path):
        with Publisher(tmp_path) as publisher:
            publisher.load([table(9)])
            publisher.apply([Remove("s3")])
            publisher.load([[("s3", "weight > 100")]])
        snapshot = sr.Snapshot.open(tmp_path)
        verify_snapshot(snapshot)
        assert matched(snapshot, 9) == sorted(f"s{n}" for n in range(9) if n != 3)
        assert "s3" in matched(snapshot, 101)

    def test_without_own_revisions_one_is_given(self, tmp_path):
        with Publisher(tmp_path, own_revisions=False) as publisher:
            with pytest.raises(ValueError, match="above 0"):
                publisher.load([table(1)])
            assert publisher.load([table(1)], 7) == 7
