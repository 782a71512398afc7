"""Explanations: each truth, value and type seen, and the sentence that a user needs."""

from __future__ import annotations

import json

import pytest

from selectroute.selector import Byte, Double, Float, Int, Message, Selector, Short, Truth
from selectroute.selector.explain import DEEPEST_SHOWN
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.values import VOID

ID = "0A" * 24


def explained(text, dialect="jms", headers=None, **properties):
    return Selector(text, dialect, limits=UNLIMITED).explain(Message(headers, properties))


def of(text, dialect="jms", message=None):
    """The sentences about a selector and a message."""
    return Selector(text, dialect).explain(message or Message()).sentences


def props(**properties):
    return Message(properties=properties)


# ---- the tree


def test_an_explanation_shows_every_truth_value_and_type():
    selector = Selector("JMSType = 'car' AND (weight * 2 > 5000 OR NOT flag OR color = 1) AND m IS NULL")
    message = Message(
        headers={"JMSType": "car"}, properties={"weight": Int(2000), "color": "blue", "flag": "x"}
    )
    assert str(selector.explain(message)).splitlines() == [
        "TRUE    JMSType = 'car' AND (weight * 2 > 5000 OR NOT flag OR color = 1) AND m IS NULL",
        "TRUE      JMSType = 'car'",
        "            JMSType is string 'car'",
        "TRUE      (weight * 2 > 5000 OR NOT flag OR color = 1)",
        "FALSE       weight * 2 > 5000",
        "              weight * 2 is long 4000",
        "                weight is int 2000",
        "TRUE        NOT flag",
        "FALSE         flag is string 'x'  — `flag` is the string 'x', where a boolean is needed: "
        "FALSE in jms",
        "FALSE       color = 1  — `color` is the string 'blue', compared with a number: FALSE in jms",
        "              color is string 'blue'",
        "TRUE      m IS NULL",
        "            m is NULL",
    ]


def test_what_makes_the_whole_selector_false_is_void_up_to_the_root():
    explanation = explained("NOT (price > 3) OR b = 1", "ibm-mq", price="5", b=1)
    assert str(explanation).splitlines() == [
        "FALSE   NOT (price > 3) OR b = 1",
        "VOID      NOT (price > 3)",
        "VOID        (price > 3)  — `price` is the string '5', compared with a number: "
        "the whole selector is false in ibm-mq",
        "              price is string '5'",
        "TRUE      b = 1",
        "            b is long 1",
    ]
    assert explanation.truth is Truth.FALSE and explanation.result is VOID
    assert explanation.to_dict()["children"][0]["truth"] == "void"


def part(text, offset=0, **more):
    return {"text": text, "offset": offset, "length": len(text), **more}


def test_an_explanation_is_data_too():
    explanation = Selector("s + 1 = 2 OR f").explain(Message(properties={"s": "x", "f": Float(0.5)}))
    unlike = {
        "unlike": True,
        "sentence": "`s` is the string 'x', not a number: comparing the result is FALSE in jms",
        "children": [part("s", type="string", value="x"), part("1", 4, type="long", value=1)],
    }
    sum_and_two = [
        part("s + 1", type="mismatch", value=None, **unlike),
        part("2", 8, type="long", value=2),
    ]
    flag = {
        "type": "float",
        "value": {"type": "float", "value": 0.5},
        "unlike": True,
        "sentence": "`f` is the float 0.5, where a boolean is needed: FALSE in jms",
    }
    parts = [
        part("s + 1 = 2", truth="false", unlike=True, children=sum_and_two),
        part("f", 13, truth="false", **flag),
    ]
    assert explanation.to_dict() == part("s + 1 = 2 OR f", truth="false", children=parts)
    assert json.loads(explanation.to_json()) == explanation.to_dict()


def test_an_explanation_cuts_long_texts_and_shows_each_kind_of_value():
    message = Message(properties={"b": True, "d": 0.1, "s": "x\n" * 100, "o": bytes(100)})
    shown = str(Selector("b AND d < 1 AND s <> '" + "y" * 200 + "' AND o = 1").explain(message))
    assert "b is boolean TRUE" in shown and "d is double 0.1" in shown and 'o is byte string "0x00' in shown
    assert all(len(line) < 400 for line in shown.splitlines()) and "…" in shown
    assert len(shown.splitlines()) == 8


def test_no_selector_needs_no_explanation():
    explanation = Selector("", "ibm-mq").explain(Message(properties={"in": 1}))
    assert explanation.truth is Truth.TRUE and explanation.sentences == () and explanation.text == ""
    assert str(explanation) == "TRUE    no selector: every message matches"
    assert explanation.to_dict() == {"text": "", "truth": "true"}
    assert repr(explained("a")) == "<Explanation UNKNOWN 'a'>"


def test_parts_have_a_type_or_a_truth():
    explanation = explained("a + 1 > b", a=Short(1))
    left, right = explanation.children
    assert (explanation.type, explanation.truth) == (None, Truth.UNKNOWN)
    assert (left.type, left.truth, left.text) == ("long", None, "a + 1")
    assert (right.type, left.children[0].type) == ("NULL", "short")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "NOT " * 5_000 + "a",
        "(" * 5_000 + "a" + ")" * 5_000,
        "- " * 5_000 + "a = 1",
        "a" + " + 1" * 5_000 + " = 1",
        "(" * 5_000 + "a = 1" + ") = TRUE" * 5_000,
    ],
    ids=["NOT", "parentheses", "signs", "sums", "comparisons"],
)
def test_a_deep_explanation_is_made_shown_and_freed_without_recursion(text):
    explanation = explained(text, a=1)
    assert explanation.truth is Selector(text, limits=UNLIMITED).evaluate(props(a=1))
    line = max(str(explanation).splitlines(), key=len)
    assert len(line) < 2 * DEEPEST_SHOWN + 400
    assert explanation.sentences is not None and explanation.to_dict()["length"] == len(text)
    assert explanation.to_json().endswith("}" if explanation.children else "")


# ---- the sentences


@pytest.mark.parametrize(
    "case",
    [
        ("a > 1", props(a=2)),
        ("a IS NULL", props()),
        ("price > 3", props(price="5"), "`price` is the string '5', compared with a number: FALSE in jms"),
        ("3 < price", props(price="5"), "`price` is the string '5', compared with a number: FALSE in jms"),
        ("a = b", props(a="x", b=1), "`a` is the string 'x', compared with `b`, the long 1: FALSE in jms"),
        ("a < b", props(a="x", b="y"),
         "`a` is the string 'x', and < has no meaning for strings: FALSE in jms"),
        ("a = 'x'", props(a=b"x"),
         "`a` is the byte string \"0x78\", compared with a string: FALSE in jms"),
        ("(a > 1) = b", props(a=2, b=1),
         "`(a > 1)` is the boolean TRUE, compared with `b`, the long 1: FALSE in jms"),
        ("weight > 1", props(), "`weight` is NULL: comparing with it is UNKNOWN"),
        ("a = b", props(), "`a` and `b` are NULL: comparing them is UNKNOWN"),
        ("a = a", props(), "`a` is NULL: comparing with it is UNKNOWN"),
        ("a + 1 > 1", props(),
         "`a + 1` is NULL: comparing with it is UNKNOWN",
         "`a` is NULL, and arithmetic on NULL is NULL"),
        ("a / 0 + 1 > 1", props(a=1),
         "`a / 0 + 1` is NULL: comparing with it is UNKNOWN",
         "`a / 0` divides an integer by zero: NULL"),
        ("a / 0 > 1", props(a=1.0)),
        ("-s > 1", props(s=True),
         "`s` is the boolean TRUE, not a number: comparing the result is FALSE in jms"),
        ("a + 1 > 1", props(a=2**63 - 1), "`a + 1` is beyond the range of a long and wraps around"),
        ("a + a > 1", props(a=Int(2**31 - 1)), "`a + a` is beyond the range of an int and wraps around"),
        ("-a > 1", props(a=Int(-(2**31))), "`-a` is beyond the range of an int and wraps around"),
        ("a / -1 > 1", props(a=-(2**63)), "`a / -1` is beyond the range of a long and wraps around"),
        ("a / 2 > 1", props(a=5)),
        ("+a > 1", props(a=Byte(-128))),
        ("n <> n", props(n=float("nan")),
         "`n` is NaN, which no number equals, precedes or follows: <> is TRUE"),
        ("1 = n", props(n=float("nan")),
         "`n` is NaN, which no number equals, precedes or follows: = is FALSE"),
        ("f = 1.1", props(f=Float(1.1)),
         "`f` is a float, which as a double is 1.100000023841858, not 1.1: write 1.1F"),
        ("f = 1.5 OR f = 1.1F", props(f=Float(1.5))),
        ("a BETWEEN b AND 5", props(a="x", b=1),
         "`a` is the string 'x', compared with `b`, the long 1: FALSE in jms; "
         "`a` is the string 'x', compared with a number: FALSE in jms"),
        ("a NOT BETWEEN 1 AND 5", props(), "`a` is NULL: comparing with it is UNKNOWN"),
        ("a IN ('x')", props(a=1), "`a` is the long 1, and IN takes a string: FALSE in jms"),
        ("a NOT IN ('x')", props(), "`a` is NULL: NOT IN is UNKNOWN"),
        ("a NOT LIKE 'x'", props(a=True),
         "`a` is the boolean TRUE, and NOT LIKE takes a string: FALSE in jms"),
        ("a LIKE 'x'", props(), "`a` is NULL: LIKE is UNKNOWN"),
        ("a", props(a="x"), "`a` is the string 'x', where a boolean is needed: FALSE in jms"),
        ("a", props(), "`a` is NULL: UNKNOWN"),
        ("TRUE AND a", props(a=False)),
    ],
    ids=lambda case: case[0],
)  # fmt: skip
def test_sentences_say_why_in_jms(case):
    text, message, *sentences = case
    assert of(text, "jms", message) == tuple(sentences)


@pytest.mark.parametrize(
    ("text", "dialect", "message", "sentence"),
    [
        ("price > 3", "ibm-mq", props(price="5"),
         "`price` is the string '5', compared with a number: the whole selector is false in ibm-mq"),
        ("weight + 1 > 1", "ibm-jms", props(),
         "`weight` is NULL, and arithmetic on NULL makes the whole selector false in ibm-jms"),
        ("s * 2 > 1", "ibm-jms", props(s="x"),
         "`s` is the string 'x', not a number: the whole selector is false in ibm-jms"),
        ("a BETWEEN 1 AND b", "ibm-jms", props(a="x"),
         "`b` is NULL, and BETWEEN with NULL is FALSE in ibm-jms"),
        ("a NOT BETWEEN 1 AND b", "ibm-mq", props(b=3),
         "`a` is NULL, and NOT BETWEEN with NULL is TRUE in ibm-mq"),
        ("a IN ('x')", "ibm-mq", props(a=b"x"),
         "`a` is the byte string \"0x78\", and IN takes a string: the whole selector is false in ibm-mq"),
        ("a", "ibm-jms", props(a=1),
         "`a` is the long 1, where a boolean is needed: the whole selector is false in ibm-jms"),
        ("1 / d > 5", "ibm-mq", props(d=-0.0), "negative zero counts as zero in arithmetic of ibm-mq"),
        ("f = 1.1", "ibm-mq", props(f=Float(1.1)),
         "`f` is a float, which as a double is 1.100000023841858, not 1.1"),
        ("i = 5", "mqe", props(i=Int(5)),
         "`i` is the int 5, compared with a long: only equal types compare, so the whole selector is false "
         "in mqe; set it with setLongProperty"),
        ("d = 5.0", "mqe", props(d=Float(5)),
         "`d` is the float 5.0, compared with a double: only equal types compare, so the whole selector is "
         "false in mqe; set it with setDoubleProperty"),
        ("JMSPriority = 4.0", "mqe", Message({"JMSPriority": 4}),
         "`JMSPriority` is the int 4, compared with a double: only equal types compare, so the whole "
         "selector is false in mqe"),
        ("JMSDeliveryMode = 2", "mqe", Message({"JMSDeliveryMode": "PERSISTENT"}),
         "`JMSDeliveryMode` is read from JMSDeliveryMode, the string 'PERSISTENT': it is the int 2"),
    ],
)  # fmt: skip
def test_a_sentence_names_the_dialect_and_what_it_does(text, dialect, message, sentence):
    assert of(text, dialect, message) == (sentence,)


def test_a_match_of_ids_is_no_comparison_of_strings():
    message = Message({"JMSMessageID": f"ID:{ID}"})
    how = "`JMSMessageID` is matched by MQMO_MATCH_MSG_ID on 24 bytes, not as a string"
    text = f"JMSMessageID = 'ID:{ID.lower()}'"
    assert of(text, "ibm-jms", message) == (how,)
    assert Selector(text, "ibm-jms").matches(message)
    assert of(text, "ibm-jms") == (f"{how}: the message has no such id",)
    assert of(f"JMSMessageID = 'ID:{'00' * 24}'", "ibm-jms") == (f"{how}: zeros match any",)
    [sentence] = of(f"JMSCorrelationID = 'ID:{ID}'", "ibm-jms")
    assert "MQMO_MATCH_CORREL_ID" in sentence
    assert of(text, "jms", message) == ()


def test_a_field_says_from_which_other_name_it_is_read():
    message = Message(
        {"JMSPriority": 4, "JMSMessageID": "m-1"},
        {"Root.MQMD.PutDate": "20240229", "Root.MQMD.PutTime": "12000000"},
    )
    assert of("jms.Pri = 4", "ibm-mq", message) == (
        "`jms.Pri` is read from JMSPriority, the int 4: it is the int 4",
    )
    assert of("Root.MQMD.MsgId IS NULL", "ibm-mq", message) == (
        "`Root.MQMD.MsgId` is NULL: it cannot be read from JMSMessageID, the string 'm-1'",
    )
    assert of("JMSTimestamp > 0", "ibm-mq", message) == (
        "`JMSTimestamp` is read from Root.MQMD.PutDate, the string '20240229' and Root.MQMD.PutTime, the "
        "string '12000000': it is the long 1709208000000",
    )
    assert of("JMSPriority = 4", "ibm-mq", message) == () == of("mcd.Set IS NULL", "ibm-mq", message)


def test_names_that_no_property_may_have_come_first_and_decide():
    explanation = explained("a = 1", "ibm-mq", **{"a": 1, "in": 1, "JMSFoo": 2})
    assert explanation.truth is Truth.FALSE and explanation.result is Truth.TRUE
    assert explanation.sentences == (
        "no ibm-mq selector selects a message with the property `in`, and 1 more: it is a reserved word "
        "of selectors (reason 2442)",
    )
    mixed = explained("a = 1", "ibm-mq", **{"x": 1, "x.y": 2, "a": "1"})
    assert mixed.sentence == (
        "no ibm-mq selector selects a message with the properties `x` and `x.y`: a property of the message "
        "would be both a value and a group of others (reason 2498); `a` is the string '1', compared with a "
        "number: the whole selector is false in ibm-mq"
    )
    assert explained("a = 1", "ibm-jms", **{"a": 1, "in": 1}).sentences == ()
    assert explained("a = 1", "ibm-mq", **{"a": 1, "in": None}).truth is Truth.TRUE


def test_sentences_about_what_decided_come_first_and_once():
    sentences = explained("(a > 1 OR b = 'x') AND c AND a > 1", b=1, c=5).sentences
    assert sentences == (
        "`c` is the long 5, where a boolean is needed: FALSE in jms",
        "`a` is NULL: comparing with it is UNKNOWN",
        "`b` is the long 1, compared with a string: FALSE in jms",
    )
    void = explained("a > 1 AND (b OR s = 1)", "ibm-jms", s="x").sentences
    assert void[0].startswith("`s` is the string 'x'") and len(void) == 3


def test_sentences_are_safe_to_print():
    message = props(**{"a\u200e\x00b": "\x1b[31m\u202e", "c": Double(1)})
    for sentence in of("a\u200e\x00b = 1 OR c", "jms", message):
        assert sentence.isprintable()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("at > 5", ", compared with a number: FALSE in jms"),
        ("5 < at", ", compared with a number: FALSE in jms"),
        ("at = due", ", compared with `due`, of a type that no property has: FALSE in jms"),
        ("at LIKE 'a%'", ", and LIKE takes a string: FALSE in jms"),
        ("at + 1 > 5", ", not a number: comparing the result is FALSE in jms"),
        ("at", ", where a boolean is needed: FALSE in jms"),
    ],
)
def test_a_value_of_a_type_that_no_property_has_is_named_as_such(text, sentence):
    explanation = Selector(text).explain(Message(properties={}, unlike=["at", "due"]))
    assert explanation.sentences == (f"`at` is of a type that no property has{sentence}",)
    assert "at is of a type that no property has" in str(explanation)
