"""Topic filters: levels, wildcards in any place, and what is no filter."""

from __future__ import annotations

from functools import partial
from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.selector import Long
from selectroute.topics import InvalidTopicFilterError, TopicFilter, level_value
from selectroute.topics.filter import INDEXED_LEVELS


@pytest.mark.parametrize(
    ("topic_filter", "matching", "others"),
    [
        ("a/b", ["a/b"], ["a", "a/b/c", "A/b", "a/b/", None]),
        ("a/+", ["a/b", "a/"], ["a", "a/b/c"]),
        ("+", ["a", ""], ["a/b", "/"]),
        ("#", ["a", "a/b/c", ""], [None]),
        ("a/#", ["a", "a/b", "a/b/c"], ["b", "ab"]),
        ("a/+/#", ["a/b", "a/b/c"], ["a"]),
        ("#/z", ["z", "a/z", "a/b/z"], ["z/a"]),
        ("a/#/z", ["a/z", "a/b/z"], ["a", "z", "a/z/b"]),
        ("a/#/a", ["a/a"], ["a"]),
        ("#/b/#", ["b", "a/b", "b/c", "a/b/c"], ["a/c", "ab"]),
        ("a/#/b/+/#/c", ["a/b/x/c", "a/q/b/x/y/c"], ["a/b/c", "a/b/x/d"]),
        ("#/#", ["a", "a/b"], [None]),
        ("+/+", ["a/b", "/"], ["a"]),
        ("a//b", ["a//b"], ["a/b", "a/x/b"]),
    ],
)
def test_filter_matches_these_topics(topic_filter, matching, others):
    parsed = TopicFilter.parse(topic_filter)
    for topic in matching + others:
        assert parsed.matches(topic) is (topic in matching), topic
        held = all(literal.holds(partial(level_value, topic=topic)) for literal in parsed.literals())
        assert held is (topic in matching), topic


DEEP = "/".join("abcdefghijkl")


@pytest.mark.parametrize(
    ("topic_filter", "matching", "others"),
    [
        (DEEP, [DEEP], [DEEP[:-2], DEEP + "/m", DEEP.replace("k", "x")]),
        (DEEP + "/#", [DEEP, DEEP + "/m/n"], [DEEP[:-2], DEEP.replace("k", "x")]),
        ("#/" + DEEP, [DEEP, "z/" + DEEP], [DEEP + "/m", DEEP.replace("b", "x")]),
        (DEEP + "/#/" + DEEP, [DEEP + "/" + DEEP, DEEP + "/x/" + DEEP], [DEEP, DEEP + "/" + DEEP[2:]]),
    ],
)
def test_a_filter_of_many_levels_needs_few_attributes_and_is_exact(topic_filter, matching, others):
    literals = TopicFilter.parse(topic_filter).literals()
    assert len(literals) <= 2 * INDEXED_LEVELS + 2
    index = sr.Index()
    index.add("s", topic=topic_filter)
    found = index.freeze().match(pa.record_batch({"@topic": matching + others}))
    assert [len(row) == 1 for row in found] == [topic in matching for topic in matching + others]
    for topic in matching + others:
        assert index.match(sr.Message(topic=topic)) == (["s"] if topic in matching else [])


@pytest.mark.parametrize("text", ["", "a+", "a/b#", "#a", "++", "x" * 20_000, "a/\ud800", "a/" * 200])
def test_what_is_no_filter_is_refused(text):
    with pytest.raises(InvalidTopicFilterError):
        TopicFilter.parse(text)


def test_the_error_names_the_level():
    with pytest.raises(InvalidTopicFilterError, match=r"level 2 of the topic filter 'a/b\+/c' is 'b\+'"):
        TopicFilter.parse("a/b+/c")


def test_level_properties():
    assert level_value("@topic", "a/b") == "a/b"
    assert level_value("@topic[0]", "a/b") == "a"
    assert level_value("@topic[-1]", "a/b") == "b"
    assert level_value("@topic[2]", "a/b") is None
    assert level_value("@topic.levels", "a/b") == Long(2)
    assert level_value("@topic.levels", None) is None


LEVELS = st.sampled_from(["+", "#", "a", "b"])
FILTERS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).map(TopicFilter.parse)


@pytest.mark.parametrize(
    ("outer", "covered", "others"),
    [
        ("#", ["#", "+", "a", "a/b", "a/#", "+/#", "#/z"], []),
        ("+/#", ["#", "a", "#/+", "a/#"], []),
        ("+/+/#", ["a/#/b", "+/+", "#/+/#/+", "a/+/#"], ["#", "a/#", "+"]),
        ("a/#", ["a", "a/b/#", "a/+", "a/#/z"], ["#", "+", "+/a", "#/a", "ab"]),
        ("a/+", ["a/+", "a/b"], ["a", "a/#", "a/+/#"]),
        ("a/#/b", ["a/b", "a/+/b", "a/#/c/#/b"], ["a/#", "a", "#/b", "a/b/#"]),
        ("#/a/+/b/#", ["a/x/b", "#/a/+/b", "#/a/a/b"], ["#/a/#/b/#", "a/b"]),
        ("#/a/+/#/b/#", ["#/a/#/b/#/b/#", "a/x/y/b"], ["#/a/#/b/#", "a/b"]),
        ("a//#", ["a//b", "a/"], ["a", "a/#"]),
    ],
)
def test_filter_covers_these_filters(outer, covered, others):
    for inner in covered + others:
        assert TopicFilter.parse(outer).covers(TopicFilter.parse(inner)) is (inner in covered), inner


def topics_of(levels):
    """Topics that a filter takes: with a, b and a level that no filter has for +, and for # any one of these,
    none, or several of the latter.
    """
    gaps = [(), *((one,) for one in "abz"), *(("z",) * n for n in range(2, 8))]
    single = [(one,) for one in "abz"]
    pools = [gaps if level == "#" else single if level == "+" else [(level,)] for level in levels]
    for chosen in product(*pools):
        if any(chosen):
            yield "/".join(level for part in chosen for level in part)


@settings(max_examples=200, deadline=None)
@given(FILTERS, FILTERS)
def test_covers_is_that_every_topic_of_the_other_is_taken(outer, inner):
    assert outer.covers(inner) is all(map(outer.matches, topics_of(inner.levels)))
