"""What an earlier release had staged for Kafka is sent by this one, once it starts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
pytest.importorskip("kafka.net.manager", reason="kafka-python is not installed (the extra `kafka`)")

from selectroute.durable import disk
from selectroute.kafka.client.wire import Wire
from selectroute.spark.senders.staged_records import StagedRecords
from selectroute.spark.sinks.schemas import HEADERS
from tests.spark.kafka_world import headers_of
from tests.spark.published import DELIVERY_LIST
from tests.support.components import BROKER

pytestmark = BROKER


def staged(folder: Path, *deliveries: tuple[str, str, int]) -> dict[str, object]:
    """Write a staged file as the release before did; return its description in the commit."""
    path = folder / "outgoing-kafka" / "part-00002-0123abcd.parquet"
    path.parent.mkdir()
    lists = [
        [dict(zip(("destination", "subscription", "partition"), one, strict=True)) for one in deliveries]
    ]
    table = pa.table(
        {
            "source": pa.array(["in"]).dictionary_encode(),
            "partition": pa.array([3], pa.int32()),
            "offset": pa.array([7], pa.int64()),
            "key": pa.array([b"k"]),
            "value": pa.array([b"v"], pa.large_binary()),
            "headers": pa.array([[{"key": "own", "value": b"1"}]], HEADERS),
            "deliveries": pa.array(lists, DELIVERY_LIST),
            "first": pa.array([40], pa.int64()),
        }
    )
    pq.write_table(table, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"path": f"outgoing-kafka/{path.name}", "rows": 1, "sha256": digest}


def test_staged_records_are_sent_as_the_release_before_would_have_and_not_again(kafka, tmp_path):
    out = kafka.create("staged-records", 2)
    file = staged(tmp_path, (out, "a", 1), (out, "b", 0))
    with Wire(kafka.address) as wire:
        topics = SimpleNamespace(patient_name=wire.cluster_id, patient=lambda call: call(), wire=lambda: wire)
        outgoing = {"job": "job", "cluster": wire.cluster_id(), "deliveries": 2, "files": [file]}
        for _ in range(2):
            assert StagedRecords(topics).send(-2, 5, outgoing, tmp_path) == []
    found = {record.partition(): record for record in kafka.records(out)}
    assert len(kafka.records(out)) == 2 and (found[1].key(), found[1].value()) == (b"k", b"v")
    assert headers_of(found[1]) == {
        "own": "1",
        "selectroute-subscription": "a",
        "selectroute-delivery-id": "in/3/7/a",
        "selectroute-revision": "5",
        "selectroute-batch": "job/-2/2/40",
    }
    assert headers_of(found[0])["selectroute-batch"] == "job/-2/2/41"
    assert disk.read_json(tmp_path / "sent-kafka.json") == {"batch": -2, "deliveries": 2, "refused": {}}
