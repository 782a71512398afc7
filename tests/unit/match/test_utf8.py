"""Characters of UTF-8 from either end, and the search for a byte."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectroute.arrays import tables as t
from selectroute.match.compiled import compiled
from selectroute.match.kernel.like import after, before, code_point, first_of
from selectroute.match.memory import address_of

generated = settings(deadline=None)  # the first example compiles
raws = st.one_of(st.text("aé€😀\0", max_size=20).map(str.encode), st.binary(max_size=20))
one_character = st.builds(
    lambda lead, rest: bytes([lead, *rest]),
    st.integers(0, 255),
    st.lists(st.integers(0x80, 0xBF), max_size=4),
)


@compiled
def walk(raw, symbol, marks):
    """Mark the ends found from the left with 1, those found from the right with 2."""
    at = np.int64(0)
    while at >= 0:
        marks[at] |= 1
        at = after(address_of(raw), at, len(raw), symbol)
    at = np.int64(len(raw))
    while at >= 0:
        marks[at] |= 2
        at = before(address_of(raw), 0, at, symbol)


@compiled
def first(raw, at, end, byte):
    return first_of(address_of(raw), at, end, byte)


@compiled
def decoded(raw):
    return code_point(address_of(raw), 0, len(raw))


def walked(raw, symbol):
    marks = np.zeros(len(raw) + 1, np.int8)
    walk(np.frombuffer(raw, np.uint8), symbol, marks)
    return [np.flatnonzero(marks & bit).tolist() for bit in (1, 2)]


@generated
@given(raws)
def test_a_text_is_split_at_the_same_places_from_either_end(raw):
    inner = {k for k in range(1, len(raw)) if not 0x80 <= raw[k] < 0xC0}
    wanted = sorted({0, *inner, len(raw)})
    assert walked(raw, t.ANY_ONE) == [wanted, wanted]


@pytest.mark.parametrize("character", ["a", "\0", "é", "€", "😀"])
def test_a_symbol_is_one_character(character):
    one = character.encode()
    places = [len(one) * k for k in range(4)]
    assert walked(one * 3, ord(character)) == [places, places]
    assert walked(one * 3, ord(character) + 1) == [places[:1], places[3:]]
    assert walked(one[:-1], ord(character))[0] == [0]


@generated
@given(st.binary(max_size=40), st.integers(0, 255), st.integers(0, 9), st.integers(0, 9))
def test_a_byte_is_found_where_it_stands_first(raw, byte, start, rest):
    end = max(len(raw) - rest, start)
    raw += bytes(20)
    assert first(np.frombuffer(raw, np.uint8), start, end, byte) == raw.find(bytes([byte]), start, end)


@settings(generated, max_examples=500)
@given(st.one_of(st.characters().map(lambda c: c.encode("utf-8", "surrogatepass")), one_character))
def test_bytes_are_a_code_point_if_they_are_its_utf8(raw):
    try:
        wanted = ord(raw.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        wanted = -1
    found = decoded(np.frombuffer(raw, np.uint8))
    assert found == wanted or (wanted == -1 and found > 0x10FFFF)  # which no symbol is
