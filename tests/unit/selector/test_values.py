"""Java's numbers. The expected values are Java's own, from the JLS and from running it."""

import math
import struct
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectroute.selector import JMS, Byte, Double, Float, Int, Long, Short, Truth, coerce, type_name
from selectroute.selector.syntax.numbers import NumberError, number
from selectroute.selector.values import (
    MISMATCH,
    VOID,
    all_of,
    any_of,
    arithmetic,
    compare,
    negate,
    not_,
    plus,
    promoted,
    to_float32,
)


@pytest.mark.parametrize(("kind", "bits"), [(Byte, 8), (Short, 16), (Int, 32), (Long, 64)])
def test_integers_check_their_range(kind, bits):
    limit = 1 << (bits - 1)
    assert kind(limit - 1).value == limit - 1 and kind(-limit).value == -limit
    for outside in (limit, -limit - 1, 10**50):
        with pytest.raises(ValueError):
            kind(outside)
    for no_integer in (1.0, True, "1", None):
        with pytest.raises(TypeError):
            kind(no_integer)


def test_float_rounds_once_and_to_even():
    assert Float(1.1).value == 1.10000002384185791015625
    assert Float(16777217).value == 16777216.0
    assert to_float32(2**60 + 2**36 + 1) == 2.0**60 + 2.0**37  # through a double it would be 2**60
    assert to_float32(-(2**60) - 2**36 - 1) == -(2.0**60) - 2.0**37
    assert to_float32(2**60 + 2**36) == 2.0**60 and to_float32(2**60 + 3 * 2**36) == 2.0**60 + 2.0**38
    assert to_float32(-(2**60) - 3 * 2**36) == -(2.0**60) - 2.0**38
    assert to_float32(1e39) == math.inf and to_float32(-1e39) == -math.inf and to_float32(10**40) == math.inf
    assert Float(10**400).value == Double(10**400).value == math.inf  # beyond any double
    assert Float(-(10**400)).value == Double(-(10**400)).value == -math.inf
    no_numbers: list[Any] = ["1", True, None]
    for nothing in no_numbers:
        with pytest.raises(TypeError, match=r"^Float takes a number"):
            Float(nothing)
        with pytest.raises(TypeError, match=r"^Double takes a number"):
            Double(nothing)


@given(
    st.integers(1, 2**63 - 1) | st.integers(2**40, 2**62).map(lambda n: (n >> 39 << 39) + (1 << 38) + (n & 1))
)
def test_a_long_becomes_the_nearest_float(value):
    assert to_float32(value) == exact_float(value) == -to_float32(-value)


def exact_float(text):
    """The positive float nearest to a decimal, ties to even, by exact arithmetic on it and its neighbours."""
    exact = Fraction(text)
    bits = struct.unpack("<i", struct.pack("<f", float(text)))[0]
    floats = [struct.unpack("<f", struct.pack("<i", near))[0] for near in (bits - 1, bits, bits + 1)]
    return min(floats, key=lambda f: (abs(Fraction(f) - exact), struct.pack("<f", f)[0] & 1))


@given(st.integers(2**23, 2**24 - 1), st.integers(-120, 100), st.sampled_from([-1, 0, 1]))
def test_a_float_literal_next_to_a_halfway_point_is_rounded_once(mantissa, exponent, nudge):
    halfway = Fraction(2 * mantissa + 1) * Fraction(2) ** exponent
    digits = f"{halfway.numerator * 10**200 // halfway.denominator + nudge}e-200"
    assert number(digits + "F", JMS.numbers) == Float(exact_float(digits))


def test_equality_of_values_is_structural():
    assert Double(0.0) != Double(-0.0) and Float(0.0) != Float(-0.0)
    assert Float(1.0) != Double(1.0) and (Float(1.0) == "1") is False
    assert Double(math.nan) != Double(math.inf) and Double(math.nan) == Double(-math.nan)
    assert hash(Float(math.nan)) == hash(Float(math.nan))
    assert len({Byte(1), Short(1), Int(1), Long(1), Float(1), Double(1), True, "1"}) == 8
    assert repr(Int(5)) == "Int(5)" and repr(Double(0.5)) == "Double(0.5)"


def test_coerce_takes_plain_python_values():
    assert coerce(5) == Long(5) and coerce(5.0) == Double(5.0) and coerce(True) is True and coerce("x") == "x"
    assert coerce(np.int32(5)) == Long(5) and coerce(np.float64(5.0)) == Double(5.0)
    with pytest.raises(TypeError, match="write milliseconds since 1970"):
        coerce(datetime.now(UTC))
    assert coerce(None) is None and coerce(Int(5)) == Int(5) and coerce(b"x") == b"x"
    with pytest.raises(ValueError):
        coerce(2**63)
    for no_value in (bytearray(b"x"), [], 1j):
        with pytest.raises(TypeError):
            coerce(no_value)


def test_type_names_are_javas():
    values = (True, Byte(0), Short(0), Int(0), Long(0), Float(0), Double(0), "", None, b"", MISMATCH)
    names = "boolean, byte, short, int, long, float, double, string, NULL, byte string, mismatch"
    assert [type_name(value) for value in values] == names.split(", ")


def test_binary_numeric_promotion():
    order: list[Any] = [Byte(1), Short(1), Int(1), Long(1), Float(1), Double(1)]
    for i, left in enumerate(order):
        for j, right in enumerate(order):
            assert promoted(left, right) is (Int, Int, Int, Long, Float, Double)[max(i, j)]
            assert type(arithmetic("+", left, right)) is promoted(left, right)


def test_signs_promote_and_wrap():
    assert negate(Byte(-128)) == Int(128) and plus(Short(5)) == Int(5)
    assert negate(Int(-(2**31))) == Int(-(2**31)) and negate(Long(-(2**63))) == Long(-(2**63))
    assert negate(Double(0.0)) == Double(-0.0) and negate(None) is None
    assert negate("x") is MISMATCH and plus(True) is MISMATCH


def test_mismatch_dominates_null_in_arithmetic_and_comparison():
    for op in "+-*/":
        assert arithmetic(op, "x", None) is MISMATCH and arithmetic(op, None, True) is MISMATCH
        assert arithmetic(op, MISMATCH, None) is MISMATCH and arithmetic(op, None, Long(1)) is None
    for unlike in (Truth.FALSE, VOID):
        assert compare("=", MISMATCH, None, unlike) is compare("<>", None, MISMATCH, unlike) is unlike
        assert compare("=", "x", True, unlike) is compare("<", "x", "y", unlike) is unlike
        assert compare("=", "x", None, unlike) is Truth.UNKNOWN


def test_integer_division_by_zero_has_no_value():
    assert arithmetic("/", Int(1), Long(0)) is None
    assert arithmetic("/", Int(1), Float(0.0)) == Float(math.inf)
    assert arithmetic("/", Double(-0.0), Int(0)) == Double(math.nan)
    assert arithmetic("/", Double(math.nan), Int(0)) == Double(math.nan)


@pytest.mark.parametrize("word", ["1e400", "0x1p1024", "3.4028235677973367E38F"])
def test_a_number_too_large_for_its_type_is_none(word):
    with pytest.raises(NumberError, match="number-too-large"):
        number(word, JMS.numbers)


def test_a_truth_is_no_bool():
    with pytest.raises(TypeError, match=r"is Truth\.TRUE"):
        bool(Truth.TRUE)
    assert repr(Truth.UNKNOWN) == "UNKNOWN"


def test_kleenes_connectives():
    assert all_of([]) is Truth.TRUE and any_of([]) is Truth.FALSE
    order = [Truth.FALSE, Truth.UNKNOWN, Truth.TRUE]
    for i, one in enumerate(order):
        assert not_(one) is order[2 - i]
        for j, other in enumerate(order):
            assert all_of([one, other]) is order[min(i, j)]
            assert any_of([one, other]) is order[max(i, j)]
