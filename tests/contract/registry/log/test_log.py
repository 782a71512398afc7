"""The change log: whole revisions in order, waited for, and the past."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.errors import DamagedError
from selectroute.registry.log import change_log
from selectroute.registry.model import Change, Operation, Subscription
from selectroute.registry.registry import Registry


def add(registry, *ids):
    registry.apply(Operation("add", id, SubscriptionSpec(f"a = '{id}'")) for id in ids)


def test_the_log_has_every_change_with_what_was_after_it(registry):
    one = registry.register(SubscriptionSpec("a = 1"), id="s")
    two = registry.replace("s", SubscriptionSpec("a = 2"))
    three = registry.pause("s")
    four = registry.resume("s").subscription
    registry.remove("s")
    changes = registry.changes()
    assert [(c.revision, c.op, c.id) for c in changes] == [
        (1, "add", "s"), (2, "replace", "s"), (3, "pause", "s"), (4, "resume", "s"), (5, "remove", "s")
    ]  # fmt: skip
    assert [c.subscription for c in changes] == [one, two, three, four, None]
    assert [c.paused_at for c in changes] == [None, None, None, 3, None]
    assert all(c.time == c.subscription.modified for c in changes[:-1])


def test_changes_and_subscriptions_survive_json(registry):
    registry.register(SubscriptionSpec("a = 'ü'", topic="t", labels={"a": "b"}), id="s")
    registry.pause("s")
    registry.resume("s", from_="last-processed")
    registry.remove("s")
    for change in registry.changes():
        assert Change.from_json(change.to_json()) == change
        if change.subscription is not None:
            assert Subscription.from_json(change.subscription.to_json()) == change.subscription


def test_a_page_of_changes_ends_with_a_revision(registry):
    add(registry, "a", "b", "c")
    add(registry, "d")
    add(registry, "e", "f")
    sizes, after = [], 0
    while found := registry.changes(after, limit=4):
        sizes.append(len(found))
        after = found[-1].revision
    assert sizes == [4, 2]
    assert [c.id for c in registry.changes(1, limit=2)] == ["d"]
    assert registry.changes(3) == registry.changes(99) == []
    with pytest.raises(InvalidSpecError):
        registry.changes(limit=0)


def test_a_revision_that_is_too_large_for_a_page_goes_on_behind_its_cursor(registry):
    add(registry, "z")
    add(registry, "a", "b", "c", "d", "e")
    add(registry, "f")
    page = registry.changes(1, limit=2)
    assert ([c.id for c in page], page.complete, page.revision) == (["a", "b"], 1, 3)
    page = registry.changes(cursor=page.next_cursor, limit=2)
    assert ([c.id for c in page], page.complete) == (["c", "d"], 1)
    page = registry.changes(cursor=page.next_cursor, limit=2)
    assert ([c.id for c in page], page.complete, page.next_cursor) == (["e", "f"], 3, None)
    page = registry.changes(0, limit=3)
    assert ([c.id for c in page], page.complete) == (["z"], 1)  # the next one would be cut
    assert [c.id for c in registry.changes(cursor=page.next_cursor, limit=100)] == list("abcdef")


def test_a_page_of_changes_has_so_many_characters_and_no_more(registry, monkeypatch):
    add(registry, "a", "b", "c", "d")
    monkeypatch.setattr(change_log, "MAX_CHARACTERS", 600)
    sizes, page = [], registry.changes()
    while page.next_cursor is not None:
        sizes.append(len(page))
        page = registry.changes(cursor=page.next_cursor)
    assert sum(sizes) + len(page) == 4 and max(sizes) < 4
    monkeypatch.setattr(change_log, "MAX_CHARACTERS", 0)
    assert len(registry.changes()) == 1  # one there is always


@pytest.mark.parametrize(
    "cursor", ["", "x", "é", "MS5hLjE", "MS4xLi0x", "MS4xLjk5OTk5OTk5OTk5", "MS4x", "!" * 9]
)
def test_what_is_no_cursor_of_the_log_is_refused(registry, cursor):
    with pytest.raises(InvalidSpecError) as caught:
        registry.changes(cursor=cursor)
    assert caught.value.pointer == "/cursor"


def test_only_the_kinds_of_changes_that_are_asked_for_are_read(registry):
    add(registry, "a", "b", "c")
    for id in "abc":
        registry.pause(id)
    registry.resume("b")
    registry.resume("a", from_="last-processed")
    registry.replace("a", SubscriptionSpec())
    registry.remove("b")
    wanted = ("resume", "remove")
    found = [("resume", "b"), ("resume", "a"), ("remove", "b")]
    assert [(c.op, c.id) for c in registry.changes(ops=wanted)] == found
    assert [(c.op, c.id) for c in registry.follow_changes(0, ops=wanted)] == found
    assert [(c.op, c.id) for c in registry.follow_changes(5, ops=wanted)] == found[1:]
    assert [c.op for c in registry.changes(ops=["replace"])] == ["replace"]
    page = registry.changes(ops=wanted, limit=2)
    assert ([c.id for c in page], page.complete) == (["b", "a"], 6)
    page = registry.changes(ops=wanted, cursor=page.next_cursor)
    assert ([c.id for c in page], page.complete, page.next_cursor) == (["b"], 8, None)
    for ops in ([], ["rename"]):
        with pytest.raises(InvalidSpecError):
            registry.changes(ops=ops)


def test_what_is_resumed_is_found_without_reading_the_log(tmp_path):
    statement = change_log._after(change_log.LogPosition(1), ["remove", "resume"]).limit(5)
    with Registry.open(f"sqlite:///{tmp_path}/r.db") as registry, registry._store.reading() as connection:
        query = statement.compile(connection, compile_kwargs={"literal_binds": True})
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all()
    assert "USING INDEX change_event" in plan[0].detail


@contextmanager
def late(registry, id):
    """A change that comes while something waits."""
    timer = threading.Timer(0.2, add, (registry, id))
    timer.start()
    try:
        yield
    finally:
        timer.join()


def test_changes_wait_for_one_to_come(registry):
    with late(registry, "a"):
        assert [c.id for c in registry.changes(0, wait_seconds=60)] == ["a"]


def test_changes_that_do_not_come_are_not_waited_for_longer_than_asked(registry):
    begun = time.monotonic()
    assert registry.changes(0, wait_seconds=0.1) == []
    assert time.monotonic() - begun >= 0.1


def test_all_changes_are_followed_to_the_newest_when_it_began(registry):
    add(registry, "a", "b")
    followed = registry.follow_changes(0)
    first = next(followed)
    if registry._store.is_sqlite:
        add(registry, "c")
    assert [first.id, *(c.id for c in followed)] == ["a", "b"]
    assert registry.pending(0) == (3 if registry._store.is_sqlite else 2)


def test_subscriptions_are_had_as_they_were(registry):
    old = registry.register(SubscriptionSpec("a = 1"), id="s")
    new = registry.replace("s", SubscriptionSpec("a = 2"))
    registry.remove("s")
    other = registry.register(SubscriptionSpec(), id="t")
    assert [registry.as_of(revision, ["s", "t", "u"]) for revision in range(5)] == [
        [], [old], [new], [], [other]
    ]  # fmt: skip


def test_a_revision_without_changes_counts(registry):
    add(registry, "a")
    assert registry.skip_revision() == 2 == registry.revision
    assert registry.changes(1) == []
    add(registry, "b")
    assert [c.revision for c in registry.changes()] == [1, 3]
    registry.verify()


@pytest.mark.parametrize(
    ("damage", "revision"),
    [
        ("UPDATE change SET body = replace(body, 'a', 'b') WHERE revision = 2", 2),
        ("UPDATE change SET op = 'pause' WHERE revision = 2", 2),
        ("UPDATE change SET time = '2020' WHERE revision = 2", 2),
        ("DELETE FROM change WHERE revision = 2", 2),
        ("UPDATE change SET paused_at = 1 WHERE revision = 5", 5),
    ],
)
def test_a_change_that_was_altered_is_found_when_it_is_read(registry, damage, revision):
    for id in "abc":
        add(registry, id)
    registry.pause("a")
    registry.resume("a", from_="last-processed")
    with registry._store.writing() as connection:
        connection.execute(text(damage))
    ops = {"ops": ["resume"]} if revision == 5 else {}
    for read in (registry.changes, lambda **ops: registry.changes(1, **ops)):
        with pytest.raises(DamagedError, match="table change"):
            read(**ops)
    with pytest.raises(DamagedError, match=f"revision {revision}" if ops else None):
        list(registry.follow_changes(0, **ops))


def test_the_next_revision_of_this_process_is_known_without_a_look(registry, monkeypatch):
    add(registry, "a")
    monkeypatch.setattr(Registry, "revision", property(lambda _: pytest.fail("it looked")))
    assert registry.next_revision(0, 0) == 1


def test_a_revision_of_another_process_is_noticed(url, registry):
    with Registry.open(url, verify=False) as other:
        with late(other, "a"):
            assert registry.wait(0, 60)
        with late(other, "b"):
            assert registry.next_revision(1, 60) == 2
        add(other, "c")
        assert registry.wait(2, 0) and registry.next_revision(3, 0) == 3
