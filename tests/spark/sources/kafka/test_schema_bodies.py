"""Records whose bodies were written with a schema registry, read in columns as the reference reads each."""

import json
import random
from collections import Counter
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("fastavro")
pytest.importorskip("confluent_kafka.schema_registry.avro")

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import selectroute as sr
from selectroute.arrays import tables as t
from selectroute.kafka import KafkaBinding, Record, RecordError, SchemaRegistry
from selectroute.kafka.record import message_id, message_of
from selectroute.kafka.schemas import registry as schema_registry
from selectroute.kafka.schemas.registry import Schemas, SchemaUnavailableError
from selectroute.selector.values import UNSUPPORTED
from selectroute.spark.columns.snapshot_ref import SnapshotRef
from selectroute.spark.job import Unrouted
from selectroute.spark.messages import DeadLetterBatch
from selectroute.spark.sources.kafka.convert import FullRecords, RecordConverter
from selectroute.spark.sources.kafka.reader import RecordReader
from selectroute.spark.tables.parquet_file import OutputFiles
from selectroute.spark.task.task import TaskSettings, judge
from tests.spark.kafka_rows import all_of, rows
from tests.support.servers.schema_registry import GUID, RegistryServer
from tests.unit.kafka.schemas.test_protobuf import Order

MOST = 1 << 20
BINDING = KafkaBinding.of(
    [
        *("price:double=$.price", "count:int=$.count", "city=$.to.city", "color=$.color"),
        *("tag=$.tags[0]", "weight:int", "@id=$.id"),
    ]
)
ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": ["null", "string"]}]}
V1 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "count", "type": "int"},
        {"name": "to", "type": ["null", ADDRESS]},
    ],
}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "count", "type": "long"},
        {"name": "unread", "type": {"type": "map", "values": "bytes"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "price", "type": ["null", MONEY]},
        {"name": "id", "type": "string"},
    ],
}


def value(headers=None):
    return SerializationContext("t", MessageField.VALUE, headers)


class World:
    """Serializers of one mock registry."""

    def __init__(self):
        self.client = SchemaRegistryClient.new_client({"url": "mock://bodies"})
        own = {"auto.register.schemas": True, "normalize.schemas": False}
        in_header = {**own, "schema.id.serializer": header_schema_id_serializer}
        self.v1 = AvroSerializer(self.client, json.dumps(V1), conf=own)
        self.v2 = AvroSerializer(self.client, json.dumps(V2), conf=own)
        self.v2_header = AvroSerializer(self.client, json.dumps(V2), conf=in_header)
        self.protobuf = ProtobufSerializer(Order, self.client, {"use.deprecated.format": False})
        self.json = JSONSerializer('{"title": "Order", "type": "object"}', self.client)

    def schemas(self, on_missing="wait"):
        return Schemas(self.client, on_missing)


@pytest.fixture(scope="module")
def world():
    return World()


def order(world, id="7", price=2.5, count=3, city="Rome"):
    return world.v1({"id": id, "price": price, "count": count, "to": city and {"city": city}}, value())


NAMES = ("price", "count", "city", "color", "tag")


def test_bodies_of_each_format_and_of_plain_json_may_follow_one_another(world):
    headers = []
    two = {"color": "RED", "count": 4, "unread": {}, "tags": ["a"], "price": None, "id": "8"}
    in_header = world.v2_header(two, value(headers))
    given = {"price": 9.0, "count": 5, "to": {"city": "Bonn"}}
    as_json = {"price": 1, "tags": ["b"], "color": "x"}
    binding = replace(
        BINDING, bound={**BINDING.bound, "kind": KafkaBinding.of(["kind=$.kind"]).bound["kind"]}
    )
    records = [
        Record("t", 0, 0, value=order(world)),
        Record("t", 0, 1, value=world.v2(two, value())),
        Record("t", 0, 2, value=in_header, headers=headers),
        Record("t", 0, 3, value=world.json(given, value())),
        Record("t", 0, 4, value=json.dumps(as_json).encode()),
        Record("t", 0, 5, value=None),
        Record("t", 0, 6, value=world.protobuf(Order(kind=7), value())),
        Record("t", 0, 7, value=order(world, city=None)),
    ]
    messages, dead = all_of(RecordConverter((*NAMES, "kind"), binding, MOST, world.schemas()), rows(records))
    assert not dead
    found = {row: tuple(one.get(name) for name in (*NAMES, "kind")) for row, one in messages.items()}
    assert found == {
        0: (2.5, 3, "Rome", None, None, None),
        1: (None, 4, None, "RED", "a", None),
        2: (None, 4, None, "RED", "a", None),
        3: (9.0, 5, "Bonn", None, None, None),
        4: (1.0, None, None, "x", "b", None),
        5: (None,) * 6,
        6: (None, None, None, None, None, "EXPRESS"),
        7: (2.5, 3, None, None, None, None),
    }


def test_a_body_that_is_not_of_its_schema_has_unlike_values_and_is_no_dead_letter(world):
    broken = order(world)[:8]
    for body, said in (
        (broken, "not Avro of its schema"),
        (b"\0\0\0", "ends within its schema id"),
        (b"\1" * 5, "ends within its schema id"),
        (order(world, count=0)[:5] + b"\2\xff" + bytes(20), None),
        (b"{", "not valid JSON"),
    ):
        reader = RecordConverter(("count", "weight"), BINDING, MOST, world.schemas())
        records = [
            Record("t", 0, 0, value=body, headers=[("weight", b"1")]),
            Record("t", 0, 1, value=order(world)),
        ]
        messages, dead = all_of(reader, rows(records))
        assert not dead and messages[1]["count"]["bits"] == 3
        assert messages[0]["count"]["tag"] == t.UNSUPPORTED and messages[0]["weight"] == 1
        assert reader.unlike["count"].records == 1
        assert said is None or said in reader.unlike["count"].problem
        reference = message_of(records[0], BINDING, ("count", "weight"), world.schemas())
        assert reference.value("count") is UNSUPPORTED


def test_an_unknown_schema_is_a_dead_letter_with_the_id_if_selectors_read_the_body(world):
    records = [
        Record("t", 0, 0, value=b"\0\0\0\x03\xe7rest", headers=[("weight", b"1")]),
        Record("t", 0, 1, value=order(world)),
        Record("t", 0, 2, value=b"\0\0\0\x03\xe7", headers=[]),
        Record("t", 0, 3, value=b"x", headers=[("__value_schema_id", b"\1" + bytes(16))]),
    ]
    names = ("count", "weight")
    schemas = world.schemas("dead-letter")
    messages, dead = all_of(RecordConverter(names, BINDING, MOST, schemas), rows(records))
    assert list(messages) == [1] and sorted(dead) == [0, 2, 3]
    assert dead[0] is dead[2] and dead[0].rows.tolist() == [0, 2]
    assert (dead[0].stage, dead[0].reason) == ("read", "unknown-schema")
    assert "the schema with id 999" in dead[0].message
    assert "the schema with GUID 00000000-0000-0000-0000-000000000000" in dead[3].message
    for one in (records[0], records[3]):
        with pytest.raises(RecordError) as error:
            message_of(one, BINDING, names, schemas)
        assert error.value.reason == "unknown-schema"
    by_header = KafkaBinding.of(["weight:int", "count:int=$.count"])
    messages, dead = all_of(RecordConverter(("weight",), by_header, MOST, schemas), rows(records))
    assert len(messages) == 4 and not dead  # nothing reads a body


def test_a_batch_with_an_unknown_schema_is_not_read_while_the_job_waits_and_can_be_read_again(world):
    client = SchemaRegistryClient.new_client({"url": "mock://later"})
    schemas = Schemas(client)
    reader = RecordConverter(("count",), BINDING, MOST, schemas)
    batch = rows([Record("t", 0, 0, value=b"{}"), Record("t", 0, 1, value=b"\0\0\0\0\1" + order(world)[5:])])
    for _ in range(2):
        with pytest.raises(SchemaUnavailableError, match="does not know the schema with id 1"):
            next(iter(reader.read(batch)))
    with pytest.raises(SchemaUnavailableError):
        message_of(Record("t", 0, 1, value=b"\0\0\0\0\1"), BINDING, ("count",), schemas)
    client.register_schema("t-value", Schema(json.dumps(V1)))
    schemas._failures.clear()
    messages, _ = all_of(reader, batch)
    assert messages[1]["count"] == 3


def test_a_registry_that_is_down_holds_up_only_schemas_that_are_not_known(world):
    with RegistryServer() as server:
        server.add(7, V1)
        server.add(8, V2)
        registry = SchemaRegistry(server.url, {"max.retries": "0"}, "dead-letter")
        schemas = Schemas(registry.client(), registry.on_missing, registry.url)
        reader = RecordConverter(("count",), BINDING, MOST, schemas)
        known = order(world)[5:]
        records = [Record("t", 0, i, value=bytes([0, 0, 0, 0, 7 + i % 2]) + known) for i in range(6)]
        assert len(all_of(reader, rows(records[:1]))[0]) == 1
        server.stop()
        messages, dead = all_of(reader, rows(records))
        assert sorted(messages) == [0, 2, 4] and messages[4]["count"] == 3
        assert {one.reason for one in dead.values()} == {"registry-unreachable"}
        assert "the schema with id 8 can't be fetched" in dead[1].message and dead[1].count == 3


def test_a_schema_that_is_not_available_ends_the_attempt_of_a_task(world, monkeypatch):
    monkeypatch.setattr(schema_registry, "_PAUSE", 0.0)
    index = sr.Index()
    index.add("s", "count = 3")
    snapshot = index.freeze()
    with RegistryServer() as server:
        server.add(7, V1)
        server.stop()
        registry = SchemaRegistry(server.url, {"max.retries": "0"})
        settings = TaskSettings(SnapshotRef("", 1, ""), OutputFiles({}), Unrouted(), MOST)
        batch = rows([Record("t", 0, 0, value=b"\1" + UUID(GUID.format(7)).bytes + order(world)[5:])])
        with pytest.raises(schema_registry.SchemaUnavailableError, match="the schema with GUID 0000"):
            list(RecordReader(iter([batch]), BINDING, registry, snapshot, settings, False).parts())
        server.start()
        (part,) = RecordReader(iter([batch]), BINDING, registry, snapshot, settings, False).parts()
    assert part.read.columns.column("count").to_pylist() == [3]


def test_full_messages_have_the_fields_of_bodies(world):
    schemas = world.schemas("dead-letter")
    batch = rows([Record("t", 0, 0, value=order(world)), Record("t", 0, 1, value=b"\0\0\0\xff\xff")])
    full = FullRecords(batch, BINDING, schemas)
    (message, problem) = full.take(np.arange(2)).messages(np.arange(2))
    assert message.value("count").value == 3 and message.value("city") == "Rome"
    assert message.body == order(world)
    assert "does not know the schema with id 65535" in problem


SELECTORS = [
    *("price > 2", "count = 3", "city LIKE 'R%'", "color = 'RED'", "tag IN ('a', 'b')", "weight > 0"),
    *("price IS NULL", "city IS NOT NULL AND count < 4", "NOT (color = 'RED')", "count BETWEEN 1 AND 5"),
]


def random_body(chance, world, headers):
    kind = chance.randrange(9)
    price = chance.choice([1.0, 2.5, float("nan"), float("inf")])
    count = chance.choice([1, 3, 4])
    two = {
        "color": chance.choice(["RED", "BLUE"]),
        "count": chance.choice([3, 2**40]),
        "unread": {"a": b"x"},
        "tags": chance.choice([[], ["a"], ["a", "c"]]),
        "price": None,
        "id": "8",
    }
    if kind < 2:
        return order(world, str(count), price, count, chance.choice([None, "Rome", "Bonn"]))
    if kind == 2:
        return world.v2(two, value())
    if kind == 3:
        return world.v2_header(two, value(headers))
    if kind == 4:
        return world.json({"price": count, "count": count, "to": {"city": "Rome"}, "id": "j"}, value())
    if kind == 5:
        return world.protobuf(Order(note="x"), value())
    if kind == 6:
        return chance.choice([None, b"", b"{", b'{"price": 2.5}', b'{"count": "x"}'])
    if kind == 7:
        return order(world)[: chance.randrange(1, 12)]
    return bytes([0, 0, 0, 0, chance.randrange(1, 9)]) + chance.randbytes(chance.randrange(12))


@pytest.mark.parametrize("seed", range(10))
def test_what_is_read_and_matched_is_what_the_reference_says_of_each_record(world, seed):
    chance = random.Random(seed)
    index = sr.Index()
    for i, text in enumerate(chance.sample(SELECTORS, chance.choice([1, 3, len(SELECTORS)]))):
        index.add(f"s{i}", text)
    snapshot = index.freeze()
    records = []
    for offset in range(150):
        headers = [("weight", b"1")] if chance.random() < 0.5 else []
        body = random_body(chance, world, headers)
        records.append(Record("t", offset // 40, offset, value=body, headers=headers))
    schemas = world.schemas("dead-letter")
    reader = RecordConverter(snapshot.reads, BINDING, MOST, schemas)
    seen = Counter()
    for found in reader.read(rows(records)):
        for part in found.parts:
            for offset in part.rows.tolist() if isinstance(part, DeadLetterBatch) else ():
                with pytest.raises(RecordError) as error:
                    message_of(records[offset], BINDING, snapshot.reads, schemas)
                assert (error.value.reason, error.value.problem) == (part.reason, part.message)
                seen["dead"] += 1
            if isinstance(part, DeadLetterBatch):
                continue
            assert part.ids.to_pylist() == [
                message_id(records[offset], BINDING, schemas) for offset in part.rows.tolist()
            ]
            ((_, matches),) = judge(snapshot, part)
            for offset, ids in zip(part.rows.tolist(), matches.ids().to_pylist(), strict=True):
                message = message_of(records[offset], BINDING, snapshot.reads, schemas)
                assert set(ids) == set(index.match(message)), records[offset]
                seen["kept"] += 1
    assert seen["kept"] + seen["dead"] == 150 and seen["kept"] > 80
