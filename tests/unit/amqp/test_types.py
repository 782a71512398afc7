"""Types of AMQP: the encodings of the specification, values there and back, and bounds."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectroute.amqp.types import (
    DECODING_FAILED,
    MAX_DEPTH,
    Decimal,
    DecodeError,
    Described,
    Signed,
    Symbol,
    decoder,
    encode,
    fields_of,
    symbols,
    ubyte,
    uint,
    ulong,
    ushort,
)

decode = decoder()

ENCODINGS = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("5601", True),
    ("5600", False),
    ("50ff", 255),
    ("60ffff", 65_535),
    ("43", 0),
    ("5207", 7),
    ("70ffffffff", 2**32 - 1),
    ("44", 0),
    ("5307", 7),
    ("80ffffffffffffffff", 2**64 - 1),
    ("51ff", Signed(-1)),
    ("61ffff", Signed(-1)),
    ("54ff", Signed(-1)),
    ("71ffffffff", Signed(-1)),
    ("55ff", Signed(-1)),
    ("81ffffffffffffffff", Signed(-1)),
    ("723fc00000", 1.5),
    ("823ff8000000000000", 1.5),
    ("730001f697", "\N{AUTOMOBILE}"),
    ("8300000190e0000000", 1_721_745_014_784),
    ("7400000000", Decimal(bytes(4))),
    ("84" + 8 * "00", Decimal(bytes(8))),
    ("94" + 16 * "00", Decimal(bytes(16))),
    ("98" + 16 * "11", UUID("11" * 16)),
    ("a0020102", b"\x01\x02"),
    ("b0000000020102", b"\x01\x02"),
    ("a102c3a9", "é"),
    ("b100000002c3a9", "é"),
    ("a30161", Symbol("a")),
    ("b30000000161", Symbol("a")),
    ("45", []),
    ("c003024142", [True, False]),
    ("d000000006000000024142", [True, False]),
    ("c106025201a10161", {1: "a"}),
    ("d100000009000000025201a10161", {1: "a"}),
    ("e00602a101610162", ["a", "b"]),
    ("f00000000900000002a101610162", ["a", "b"]),
    ("00532445", Described(0x24, [])),
    ("00a3016141", Described(Symbol("a"), True)),
    ("e00a0200a30161a101620163", [Described(Symbol("a"), "b"), Described(Symbol("a"), "c")]),
]


@pytest.mark.parametrize(("octets", "value"), ENCODINGS)
def test_every_encoding_is_read(octets: str, value: object) -> None:
    data = bytes.fromhex(octets)
    found, end = decode(data, 0)
    assert (found, type(found), end) == (value, type(value), len(data))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=300)
    | st.uuids()
    | st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=300), inner, max_size=4)
        | st.builds(Described, st.integers(0, 2**64 - 1), inner)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_a_value_is_read_as_it_was_written(value: object) -> None:
    data = encode(value)
    assert decode(b"x" + data + b"x", 1) == (value, 1 + len(data))


@pytest.mark.parametrize("number", [0, 1, 255, 256, 2**32 - 1])
def test_unsigned_numbers_take_their_shortest_form(number: int) -> None:
    for data, size in ((uint(number), 5), (ulong(number), 9)):
        assert decode(data, 0) == (number, len(data))
        assert len(data) == (1 if number == 0 else 2 if number < 256 else size)


def test_numbers_of_a_fixed_width_and_arrays_of_symbols() -> None:
    assert decode(ubyte(9), 0) == (9, 2)
    assert decode(ushort(300), 0) == (300, 3)
    assert decode(symbols(["a", "bc"]), 0)[0] == [Symbol("a"), Symbol("bc")]


def test_fields_that_are_null_at_the_end_are_left_out() -> None:
    assert fields_of([encode(None)] * 3) == b"\x45"
    assert decode(fields_of([uint(1), encode(None), uint(2), encode(None)]), 0)[0] == [1, None, 2]


def test_numbers_become_what_is_asked_for() -> None:
    typed = decoder({"int": lambda number: ("int", number), "long": lambda number: ("long", number)})
    assert typed(bytes.fromhex("54ff"), 0)[0] == ("int", -1)
    assert typed(bytes.fromhex("c1050254075508"), 0)[0] == {("int", 7): ("long", 8)}


HOSTILE = {
    "unknown constructor": "ff",
    "end within a number": "7000",
    "list of more values than bytes": "d000000005ffffffff40",
    "array of four billion values of no size": "f000000005ffffffff43",
    "list longer than its values": "c004014040",
    "list shorter than its values": "c002017000000001",
    "char beyond Unicode": "7301020304",
    "map with a list as a key": "c103024540",
    "map with a key alone": "c1020140",
    "text that is no UTF-8": "a101ff",
    "symbol that is no ASCII": "a302c3a9",
    "descriptor that is a list": "004540",
    "descriptor that is described": "000053014040",
    "array with two descriptors": "e0070100532400532445",
    "list of less than no bytes": "c00000",
}


@pytest.mark.parametrize("octets", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_values_fail(octets: str) -> None:
    with pytest.raises(DECODING_FAILED):
        decode(bytes.fromhex(octets), 0)


def test_a_text_longer_than_the_bytes_ends_behind_them() -> None:
    assert decode(bytes.fromhex("b1ffffffff61"), 0)[1] > 6


def test_depth_is_bounded() -> None:
    value: object = None
    for _ in range(MAX_DEPTH):
        value = [value]
    data = encode(value)
    assert decode(data, 0)[0] == value
    with pytest.raises(DecodeError, match="in one another"):
        decode(encode([value]), 0)
    with pytest.raises(DecodeError, match="in one another"):
        decode(b"\x00\x53\x24" * 5_000 + b"\x40", 0)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_known_error(data: bytes) -> None:
    with suppress(DECODING_FAILED):
        decode(data, 0)
