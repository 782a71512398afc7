"""Schemas of a registry: known, unknown, and out of reach, over HTTP on loopback."""

import json
import time

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("confluent_kafka.schema_registry")

from selectroute.kafka import SchemaRegistry
from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas import registry
from selectroute.kafka.schemas.registry import (
    UNKNOWN,
    UNREACHABLE,
    Schemas,
    SchemaUnavailableError,
    open_schemas,
)
from tests.support.servers.schema_registry import GUID, RegistryServer

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}
PATHS = (("n",),)
FAST = {"max.retries": "0", "timeout": "5"}


@pytest.fixture
def server():
    with RegistryServer() as one:
        yield one


@pytest.fixture
def schemas(server, monkeypatch):
    monkeypatch.setattr(registry, "_PAUSE", 0.05)
    return Schemas(SchemaRegistry(server.url, FAST).client(), where=server.url)


def test_a_schema_is_fetched_once_and_compiled_once_for_its_paths(server, schemas):
    server.add(7, ORDER)
    decode = schemas.decoder(7, PATHS)
    assert decode(b"\x0e", None) == [7]
    assert schemas.decoder(7, PATHS) is decode
    assert schemas.decoder(7, (("n",), ("m",)))(b"\x0e", None) == [7, None]
    assert [path for path, _ in server.requests] == ["/schemas/ids/7?format=serialized"]
    assert schemas.decoder(GUID.format(7), PATHS)(b"\x0e", None) == [7]
    assert server.requests[1][0] == f"/schemas/guids/{GUID.format(7)}?format=serialized"


def test_an_id_that_the_registry_does_not_know_is_asked_for_again_after_a_moment(server, schemas):
    server.add(7, ORDER)
    for _ in range(5):
        with pytest.raises(SchemaUnavailableError, match="does not know the schema with id 8") as error:
            schemas.decoder(8, PATHS)
        assert (error.value.reason, error.value.id) == (UNKNOWN, 8)
    assert len(server.requests) == 1
    assert schemas.decoder(7, PATHS)  # others are not affected
    server.add(8, ORDER)
    time.sleep(0.06)
    assert schemas.decoder(8, PATHS)(b"\x10", None) == [8]
    with pytest.raises(SchemaUnavailableError, match="the schema with GUID 0000"):
        schemas.decoder(GUID.format(9), PATHS)


def test_known_schemas_go_on_while_the_registry_is_out_of_reach(server, schemas):
    server.add(7, ORDER)
    server.add(8, ORDER)
    schemas.decoder(7, PATHS)
    server.stop()
    assert schemas.decoder(7, PATHS)(b"\x0e", None) == [7]
    assert schemas.decoder(7, ())(b"\x0e", None) == []  # compiled anew, without a request
    for id in (8, 9, GUID.format(7)):
        with pytest.raises(SchemaUnavailableError, match="can't be fetched") as error:
            schemas.decoder(id, PATHS)
        assert error.value.reason == UNREACHABLE and "ConnectError" in str(error.value)
    server.start()
    time.sleep(0.06)
    assert schemas.decoder(8, PATHS)(b"\x0e", None) == [7]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b'{"error_code": 401, "message": "me:secret"}', "HTTP 401"),
        (403, b"secret", "HTTP 403"),
        (404, b"<html>secret</html>", "HTTP 404"),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}', "HTTP 404"),
        (500, b'{"error_code": 50001, "message": "secret"}', "HTTP 500"),
        (302, b"", "HTTP 302"),
        (200, b"<html>secret</html>", "JSONDecodeError"),
        (200, b"[]", "Error"),
        (200, b'"secret"', "Error"),
    ],
)
def test_a_strange_answer_is_a_registry_that_does_not_answer(server, schemas, status, body, said):
    server.status, server.body = status, body
    with pytest.raises(SchemaUnavailableError, match=said) as error:
        schemas.decoder(7, PATHS)
    assert error.value.reason == UNREACHABLE and server.url in str(error.value)
    assert "secret" not in str(error.value) and len(str(error.value)) < 400


def test_a_registry_that_is_out_of_reach_is_not_asked_for_every_id(server, schemas):
    server.status = 503
    for id in range(50):
        with pytest.raises(SchemaUnavailableError):
            schemas.decoder(id, PATHS)
    assert len(server.requests) < 25


@pytest.mark.parametrize(
    ("schema", "type", "said"),
    [
        ("{", "AVRO", "it is not valid Avro"),
        ("{}", "XML", "its type is 'XML', not AVRO, PROTOBUF or JSON"),
        ("message A {}", "PROTOBUF", "format=serialized"),
        ('"' + "x" * registry.MAX_SCHEMA_BYTES, "AVRO", "larger than 4,194,304 bytes"),
    ],
)
def test_a_schema_that_can_not_be_used_is_an_error_of_its_records(server, schemas, schema, type, said):
    server.add(7, schema, type)
    for _ in range(3):
        with pytest.raises(RecordError, match=said) as error:
            schemas.decoder(7, PATHS)
        assert (error.value.stage, error.value.reason) == ("parse", "invalid-schema")
        assert str(error.value).startswith("the schema with id 7 can't be used")
    assert len(server.requests) == 1


def refers(name):
    return {"name": name, "subject": f"{name}-value", "version": 1}


def test_references_are_fetched_each_once(server, schemas):
    def named(name, type_):
        return {"type": "record", "name": name, "fields": [{"name": "n", "type": type_}]}

    server.add(1, named("A", "int"))
    server.add(2, named("B", "A"), references=[refers("A")])
    server.add(3, named("C", "B"), references=[refers("B"), refers("A")])
    server.versions = {("A-value", 1): 1, ("B-value", 1): 2}
    assert schemas.decoder(3, (("n", "n", "n"),))(b"\x0e", None) == [7]
    assert sorted(path.partition("?")[0] for path, _ in server.requests) == [
        *("/schemas/ids/3", "/subjects/A-value/versions/1", "/subjects/B-value/versions/1"),
    ]
    server.add(4, named("D", "gone.E"), references=[refers("E")])
    with pytest.raises(SchemaUnavailableError) as error:
        schemas.decoder(4, PATHS)
    assert error.value.reason == UNKNOWN


def test_references_in_a_circle_and_too_many_are_an_error(server, schemas):
    server.add(1, ORDER, references=[refers("A")])
    server.versions = {("A-value", 1): 1}
    assert schemas.decoder(1, PATHS)(b"\x0e", None) == [7]
    for i in range(200):
        server.add(100 + i, {**ORDER, "name": f"O{i}"}, references=[refers(f"R{i + 1}")])
        server.versions[f"R{i}-value", 1] = 100 + i
    with pytest.raises(RecordError, match="refers to more than 1,000 others, or too deeply"):
        schemas.decoder(100, PATHS)


def test_credentials_are_sent_and_never_shown(server, monkeypatch):
    monkeypatch.setattr(registry, "_PAUSE", 0.0)
    server.add(7, ORDER)
    for options, sent in (
        ({"basic.auth.user.info": "me:secret"}, "Basic bWU6c2VjcmV0"),
        ({"bearer.auth.token": "secret"}, "Bearer secret"),
    ):
        own = open_schemas(SchemaRegistry(server.url, {**FAST, **options}))
        assert own.decoder(7, PATHS)
        sent_headers = {name.lower(): value for name, value in server.requests[-1][1].items()}
        assert sent_headers["authorization"] == sent
    broken = Schemas(SchemaRegistry(server.url, {**FAST, "bearer.auth.token": "secret\n"}).client())
    with pytest.raises(SchemaUnavailableError) as error:
        broken.decoder(7, PATHS)
    assert "secret" not in str(error.value) and error.value.__cause__ is None


def test_a_process_has_one_cache_a_registry(server):
    first = open_schemas(SchemaRegistry(server.url, FAST))
    assert open_schemas(SchemaRegistry(server.url, dict(FAST))) is first
    assert open_schemas(SchemaRegistry(server.url, FAST, "dead-letter")) is not first


def test_json_schema_is_json(server, schemas):
    server.add(7, '{"type": "object"}', "JSON")
    decode = schemas.decoder(7, (("a", 0),))
    assert decode(b'{"a": [1.5]}', None) == [1.5]
    with pytest.raises(RecordError) as error:
        decode(b"{", None)
    assert error.value.reason == "not-json"


def test_the_librarys_mock_registry_is_a_registry():
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    client = SchemaRegistryClient.new_client({"url": "mock://cache"})
    own = Schemas(client)
    with pytest.raises(SchemaUnavailableError) as error:
        own.decoder(1, PATHS)
    assert error.value.reason == UNKNOWN
    assert client.register_schema("t-value", Schema(json.dumps(ORDER))) == 1
    assert Schemas(client).decoder(1, PATHS)(b"\x0e", None) == [7]
