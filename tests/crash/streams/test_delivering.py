"""A short run of the killed stream to queues, and that it would find a fault."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.crash.programs.streams import delivering
from tests.support.components import after_first

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("table_format", after_first(pytest.mark.nightly, "parquet", "delta"))
def test_a_stream_to_queues_that_is_killed_delivers_each_message_once(tmp_path, table_format):
    counts = delivering.run(tmp_path, seed=1, kills=4, table_format=table_format)
    assert counts["kills"] == 4
    assert counts["deliveries"] > 2_000


@pytest.mark.nightly
def test_what_a_full_queue_does_not_take_is_got_or_a_dead_letter_and_never_both(tmp_path):
    counts = delivering.run(tmp_path, seed=2, kills=6, waits=(0.02,))
    assert counts["kills"] == 6
    assert counts["deliveries"] > 100 and counts["dead letters of a full queue"] > 100


@pytest.mark.parametrize("fault", ["twice", "lost"])
def test_a_fault_is_found(tmp_path, monkeypatch, fault):
    monkeypatch.setattr(delivering, "FILES", 1)
    queues = delivering.prepare(tmp_path / "home", f"sqlite:///{tmp_path}/queues.db", Random(1))
    queues.publish(2, all=("n < 30", delivering.A))
    queues.router().route(0, [queues.world.input / "00.jsonl"], "q")
    got = list(queues.ids("A"))
    journal = tmp_path / "journal"

    def written(ids):
        journal.write_text("".join(json.dumps({"delivery_id": one}) + "\n" for one in ids))
        return [journal]

    assert delivering.check(queues, written(got))["deliveries"] == 30
    with pytest.raises(AssertionError, match=fault):
        delivering.check(queues, written([*got, got[0]] if fault == "twice" else got[1:]))
    assert set(Counter(got).values()) == {1}
