"""LIKE against a plain oracle, and how its work grows with the text and the pattern."""

from __future__ import annotations

from typing import SupportsIndex

import pytest
from hypothesis import given, settings

from selectroute.selector import LikeOp, compile_like, like
from tests.support.growth import cost_ratio
from tests.support.like_cases import SHORT_PATTERNS, SHORT_TEXTS, texts_and_patterns


def oracle(text, operations):
    """Every place in the text that the operations so far can reach."""
    places = {0}
    for operation in operations:
        if operation is LikeOp.ANY_MANY:
            places = set(range(min(places), len(text) + 1)) if places else places
        else:
            places = {
                place + 1
                for place in places
                if place < len(text) and operation in (LikeOp.ANY_ONE, text[place])
            }
    return len(text) in places


def test_every_short_pattern_on_every_short_text():
    for pattern in SHORT_PATTERNS:
        operations = compile_like(pattern)
        for text in SHORT_TEXTS:
            assert like(text, operations) is oracle(text, operations), (text, pattern)


@settings(max_examples=400)
@given(texts_and_patterns())
def test_patterns_that_nearly_match(case):
    text, pattern = case
    operations = compile_like(pattern)
    assert like(text, operations) is oracle(text, operations)


@pytest.mark.parametrize(
    ("text", "pattern", "verdict"),
    [
        ("aba", "ab%ba", False),  # the head and the tail need characters of their own
        ("abab", "%ab%ab%", True),
        ("abaab", "%ab%ab%ab%", False),
        ("😀é", "__", True),
        ("e\u0301", "_", False),  # normal forms are not compared: this é is two characters
        ("xaxbx", "%_a_b_%", True),
        ("xaxb", "%_a_b_%", False),
        ("a_c", "%_c%", True),
        ("a" * 64 + "b", "%" + "a" * 60 + "_b%", True),
        ("a" * 64 + "b", "%" + "a" * 64 + "_b%", False),
    ],
)
def test_verdict(text, pattern, verdict):
    assert like(text, compile_like(pattern)) is verdict


class Counted(str):
    """A text that counts the characters which are read of it."""

    reads = 0

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        found = super().__getitem__(key)
        self.reads += len(found)
        return found

    def find(self, sub: str, start: int, stop: int) -> int:  # type: ignore[override]
        at = super().find(sub, start, stop)
        self.reads += (stop if at < 0 else at + len(sub)) - start
        return at


ADVERSARIAL = {
    "many segments": "%a" * 2_000,
    "any many again and again": "%" * 50_000 + "a",
    "many segments and no end": "%a" * 2_000 + "%b%",
    "any one in every segment": "%a_a" * 500 + "%b%",
    "the end nearly matches everywhere": "%" + "a" * 1_000,
    "a segment nearly matches everywhere": "%" + "a" * 1_000 + "b%",
    "one with any one nearly matches everywhere": "%" + "a" * 500 + "_" + "a" * 500 + "b%",
    "nothing but any one": "%" + "_" * 1_000 + "%b%",
}
adversarial = pytest.mark.parametrize("pattern", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())


@adversarial
@pytest.mark.parametrize("unit", ["a", "aab", "😀a"])
def test_no_character_is_read_again_and_again(pattern, unit):
    text = Counted(unit * (100_000 // len(unit)))
    like(text, compile_like(pattern))
    assert text.reads <= len(text) + len(pattern)


def time_ratio(large, small, below):
    """The ratio of the times of two calls, each a text and a pattern."""

    def call(text, pattern):
        operations = compile_like(pattern)
        return lambda: like(text, operations)

    return cost_ratio(call(*large), call(*small), below)


@adversarial
def test_a_text_twice_as_long_takes_twice_the_time_at_most(pattern):
    assert time_ratio(("a" * 1_000_000, pattern), ("a" * 500_000, pattern), below=3.5) < 3.5


def test_a_long_segment_takes_no_time_for_each_pair_of_characters():
    """The reads are bounded above; this bounds the work on each of them, also within CPython's search."""
    text = "a" * 1_000_000
    long, short = ("%" + "a" * size + "b%" for size in (100_000, 100))
    assert time_ratio((text, long), (text, short), below=8) < 8
