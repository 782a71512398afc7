"""Tokens: told once, stored as a hash, gone when they are revoked."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from selectroute.index.errors import InvalidSpecError
from selectroute.registry.authorization import Permission, local_user
from selectroute.registry.errors import AuthError, DamagedError, NotFoundError
from selectroute.registry.model import Operation, SubscriptionSpec, plain
from selectroute.registry.registry import Registry
from selectroute.registry.role import Role


def test_a_secret_is_known_by_its_hash_alone(registry, tmp_path):
    token, secret = registry.tokens.add("writer", topics=["cars/+", "a/#"], name="ci")
    assert (token.role, token.topics, token.name) == (Role.writer, ("cars/+", "a/#"), "ci")
    assert registry.tokens.authenticate(secret) == token
    assert registry.tokens.all() == [token]
    assert secret not in str(plain(token))
    for file in tmp_path.glob("registry.db*"):
        assert secret.encode() not in file.read_bytes()
    assert registry.revision == 0  # no change of subscriptions
    registry.verify()


@pytest.mark.parametrize("secret", ["", "x", "srt_", "srt_" + "a" * 43, "srt_" + "ü" * 43, "' OR 1=1 --"])
def test_what_is_no_secret_is_refused(registry, secret):
    registry.tokens.add("admin")
    with pytest.raises(AuthError) as caught:
        registry.tokens.authenticate(secret)
    assert not secret or secret not in str(caught.value)


def test_a_secret_with_another_letter_is_no_secret(registry):
    _, secret = registry.tokens.add("reader")
    for other in (secret[:-1] + ("A" if secret[-1] != "A" else "B"), secret + "\n"):
        with pytest.raises(AuthError):
            registry.tokens.authenticate(other)


def test_a_revoked_token_is_none(registry):
    token, secret = registry.tokens.add("reader")
    other, still = registry.tokens.add("reader")
    registry.tokens.revoke(token.id)
    with pytest.raises(AuthError):
        registry.tokens.authenticate(secret)
    assert registry.tokens.authenticate(still) == other
    with pytest.raises(NotFoundError):
        registry.tokens.revoke(token.id)


def test_each_change_says_who_made_it(registry, monkeypatch):
    monkeypatch.setattr("selectroute.registry.authorization.getpass.getuser", lambda: "alice")
    local_user.cache_clear()
    token, _ = registry.tokens.add("writer", name="the garage")
    by = Permission.of(token)
    registry.register(SubscriptionSpec("a = 1"), id="a")
    registry.change("a", {"selector": "a = 2"}, by=by)
    registry.import_(['{"id": "b"}', '{"id": "c"}'], by=by)
    registry.import_(['{"id": "a"}', '{"id": "b", "status": "paused"}'], mode="replace")
    registry.apply([Operation("remove", "c")], by=by)
    token_, user = f"token {token.id} (the garage)", "user alice"
    changes = registry.changes()
    assert [change.id for change in changes] == list("aabcabbc")
    assert [change.actor for change in changes] == [user, *[token_] * 3, *[user] * 3, token_]
    assert [one.actor for one in registry.history("a")[0]] == [user, token_, user]
    local_user.cache_clear()
    registry.verify()


def test_roles_and_topics_are_checked(registry):
    with pytest.raises(InvalidSpecError):
        registry.tokens.add("root")
    with pytest.raises(InvalidSpecError) as caught:
        registry.tokens.add("reader", topics=["a", "a+"])
    assert caught.value.pointer == "/topics/1"
    assert registry.tokens.all() == []


def test_tokens_are_there_after_opening_again(url):
    with Registry.open(url) as registry:
        token, secret = registry.tokens.add("reader", topics=["t"])
    with Registry.open(url) as registry:
        assert registry.tokens.authenticate(secret) == token


@pytest.mark.parametrize(
    "damage", ["role = 'admin'", "topics = '[]'", "queues = '[\"*\"]'", "queues = '[]'", "kafka = '[\"*\"]'"]
)
def test_a_token_that_was_altered_opens_nothing(registry, damage):
    _, secret = registry.tokens.add("reader", topics=["t"], queues=["A"])
    with registry._store.writing() as connection:
        connection.execute(text(f"UPDATE token SET {damage}"))
    for read in (lambda: registry.tokens.authenticate(secret), registry.verify):
        with pytest.raises(DamagedError, match="table token"):
            read()
