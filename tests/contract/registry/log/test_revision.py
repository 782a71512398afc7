"""Several changes as one revision, and several writers and readers at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import selectroute as sr
from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry import specification
from selectroute.registry.errors import IdTakenError, NotFoundError, OperationError, StaleRevisionError
from selectroute.registry.model import Operation
from selectroute.registry.registry import Registry

CAR = SubscriptionSpec("JMSType = 'car' AND weight > 2500", topic="cars/+")


def test_several_changes_share_one_revision(registry):
    registry.register(CAR, id="a")
    registry.register(CAR, id="b")
    applied = registry.apply(
        [
            Operation("add", "c", SubscriptionSpec("x = 1")),
            Operation("replace", "a", SubscriptionSpec("y = 1"), expected=1),
            Operation("remove", "b"),
            Operation("pause", "c"),
            Operation("resume", "c", resume_from="last-processed"),
            Operation("add", None, SubscriptionSpec("z = 1")),
        ]
    )
    assert applied.revision == registry.revision == 3
    assert [one.revision for one in applied.subscriptions] == [3, 3, 2, 3, 3, 3]
    assert [change.op for change in registry.changes(2)] == [
        "add", "replace", "remove", "pause", "resume", "add"
    ]  # fmt: skip
    assert len(registry) == 3
    registry.verify()


def test_one_operation_that_cannot_be_undoes_the_others(registry):
    registry.register(CAR, id="a")
    cases = [
        (Operation("add", "a", CAR), IdTakenError),
        (Operation("remove", "zz"), NotFoundError),
        (Operation("replace", "a", CAR, expected=7), StaleRevisionError),
        (Operation("add", None, None), InvalidSpecError),
        (Operation("remove", None), InvalidSpecError),
        (Operation("add", None, SubscriptionSpec("a =")), sr.InvalidSelectorError),
    ]
    for operation, cause in cases:
        with pytest.raises(OperationError) as caught:
            registry.apply([Operation("add", "new", CAR), operation])
        assert caught.value.index == 1 and isinstance(caught.value.cause, cause)
    assert (registry.revision, len(registry)) == (1, 1)
    registry.verify()


def test_no_operations_make_no_revision(registry):
    assert registry.apply([]).revision == 0
    assert registry.changes() == []


def test_writers_that_expect_the_revision_they_read_lose_no_update(url):
    with Registry.open(url) as one, Registry.open(url, verify=False) as other:
        one.register(SubscriptionSpec(labels={"n": "0"}), id="s")
        stale = []

        def add(number: int) -> None:
            registry = (one, other)[number % 2]
            for _ in range(10):
                while True:
                    now = registry.get("s")
                    try:
                        count = int(now.labels["n"]) + 1
                        registry.change("s", {"labels": {"n": str(count)}}, expected=now.revision)
                        break
                    except StaleRevisionError:
                        stale.append(number)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(add, range(4)))
        assert one.get("s").labels == {"n": "40"}
        assert one.revision == 41
        one.verify()


def test_readers_never_see_half_of_a_revision(registry):
    registry.apply([Operation("add", f"s{i}", SubscriptionSpec(labels={"n": "0"})) for i in range(5)])
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            spec = SubscriptionSpec(labels={"n": str(number)})
            registry.apply([Operation("replace", f"s{i}", spec) for i in range(5)])

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            for _ in range(50):
                assert len({one.labels["n"] for one in registry.list().items}) == 1
        finally:
            stop.set()
        writing.result()
    numbers = [change.revision for change in registry.changes(limit=7)]
    assert len(numbers) == 5  # a page is whole revisions


def test_nobody_waits_while_a_selector_is_checked(registry, monkeypatch):
    """Each change is checked before its transaction begins: meanwhile others write."""
    for id in ("one", "two"):
        registry.register(SubscriptionSpec("a = 1"), id=id)
    real, others = specification.check, []

    def slow(*given: object) -> object:
        with ThreadPoolExecutor(1) as pool:  # the lock is free, also for another thread
            others.append(pool.submit(registry.skip_revision).result(timeout=10))
        return real(*given)

    monkeypatch.setattr(specification, "check", slow)
    registry.register(SubscriptionSpec("a = 2"))
    registry.replace("one", SubscriptionSpec("a = 3"))
    registry.change("one", {"selector": "a = 4"})
    registry.apply([Operation("add", None, SubscriptionSpec("a = 5"), None), Operation("remove", "two")])
    assert (len(others), registry.get("one").selector) == (4, "a = 4")


def test_a_change_of_what_was_changed_meanwhile_is_checked_again(registry, monkeypatch):
    registry.register(SubscriptionSpec("a = 1", dialect="jms"), id="one")
    real, seen = specification.check, []

    def meanwhile(*given: object) -> object:
        seen.append(given[2])
        if len(seen) == 1:
            spec = SubscriptionSpec("a = 1", dialect="ibm-mq")
            registry._changed(lambda revision: revision.replace("one", spec, None))
        return real(*given)

    monkeypatch.setattr(specification, "check", meanwhile)
    made = registry.change("one", {"selector": "a = 2"})
    assert (made.selector, made.dialect) == ("a = 2", "ibm-mq")
    assert seen == ["jms", "ibm-mq", "ibm-mq"]


def test_the_first_operation_that_cannot_be_is_named(registry):
    """Also where a later one has a selector that is refused before the transaction begins."""
    operations = [Operation("remove", "none"), Operation("add", None, SubscriptionSpec("a ="))]
    for several, cause in ((operations, NotFoundError), (operations[1:], sr.InvalidSelectorError)):
        with pytest.raises(OperationError) as error:
            registry.apply(several)
        assert error.value.index == 0 and isinstance(error.value.cause, cause)
