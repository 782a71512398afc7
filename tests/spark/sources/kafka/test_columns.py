"""Columns of texts against the meaning of one text."""

from __future__ import annotations

import math
import random
import struct

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from selectroute.kafka.binding import TYPES
from selectroute.kafka.texts import TextError, value_of
from selectroute.match.columns.from_messages import ARROW_TYPES
from selectroute.selector.values import Double, Float
from selectroute.spark.sources.kafka.columns import column_of_texts

PIECES = [
    *"0123456789+-.eExXnNaA _tT\t",
    "e-",
    "e3",
    "NaN",
    "nan",
    "Infinity",
    "inf",
    "true",
    "FALSE",
    "0x",
    "\xa0",
    "١",
    "\0",
]
NUMBERS = ["0", "-0", "127", "128", "-129", "32768", "2147483648", "-2147483649", "9223372036854775807"]
NUMBERS += ["1e39", "1e309"]


def texts(chance: random.Random, tame: bool) -> list[bytes | None]:
    found: list[bytes | None] = []
    for _ in range(50):
        kind = chance.random()
        if kind < 0.1:
            found.append(None)
        elif tame or kind < 0.4:
            found.append(str(chance.randrange(-100, 100)).encode())
        elif kind < 0.6:
            found.append(chance.choice(NUMBERS).encode())
        elif kind < 0.65:
            found.append(bytes(chance.randrange(256) for _ in range(3)))
        else:
            found.append("".join(chance.choice(PIECES) for _ in range(chance.randrange(5))).encode())
    return found


def bits(value):
    """A number that is the same only if every bit of it is."""
    return struct.pack("<d", value) if isinstance(value, float) else value


PLAIN = [(type_, "x") for type_ in TYPES if type_ != "bytes"]


@pytest.mark.parametrize(
    ("type_", "name"),
    [*PLAIN, ("int", "JMSPriority"), ("string", "JMSDeliveryMode"), ("long", "JMSTimestamp")],
)
def test_a_column_holds_what_each_text_means_and_names_those_that_mean_nothing(type_, name):
    chance = random.Random(f"{type_} {name}")
    for round_ in range(300):
        given = texts(chance, tame=round_ % 3 == 0)
        if round_ % 2:  # few at once, so that whole columns are without fault, too
            given = given[: chance.randrange(4)]
        column, errors = column_of_texts(pa.array(given, pa.binary()), type_, name)
        assert column.type == ARROW_TYPES[type_] and len(column) == len(given)
        for row, text in enumerate(given):
            found = column[row].as_py()
            if text is None:
                assert found is None and row not in errors
                continue
            try:
                meant = value_of(text, type_, name)
            except TextError as error:
                assert found is None and str(errors[row]) == str(error), text
                continue
            assert row not in errors, text
            plain = getattr(meant, "value", meant)
            if isinstance(meant, Float | Double) and math.isnan(plain):
                assert math.isnan(found)
            else:
                assert bits(found) == bits(plain), text
