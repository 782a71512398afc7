"""Changes of several callers in one transaction: the same outcome as one after the other."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.changes import Idempotency
from selectroute.registry.errors import NotFoundError, RegistryError
from selectroute.registry.log.group_commit import GroupCommit, Unit
from selectroute.registry.log.revision import Revision
from selectroute.registry.log.transaction import Transaction
from selectroute.registry.model import Subscription
from selectroute.registry.registry import Registry
from selectroute.registry.specification import Checks
from selectroute.selector.limits import DEFAULT_LIMITS
from selectroute.store.errors import ReadOnlyError, StoreError
from tests.support.components import NIGHTLY
from tests.support.waiting import wait_until

_numbers = itertools.count()

# Few ids and names, so that changes meet: a name is taken, freed and taken again.
IDS = st.sampled_from("abc")
NAMES = st.sampled_from(["n", "m", "o", None])
CHANGES = st.one_of(
    st.tuples(st.just("add"), IDS, NAMES, st.integers(0, 2)),
    st.tuples(st.just("replace"), IDS, NAMES, st.integers(0, 2)),
    st.tuples(st.sampled_from(["remove", "pause", "resume", "register"]), IDS, NAMES, st.integers(0, 2)),
)


def unit_of(changes: list[Any], prefix: str) -> Unit[Any]:
    """Several changes as one revision."""
    specs = [
        SubscriptionSpec(
            f"a = {label}",
            topic=f"t/{label}" if label else None,
            name=None if name is None else prefix + name,
            labels={"l": str(label)} if label else {},
        )
        for _, _, name, label in changes
    ]

    def work(revision: Revision) -> Any:
        done = []
        for (op, id, *_), spec in zip(changes, specs, strict=True):
            id = prefix + id
            if op in ("add", "register"):
                done.append(revision.add(id if op == "add" else None, spec))
            elif op == "replace":
                done.append(revision.replace(id, spec, None))
            elif op == "resume":
                done.append(revision.resume(id, "last-processed", None))
            else:
                done.append(getattr(revision, op)(id, None))
        return [one.revision for one in done]

    return Unit(work, Checks(DEFAULT_LIMITS, specs))


def told(unit: Unit[Any], before: int) -> Any:
    """The outcome of a change, with revisions that count from the example's first."""
    try:
        return [revision - before for revision in unit.outcome()]
    except RegistryError as error:
        return type(error)


def state(registry: Registry, prefix: str, before: int) -> list[Any]:
    """The subscriptions of an example, found by id, name and label, and its part of the log."""

    def plain(one: Subscription) -> Any:
        id = one.id.removeprefix(prefix) if one.id.startswith(prefix) else "generated"
        name = id if one.name == one.id else one.name.removeprefix(prefix)
        return id, name, one.status, str(one.labels), one.topic, one.revision - before

    def is_mine(one: Subscription) -> bool:
        return one.revision > before

    found: list[Any] = []
    for asked in ({}, {"order": "name"}, {"label": "l=1"}, {"label": "l=2"}, {"topic": "t/1"}):
        found.append(sorted(map(plain, filter(is_mine, registry.list(limit=1_000, **asked).items))))
    for one in registry.changes(before, limit=1_000):
        paused_at = None if one.paused_at is None else one.paused_at - before
        found.append((one.op, one.revision - before, one.resume_from, paused_at))
    return found


many = settings(max_examples=60 if NIGHTLY else 20, deadline=None)


@settings(many, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=1, max_size=8), st.integers(0, 4))
def test_a_group_has_the_outcome_of_its_changes_one_after_the_other(registry, tmp_path, units, first):
    prefix = f"x{next(_numbers)}-"
    before = registry.revision
    together = [unit_of(one, prefix) for one in units]
    registry.commit(together[:first])
    registry.commit(together[first:])
    with Registry.open(f"sqlite:///{tmp_path}/{prefix}.db") as alone:
        separate = [unit_of(one, prefix) for one in units]
        for one in separate:
            alone.commit([one])
        assert [told(one, before) for one in together] == [told(one, 0) for one in separate]
        assert state(registry, prefix, before) == state(alone, prefix, 0)
        assert registry.revision - before == alone.revision
        alone.verify()
    registry.verify()


def test_what_waits_during_a_commit_is_committed_together(registry, monkeypatch):
    begun: list[int] = []
    first, go_on = threading.Event(), threading.Event()
    writing = registry._store.writing

    @contextmanager
    def slow(**options: Any) -> Any:
        begun.append(1)
        first.set()
        go_on.wait(60)
        with writing(**options) as connection:
            yield connection

    monkeypatch.setattr(registry._store, "writing", slow)
    with ThreadPoolExecutor(21) as pool:
        leader = pool.submit(registry.register, SubscriptionSpec("a = 0"), id="first")
        assert first.wait(60)
        others = [pool.submit(registry.register, SubscriptionSpec("a = 1"), id=f"s{i}") for i in range(20)]
        wait_until(lambda: len(registry._commits._waiting) == 20, 60, "all others wait")
        go_on.set()
        revisions = sorted(one.result().revision for one in [leader, *others])
    assert revisions == list(range(1, 22))
    assert len(begun) == 2
    registry.verify()


def test_one_change_that_cannot_be_does_not_touch_the_others(registry):
    key = Idempotency("s", "k", "digest")
    works = (
        lambda revision: revision.register("a", SubscriptionSpec(), key),
        lambda revision: revision.remove("none", None),
        lambda revision: 1 / 0,
        lambda revision: revision.register("b", SubscriptionSpec(), key),
        lambda revision: revision.pause("a", 1),
    )
    registry.commit(units := [Unit(work, Checks(DEFAULT_LIMITS)) for work in works])
    assert units[0].outcome().id == units[3].outcome().id == "a"
    with pytest.raises(NotFoundError):
        units[1].outcome()
    with pytest.raises(ZeroDivisionError):
        units[2].outcome()
    assert units[4].outcome().revision == registry.revision == 2
    registry.verify()


def test_an_error_of_the_database_is_that_of_all_changes_of_a_group(registry, monkeypatch):
    def full(*_: Any) -> None:
        raise ReadOnlyError("the database cannot be written: disk full")

    units = [unit_of([("add", id, None, 1)], "") for id in "abc"]
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "finish", full)
        registry.commit(units)
    for one in units:
        with pytest.raises(StoreError, match="disk full"):
            one.outcome()
    assert (registry.revision, len(registry)) == (0, 0)
    again = unit_of([("add", "a", None, 1)], "")
    registry.commit([again])
    assert again.outcome() == [1]


@pytest.mark.parametrize("error", [StoreError("the database refuses: too long"), ValueError("too long")])
def test_what_the_database_refuses_is_the_error_of_its_change_alone(registry, monkeypatch, error):
    finish = Transaction.finish

    def refuses(transaction: Transaction) -> None:
        if any(row.id == "b" for row in transaction._rows):
            raise error
        finish(transaction)

    monkeypatch.setattr(Transaction, "finish", refuses)
    units = [unit_of([("add", id, None, 1)], "") for id in "abc"] + [unit_of([("remove", "x", None, 0)], "")]
    registry.commit(units)
    assert [units[0].outcome(), units[2].outcome()] == [[1], [2]]
    with pytest.raises(type(error), match="too long"):
        units[1].outcome()
    with pytest.raises(NotFoundError):
        units[3].outcome()
    assert (registry.revision, len(registry)) == (2, 2)
    registry.verify()


def test_changes_that_are_committed_together_have_one_time(registry):
    registry.commit(units := [unit_of([("add", id, None, 0)], "") for id in "abc"])
    assert [one.outcome() for one in units] == [[1], [2], [3]]
    made = [registry.get(id) for id in "abc"]
    assert len({one.created for one in made} | {one.modified for one in made}) == 1
    assert [change.subscription.created for change in registry.changes(0)] == [one.created for one in made]


class _Interrupted(BaseException):
    pass


def _waiting(commits: GroupCommit, units: list[Unit[Any]]) -> Callable[[], BaseException | None]:
    """Run changes in a thread; return what waits for the thread and returns its error."""
    pool = ThreadPoolExecutor(1)
    running = pool.submit(commits.run, units)
    pool.shutdown(wait=False)
    return lambda: running.exception(60)


def test_a_caller_who_is_interrupted_leaves_the_queue_and_the_lead(monkeypatch):
    done: list[Unit[Any]] = []
    busy, go_on = threading.Event(), threading.Event()

    def commit(group: Any) -> None:
        busy.set()
        go_on.wait(60)
        done.extend(group)

    commits = GroupCommit(commit)
    units = [unit_of([("add", id, None, 0)], "") for id in "abc"]

    def interrupted() -> None:
        wait_until(lambda: len(commits._waiting) == 2, 60, "itself, and the one behind it")
        go_on.set()
        assert units[1].woken is not None and units[1].woken.wait(60)  # it is to lead the next group
        raise _Interrupted

    monkeypatch.setattr(units[1], "wait", interrupted)
    first = _waiting(commits, [units[0]])
    assert busy.wait(60)
    second = _waiting(commits, [units[1]])
    wait_until(lambda: commits._waiting, 60, "the second one waits")
    third = _waiting(commits, [units[2]])
    assert first() is None
    assert isinstance(second(), _Interrupted)
    assert third() is None
    assert units[0] in done and units[2] in done and units[1] not in done


def test_a_caller_who_leads_and_is_interrupted_passes_the_lead_on(monkeypatch):
    done: list[Unit[Any]] = []
    commits = GroupCommit(done.extend)
    units = [unit_of([("add", id, None, 0)], "") for id in "abc"]

    def interrupted() -> None:
        raise _Interrupted

    monkeypatch.setattr(units[0], "wait", interrupted)
    with pytest.raises(_Interrupted):
        commits.run(units[:2])
    assert _waiting(commits, units[2:])() is None
    assert done == units[2:]


def test_an_interrupted_commit_is_an_error_for_the_others():
    leader_is_in, go_on = threading.Event(), threading.Event()
    calls: list[int] = []

    def commit(group: Any) -> None:
        calls.append(len(group))
        if len(calls) == 1:
            leader_is_in.set()
            go_on.wait(60)
        elif len(calls) == 2:
            raise _Interrupted

    commits = GroupCommit(commit)
    units = [unit_of([("add", id, None, 0)], "") for id in "abcd"]
    first = _waiting(commits, units[:1])
    assert leader_is_in.wait(60)
    others = [_waiting(commits, [one]) for one in units[1:3]]
    wait_until(lambda: len(commits._waiting) == 2, 60, "both others wait")
    go_on.set()
    assert first() is None
    found = [one() for one in others]
    assert sum(isinstance(one, _Interrupted) for one in found) == 1
    for one in units[1:3]:
        with pytest.raises(StoreError, match="look whether it took effect"):
            one.outcome()
    commits.run(units[3:])
    assert calls == [1, 2, 1]
