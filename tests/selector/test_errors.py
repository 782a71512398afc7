"""Errors as people read them: the kind, what is underlined, what was expected, and the hint."""

import copy
import pickle

import pytest

from selectroute.selector import KINDS, InvalidSelectorError, Selector, SelectRouteError
from selectroute.selector.limits import UNLIMITED, Limits


def error_of(text, **options):
    with pytest.raises(InvalidSelectorError) as caught:
        Selector(text, **options)
    return caught.value


def test_an_error_is_rendered_with_the_place_underlined():
    assert str(error_of("region = 'EMEA AND price > 10")) == (
        "unterminated-string: string literal is never closed             (dialect jms, column 10)\n"
        "  region = 'EMEA AND price > 10\n"
        "           ^^^^^^^^^^^^^^^^^^^^\n"
        "hint: write '' for a quote inside a string"
    )


def test_an_error_says_what_was_expected():
    assert str(error_of("a IS 5")).splitlines()[1:] == ["  a IS 5", "       ^", "expected: NULL or NOT"]


def test_only_the_line_at_fault_is_shown_in_a_text_of_several():
    error = error_of("a = 1 AND\r\n\tb == 2\nOR c = 3")
    assert str(error).splitlines() == [
        "unknown-operator: selectors have no such operator               (dialect jms, line 2, column 4)",
        "   b == 2",
        "     ^^",
        "hint: write = to compare",
    ]


def test_a_span_over_several_lines_is_underlined_to_the_end_of_the_first():
    assert str(error_of("a = 'x\ny")).splitlines()[1:3] == ["  a = 'x", "      ^^"]


def test_the_end_of_the_text_gets_one_caret():
    error = error_of("a = ")
    assert error.underlined == "" and error.span == (4, 4)
    assert str(error).splitlines()[1:3] == ["  a = ", "      ^"]


def test_a_long_text_is_cut_around_the_place():
    lines = str(error_of("a = 1 AND " * 500 + "b == 2" + " AND a = 1" * 500)).splitlines()
    assert all(len(line) <= 110 for line in lines)
    assert lines[1].startswith("  …") and lines[1].endswith("…")
    assert lines[1][lines[2].index("^") :].startswith("== 2")


def test_a_long_span_is_cut_too():
    lines = str(error_of("a = '" + "x" * 5000)).splitlines()
    assert all(len(line) <= 110 for line in lines)


def test_carets_stand_below_wide_and_combining_characters():
    lines = str(error_of("名 = 'e\u0301' == 1")).splitlines()
    assert lines[2] == "  " + " " * len("mm = 'e' ") + "^^"


def test_what_cannot_be_printed_is_replaced():
    for text in ("a = '\ud800'", "a = '\x00\x1b[31m", "a \x85 = 1 ="):
        str(error_of(text)).encode()
        assert "\x1b" not in str(error_of(text)) and "\x00" not in str(error_of(text))


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_every_kind_is_an_error_of_that_kind(kind):
    options = {"limits": Limits(length=2)} if kind == "too-long" else {}
    assert error_of(KINDS[kind].example, **options).kind == kind
    assert KINDS[kind].sentence


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a == 1", "write = to compare"),
        ("a != 1", "write <> for unequal"),
        ("a = 1 && b = 2", "write AND"),
        ("a = 1 || b = 2", "write OR"),
        ('color = "it\'s"', "write 'it''s'"),
        ("a % 2 = 0", "there is no remainder; as a wildcard, % stands inside the string of LIKE"),
        ("JMSMessageId = 'x'", "did you mean JMSMessageID?"),
        ("JMStype = 'x'", "did you mean JMSType?"),
        ("a = NULL", "write IS NULL or IS NOT NULL"),
        ("1 < a < 5", "join two comparisons by AND, or use BETWEEN"),
        ("a.b = 1", "a name has no dots in this dialect"),
        ("a = 1;", "leave the semicolon out"),
        ("a = ‘x’", "write a string in straight quotes, '"),
    ],
)
def test_a_hint_names_the_right_spelling(text, hint):
    assert error_of(text).hint == hint


def test_a_name_unlike_any_header_gets_the_general_hint():
    assert error_of("JMSFoo = 1").hint.startswith("names that begin with JMS")


def test_an_error_is_data_too():
    assert error_of("a = 1\n  AND 😀").to_dict() == {
        "kind": "unexpected-character",
        "message": "no selector has this character outside a string",
        "dialect": "jms",
        "offset": 12,
        "length": 1,
        "line": 2,
        "column": 7,
        "expected": [],
        "hint": None,
        "reason": 2551,
    }


def test_expected_follows_the_state_of_the_parser():
    assert error_of("a AND").expected == ("a name", "a literal", "a sign", "'('", "NOT")
    assert error_of("a +").expected == ("a name", "a literal", "a sign", "'('")
    assert error_of("a = 1 b").expected == ("an operator", "AND", "OR", "the end")
    assert error_of("(a = 1 b").expected == ("an operator", "AND", "OR", "')'")
    assert error_of("a IN ('x' 'y')").expected == ("','", "')'")
    assert error_of("a BETWEEN 1 OR 2").expected == ("AND",)
    assert error_of("a NOT").expected == ("BETWEEN", "IN", "LIKE")


def test_an_error_survives_copying_and_pickling():
    error = error_of('a = "b"')
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301  # bytes of this very line
        assert str(again) == str(error) and again.to_dict() == error.to_dict()
    assert issubclass(InvalidSelectorError, SelectRouteError) and error.reason == 2551


def test_too_long_is_rejected_before_anything_else():
    error = error_of("é\ud800'" * 4000)
    assert error.kind == "too-long" and error.span.start == 10_240
    assert error.hint == "it has 12,000 characters, the limit is 10,240"
    assert error_of("a = 1", limits=Limits(length=4)).kind == "too-long"
    assert Selector("a = 1", limits=Limits(length=5)).text == "a = 1"


@pytest.mark.parametrize("text", [None, 1, b"a = 1", ["a"]])
def test_what_is_no_text_is_a_type_error(text):
    with pytest.raises(TypeError):
        Selector(text)


HUGE = 200_000


@pytest.mark.parametrize(
    "text",
    [
        "n = " + "9" * HUGE,
        "n = 1e" + "9" * HUGE,
        "n = 1e-" + "9" * HUGE,
        "n = 0x" + "F" * HUGE,
        "n = 1_" * HUGE,
        "n = 0x1p" + "9" * HUGE,
        "n = 0x1p-" + "9" * HUGE + "F",
        "n = " + "é" * HUGE + "×",
        "'" * (HUGE + 1),
        "." * HUGE,
        "n = 0" + "_" * HUGE,
        "n LIKE '" + "%" * HUGE,
        "\x00" * HUGE,
        "😀" * HUGE,
        '"' * HUGE + "a",
    ],
)
def test_huge_nonsense_is_rejected_in_no_time(text):
    error = error_of(text, limits=UNLIMITED)
    assert len(str(error)) < 1_000


@pytest.mark.parametrize(
    "text",
    [
        "n = 0." + "1" * HUGE + "F",
        "n = " + "1" * HUGE + f"e-{HUGE}F",
        "n = 1e" + "0" * HUGE + "1F",
        "n = 0x1p-" + "0" * HUGE + "1F",
        "n = 0x0." + "0" * HUGE + f"1p{4 * HUGE}F",
        "n = " + "0" * HUGE + "7",
        "n = 0b" + "0" * HUGE + "1",
        "é" * HUGE + " = 1",
        "n LIKE '" + "%" * HUGE + "'",
    ],
)
def test_huge_literals_are_read_in_no_time(text):
    assert Selector(text, limits=UNLIMITED).expression is not None
