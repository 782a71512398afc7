"""``selectroute token``."""

import json

import pytest

from selectroute.registry.registry import Registry
from tests.support.servers.serving import served


@pytest.fixture
def url(database, monkeypatch):
    monkeypatch.setenv("SELECTROUTE_REGISTRY", database)
    return database


def test_a_token_is_made_listed_and_revoked(run, url):
    code, out, err = run("token", "create", "--role", "writer", "--topic", "cars/#", "--name", "x")
    assert code == 0
    secret = out.strip()
    with Registry.open(url) as registry:
        token = registry.tokens.authenticate(secret)
    assert (token.role, token.topics, token.name) == ("writer", ("cars/#",), "x")
    assert token.id in err
    code, out, _ = run("token", "list", "-o", "json")
    assert (code, [one["id"] for one in json.loads(out)]) == (0, [token.id])
    out = run("token", "list")[1]
    assert token.id in out and secret not in out
    assert run("token", "revoke", token.id)[0] == 0 and run("token", "revoke", token.id)[0] == 3


@pytest.mark.parametrize("name", ["[/a]", "[b]a", ":car:"])
def test_a_name_is_shown_as_it_is(run, url, name):
    run("token", "create", "--role", "reader", "--topic", f"{name}/#", "--name", name)
    assert run("token", "list")[1].count(name) == 2


def test_as_json_the_secret_is_a_member(run, url):
    code, out, _ = run("token", "create", "--role", "reader", "-o", "json")
    made = json.loads(out)
    assert code == 0
    with Registry.open(url) as registry:
        assert registry.tokens.authenticate(made["secret"]).id == made["id"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--role", "king"], 2), (["--role", "reader", "--topic", "a+"], 1), ([], 2)],
)
def test_what_cannot_be_is_refused(run, url, arguments, code):
    assert run("token", "create", *arguments)[0] == code


def test_an_admin_makes_and_revokes_tokens_of_a_service(run, url, monkeypatch):
    with Registry.open(url) as registry, served(registry) as service:
        _, admin = registry.tokens.add("admin")
        monkeypatch.setenv("SELECTROUTE_TOKEN", admin)
        monkeypatch.setenv("SELECTROUTE_REGISTRY", service)
        code, out, _ = run("token", "create", "--role", "reader", "--topic", "cars/#")
        assert code == 0
        made = registry.tokens.authenticate(out.strip())
        assert (made.role, made.topics) == ("reader", ("cars/#",))
        code, out, _ = run("token", "list", "-o", "json")
        assert [one["id"] for one in json.loads(out)] == [one.id for one in registry.tokens.all()]
        monkeypatch.setenv("SELECTROUTE_TOKEN", registry.tokens.add("writer")[1])
        code, _, err = run("token", "list")
        assert code == 1 and "role admin" in err
        monkeypatch.setenv("SELECTROUTE_TOKEN", admin)
        assert run("token", "revoke", made.id)[0] == 0 and run("token", "revoke", made.id)[0] == 3


def test_serve_refuses_other_hosts_without_a_token_in_one_sentence(run, url):
    code, _, err = run("serve", "--host", "0.0.0.0", "--port", "0")
    assert code == 1 and err.count("\n") == 1 and "selectroute token create" in err


@pytest.mark.parametrize(
    "options", [["--log-level", "loud"], ["--port", "70000"], ["--registry", "http://x"]]
)
def test_serve_says_what_it_cannot_use(run, url, options):
    assert run("serve", *options)[0] == 2


def test_a_token_has_patterns_of_destinations(run, url, monkeypatch):
    limits = ("--topic", "cars/#", "--queue", "CARS.*", "--queue", "IN", "--kafka", "cars.*")
    code, out, _ = run("token", "create", "--role", "writer", *limits)
    assert code == 0
    with Registry.open(url) as registry:
        token = registry.tokens.authenticate(out.strip())
        assert (token.queues, token.kafka) == (("CARS.*", "IN"), ("cars.*",))
        _, secret = registry.tokens.add("admin")
        with served(registry) as service:
            monkeypatch.setenv("SELECTROUTE_TOKEN", secret)
            assert run("token", "create", "--role", "writer", *limits, "--registry", service)[0] == 0
        assert registry.tokens.all()[-1].queues == token.queues
    assert "queue:CARS.*" in run("token", "list")[1]
    code, _, err = run("token", "create", "--role", "writer", "--queue", "[A]")
    assert (code, "A-Z a-z" in err) == (1, True)


def test_the_first_token_says_what_it_changes_and_over_http_it_is_an_admins(run, url):
    with Registry.open(url) as registry, served(registry) as service:
        code, _, err = run("token", "create", "--role", "writer", "--registry", service)
        assert code == 1 and "must be an admin's" in err
        assert registry.tokens.all() == []
    code, _, err = run("token", "create", "--role", "writer")
    assert code == 0 and "every caller of a service needs one" in err and "--role admin" in err
    _, _, err = run("token", "create", "--role", "admin")
    assert "first token" not in err


def test_the_first_admins_token_over_http_says_what_it_changes(run, url, monkeypatch):
    with Registry.open(url) as registry, served(registry) as service:
        code, out, err = run("token", "create", "--role", "admin", "--registry", service)
        assert code == 0 and "every caller of a service needs one (SELECTROUTE_TOKEN)" in err
    with Registry.open(url) as registry, served(registry) as service:
        code, _, err = run("subscription", "list", "--registry", service)
        assert code == 1 and "SELECTROUTE_TOKEN" in err
        monkeypatch.setenv("SELECTROUTE_TOKEN", out.strip())
        assert "first token" not in run("token", "create", "--role", "reader", "--registry", service)[2]
