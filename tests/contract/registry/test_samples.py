"""Sample of recent messages in every kind of database."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from selectroute.index.errors import InvalidSpecError
from selectroute.registry import reports


def of(*weights):
    return [{"properties": {"weight": weight}} for weight in weights]


def weights(found):
    return [one.message["properties"]["weight"] for one in found]


def test_messages_come_back_in_the_order_in_which_they_were_sent(registry):
    assert list(registry.streams.recent_messages()) == []
    registry.streams.note_messages("q", of(1, 2))
    registry.streams.note_messages("other", of(3))
    registry.streams.note_messages("q", [])
    found = registry.streams.recent_messages()
    assert weights(found) == [1, 2, 3] and [one.query for one in found] == ["q", "q", "other"]
    assert found[0].time.endswith("Z")
    assert weights(registry.streams.recent_messages(found[0].key)) == [2, 3]
    assert list(registry.streams.recent_messages(found[-1].key)) == []
    registry.verify()


def test_messages_that_are_added_later_come_later_whatever_the_clocks_say(registry):
    """Readers ask for those after the newest that they have seen."""
    second, added = datetime(2026, 11, 25, tzinfo=UTC), threading.Event()

    def note(query, now, *numbers):
        with registry._store.writing() as connection:
            reports.note_messages(connection, query, of(*numbers), now)
        added.set()

    other = threading.Thread(target=note, args=("a", second - timedelta(seconds=30), 2))
    with registry._store.writing() as connection:
        reports.note_messages(connection, "b", of(1), second)
        other.start()
        assert not added.wait(0.3), "another stream waits for this one"
    other.join()
    first, _ = registry.streams.recent_messages()
    assert weights(registry.streams.recent_messages(first.key)) == [2]
    note("b", second, 3)
    note("b", second, 4)
    assert weights(registry.streams.recent_messages(first.key)) == [2, 3, 4]
    registry.verify()


def test_the_newest_of_all_queries_are_kept(registry, monkeypatch):
    monkeypatch.setattr(reports, "SAMPLES_KEPT", 5)
    for number in range(4):
        registry.streams.note_messages("a", of(number))
        registry.streams.note_messages("b", of(10 + number, 20 + number))
    assert weights(registry.streams.recent_messages()) == [12, 22, 3, 13, 23]
    registry.streams.note_messages("a", of(*range(100, 109)))
    assert weights(registry.streams.recent_messages()) == [104, 105, 106, 107, 108]


def test_a_message_that_is_too_long_is_refused_and_none_of_its_report_is_kept(registry):
    long = {"properties": {"text": "x" * reports.MAX_SAMPLED}}
    with pytest.raises(InvalidSpecError, match="at most 8,192 characters"):
        registry.streams.note_messages("q", [*of(1), long])
    assert list(registry.streams.recent_messages()) == []
