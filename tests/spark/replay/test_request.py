"""Filters of dead letters: which they find, and how they are written and read."""

import pyarrow as pa
import pytest

from selectroute.spark.replay.request import ReplayFilterSpec, RequestError, is_request_id
from selectroute.spark.task.replay_filter import LETTERS


def letters(*rows):
    names = ("stage", "reason", "source", "partition", "offset", "subscription")
    whole = [{**dict.fromkeys(LETTERS.names), **dict(zip(names, row, strict=True))} for row in rows]
    return pa.Table.from_pylist(whole, LETTERS)


TABLE = letters(
    ("read", "too-large", "a", 0, 1, None),
    ("read", "too-large", "a", 1, 1, None),
    ("deliver", "unknown-queue", "a", 0, 1, "s"),
    ("read", "unreadable-file", "b", 0, None, None),
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [True, True, True, True]),
        ({"sources": ("a",), "partitions": (0,), "offsets": (1,)}, [True, False, True, False]),
        ({"offsets": (1,), "stages": ("deliver",)}, [False, False, True, False]),
        ({"sources": ("b",)}, [False, False, False, True]),
        ({"offsets": (0,)}, [False, False, False, False]),
    ],
)
def test_letters_are_found_by_any_of_their_parts(wanted, found):
    assert ReplayFilterSpec(**wanted).mask(TABLE).tolist() == found


def test_a_filter_is_read_as_it_was_written_and_nothing_else_is_read():
    wanted = ReplayFilterSpec(sources=("a",), offsets=(7,))
    written = wanted.to_json()
    assert ReplayFilterSpec.from_json(written) == wanted
    with pytest.raises(RequestError, match="offsets"):
        ReplayFilterSpec.from_json({**written, "offsets": ["7"]})
    with pytest.raises(RequestError, match="offset"):
        ReplayFilterSpec.from_json({**written, "offset": [7]})
    del written["subscriptions"]
    with pytest.raises(RequestError, match="subscriptions"):
        ReplayFilterSpec.from_json(written)


def test_an_id_is_no_path():
    assert is_request_id("20260131T120000000000-0123abcd")
    assert not any(map(is_request_id, ("", "../_job", "20260131T120000000000-0123abcd.done", "x")))
