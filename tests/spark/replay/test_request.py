"""Filters of dead letters: which they find, and how requests of earlier and later releases are read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from selectroute.spark.replay.request import ReplayFilterSpec, RequestError, is_request_id
from selectroute.spark.worker.replay_filter import LETTERS

EARLIER = {"batches": [1], "stages": [], "reasons": ["not-json"], "subscriptions": []}


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


def test_requests_of_earlier_releases_are_read_and_plain_ones_are_written_as_theirs():
    read = ReplayFilterSpec.from_json(EARLIER)
    assert read == ReplayFilterSpec(batches=(1,), reasons=("not-json",))
    assert read.to_json() == EARLIER, "an earlier release reads it"
    one = ReplayFilterSpec(sources=("a",), offsets=(7,))
    assert ReplayFilterSpec.from_json(one.to_json()) == one
    with pytest.raises(RequestError, match="offsets"):
        ReplayFilterSpec.from_json({**EARLIER, "offsets": ["7"]})
    with pytest.raises(RequestError, match="subscriptions"):
        ReplayFilterSpec.from_json({"batches": [], "stages": [], "reasons": []})


def test_an_id_is_no_path():
    assert is_request_id("20260131T120000000000-0123abcd")
    assert not any(map(is_request_id, ("", "../_job", "20260131T120000000000-0123abcd.done", "x")))
