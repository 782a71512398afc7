"""A stream whose records have Avro bodies: unknown ids, and a registry that does not answer."""

from __future__ import annotations

import threading
import time
from io import BytesIO
from typing import Any

import pytest

from selectroute.kafka import KafkaBinding, SchemaRegistry
from selectroute.spark import KafkaInput
from selectroute.spark.audit.audit import audit
from selectroute.spark.job_administration import JobFolder
from selectroute.spark.replay.request import ReplayFilterSpec
from selectroute.storage import Location
from tests.spark.storages import ON_EVERY_STORAGE
from tests.support.components import KAFKA
from tests.support.replays import make_request
from tests.support.servers.schema_registry import RegistryServer

pytestmark = [pytest.mark.spark, *KAFKA]

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "price", "type": "double"}]}
LATER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "city", "type": "string"}, {"name": "price", "type": ["null", "double"]}],
}


def body(id: int, schema: Any, **datum: Any) -> bytes:
    fastavro = pytest.importorskip("fastavro")
    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), datum)
    return b"\0" + id.to_bytes(4, "big") + written.getvalue()


def reading(pipe: Any, server: RegistryServer, on_missing: str) -> KafkaInput:
    registry = SchemaRegistry(server.url, {"max.retries": "0"}, on_missing)
    binding = KafkaBinding.of(["price:double=$.price"])
    return KafkaInput(pipe.cluster, (pipe.name,), binding=binding, schemas=registry)


@ON_EVERY_STORAGE
def test_schemas_change_within_a_batch_and_one_that_is_unknown_is_replayed_when_it_is_known(pipe):
    to = pipe.broker.create(pipe.name + "-to", 1)
    pipe.publish(1, dear=("price > 10", to))
    with RegistryServer() as server:
        server.add(7, ORDER)
        server.add(8, LATER)
        bodies = [body(7, ORDER, price=20.0), body(8, LATER, city="Rome", price=30.0)]
        bodies += [body(9, ORDER, price=40.0), body(8, LATER, city="Rome", price=None)]
        bodies += [b'{"price": 50}', b"\0\0\0"]
        pipe.broker.produce(pipe.name, [(0, None, one, []) for one in bodies])
        (report,) = pipe.run(input=reading(pipe, server, "dead-letter"))
        assert pipe.delivered() == {(0, 0, "dear"): 1, (0, 1, "dear"): 1, (0, 4, "dear"): 1}
        assert report.counts.reasons == {"unknown-schema": 1} and report.counts.unrouted == 2
        (letter,) = pipe.world.rows("dead-letters")
        assert (letter["stage"], letter["offset"], letter["raw"]) == ("read", 2, bodies[2])
        assert "the schema with id 9" in letter["message"]
        server.add(9, ORDER)
        time.sleep(1.5)  # an id that was unknown is asked for again after a second
        make_request(pipe.world.output, ReplayFilterSpec())
        (again,) = pipe.run(input=reading(pipe, server, "dead-letter"))
        assert (again.kind, again.counts.routed) == ("replay", 1)
    assert {record.value() for record in pipe.broker.records(to)} == {bodies[i] for i in (0, 1, 2, 4)}
    assert audit(pipe.world.output).findings == []
    noted = reading(pipe, server, "dead-letter").binding.to_dict() | {"schemas": True}
    assert JobFolder(pipe.world.output).binding() == noted


@ON_EVERY_STORAGE
def test_a_batch_that_is_repeated_decides_on_a_schema_as_before(pipe):
    to = pipe.broker.create(pipe.name + "-to", 1)
    pipe.publish(1, dear=("price > 10", to))

    with RegistryServer() as server:
        server.add(7, ORDER)
        bodies = [body(7, ORDER, price=20.0), body(9, ORDER, price=40.0)]
        pipe.broker.produce(pipe.name, [(0, None, one, []) for one in bodies])
        pipe.run_killed(input=reading(pipe, server, "dead-letter"))
        server.add(9, ORDER)
        time.sleep(1.5)  # an id that was unknown is asked for again after a second
        (report,) = pipe.run(input=reading(pipe, server, "dead-letter"))
    assert (report.counts.sent, report.counts.reasons) == (1, {"unknown-schema": 1})
    assert [record.value() for record in pipe.broker.records(to)] == bodies[:1]
    noted = Location.of(pipe.world.output / "pins").entries(deep=True)
    assert not [one.key for one in noted if ".schemas" in one.key]


@pytest.mark.nightly
def test_a_stream_waits_for_a_registry_that_does_not_answer(pipe):
    pipe.publish(1, dear="price > 10")
    with RegistryServer() as server:
        server.add(70, ORDER)
        server.status = 503

        def recover() -> None:
            while not server.requests:
                time.sleep(0.05)
            server.status = None

        pipe.broker.produce(pipe.name, [(n, None, body(70, ORDER, price=20.0), []) for n in range(3)])
        threading.Thread(target=recover, daemon=True).start()
        (report,) = pipe.run(input=reading(pipe, server, "wait"))
        assert len(server.requests) > 1
    assert (report.counts.routed, report.counts.dead_lettered) == (3, 0)
