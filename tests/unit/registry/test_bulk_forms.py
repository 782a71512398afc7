"""Quick forms that an import uses give the same as the plain ones, for whatever is imported."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectroute.index.specification import Destination, SubscriptionStatus
from selectroute.registry.bulk import checking, transfer
from selectroute.registry.log.rows import ViewRow, added_values, body_of, from_body, view_row
from selectroute.registry.log.transaction import LoggedRow, LogRow, chained_adds, chained_row
from selectroute.registry.model import Subscription, time_text
from selectroute.store.engine import START

_TEXT = st.text(max_size=8)  # half of a surrogate pair is refused wherever a subscription is given
_TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
_DESTINATIONS = st.sampled_from([Destination(), Destination("queue", "A/b"), Destination("kafka", "c?g=1")])
_SUBSCRIPTIONS = st.builds(
    Subscription,
    id=_TEXT,
    name=_TEXT,
    topic=st.none() | _TEXT,
    selector=_TEXT,
    dialect=_TEXT,
    seltype=st.sampled_from(["NONE", "STANDARD", "EXTENDED"]),
    destination=_DESTINATIONS,
    status=st.sampled_from(SubscriptionStatus),
    labels=st.dictionaries(_TEXT, _TEXT, max_size=3),
    revision=st.integers(0, 2**63 - 1),
    created=_TIMES,
    modified=_TIMES,
)


@given(_SUBSCRIPTIONS)
def test_a_body_is_what_an_encoder_writes(one):
    data = one.to_json()
    del data["revision"]
    assert body_of(one) == json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    assert from_body(body_of(one), one.revision) == one


_ROWS = st.lists(st.tuples(_TEXT, _TEXT, st.none() | _TEXT, _TEXT, _TEXT, _TEXT), max_size=4)


@given(_ROWS, st.integers(0, 2**63 - 1), st.integers(0, 2_000_000))
def test_many_rows_of_the_view_are_what_each_alone_is(added, revision, first):
    alone = [view_row(*one[:5], (revision, seq), one[5]) for seq, one in enumerate(added, first)]
    values = added_values(added, revision, first)
    rows = [values[start : start + 7] for start in range(0, len(values), 7)]
    assert [ViewRow(*row[:5], revision, *row[5:]) for row in rows] == alone


@given(
    st.lists(st.tuples(_TEXT, _TEXT), max_size=4),
    st.integers(0, 2**63 - 1),
    st.integers(0, 99),
    _TIMES.map(time_text),
)
def test_many_adds_are_chained_as_one_after_the_other(added, revision, first, time):
    digest, alone = START, []
    for seq, (id, body) in enumerate(added, first):
        alone.append(chained_row(digest, revision, seq, LogRow("add", id, body), time, "user a"))
        digest = alone[-1].digest
    values, last = chained_adds(START, revision, first, added, time, "user a")
    rows = [values[start : start + 4] for start in range(0, len(values), 4)]
    whole = [
        LoggedRow(revision, seq, "add", id, body, None, None, time, "user a", digest)
        for seq, id, body, digest in rows
    ]
    assert whole == alone and last == digest


@given(_SUBSCRIPTIONS, st.none() | st.sampled_from(SubscriptionStatus))
def test_a_line_of_the_file_has_the_body_that_would_be_registered(one, status):
    one = replace(one, created=one.modified, status=status or SubscriptionStatus.ACTIVE)
    if any(mark in f"{one.id}{one.name}{one.dialect}" for mark in "\t\n\r"):
        return  # refused before
    if one.topic is not None and any("\ud800" <= mark <= "\udfff" for mark in one.topic):
        return  # likewise
    line = checking._Line(7, one.id, one.spec, status)
    now = one.to_json()["created"]
    found = checking.Staged.of(*checking._texts([line], [one.seltype], now))
    assert found.body == body_of(replace(one, labels=dict(sorted(one.labels.items()))))
    assert (found.number, found.status, found.id, found.name) == (7, status, one.id, one.name)
    assert dict(found.labels) == dict(one.labels)


def test_what_is_made_one_ahead_comes_in_its_order():
    made = []

    def items():
        for number in range(5):
            made.append(number)
            yield number + 1

    found = []
    for item in transfer._one_ahead(items()):
        found.append(item)
        assert len(made) <= item + 1
    assert found == [1, 2, 3, 4, 5]


def test_an_error_of_what_is_made_one_ahead_comes_after_what_was_made_before():
    def items():
        yield 1
        raise OSError("no file")

    ahead = transfer._one_ahead(items())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="no file"):
        next(ahead)


def test_nothing_more_is_made_when_nobody_wants_it():
    made = []

    def items():
        while True:
            made.append(1)
            yield 1

    ahead = transfer._one_ahead(items())
    next(ahead)
    ahead.close()
    assert len(made) <= 2
