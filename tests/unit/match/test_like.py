"""The kernel's LIKE against the reference, in greedy search and in bits, and how their time grows."""

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selectroute.arrays import tables as t
from selectroute.clauses.predicate import match_levels
from selectroute.match.kernel import like as module
from selectroute.match.kernel.like import has_levels, like, like_in_bits
from selectroute.selector import LikeOp, compile_like
from selectroute.selector import like as reference
from tests.support.components import NIGHTLY
from tests.support.growth import cost_ratio
from tests.support.like_cases import SHORT_PATTERNS, SHORT_TEXTS, texts_and_patterns

generated = settings(deadline=None)  # the first example compiles
PIECES = [b"a", b"\x80", b"\xc3", b"\xe2", b"\xf0", b"\xff", b"a" * 9, "é".encode()]
SYMBOLS = {LikeOp.ANY_ONE: t.ANY_ONE, LikeOp.ANY_MANY: t.ANY_MANY}


def encoded(text, pattern):
    """The arguments of the kernel, within arrays that hold more of the same before and behind."""
    symbols = [SYMBOLS[op] if isinstance(op, LikeOp) else ord(op) for op in compile_like(pattern)]
    raw = text if isinstance(text, bytes) else text.encode()
    around_text, around = np.frombuffer(raw * 3, np.uint8), np.array(symbols * 3, np.int32)
    around.setflags(write=False)
    return around_text, len(raw), 2 * len(raw), around, len(symbols), 2 * len(symbols)


def test_every_short_pattern_on_every_short_text():
    for pattern, text in product(SHORT_PATTERNS, SHORT_TEXTS):
        wanted = reference(text, compile_like(pattern))
        arguments = encoded(text, pattern)
        assert (like(*arguments), like_in_bits(*arguments)) == (wanted, wanted), (text, pattern)


@settings(generated, max_examples=4_000 if NIGHTLY else 400)
@given(texts_and_patterns())
@example(("a", "\0"))
@example(("a" * 64 + "b", "%" + "a" * 64 + "b%"))
@example(("a" * 200 + "b", "%a" + "_" * 126 + "ab%"))  # bits move from word to word
@example(("a" * 64 + "c" + "b" * 9, "%" + "a" * 64 + "b" * 9 + "%"))  # … and none that was not there
@example(("ab" * 70 + "a" * 70 + "b", "%" + "a" * 66 + "_b%"))  # words fall out of use and come back
@example(("b" * 90, "%" + "a" * 64 + "b%"))  # … and take nothing in meanwhile
@example(("a" * 90 + "b", "%a_" + "a" * 70 + "b%a%"))  # a segment after one that had more words
def test_both_searches_agree_with_the_reference(case):
    text, pattern = case
    wanted = reference(text, compile_like(pattern))
    arguments = encoded(text, pattern)
    assert (like(*arguments), like_in_bits(*arguments)) == (wanted, wanted)


def characters(raw):
    """Bytes as the string of their characters, where U+E000 stands for each that encodes no code point."""
    split = re.findall(rb"\A[\x80-\xbf]+|[^\x80-\xbf][\x80-\xbf]*", raw)
    decoded = [one.decode(errors="replace") for one in split]
    return "".join(one if one.encode() == raw else "\ue000" for one, raw in zip(decoded, split, strict=True))


@settings(generated, max_examples=500)
@given(
    st.lists(st.sampled_from(PIECES), max_size=9),
    st.text("aé\xe2\xf0_%", max_size=6),
)
@example([b"\xc1\xa1"], "%a%")  # an overlong encoding is not what it spells
@example([b"a\x80"], "%a%")  # … nor is what has a byte too many
@example([b"\xe2\x82\xac\x80\x80"], "_")
def test_what_is_no_utf8_is_split_before_each_byte_but_those_of_continuation(pieces, pattern):
    raw = b"".join(pieces)
    wanted = reference(characters(raw), compile_like(pattern))
    within, start, end, *rest = encoded(raw, pattern)
    alone = np.frombuffer(raw, np.uint8)
    for arguments in (within, start, end, *rest), (alone, 0, len(raw), *rest):
        assert (like(*arguments), like_in_bits(*arguments)) == (wanted, wanted)


def _nearly(size):
    """A segment of `size` characters that fails at its last one wherever it is tried."""
    return "%" + "a" * (size // 2) + "_" + "a" * (size - size // 2 - 2) + "b%"


@pytest.mark.parametrize(
    ("text", "pattern", "in_bits"),
    [
        ("a" * 3_000, _nearly(100), True),
        ("😀" * 3_000, _nearly(100).replace("a", "😀"), True),
        ("a" * 3_000, "%" + "a" * 100 + "%", False),  # found at once
        ("ab" * 1_500, _nearly(100), False),  # fails at the second character
        ("a" * 300, _nearly(100), False),  # is done before bits would be worth their arrays
    ],
)
def test_a_search_much_of_which_is_in_vain_goes_on_in_bits(monkeypatch, text, pattern, in_bits):
    handed_over = []

    def recorder(*arguments):
        handed_over.append(arguments)
        return like_in_bits(*arguments)

    monkeypatch.setattr(module, "like_in_bits", recorder)
    arguments = encoded(text, pattern)
    assert like.py_func(*arguments) is reference(text, compile_like(pattern))
    assert bool(handed_over) is in_bits


@pytest.mark.parametrize("end", ["", "b"])
@pytest.mark.parametrize("unit", ["a", "😀"])
def test_it_goes_on_in_bits_with_the_same_verdict(unit, end):
    text = unit * 20_000 + end
    for pattern in (_nearly(200), _nearly(200).removesuffix("%"), _nearly(200) + "b", "%" + "a" * 200):
        pattern = pattern.replace("a", unit)
        assert like(*encoded(text, pattern)) is reference(text, compile_like(pattern))


def time_ratio(large, small, below):
    """The ratio of the times of two calls, each a text and a pattern."""
    large, small = encoded(*large), encoded(*small)
    like(*small)  # compiled
    return cost_ratio(lambda: like(*large), lambda: like(*small), below)


@pytest.mark.parametrize(
    "pattern",
    ["%a" * 2_000, "%a" * 2_000 + "%b%", "%a_a" * 500 + "b", "%" + "a" * 1_000, _nearly(50), _nearly(1_000)],
    ids=["many segments", "no end", "any one in segments", "a long end", "a short segment", "a long segment"],
)
def test_a_text_twice_as_long_takes_twice_the_time_at_most(pattern):
    assert time_ratio(("a" * 1_000_000, pattern), ("a" * 500_000, pattern), below=3.5) < 3.5


def test_a_segment_sixteen_times_as_long_takes_far_less_than_sixteen_times_the_time():
    text = "a" * 500_000
    assert time_ratio((text, _nearly(512)), (text, _nearly(32)), below=6) < 6


def test_a_pattern_that_the_text_rarely_comes_near_takes_no_longer_for_its_length():
    near = "%" + "ab" * 10
    text = "ab" * 10 + "c" * 20_000 + "ab" * 500_000  # but for once
    long, short = (near + "c" * size + "d%" for size in (60_000, 10))
    assert time_ratio((text, long), (text, short), below=3.5) < 3.5


def levels_encoded(topic, filter_):
    """The arguments of the kernel for a topic and the levels of a filter."""
    numbers = {level: number for number, level in enumerate(sorted({*filter_} - {"+", "#"}))}
    symbols = [{"+": t.ANY_ONE, "#": t.ANY_MANY}.get(one, numbers.get(one)) for one in filter_]
    octets = [level.encode() for level in numbers]
    firsts = np.cumsum([0, *map(len, octets)]).astype(np.int64)
    level_bytes = np.frombuffer(b"".join(octets) or b"/", np.uint8)
    text = np.frombuffer(topic.encode() * 2 or b"/", np.uint8)
    size = len(topic.encode())
    return text, size, 2 * size, np.array(symbols, np.int32), 0, len(symbols), firsts, level_bytes


LEVELS = st.sampled_from(["a", "b", "", "ab", "é"])


@settings(generated, max_examples=500)
@given(
    st.lists(LEVELS, min_size=1, max_size=9), st.lists(LEVELS | st.sampled_from("+#"), min_size=1, max_size=9)
)
@example(["a"] * 80 + ["b"], ["#", *"a" * 70, "b", "#"])
def test_levels_agree_with_the_reference_in_both_searches(topic, filter_):
    arguments = levels_encoded("/".join(topic), filter_)
    wanted = match_levels(topic, tuple(filter_))
    assert (has_levels(*arguments), module._levels_in_bits(*arguments)) == (wanted, wanted)


def test_levels_much_of_which_are_compared_in_vain_go_on_in_bits(monkeypatch):
    handed_over = []
    monkeypatch.setattr(module, "_levels_in_bits", lambda *arguments: handed_over.append(arguments))
    nearly = ["cars", "#", *"a" * 124, "b", "#"]
    has_levels.py_func(*levels_encoded("cars/" + "a/" * 990, nearly))
    assert len(handed_over) == 1
    assert not has_levels.py_func(*levels_encoded("cars/" + "a/" * 40, nearly)) and len(handed_over) == 1
