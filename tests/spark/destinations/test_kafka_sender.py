"""What the sender tells Spark of a batch: the records that go out, in few words."""

from __future__ import annotations

import py4j.java_gateway
import pytest

from selectroute.spark.senders.kafka import _STAGED, _records

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def staged(spark, tmp_path):
    to = "named_struct('destination', 'out', 'subscription', '{}', 'partition', {})"
    row = f"""
        SELECT 'in' AS source, 3 AS partition, 7L AS offset, X'6b' AS key, X'76' AS value,
            CAST(NULL AS array<struct<key: string, value: binary>>) AS headers,
            array({to.format("it''s/a", 1)}, {to.format("b", 0)}) AS deliveries, 40L AS first
    """
    spark.sql(row).coalesce(1).write.parquet(str(tmp_path / "made"))
    [made] = (tmp_path / "made").glob("*.parquet")
    made.rename(tmp_path / "part-00012-0123abcd.parquet")
    return spark.read.schema(_STAGED).parquet(str(tmp_path / "part-00012-0123abcd.parquet"))


def test_each_delivery_is_a_record_that_says_which_it_is(staged):
    rows = _records(staged, {"job": "o'job\\\\"}, -2, 5).collect()
    told = [{one.key: bytes(one.value).decode() for one in row.headers} for row in rows]
    assert [(row.topic, row.partition, bytes(row.key), bytes(row.value)) for row in rows] == [
        ("out", 1, b"k", b"v"),
        ("out", 0, b"k", b"v"),
    ]
    assert told == [
        {
            "selectroute-subscription": id,
            "selectroute-delivery-id": f"in/3/7/{id}",
            "selectroute-revision": "5",
            "selectroute-batch": f"o'job\\\\/-2/12/{number}",
        }
        for id, number in (("it's/a", 40), ("b", 41))
    ]


def test_a_batch_is_described_in_few_calls_to_the_jvm(staged, monkeypatch):
    calls = []
    send = py4j.java_gateway.GatewayClient.send_command

    def counted(*given, **more):
        calls.append(given[1])
        return send(*given, **more)

    monkeypatch.setattr(py4j.java_gateway.GatewayClient, "send_command", counted)
    _records(staged, {"job": "job"}, 1, 1)
    assert 0 < len(calls) < 100  # made of `functions` and columns they were more than 400


def test_what_the_deliveries_of_a_message_have_in_common_is_computed_before_they_are_taken_apart(staged):
    plan = _records(staged, {"job": "job"}, 1, 1)._jdf.queryExecution().optimizedPlan().toString()
    of_delivery, of_message = plan.split("Generate posexplode")
    assert "concat_ws" in of_message
    assert "concat_ws" not in of_delivery
