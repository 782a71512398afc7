"""Large selectors: read in time that grows with them, or refused by the limit before a tree is built."""

import copy
import gc
import pickle
from contextlib import suppress

import pytest

from selectroute.selector import DIALECTS, InvalidSelectorError, Message, Selector, parse
from selectroute.selector.limits import UNLIMITED, Limits
from tests.support.growth import cost_ratio

FULL = [name for name, one in DIALECTS.items() if not one.lacks]
DEEP = 20_000

NESTED = {
    "parentheses": "(" * DEEP + "a = 1" + ")" * DEEP,
    "nots": "NOT " * DEEP + "a",
    "signs": "a = " + "- " * DEEP + "b",
    "sums": "a = b" + " + (b" * DEEP + ")" * DEEP,
    "conditions": "(" * 5_000 + "a" + " = TRUE)" * 5_000,
}
CHAINS = {
    "ands": "a" + " AND b" * DEEP,
    "ors": "a" + " OR b" * DEEP,
    "sum": "a = b" + " + b" * DEEP,
    "product": "a = b" + " * b" * DEEP,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("shape", NESTED)
def test_a_selector_nested_too_deeply_is_refused_before_a_tree_is_built(name, shape, monkeypatch):
    monkeypatch.setattr("selectroute.selector.syntax.parser._Parser", None)
    with pytest.raises(InvalidSelectorError) as caught:
        Selector(NESTED[shape], name, limits=Limits(length=10**7))
    assert caught.value.kind == "too-deep" and "255 levels" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("shape", CHAINS)
def test_a_chain_is_not_nested(shape):
    assert Selector(CHAINS[shape], limits=Limits(length=10**7)).expression is not None


def test_nesting_is_counted_exactly():
    limits = Limits(nesting=3)
    for text in (
        "(((a)))", "NOT NOT NOT a", "NOT (NOT a)", "a = - - -b", "(((a))) AND (((b)))",
        "a - (b - (c - 1)) = 1", "NOT (a) AND NOT (b) AND (NOT NOT c)", "a = -(-b)",
    ):  # fmt: skip
        assert Selector(text + " AND TRUE" * 3, limits=limits), text
    for text in ("((((a))))", "NOT NOT NOT NOT a", "NOT (NOT (a))", "a = - - - -b", "(a = (1 + (-(-b))))"):
        with pytest.raises(InvalidSelectorError) as caught:
            Selector(text + " AND TRUE" * 3, limits=limits)
        assert caught.value.kind == "too-deep", text


@pytest.mark.slow
def test_a_list_of_a_million_items_is_read_and_refused_by_the_limit(monkeypatch):
    text = "a IN (" + ", ".join(f"'{number}'" for number in range(1_000_000)) + ")"
    selector = Selector(text, limits=UNLIMITED)
    assert selector.matches(Message(properties={"a": "999999"}))
    monkeypatch.setattr("selectroute.selector.syntax.parser._Parser", None)
    with pytest.raises(InvalidSelectorError) as caught:
        Selector(text, limits=Limits(length=10**8))
    assert caught.value.kind == "too-many-items" and caught.value.underlined == "'10000'"


def test_items_are_counted_list_by_list():
    limits = Limits(items=3)
    assert Selector("a IN ('1', '2', '3') OR b IN ('4', '5', '6') OR c LIKE 'x' AND d = 'y'", limits=limits)
    with pytest.raises(InvalidSelectorError, match="the limit is 3 items"):
        Selector("a IN ('1', '2', '3', '4')", limits=limits)


def test_ten_megabytes_of_text_are_read_and_refused_by_the_limit(monkeypatch):
    unit = f"color = '{'blue' * 200}' AND weight > 2500 OR "
    text = unit * (10_000_000 // len(unit)) + "a"
    tree = parse(text, DIALECTS["jms"])
    assert tree.span == (0, len(text))
    monkeypatch.setattr("selectroute.selector.syntax.parser.tokenize", None)
    with pytest.raises(InvalidSelectorError) as caught:
        Selector(text)
    assert caught.value.kind == "too-long" and caught.value.span.start == 10_240


@pytest.mark.parametrize("unit", ["a = 1 AND ", "(", "a IN ('x', 'y') OR ", "NOT ", "a + ", "'", " "])
def test_reading_takes_as_much_longer_as_the_text_is(unit):
    def read(times):
        with suppress(InvalidSelectorError):
            parse(unit * times if unit.strip() else f"a = '{unit * 10 * times}", DIALECTS["ibm-mq"])

    # 4 where the time grows as the text does, 16 where it grows with its square.
    gc.disable()  # it looks at every node again and again, wherever they come from
    try:
        assert cost_ratio(lambda: read(10_000), lambda: read(2_500), below=6) < 10
    finally:
        gc.enable()


def test_a_selector_that_was_accepted_before_is_not_refused_by_new_limits():
    selector = Selector("(" * 1_000 + "a" + ")" * 1_000, limits=UNLIMITED)
    assert pickle.loads(pickle.dumps(selector)) == copy.deepcopy(selector) == selector  # noqa: S301  # of this line
