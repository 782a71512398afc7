"""Tokens over HTTP: made, shown without their secrets, revoked."""

import json

import pytest

from selectroute.registry.errors import AuthError
from selectroute.registry.model import plain
from tests.unit.service.conftest import bearer, client_of, problem

PATH = "/v1/tokens"


@pytest.fixture
def admin(registry):
    with client_of(registry, "admin", name="first") as client:
        yield client


def test_a_token_is_made_and_its_secret_is_told_once(admin, registry):
    answer = admin.post(PATH, json={"role": "writer", "topics": ["cars/#"], "name": "loader"})
    assert answer.status_code == 201
    made = answer.json()
    secret = made.pop("secret")
    assert answer.headers["location"] == f"{PATH}/{made['id']}"
    assert answer.headers["cache-control"] == "no-store"
    assert json.loads(json.dumps(plain(registry.tokens.authenticate(secret)))) == made
    assert (made["role"], made["topics"], made["name"]) == ("writer", ["cars/#"], "loader")
    listed = admin.get(PATH)
    assert [one["name"] for one in listed.json()["items"]] == ["first", "loader"]
    assert listed.json()["items"][1] == made and secret not in listed.text


def test_a_revoked_token_is_none_at_once(admin, registry):
    made = admin.post(PATH, json={"role": "reader"}).json()
    headers = {"Authorization": f"Bearer {made['secret']}"}
    assert admin.get("/v1/subscriptions", headers=headers).status_code == 200
    assert admin.delete(f"{PATH}/{made['id']}").status_code == 204
    problem(admin.get("/v1/subscriptions", headers=headers), 401, "unauthorised")
    problem(admin.delete(f"{PATH}/{made['id']}"), 404, "not-found")
    problem(admin.delete(f"{PATH}/{'x' * 200}"), 404, "not-found")
    with pytest.raises(AuthError):
        registry.tokens.authenticate(made["secret"])


def test_nobody_makes_a_token_that_may_do_more_than_his_own(registry):
    with client_of(registry, "admin", ["cars/#"]) as client:
        for topics in ([], ["cars/eu"]):
            problem(client.post(PATH, json={"role": "reader", "topics": topics}), 403, "forbidden")
    assert len(registry.tokens.all()) == 1


def test_the_first_token_can_be_made_here_and_then_one_is_needed(client):
    assert client.get(PATH).status_code == 200
    secret = client.post(PATH, json={"role": "admin"}).json()["secret"]
    problem(client.get(PATH), 401, "unauthorised")
    assert client.get(PATH, headers=bearer(secret)).status_code == 200


def test_a_token_that_cannot_be_says_why(admin, registry):
    for body, kind, pointer in (
        ({}, "invalid-body", "/role"),
        ({"role": "king"}, "invalid-body", "/role"),
        ({"role": "reader", "topics": ["a", "b+"]}, "invalid-subscription", "/topics/1"),
        ({"role": "reader", "topics": "a"}, "invalid-body", "/topics"),
        ({"role": "reader", "topics": ["a"] * 101}, "invalid-body", "/topics"),
        ({"role": "reader", "name": "a\nb"}, "invalid-body", "/name"),
        ({"role": "reader", "secret": "srt_mine"}, "invalid-body", "/secret"),
    ):
        assert problem(admin.post(PATH, json=body), 422, kind)["errors"][0]["pointer"] == pointer
        assert len(registry.tokens.all()) == 1
