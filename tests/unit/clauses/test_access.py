"""Keys: no pair that is equal is told apart, and an exact key decides its literal."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from selectroute.clauses.access import NULL, equalities, literal_keys, message_key
from selectroute.clauses.predicate import Clause, ClauseLiteral, NullTest, OneOf, Test
from selectroute.selector import Byte, Double, Float, Int, Long, Short, Truth
from selectroute.selector.dialect import JMS
from tests.support.strategies import FLOATS, INTEGERS, values

LIMITS = {Byte: 7, Short: 15, Int: 31, Long: 63}


def every_number():
    for value in INTEGERS:
        for kind, bits in LIMITS.items():
            if -(2**bits) <= value < 2**bits:
                yield kind(value)
    for value in FLOATS:
        yield Double(value)
        yield Float(value)


NUMBERS = list(every_number())
CONSTANTS = [number for number in NUMBERS if isinstance(number, Long | Double | Float)]


def check(value, constant):
    literal = ClauseLiteral(Test("x", "=", constant, JMS), True)
    keys = literal_keys(literal)
    if keys is None:
        return
    equal = literal.predicate.truth(lambda _: value) is Truth.TRUE
    found = message_key(value) in keys.keys
    assert found or not equal, f"{value} equals {constant} and is not found"
    assert equal or not (found and keys.exact), f"{value} does not equal {constant} and is found"


def test_numbers_at_every_limit_have_the_keys_of_their_equals():
    for value in NUMBERS:
        for constant in CONSTANTS:
            check(value, constant)


@settings(max_examples=300, deadline=None)
@given(values, values)
def test_equal_values_share_a_key(value, constant):
    if not isinstance(constant, Byte | Short | Int):  # no literal has these types
        check(value, constant)


def test_a_large_float_constant_is_no_key_because_it_equals_many_longs():
    assert literal_keys(ClauseLiteral(Test("x", "=", Float(2.0**24), JMS), True)) is None
    assert literal_keys(ClauseLiteral(Test("x", "=", Float(5.0), JMS), True)) is not None


def test_only_what_must_be_equal_is_a_key():
    assert literal_keys(ClauseLiteral(Test("x", "=", "a", JMS), False)) is None
    assert literal_keys(ClauseLiteral(Test("x", "<>", "a", JMS), True)) is None
    assert literal_keys(ClauseLiteral(NullTest("x"), False)) is None
    assert literal_keys(ClauseLiteral(OneOf("x", ("a",), True, JMS), True)) is None
    assert literal_keys(ClauseLiteral(NullTest("x"), True)).keys == {NULL}


def test_equalities_of_one_attribute_are_intersected():
    clause = Clause(
        (
            ClauseLiteral(OneOf("x", ("a", "b"), False, JMS), True),
            ClauseLiteral(Test("x", "=", "a", JMS), True),
            ClauseLiteral(Test("y", ">", Long(3), JMS), True),
        )
    )
    found = equalities(clause)
    assert found.keys == {"x": {"a"}}
    assert found.satisfiable


@given(st.sampled_from(["a", 5.0]), st.booleans())
def test_contradictions_are_unsatisfiable(key, order):
    constants = ["a", Long(1)] if order else [Long(1), "a"]
    clause = Clause(tuple(ClauseLiteral(Test("x", "=", constant, JMS), True) for constant in constants))
    assert not equalities(clause).satisfiable


def test_a_float_that_equals_two_longs_satisfies_both():
    """16777216F equals 16777216 and 16777217: this is no contradiction."""
    clause = Clause(tuple(ClauseLiteral(Test("x", "=", Long(2**24 + step), JMS), True) for step in (0, 1)))
    found = equalities(clause)
    assert found.satisfiable
    assert message_key(Float(2.0**24)) in found.keys["x"]
    assert clause.holds(lambda _: Float(2.0**24))
