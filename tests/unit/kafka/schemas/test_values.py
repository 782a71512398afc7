import math
from decimal import Decimal

import pytest

from selectroute.kafka.texts import NonFinite, Temporal, TextError, decimal_of, value_of_json
from selectroute.selector.values import Double, Float, Int, Long

INSTANT = Temporal("instant", 1_767_323_045_678_900_000)


@pytest.mark.parametrize(
    ("plain", "type_", "value"),
    [
        (b"\0\xff", "bytes", b"\0\xff"),
        (Decimal("12.50"), "double", Double(12.5)),
        (Decimal("12.50"), "string", "12.50"),
        (Decimal("1E+3"), "string", "1000"),
        (Decimal("1E+3"), "long", Long(1_000)),
        (Decimal("-7"), "int", Int(-7)),
        (Decimal("0.1"), "float", Float(0.1)),
        (NonFinite(math.inf), "double", Double(math.inf)),
        (NonFinite(-math.inf), "float", Float(-math.inf)),
        (INSTANT, "long", Long(1_767_323_045_678)),
        (INSTANT, "double", Double(1_767_323_045_678.0)),
        (INSTANT, "string", "2026-01-02T03:04:05.6789Z"),
        (Temporal("local", 1_000_000_000), "string", "1970-01-01T00:00:01"),
        (Temporal("instant", -1), "long", Long(-1)),
        (Temporal("instant", -1), "string", "1969-12-31T23:59:59.999999999Z"),
        (Temporal("date", 20_455), "int", Int(20_455)),
        (Temporal("date", 20_455), "string", "2026-01-02"),
        (Temporal("time", 3_661_000_000_000), "int", Int(3_661_000)),
        (Temporal("time", 3_661_500_000_000), "string", "01:01:01.5"),
        (Temporal("duration", 1_500_000_000), "long", Long(1_500)),
        (Temporal("duration", 1_500_000_000), "string", "1.5s"),
        (Temporal("duration", -10_000_000_000), "string", "-10s"),
    ],
)
def test_values_that_json_does_not_have_are_of_the_bound_types(plain, type_, value):
    found = value_of_json(plain, type_, "a")
    assert found == value and type(found) is type(value)


def test_nan_is_a_value_of_a_binary_body():
    assert math.isnan(value_of_json(NonFinite(math.nan), "double").value)


@pytest.mark.parametrize(
    ("plain", "type_", "said"),
    [
        (b"ab", "string", "a byte string is not a valid string"),
        (b"ab", "int", "a byte string is not a valid int"),
        (Decimal("12.50"), "int", "a decimal is not a valid int"),
        (Decimal("3000000000"), "int", "a decimal is not a valid int"),
        (Decimal("1E+400"), "double", "a decimal is not a valid double"),
        (Decimal(1), "boolean", "a decimal is not a valid boolean"),
        (Decimal(1), "bytes", "a decimal is not a valid bytes"),
        (INSTANT, "int", "a time is not a valid int"),
        (INSTANT, "bytes", "a time is not a valid bytes"),
        (Temporal("instant", 10**21), "string", "a time is not a valid string"),
        (Temporal("date", 10**9), "string", "a time is not a valid string"),
        (Temporal("time", -1), "string", "a time is not a valid string"),
        (NonFinite(math.inf), "long", "inf is not a valid long"),
        (math.inf, "double", "inf is not a valid double"),
    ],
)
def test_other_types_are_not_converted(plain, type_, said):
    with pytest.raises(TextError, match=said):
        value_of_json(plain, type_, "a")


def test_a_decimal_that_is_too_large_stays_bytes():
    assert decimal_of((1250).to_bytes(2, "big"), 2) == Decimal("12.50")
    assert str(decimal_of(b"\xff", 0)) == "-1" and decimal_of(b"", 3) == 0
    digits = (10**150 + 1).to_bytes(64, "big")
    assert int(decimal_of(digits, 0)) == 10**150 + 1  # exact
    for given in ((b"\1" * 65, 0), (b"\1", 1_001), (b"\1", -1_001)):
        assert decimal_of(*given) == given[0]
