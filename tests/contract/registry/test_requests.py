"""Requests that come again: done once, answered as before."""

from __future__ import annotations

from datetime import timedelta

import pytest

import selectroute as sr
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.errors import IdempotencyConflictError
from selectroute.registry.model import Idempotency, Operation
from selectroute.registry.registry import Registry

CAR = SubscriptionSpec("JMSType = 'car' AND weight > 2500", topic="cars/+")


def test_the_same_request_again_gives_the_same_answer_and_changes_nothing(url):
    asked = Idempotency("me", "key-1", "digest-1")
    with Registry.open(url) as registry:
        made = registry.register(CAR, idempotency=asked)
        registry.replace(made.id, SubscriptionSpec("a = 1"))
    with Registry.open(url) as registry:
        assert registry.register(CAR, idempotency=asked) == made
        assert len(registry) == 1
        assert registry.register(CAR, idempotency=Idempotency("you", "key-1", "digest-1")) != made
        registry.verify()


def test_a_key_with_another_request_is_refused(registry):
    registry.register(CAR, idempotency=Idempotency("me", "k", "one"))
    with pytest.raises(IdempotencyConflictError):
        registry.register(CAR, idempotency=Idempotency("me", "k", "two"))
    assert len(registry) == 1


def test_a_request_that_failed_may_come_again_with_its_key(registry):
    asked = Idempotency("me", "k", "one")
    with pytest.raises(sr.InvalidSelectorError):
        registry.register(SubscriptionSpec("a ="), idempotency=asked)
    assert registry.register(CAR, idempotency=asked).revision == 1


def test_several_changes_with_a_key_are_made_once(registry):
    asked = Idempotency("me", "k", "one")
    applied = registry.apply([Operation("add", None, CAR)] * 2, idempotency=asked)
    assert registry.apply([Operation("add", None, CAR)] * 2, idempotency=asked) == applied
    assert len(registry) == 2


def test_a_key_is_forgotten_after_a_day(registry, monkeypatch):
    asked = Idempotency("me", "k", "one")
    first = registry.register(CAR, idempotency=asked)
    monkeypatch.setattr("selectroute.registry.log.revision.KEPT", timedelta(0))
    assert registry.register(CAR, idempotency=asked).id != first.id
