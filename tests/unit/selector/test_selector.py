"""The selector as its users see it, and its canonical text."""

import copy
import pickle

import pytest

from selectroute.selector import (
    JMS,
    Double,
    Float,
    Int,
    Long,
    Message,
    Selector,
    Truth,
    UnknownDialectError,
    compile_like,
    dialect,
    parse,
    to_text,
)
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.syntax.ast import And, Comparison, Identifier, Literal, Not, Or, Unary

CAR = Selector("JMSType = 'car' AND color = 'blue' AND weight > 2500")
DEEP = 5_000


def test_a_selector_matches_when_it_is_true():
    message = Message(headers={"JMSType": "car"}, properties={"color": "blue", "weight": Int(3000)})
    assert CAR.evaluate(message) is Truth.TRUE and CAR.matches(message)


def test_unknown_and_false_do_not_match():
    assert CAR.evaluate(Message()) is Truth.UNKNOWN and not CAR.matches(Message())
    red = Message(properties={"color": "red"})
    assert CAR.evaluate(red) is Truth.FALSE and not CAR.matches(red)


def test_the_empty_string_is_no_selector_and_matches_all():
    everything = Selector("")
    assert everything.expression is None and everything.identifiers == () and everything.canonical == ""
    assert everything.matches(Message())


def test_identifiers_are_sorted_and_named_once():
    assert Selector("b = 1 AND a LIKE 'x' AND (b IN ('y') OR NOT c)").identifiers == ("a", "b", "c")


def test_selectors_are_values():
    again = Selector(CAR.text)
    assert again == CAR and hash(again) == hash(CAR) and Selector("a") != Selector("(a)") and CAR.text != CAR
    assert repr(CAR) == f"Selector({CAR.text!r})"
    assert copy.copy(CAR) == copy.deepcopy(CAR) == pickle.loads(pickle.dumps(CAR)) == CAR  # noqa: S301  # bytes of this very line


@pytest.mark.slow
def test_a_deep_selector_lives_like_any_other():
    nots = Selector("NOT " * 100_000 + "a", limits=UNLIMITED)
    assert nots.matches(Message(properties={"a": True}))
    selector = Selector("a AND (" * DEEP + "- " * DEEP + "b < 1" + ")" * DEEP, limits=UNLIMITED)
    message = Message(properties={"a": True, "b": 0})
    assert selector.evaluate(message) is selector.explain(message).truth is Truth.TRUE
    assert selector.identifiers == ("a", "b")
    assert copy.deepcopy(selector) == selector == pickle.loads(pickle.dumps(selector))  # noqa: S301  # bytes of this very line


def test_an_unknown_dialect_names_the_nearest():
    with pytest.raises(UnknownDialectError, match="did you mean 'jms'"):
        Selector("a", dialect="jmss")
    with pytest.raises(ValueError, match="the dialects are jms"):
        dialect("sql")
    assert dialect("jms") is JMS and Selector("a").dialect == "jms"


@pytest.mark.parametrize(("text", "canonical"), [
    ("a=1and".replace("1and", "1 and ") + "b<>'it''s'", "a = 1 AND b <> 'it''s'"), ("((a = 1))", "a = 1"),
    ("(a OR b) and (c and a)", "(a OR b) AND (c AND a)"), ("(a AND b) OR c", "a AND b OR c"),
    ("not ( not (a = 1))", "NOT NOT a = 1"), ("NOT (a AND b)", "NOT (a AND b)"),
    ("(a > 1) = true", "(a > 1) = TRUE"), ("a-(b-c) = (a-b)-c", "a - (b - c) = a - b - c"),
    ("a*(b+c) = -(a+b)", "a * (b + c) = -(a + b)"), ("- -5 = - - a", "-(-5) = - -a"),
    ("a = 0x10 or a = 1e3 or a = 1.10f or a = 5d", "a = 16 OR a = 1000.0 OR a = 1.1F OR a = 5.0"),
    ("a = 1.0E-5F or a = 16777216F", "a = 1e-05F OR a = 16777216F"),
    ("a = -9223372036854775808", "a = -9223372036854775808"), ("a between 1 and 2", "a BETWEEN 1 AND 2"),
    ("(a) not in('x','y')", "a NOT IN ('x', 'y')"), ("a like'x!%'escape'!'", "a LIKE 'x!%' ESCAPE '!'"),
    ("(a) is not null", "a IS NOT NULL"), ("(a = 1) = (b between 1 and 2)", "(a = 1) = (b BETWEEN 1 AND 2)"),
])  # fmt: skip
def test_canonical_text(text, canonical):
    selector = Selector(text)
    assert selector.canonical == canonical
    assert Selector(canonical).expression == selector.expression


def test_no_literal_spells_what_is_not_finite():
    for value in (Double(float("inf")), Float(float("nan"))):
        with pytest.raises(ValueError, match="no literal"):
            to_text(Comparison("=", Identifier("a"), Literal(value)))


def test_trees_made_by_hand_print_so_that_they_parse_back():
    a, five = Identifier("a"), Literal(Long(5))
    for expression in (
        Comparison("=", Unary("-", five), a),
        Comparison("=", Unary("+", Unary("-", five)), a),
        Or((Or((a, a)), And((a, Or((a, Not(a))))))),
        Comparison("=", Not(a), And((a, a))),
    ):
        assert parse(to_text(expression), JMS) == expression


def test_like_compiles_to_operations():
    assert [getattr(op, "name", op) for op in compile_like("a%%_!%!!", "!")] == [
        "a", "ANY_MANY", "ANY_ONE", "%", "!",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="unpaired"):
        compile_like("a!", "!")
