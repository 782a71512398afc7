import pytest

from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.framing import PREFIX_BYTES, Framed, framed, message_index, schema_of_prefix

GUID = bytes(range(16))
TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.mark.parametrize(
    ("value", "header", "found"),
    [
        (b"\0\0\0\0\7rest", None, Framed(7, b"rest", None)),
        (b"\0\xff\xff\xff\xff", None, Framed(2**32 - 1, b"", None)),
        (b"\1" + GUID + b"x", None, Framed(TEXT, b"x", None)),
        (b"rest", b"\1" + GUID, Framed(TEXT, b"rest", b"")),
        (b"\0\0\0\0\7", b"\1" + GUID + b"\0", Framed(TEXT, b"\0\0\0\0\7", b"\0")),
        (b"", b"\0\0\0\0\7\2\2", Framed(7, b"", b"\2\2")),
        (b'{"a": 1}', None, None),
        (b" 1", None, None),
        (b"", None, None),
    ],
)
def test_an_id_is_before_the_body_or_in_a_header(value, header, found):
    assert framed(value, header) == found
    assert schema_of_prefix(value[:PREFIX_BYTES], header) == (found and found.id)


@pytest.mark.parametrize(
    ("value", "header", "said"),
    [
        (b"\0\0\0\0", None, "the body ends within its schema id"),
        (b"\1" + GUID[1:], None, "the body ends within its schema id"),
        (b"x", b"\1", "the header __value_schema_id ends within its schema id"),
        (b"x", b"", "does not begin with 0 or 1"),
        (b"x", b"7", "does not begin with 0 or 1"),
    ],
)
def test_a_broken_id_is_an_error_of_the_record_and_no_schema_is_fetched(value, header, said):
    with pytest.raises(RecordError, match=said) as error:
        framed(value, header)
    assert (error.value.stage, error.value.reason) == ("parse", "not-framed")
    assert schema_of_prefix(value, header) is None
    assert schema_of_prefix(None, b"\1" + GUID) is None


@pytest.mark.parametrize(
    ("data", "index", "length"),
    [
        (b"\0rest", (0,), 1),
        (b"\2\2", (1,), 2),
        (b"\4\0\6", (0, 3), 3),
        (b"\2\x80\2", (128,), 3),
        (b"\2\1", (-1,), 2),
    ],
)
def test_the_index_of_a_message_is_a_list_of_zigzag_varints(data, index, length):
    assert message_index(data) == (index, length)


@pytest.mark.parametrize("data", [b"", b"\2", b"\4\0", b"\x80", b"\1", b"\xff" * 9, b"\xff\xff\xff\xff\x0f"])
def test_a_broken_index_is_an_error_of_the_record(data):
    with pytest.raises(RecordError) as error:
        message_index(data)
    assert error.value.reason == "not-protobuf"


def test_the_library_reads_and_writes_the_same():
    serde = pytest.importorskip("confluent_kafka.schema_registry.serde")
    for index in ([0], [1], [0, 3], [2, 0, 128]):
        given = serde.SchemaId("PROTOBUF", 7, TEXT, index)
        by_id, by_guid = framed(given.id_to_bytes(), None), framed(b"x", given.guid_to_bytes())
        assert by_id.id == 7 and message_index(by_id.datum) == (tuple(index), len(by_id.datum))
        assert by_guid.id == TEXT and message_index(by_guid.message)[0] == tuple(index)
