import math
import struct
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectroute.kafka.texts import TextError, value_of, value_of_json
from selectroute.selector.values import Byte, Double, Float, Int, Long, Short


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        (b"", "string", ""),
        ("rosé".encode(), "string", "rosé"),
        (b"\xff", "bytes", b"\xff"),
        (b"tRuE", "boolean", True),
        (b"false", "boolean", False),
        (b"-128", "byte", Byte(-128)),
        (b"+7", "short", Short(7)),
        (b"0000000000000000000000042", "int", Int(42)),
        (b"-9223372036854775808", "long", Long(-(2**63))),
        (b"1", "double", Double(1.0)),
        (b".5e1", "double", Double(5.0)),
        (b"5.", "double", Double(5.0)),
        (b"-0", "double", Double(-0.0)),
        (b"NaN", "float", Float(math.nan)),
        (b"-Infinity", "double", Double(-math.inf)),
        (b"1e-400", "double", Double(0.0)),
    ],
)
def test_a_text_is_a_value_of_its_type(text, type_, value):
    assert value_of(text, type_) == value


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        *((b"128", "byte"), (b"1.0", "int"), (b" 1", "int"), (b"", "int"), (b"0x1", "int"), (b"1_0", "int")),
        *(("١".encode(), "int"), (b"9223372036854775808", "long"), (b"9" * 10_000, "long"), (b"--1", "long")),
        *(
            (b"nan", "double"),
            (b"inf", "double"),
            (b"1e309", "double"),
            (b"3.5e38", "float"),
            (b"1f", "float"),
        ),
        *((b"e5", "double"), (b".", "double"), (b"+", "double"), (b"yes", "boolean"), (b"\xff", "string")),
    ],
)
def test_any_other_text_is_an_error_that_shows_it_shortly(text, type_):
    with pytest.raises(TextError) as error:
        value_of(text, type_)
    assert str(error.value).isprintable() and len(str(error.value)) < 80


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(-3, 3))
def test_a_float_is_the_one_nearest_to_its_digits(near, step):
    """Also halfway between two, where rounding first to a double goes wrong."""
    (bits,) = struct.unpack("<I", struct.pack("<f", abs(near)))
    if bits >= 0x7F7FFFFF:
        return
    (after,) = struct.unpack("<f", struct.pack("<I", bits + 1))
    with localcontext(prec=400):  # every digit of either, and more
        halfway = (Decimal(abs(near)) + Decimal(after)) / 2
        exact = halfway + Decimal(step).scaleb(halfway.adjusted() - 200)
    found = value_of(b"%s" % str(exact).encode(), "float").value
    if step:
        assert found == (after if step > 0 else abs(near))
    else:
        assert found == (after if bits % 2 else abs(near))


@pytest.mark.parametrize(
    ("plain", "type_", "value"),
    [
        (None, "int", None),
        (7, "int", Int(7)),
        (7, "double", Double(7.0)),
        (0.5, "float", Float(0.5)),
        ("a", "string", "a"),
        (True, "boolean", True),
        ("00ff", "bytes", b"\x00\xff"),
    ],
)
def test_json_is_a_value_of_its_bound_type(plain, type_, value):
    assert value_of_json(plain, type_) == value


@pytest.mark.parametrize(
    ("plain", "type_"),
    [
        *((7.0, "int"), (True, "int"), ("7", "int"), (2**31, "int"), (10**400, "double"), (1e39, "float")),
        *((7, "string"), ([], "string"), ({}, "string"), ("\ud800", "string"), (1, "boolean"), (1, "bytes")),
        *(("0", "bytes"), ("0 1", "bytes"), (2**64, "long"), (math.inf, "double")),
    ],
)
def test_nothing_of_json_is_converted_from_another_type(plain, type_):
    with pytest.raises(TextError) as error:
        value_of_json(plain, type_)
    assert str(error.value).isprintable() and len(str(error.value)) < 80
