from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")


from selectroute.spark.sources.files.splits import plan


@pytest.fixture(autouse=True)
def small_splits(monkeypatch):
    monkeypatch.setattr("selectroute.spark.sources.files.splits._SMALLEST_SPLIT", 40)
    monkeypatch.setattr("selectroute.spark.sources.files.splits._BLOCK", 64)


def splits_of(tasks, path):
    return sorted((s for task in tasks for s in task if s.path == str(path)), key=lambda s: s.first_row)


def check_lines(path: Path, tasks: int) -> int:
    data = path.read_bytes()
    splits = splits_of(plan([path], path.parent, "json", tasks), path)
    assert b"".join(data[s.start : s.stop] for s in splits) == data
    for split in splits:
        assert split.first_row == data[: split.start].count(b"\n")
        assert split.start == 0 or data[split.start - 1 : split.start] == b"\n"
    return len(splits)


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(st.integers(0, 90), max_size=40), tasks=st.integers(1, 4), ends=st.booleans())
def test_json_is_cut_between_lines_with_exact_line_numbers(tmp_path_factory, lines, tasks, ends):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(b"\n".join(b"x" * length for length in lines) + (b"\n" if ends else b""))
    check_lines(path, tasks)


def test_a_large_json_file_gives_every_task_something_and_a_long_line_stays_whole(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 1000)
    assert check_lines(path, 2) == 1
    path.write_bytes(b'{"a": 1}\n' * 500)
    assert check_lines(path, 2) == 8
    assert all(plan([path], tmp_path, "auto", 2))


def test_parquet_is_cut_between_row_groups(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), path, row_group_size=90)
    splits = splits_of(plan([path], tmp_path, "auto", 2), path)
    assert len(splits) > 2
    assert [group for split in splits for group in split.row_groups] == list(range(12))
    row = 0
    for split in splits:
        assert split.first_row == row
        row += split.rows
    assert row == 1000


def test_what_cannot_be_opened_is_one_unreadable_split(tmp_path):
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("hello")
    paths = [*tmp_path.iterdir(), tmp_path / "gone.jsonl"]
    reasons = {s.source: s.reason for task in plan(paths, tmp_path, "auto", 3) for s in task}
    unreadable = dict.fromkeys(("torn.parquet", "empty.parquet", "gone.jsonl"), "unreadable-file")
    assert reasons == unreadable | {"notes.txt": "unknown-format"}
    assert plan([], tmp_path, "auto", 2) == []


def test_the_same_files_in_any_order_give_the_same_plan(tmp_path):
    for name in "abcde":
        (tmp_path / f"{name}.jsonl").write_bytes(b"{}\n" * 50)
    paths = list(tmp_path.iterdir())
    assert plan(paths, tmp_path, "auto", 2) == plan(reversed(paths), tmp_path, "auto", 2)
