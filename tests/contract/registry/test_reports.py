"""Reports of streams in every kind of database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from sqlalchemy import select

from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry import reports
from selectroute.registry.log.tables import activity
from selectroute.registry.model import plain
from selectroute.registry.registry import Registry


def of(*numbers):
    return [{"batch": number, "messages": number} for number in numbers]


def numbers(page):
    return [one["batch"] for one in page.batches]


def test_the_newest_batches_come_first_page_by_page(registry):
    assert registry.streams.reports("q") == ([], None) and list(registry.streams.all()) == []
    registry.streams.note_query("q", source="/in", can_replay=True)
    registry.streams.note_reports("q", of(0, 1), {"behind": 7})
    registry.streams.note_reports("q", of(2, -1), {"behind": None})
    registry.streams.note_reports("other", of(9), {})
    assert numbers(registry.streams.reports("q")) == [2, -1, 1, 0]
    page = registry.streams.reports("q", limit=3)
    assert numbers(page) == [2, -1, 1]
    page = registry.streams.reports("q", limit=3, cursor=page.next_cursor)
    assert numbers(page) == [0] and page.next_cursor is None
    first, second = registry.streams.all()
    assert (first.query, first.source, first.newest) == ("other", "", {"batch": 9, "messages": 9})
    assert (second.query, second.source, second.state) == ("q", "/in", {"behind": None})
    assert second.newest == {"batch": 2, "messages": 2} and first.heard >= second.heard
    assert plain(second)["heard"].endswith("Z")
    registry.verify()


def test_a_batch_that_is_reported_again_is_there_once_and_a_sign_of_life_keeps_it(registry):
    registry.streams.note_reports("q", of(0, 0, 1), {})
    heard = registry.streams.all()[0].heard
    registry.streams.note_reports("q", [{"batch": 0, "messages": 5}], {})
    registry.streams.note_reports("q", [], {"behind": 1})
    assert sorted(numbers(registry.streams.reports("q"))) == [0, 1]
    assert {one["batch"]: one["messages"] for one in registry.streams.reports("q").batches}[0] == 5
    (stream,) = registry.streams.all()
    assert stream.heard >= heard and stream.state == {"behind": 1}


def test_the_newest_ones_are_kept(registry, monkeypatch):
    monkeypatch.setattr(reports, "KEPT", 5)
    for number in range(12):
        registry.streams.note_reports("q", of(number), {})
    registry.streams.note_reports("q", of(*range(20, 28)), {})
    assert numbers(registry.streams.reports("q")) == [27, 26, 25, 24, 23]


def test_what_is_too_long_and_foreign_cursors_are_refused(registry):
    with pytest.raises(InvalidSpecError, match="at most 32,768 characters"):
        registry.streams.note_reports("q", [{"batch": 1, "reason": "x" * 33_000}], {})
    assert list(registry.streams.all()) == []
    for cursor in ("bm8", "MS54Lnk", "MS0uMg"):
        with pytest.raises(InvalidSpecError):
            registry.streams.reports("q", cursor=cursor)


START = datetime(2026, 11, 25, tzinfo=UTC)


def at(second):
    return START + timedelta(seconds=second)


def named(number, second, **busiest):
    return {"batch": number, "ended": f"2026-11-25T00:00:{second:02}.5Z", "busiest": busiest}


def last(registry, *ids):
    return {one.id: (one.query, one.batch, one.deliveries) for one in registry.streams.activities(ids)}


class TestActivity:
    @pytest.fixture
    def registry(self, registry):
        for id in ("a", "b", "c"):
            registry.register(SubscriptionSpec("x = 1"), id=id)
        return registry

    def note(self, registry, second, query, *batches):
        with patch.object(registry.streams, "_now", lambda: at(second)):
            registry.streams.note_reports(query, batches, {})

    def rates(self, registry, second, *ids):
        with patch.object(registry.streams, "_now", lambda: at(second)):
            return [one.per_second for one in registry.streams.activities(ids)]

    def test_the_newest_batch_that_names_a_subscription_is_kept(self, registry):
        assert registry.streams.activities(["a", "unknown", "a b"]) == []
        registry.streams.note_reports("q", [named(1, 1, a=5, b=2), named(2, 2, b=7, unknown=9)], {})
        assert last(registry, "b", "a", "unknown") == {"b": ("q", 2, 7), "a": ("q", 1, 5)}
        assert list(last(registry, "b", "c", "a", "b")) == ["b", "a"], "in the order of the ids, each once"
        assert registry.streams.activities(["a"])[0].last_delivered == at(1.5)
        registry.streams.note_reports("q", [{"batch": 3}], {})
        assert last(registry, "a") == {"a": ("q", 1, 5)}
        assert registry.streams.reports("q").batches[1]["busiest"] == {"b": 7, "unknown": 9}
        registry.verify()

    def test_a_batch_that_is_reported_again_or_late_hides_no_newer_one(self, registry):
        registry.streams.note_reports("q", [named(2, 2, a=5), named(2, 2, a=6)], {})
        assert last(registry, "a") == {"a": ("q", 2, 6)}
        registry.streams.note_reports("q", [named(2, 2, a=8)], {})
        assert last(registry, "a") == {"a": ("q", 2, 8)}
        registry.streams.note_reports("q", [named(1, 1, a=1, b=1)], {})
        assert last(registry, "a", "b") == {"a": ("q", 2, 8), "b": ("q", 1, 1)}

    def test_of_two_streams_the_later_batch_counts_whatever_their_clocks_say(self, registry):
        registry.streams.note_reports("one", [named(7, 9, a=1)], {})
        registry.streams.note_reports("two", [named(1, 5, a=2, b=2)], {})
        assert last(registry, "a", "b") == {"a": ("one", 7, 1), "b": ("two", 1, 2)}
        ahead = {"batch": 8, "ended": "2999-01-01T00:00:00Z", "busiest": {"a": 3}}
        registry.streams.note_reports("one", [ahead], {})
        assert last(registry, "a") == {"a": ("one", 8, 3)}
        registry.streams.note_reports("two", [{"batch": 2, "busiest": {"a": 4}}], {})
        assert last(registry, "a") == {"a": ("two", 2, 4)}

    def test_it_ends_with_the_subscription(self, registry):
        registry.streams.note_reports("q", [named(1, 1, a=5, b=2, c=3)], {})
        registry.replace("b", SubscriptionSpec("x = 2"))
        registry.import_(['{"id": "c", "selector": "x = 3"}'], mode="replace")
        registry.remove("a")
        registry.streams.note_reports("q", [named(2, 2, a=6)], {})
        registry.register(SubscriptionSpec("x = 2"), id="a")
        assert last(registry, "a", "b", "c") == {"b": ("q", 1, 2), "c": ("q", 1, 3)}
        registry.verify()

    def test_the_rate_is_that_of_the_newest_batches_since_the_oldest_of_them(self, registry, monkeypatch):
        monkeypatch.setattr(reports, "RATED", 3)
        self.note(registry, 0, "q", named(0, 0, a=1_000))
        assert self.rates(registry, 1, "a") == [None]
        self.note(registry, 10, "q", named(1, 10, a=30))
        self.note(registry, 20, "q", named(2, 20, a=10, b=40), {"batch": 3})
        assert self.rates(registry, 20, "a", "b") == [1.0, 4.0]
        self.note(registry, 30, "q", named(4, 30, a=20))  # the oldest of three is that of second 20
        assert self.rates(registry, 30, "a", "b") == [2.0, None]
        assert self.rates(registry, 40, "a") == [1.0], "it falls while nothing comes"
        assert self.rates(registry, 20, "a") == [2.0], "clock set back"

    def test_the_rate_is_of_all_streams_that_run(self, registry):
        for query, each in (("one", 10), ("two", 20)):
            for number in range(3):
                self.note(registry, 10 * number, query, named(number, 0, a=each))
        assert self.rates(registry, 20, "a") == [3.0]
        self.note(registry, 70, "one")  # a sign of life
        assert self.rates(registry, 80, "a") == [0.75]
        assert self.rates(registry, 100, "a") == [0.2], "the other one is silent"
        assert self.rates(registry, 200, "a") == [None]

    def test_more_ids_than_fit_one_statement_are_kept_and_asked_for(self, registry):
        ids = [f"s{number}" for number in range(1_200)]
        registry.import_(f'{{"id": "{id}"}}' for id in ids)
        batches = [{"batch": n, "busiest": dict.fromkeys(ids[100 * n :][:100], n + 1)} for n in range(12)]
        registry.streams.note_reports("q", batches, {})
        assert [one.batch for one in registry.streams.activities(iter(ids))] == [
            n // 100 for n in range(1_200)
        ]
        with pytest.raises(TypeError, match="give a list of ids"):
            registry.streams.activities("s1")

    def test_streams_report_the_same_subscriptions_at_once_while_they_are_removed(self, url, registry):
        ids = [f"s{number}" for number in range(60)]
        registry.import_(f'{{"id": "{id}"}}' for id in ids)

        def report(query, order):
            with Registry.open(url, verify=False) as other:
                for number in range(15):
                    other.streams.note_reports(
                        query, [{"batch": number, "busiest": dict.fromkeys(order, 1)}], {}
                    )

        with ThreadPoolExecutor(2) as pool:
            reporting = [pool.submit(report, "one", ids), pool.submit(report, "two", ids[::-1])]
            for id in ids[::2]:
                registry.remove(id)
            for stream in reporting:
                stream.result()
        assert list(last(registry, *ids)) == ids[1::2]
        with registry._store.reading() as connection:
            assert len(connection.execute(select(activity)).all()) == 30
        registry.verify()
