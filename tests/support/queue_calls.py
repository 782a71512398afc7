"""Short names for ids of 24 bytes, and what tests of queues have in common."""

from __future__ import annotations

from itertools import product

import pytest

import selectroute as sr
from tests.support.components import POSTGRES

EVERY_KIND = pytest.mark.parametrize(
    "make",
    ["memory", pytest.param("sqlite", marks=pytest.mark.slow), pytest.param("postgresql", marks=POSTGRES)],
    indirect=True,
)
"""For tests of many calls, which databases take long for."""


def id_of(name: str) -> bytes:
    """Return the 24 bytes of a short text, padded with zeros."""
    return name.encode().ljust(24, b"\0")


def hex_of(octets: bytes) -> str:
    """Return an id as selectors have it."""
    return f"ID:{octets.hex().upper()}"


def created(queues, name, settings=None):
    """Create a queue and open it."""
    assert queues.create(name, settings)
    return queues.open(name)


def reason_of(call, *args, **kwargs):
    """The reason for which a call fails."""
    with pytest.raises(sr.MQError) as raised:
        call(*args, **kwargs)
    assert raised.value.comp == 2
    return raised.value.reason


def bodies(queue, **request):
    """The bodies of all matches, in the order of browsing."""
    cursor, found = queue.cursor(), []
    while True:
        try:
            found.append(cursor.next(**request).body)
        except sr.MQError as error:
            assert error.reason == 2033
            return found


def put_pool(queue):
    """Put a message for each of eight combinations of ids."""
    for m, c, g in product("xy", repeat=3):
        queue.put(f"{m}{c}{g}".encode(), msg_id=id_of(m), correl_id=id_of(c), group_id=id_of(g))
