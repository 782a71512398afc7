"""A sealed object is what was written, or an error."""

from __future__ import annotations

import pytest

from selectroute.durable.disk import sealed, unsealed

CONTENT = {"query": "q", "revision": 12}


def test_what_was_sealed_comes_back():
    assert unsealed(sealed(CONTENT).encode()) == CONTENT


def test_no_bit_of_it_turns_unnoticed():
    data = sealed(CONTENT).encode()
    for bit in range(len(data) * 8):
        turned = bytearray(data)
        turned[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"."):
            unsealed(bytes(turned))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"\xff", b"[" * 200_000, b"{}", b'{"query": "q"}'])
def test_what_is_no_sealed_object_is_refused(data):
    with pytest.raises(ValueError, match=r"."):
        unsealed(data)
