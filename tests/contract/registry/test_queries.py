"""What queries report, and what is told of it."""

from __future__ import annotations

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.model import plain


def effective(registry, revision):
    return [(one.query, one.batch) for one in registry.streams.effective_from(revision)]


def test_a_revision_is_effective_from_the_first_batch_that_used_it(registry):
    for batch, revision in [(0, 1), (1, 1), (2, 4), (3, 4), (4, 9)]:
        registry.streams.note_batch("q", batch, revision)
    assert [effective(registry, revision) for revision in (1, 2, 4, 5, 9, 10)] == [
        [("q", 0)], [("q", 2)], [("q", 2)], [("q", 4)], [("q", 4)], []
    ]  # fmt: skip


def test_each_query_has_its_own_first_batch(registry):
    registry.streams.note_batch("b", 7, 3)
    registry.streams.note_batch("a", 9, 5)
    assert effective(registry, 2) == [("a", 9), ("b", 7)]
    assert effective(registry, 4) == [("a", 9)]


def test_a_report_that_comes_late_or_again_changes_nothing_or_makes_it_exact(registry):
    registry.streams.note_batch("q", 5, 11)
    registry.streams.note_batch("q", 4, 10)
    registry.streams.note_batch("q", 5, 11)
    registry.streams.note_batch("q", 6, 11)
    assert effective(registry, 10) == [("q", 4)]
    assert effective(registry, 11) == [("q", 5)]
    registry.streams.note_batch("q", 3, 10)
    assert effective(registry, 10) == [("q", 3)]
    registry.verify()


def test_what_was_told_of_old_revisions_stays_when_a_query_begins_anew(registry):
    registry.streams.note_batch("q", 900, 300)
    registry.streams.note_batch("q", 0, 500)
    registry.streams.note_batch("q", 1, 500)
    assert effective(registry, 300) == [("q", 900)]
    assert effective(registry, 301) == [("q", 0)]


def test_a_query_may_be_described_again(registry):
    registry.streams.note_query("q", source="socket", can_replay=False, reason="read once")
    registry.streams.note_query("q", source="files", can_replay=True)

    registry.register(SubscriptionSpec(), id="s")
    registry.pause("s")
    [told] = registry.resume("s", from_="last-processed").backfill
    assert plain(told) == {"query": "q", "can_replay": True, "reason": None}
    registry.verify()
