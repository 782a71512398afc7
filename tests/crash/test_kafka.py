"""A short run of the killed stream of Kafka's records, and that it would find a fault."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.support.components import BROKER

pytestmark = [pytest.mark.nightly, *BROKER]


def test_a_killed_stream_of_records_loses_and_repeats_nothing_and_a_fault_would_be_found(kafka, tmp_path):
    from tests.crash.programs.kafka import KILLS, Killed
    from tests.crash.programs.kafka_check import check
    from tests.crash.programs.kafka_flow import Flow

    home = tmp_path / "stream"
    home.mkdir()
    flow = Flow(kafka, home, seed=3)
    killed = Killed(flow, home)
    # Sent before it is killed at the first of these, and sent again.
    counts = killed.run_cycles([("sent", "before"), ("rename", "before"), None])
    assert [counts[name] for name in KILLS] == [1, 2]
    assert counts["records"] >= 600 and counts["deliveries"] > 500 and counts["got from the queue"] > 10
    assert counts["repeats left out"] > 0

    lines = flow.journal.read_bytes().splitlines(keepends=True)
    flow.journal.write_bytes(b"".join(lines[1:]))
    with pytest.raises(AssertionError, match="queue: 1 lost"):
        check(flow, killed.output)
    flow.journal.write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(AssertionError, match="queue: 1 twice"):
        check(flow, killed.output)
    flow.journal.write_bytes(b"".join(lines))
    again = kafka.records(flow.topics[1])[0]
    own = [(name, value) for name, value in again.headers() if name != "selectroute-batch"]
    kafka.produce(flow.topics[1], [(0, again.key(), again.value(), own)])
    with pytest.raises(AssertionError, match="twice"):
        check(flow, killed.output)


def test_a_stream_that_is_killed_with_two_batches_committed_and_not_published_sends_both(kafka, tmp_path):
    from tests.crash.programs.failpoint import AFTER, BEFORE, BESIDE
    from tests.crash.programs.kafka import Killed
    from tests.crash.programs.kafka_flow import Flow

    home = tmp_path / "stream"
    home.mkdir()
    counts = Killed(Flow(kafka, home, seed=4, has_queue=False), home).run_cycles(
        [(BESIDE, BEFORE), (BESIDE, AFTER)]
    )
    assert counts["left 2 committed batches to publish"] == 2
    assert counts["kept of topics"] > 500
