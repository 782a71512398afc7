"""Changes of several callers in one transaction: the same outcome as one after the other."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.errors import NotFoundError, RegistryError
from selectroute.registry.log import group_commit
from selectroute.registry.log.group_commit import GroupCommit, Unit
from selectroute.registry.log.revision import PendingRevision
from selectroute.registry.log.transaction import Transaction
from selectroute.registry.model import Idempotency, Subscription
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

    def work(revision: PendingRevision) -> Any:
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


def committed(registry: Registry, units: list[Unit[Any]]) -> list[Unit[Any]]:
    """These changes, which were committed together."""
    registry._commits.submit(units)
    wait(units, 60)
    return units


def told(unit: Unit[Any], before: int) -> Any:
    """The outcome of a change, with revisions that count from the example's first."""
    try:
        return [revision - before for revision in unit.result()]
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
    committed(registry, together[:first])
    committed(registry, together[first:])
    with Registry.open(f"sqlite:///{tmp_path}/{prefix}.db") as alone:
        separate = [unit_of(one, prefix) for one in units]
        for one in separate:
            committed(alone, [one])
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
    units = committed(registry, [Unit(work, Checks(DEFAULT_LIMITS)) for work in works])
    assert units[0].result().id == units[3].result().id == "a"
    with pytest.raises(NotFoundError):
        units[1].result()
    with pytest.raises(ZeroDivisionError):
        units[2].result()
    assert units[4].result().revision == registry.revision == 2
    registry.verify()


def test_an_error_of_the_database_is_that_of_all_changes_of_a_group(registry, monkeypatch):
    def full(*_: Any) -> None:
        raise ReadOnlyError("the database cannot be written: disk full")

    units = [unit_of([("add", id, None, 1)], "") for id in "abc"]
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "finish", full)
        committed(registry, units)
    for one in units:
        with pytest.raises(StoreError, match="disk full"):
            one.result()
    assert (registry.revision, len(registry)) == (0, 0)
    again = unit_of([("add", "a", None, 1)], "")
    committed(registry, [again])
    assert again.result() == [1]


@pytest.mark.parametrize("error", [StoreError("the database refuses: too long"), ValueError("too long")])
def test_what_the_database_refuses_is_the_error_of_its_change_alone(registry, monkeypatch, error):
    finish = Transaction.finish

    def refuses(transaction: Transaction) -> None:
        if any(row.id == "b" for row in transaction._rows):
            raise error
        finish(transaction)

    monkeypatch.setattr(Transaction, "finish", refuses)
    units = [unit_of([("add", id, None, 1)], "") for id in "abc"] + [unit_of([("remove", "x", None, 0)], "")]
    committed(registry, units)
    assert [units[0].result(), units[2].result()] == [[1], [2]]
    with pytest.raises(type(error), match="too long"):
        units[1].result()
    with pytest.raises(NotFoundError):
        units[3].result()
    assert (registry.revision, len(registry)) == (2, 2)
    registry.verify()


def test_changes_that_are_committed_together_have_one_time(registry):
    units = committed(registry, [unit_of([("add", id, None, 0)], "") for id in "abc"])
    assert [one.result() for one in units] == [[1], [2], [3]]
    made = [registry.get(id) for id in "abc"]
    assert len({one.created for one in made} | {one.modified for one in made}) == 1
    assert [change.subscription.created for change in registry.changes(0)] == [one.created for one in made]


def test_each_change_of_several_callers_has_a_revision_of_its_own(registry):
    async def caller() -> list[int]:
        add = registry.submit
        changes = [lambda revision: revision.register(None, SubscriptionSpec("a = 1"), None)] * 5
        return [(await asyncio.wrap_future(add(change))).revision for change in changes]

    async def run() -> list[list[int]]:
        return await asyncio.gather(*(caller() for _ in range(8)))

    assert sorted(itertools.chain.from_iterable(asyncio.run(run()))) == list(range(1, 41))
    assert registry.verify().revision == 40


class Groups:
    """Group commit whose commits take as long as `seconds`, and the number of changes of each."""

    def __init__(self, seconds: float = 0.05) -> None:
        self.sizes: list[int] = []
        self.seconds = seconds
        self.queue = GroupCommit(self._commit)

    def _commit(self, units: Sequence[Unit[Any]]) -> None:
        self.sizes.append(len(units))
        time.sleep(self.seconds)

    def clients(self, count: int, changes: int) -> list[Future[None]]:
        """Clients who each make the next change when the last one is done; return what waits for them."""

        def client() -> None:
            for _ in range(changes):
                self.queue.submit([unit := unit_of([("remove", "a", None, 0)], "")])
                unit.result(60)

        pool = ThreadPoolExecutor(count)
        ends = [pool.submit(client) for _ in range(count)]
        pool.shutdown(wait=False)
        return ends


@pytest.fixture
def groups(monkeypatch) -> Iterator[Groups]:
    monkeypatch.setattr(group_commit, "RECENT_SECONDS", 10)
    made = Groups()
    yield made
    made.queue.close()


def test_two_groups_of_clients_become_one(groups):
    first = groups.clients(4, 4)
    time.sleep(groups.seconds / 2)  # the others come while the first commit runs
    for end in [*first, *groups.clients(4, 4)]:
        end.result(60)
    assert sum(groups.sizes) == 32 and 8 in groups.sizes


def waits(groups: Groups, monkeypatch) -> list[float]:
    """The seconds of each wait for other changes."""
    seconds: list[float] = []
    wait = groups.queue._submitted.wait

    def waited(timeout: float) -> bool:
        seconds.append(timeout)
        return wait(timeout)

    monkeypatch.setattr(groups.queue._submitted, "wait", waited)
    return seconds


def test_a_client_alone_does_not_wait_for_others(groups, monkeypatch):
    seconds = waits(groups, monkeypatch)
    groups.clients(1, 4)[0].result(60)
    assert (seconds, groups.sizes) == ([], [1, 1, 1, 1])


def test_a_change_waits_for_those_who_do_not_come_again_at_most_once(groups, monkeypatch):
    groups.queue.submit(units := [unit_of([("remove", "a", None, 0)], "") for _ in range(6)])
    for unit in units:
        unit.result(60)
    seconds = waits(groups, monkeypatch)
    groups.clients(1, 3)[0].result(60)
    assert groups.seconds <= max(seconds) < 10  # as long as the last commit took
    assert groups.sizes == [6, 1, 1, 1]


def test_a_failed_commit_fails_its_changes_and_no_other(registry, monkeypatch):
    real, failed = registry._commits._commit, []

    def commit(units: list[Any]) -> None:
        if not failed:
            failed.append(len(units))
            raise KeyboardInterrupt  # also what is no Exception
        real(units)

    monkeypatch.setattr(registry._commits, "_commit", commit)
    lost = committed(registry, [unit_of([("add", id, None, 0)], "") for id in "ab"])
    assert [type(unit.exception()) for unit in lost] == [KeyboardInterrupt] * 2
    assert registry.register(SubscriptionSpec("a = 1")).revision == 1


def test_a_caller_who_is_interrupted_before_the_commit_makes_no_change(registry, monkeypatch):
    with registry._store.writing():  # which the commit of the first one waits for
        first = registry.submit(lambda revision: revision.register("a", SubscriptionSpec(), None))
        wait_until(first.running, 60, "its commit has begun")
        with monkeypatch.context() as patched:
            patched.setattr(Unit, "result", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                registry.register(SubscriptionSpec(), id="b")
    assert first.result(60).revision == 1
    assert registry.register(SubscriptionSpec(), id="c").revision == 2 and len(registry) == 2
