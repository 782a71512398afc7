"""A short run of the killed stream of Kafka's records, and that it would find a fault."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.support.components import BROKER

pytestmark = [pytest.mark.nightly, *BROKER]


def test_a_killed_stream_of_records_loses_and_repeats_nothing_and_a_fault_would_be_found(kafka, tmp_path):
    from tests.crash.programs.streams.kafka import Killed
    from tests.crash.programs.streams.kafka_flow import Flow
    from tests.crash.programs.streams.killed import KILLS

    flow = Flow(kafka, tmp_path, seed=3)
    killed = Killed(flow, tmp_path)
    # Sent in part before it is killed at the first two of these; the rest is sent by the next start.
    counts = killed.run([("token", "before"), ("end", "after"), ("publish", "before"), None])
    assert [counts[name] for name in KILLS] == [1, 3]
    assert counts["records"] >= 600 and counts["deliveries"] > 500 and counts["got from the queue"] > 10
    assert counts["of aborted transactions"] > 0

    lines = flow.journal.read_bytes().splitlines(keepends=True)
    flow.journal.write_bytes(b"".join(lines[1:]))
    with pytest.raises(AssertionError, match="queue: 1 lost"):
        flow.check(killed.output)
    flow.journal.write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(AssertionError, match="queue: 1 twice"):
        flow.check(killed.output)
    flow.journal.write_bytes(b"".join(lines))
    again = kafka.records(flow.topics[1])[0]
    kafka.produce(flow.topics[1], [(0, again.key(), again.value(), again.headers())])
    with pytest.raises(AssertionError, match="twice"):
        flow.check(killed.output)
