"""A short run of the killed stream of Kafka's records, and that it would find a fault."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.components import KAFKA

pytestmark = [pytest.mark.spark, *KAFKA]


def test_a_killed_stream_of_records_loses_and_repeats_nothing_and_a_fault_would_be_found(kafka, tmp_path):
    from tests.crash.kafka import KILLS, Killed
    from tests.crash.kafka_check import check

    home = tmp_path / "stream"
    home.mkdir()
    killed = Killed(kafka, home, seed=3)
    # Sent before it is killed at the first of these, and sent again.
    counts = killed.run_cycles([("sent", "before"), ("rename", "before"), None])
    assert [counts[name] for name in KILLS] == [1, 2]
    assert counts["records"] >= 600 and counts["deliveries"] > 500 and counts["got from the queue"] > 10
    assert counts["repeats left out"] > 0

    lines = killed.journal.read_bytes().splitlines(keepends=True)
    killed.journal.write_bytes(b"".join(lines[1:]))
    with pytest.raises(AssertionError, match="queue: 1 lost"):
        check(killed)
    killed.journal.write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(AssertionError, match="queue: 1 twice"):
        check(killed)
    killed.journal.write_bytes(b"".join(lines))
    again = kafka.records(killed.topics[1])[0]
    own = [(name, value) for name, value in again.headers() if name != "selectroute-batch"]
    kafka.produce(killed.topics[1], [(0, again.key(), again.value(), own)])
    with pytest.raises(AssertionError, match="twice"):
        check(killed)
