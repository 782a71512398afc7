"""Changes of requests are committed together, and none waits for others without a reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.authorization.permission import EVERYTHING
from selectroute.registry.model import Subscription
from selectroute.registry.registry import Registry
from selectroute.service.subscriptions.publication import commits as module
from selectroute.service.subscriptions.publication.commits import Commits

SLOW = 0.05
"""Seconds of a commit that others can join the next one of."""


@pytest.fixture
def registry(tmp_path) -> Iterator[Registry]:
    with Registry.open(f"sqlite:///{tmp_path / 'registry.db'}") as opened:
        yield opened


@pytest.fixture
def groups(registry, monkeypatch) -> list[int]:
    """How many changes each commit had, whose commits take `SLOW`."""
    sizes: list[int] = []
    real = registry.commit

    def commit(units: list[Any]) -> None:
        sizes.append(len(units))
        time.sleep(SLOW)
        real(units)

    monkeypatch.setattr(registry, "commit", commit)
    return sizes


async def add(commits: Commits, text: str = "a = 1") -> Subscription:
    return await commits.changed(
        lambda revision: revision.register(None, SubscriptionSpec(text), None), EVERYTHING
    )


async def clients(commits: Commits, count: int, changes: int) -> list[int]:
    """Clients who each make the next change when the last one is done; return the revisions."""

    async def one() -> list[int]:
        return [(await add(commits)).revision for _ in range(changes)]

    return sorted(chain.from_iterable(await asyncio.gather(*(one() for _ in range(count)))))


def test_each_change_has_a_revision_of_its_own(registry):
    commits = Commits(registry)
    assert asyncio.run(clients(commits, 8, 5)) == list(range(1, 41))
    assert registry.verify().revision == 40
    commits.close()


def test_two_groups_of_clients_become_one(registry, groups, monkeypatch):
    monkeypatch.setattr(module, "RECENT_SECONDS", 10)
    commits = Commits(registry)

    async def run() -> None:
        first = asyncio.create_task(clients(commits, 4, 4))
        await asyncio.sleep(SLOW / 2)  # the others come while the first commit runs
        await asyncio.gather(first, clients(commits, 4, 4))

    asyncio.run(run())
    assert sum(groups) == 32 and 8 in groups
    commits.close()


def delays(monkeypatch) -> list[float]:
    """The seconds of each wait for other changes, in the running event loop."""
    found: list[float] = []
    loop = asyncio.get_running_loop()
    later = loop.call_later

    def call_later(delay: float, callback: Any, *given: Any) -> asyncio.TimerHandle:
        if callback is module._end:
            found.append(delay)
        return later(delay, callback, *given)

    monkeypatch.setattr(loop, "call_later", call_later)
    return found


def test_a_client_alone_does_not_wait_for_others(registry, groups, monkeypatch):
    monkeypatch.setattr(module, "RECENT_SECONDS", 10)
    commits = Commits(registry)

    async def run() -> list[float]:
        found = delays(monkeypatch)
        await clients(commits, 1, 4)
        return found

    assert asyncio.run(run()) == []
    assert groups == [1, 1, 1, 1]
    commits.close()


def test_a_change_waits_for_those_who_do_not_come_again_at_most_once(registry, groups, monkeypatch):
    monkeypatch.setattr(module, "RECENT_SECONDS", 10)
    commits = Commits(registry)

    async def run() -> list[float]:
        await clients(commits, 6, 1)
        found = delays(monkeypatch)
        await clients(commits, 1, 3)
        return found

    [waited] = asyncio.run(run())
    assert SLOW <= waited < 10  # as long as the last commit took
    assert groups[-3:] == [1, 1, 1]
    commits.close()


def test_a_failed_commit_fails_its_changes_and_no_other(registry, monkeypatch):
    commits = Commits(registry)
    real, failed = registry.commit, []

    def commit(units: list[Any]) -> None:
        if not failed:
            failed.append(len(units))
            raise OSError("no disk")
        real(units)

    monkeypatch.setattr(registry, "commit", commit)

    async def run() -> list[object]:
        found: list[object] = list(await asyncio.gather(add(commits), add(commits), return_exceptions=True))
        return [*found, await add(commits)]

    *lost, made = asyncio.run(run())
    assert [type(one) for one in lost] == [OSError, OSError]
    assert isinstance(made, Subscription) and made.revision == 1 and len(commits) == 0
    commits.close()


def test_a_closed_queue_commits_again(registry):
    commits = Commits(registry)
    assert asyncio.run(add(commits)).revision == 1
    commits.close()
    commits.close()
    assert asyncio.run(add(commits)).revision == 2
    commits.close()
