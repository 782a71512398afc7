"""A short run of damaged files, and that a wrong answer would be found."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.crash.programs.files import damage
from tests.support.components import after_first

pytestmark = pytest.mark.slow


def test_a_damaged_registry_or_snapshot_is_named_or_answers_as_it_did(tmp_path):
    found = damage.run_registry(tmp_path, 6, random.Random(1))
    assert found["manifest"]["named"] and found["segments"]["named"] and found["ids"]["named"]
    assert found["registry.json"]["named"]


@pytest.mark.parametrize("table_format", after_first(pytest.mark.nightly, "parquet", "delta"))
def test_a_damaged_file_of_the_stream_is_named_or_changes_nothing(tmp_path, table_format):
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from tests.crash.programs.files.damage_stream import run_stream

    found = run_stream(tmp_path / "stream", 8, random.Random(1), table_format)
    assert sum(sum(counts.values()) for counts in found.values()) > 100


def test_a_wrong_answer_is_found_and_the_folder_is_put_back(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("right")

    def use():
        assert (folder / "file").read_text() == "right", "another answer"
        return False

    with pytest.raises(AssertionError, match=r"file, bit . of byte .: AssertionError: another answer"):
        damage.each_damage(folder, folder / "file", 1, random.Random(1), use)
    assert (folder / "file").read_text() == "right"
