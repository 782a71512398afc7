"""Many subscriptions are paused, resumed and removed in two steps, and only those that a person has seen."""

import re

import pytest

from selectroute.index.specification import SubscriptionSpec, SubscriptionStatus
from selectroute.service.console import subscriptions
from tests.unit.service.console.conftest import console_of, sent, shown


@pytest.fixture
def filled(registry):
    for number in range(14):
        registry.register(SubscriptionSpec(f"weight > {number}", topic="cars/eu"), id=f"car-{number:02}")
    registry.register(SubscriptionSpec("a = 1", topic="boats"), id="boat")
    registry.pause("car-03")
    return registry


@pytest.fixture
def client(filled):
    with console_of(filled) as client:
        yield client


def fields_of(page):
    return {name: re.findall(f'name="{name}" value="([^"]*)"', page.text) for name in ("query", "digest")}


def first_step(client, query):
    page = client.get(f"/console/bulk?{query}")
    assert page.status_code == 200, page.text
    return page, fields_of(page)


def second_step(client, action, fields):
    query, digest = fields["query"][0].replace("&amp;", "&"), fields["digest"][0]
    return sent(client, "bulk", {"action": action, "query": query, "digest": digest})


def paused(registry):
    return [one.id for one in registry.list(limit=100, status=SubscriptionStatus.PAUSED).items]


def test_all_that_a_search_finds_are_paused_and_resumed(client, filled):
    page, fields = first_step(client, "action=pause&text=car-")
    assert "Pause 13 subscriptions" in page.text and "and 3 more" in page.text
    assert paused(filled) == ["car-03"], "nothing is done yet"
    before = filled.revision
    done = second_step(client, "pause", fields)
    assert "13 subscriptions paused." in done.text and len(paused(filled)) == 14
    assert filled.revision == before + 1, "all or none"
    page, fields = first_step(client, "action=resume&status=paused&topic=cars/eu")
    assert "Resume 14 subscriptions" in page.text
    assert "14 subscriptions resumed." in second_step(client, "resume", fields).text and paused(filled) == []


def test_those_that_are_chosen_are_removed(client, filled):
    listed = shown(client, "subscriptions?text=car")
    assert 'name="id" value="car-01"' in listed and 'name="action" value="remove"' in listed
    page, fields = first_step(client, "id=car-01&id=boat&id=car-01&action=remove&text=car")
    assert "Remove 2 subscriptions" in page.text
    assert "2 subscriptions removed." in second_step(client, "remove", fields).text
    assert len(filled) == 13


def test_what_has_changed_is_asked_again(client, filled):
    _, fields = first_step(client, "action=remove&text=car-")
    filled.replace("car-05", SubscriptionSpec("weight > 99", topic="cars/eu"))
    again = second_step(client, "remove", fields)
    assert again.status_code == 409 and "They have changed since you saw them" in again.text
    assert len(filled) == 15
    assert "14 subscriptions removed." in second_step(client, "remove", fields_of(again)).text
    assert len(filled) == 1


def test_too_many_and_none_have_no_second_step(client, monkeypatch):
    monkeypatch.setattr(subscriptions, "MOST_CHANGED", 5)
    page, fields = first_step(client, "action=pause&text=car-")
    assert "more than 5 subscriptions" in page.text and not fields["digest"]
    assert "narrow the search" in page.text
    page, fields = first_step(client, "action=resume&text=boat")
    assert "None of these can be resumed" in page.text and not fields["digest"]


def test_what_is_wrong_is_a_sentence(client):
    assert client.get("/console/bulk?action=explode").status_code == 422
    assert client.get("/console/bulk?action=pause&id=nothing").status_code == 404
    assert "hit" not in shown(client, "subscriptions", done="<b>hit", count="7")


def test_a_token_sees_and_changes_its_own_alone(filled):
    filled.tokens.add("admin")
    _, secret = filled.tokens.add("writer", topics=["cars/#"])
    _, reader = filled.tokens.add("reader", topics=["cars/#"])
    with console_of(filled) as client:
        client.cookies.set("selectroute-token", secret)
        page, fields = first_step(client, "action=remove")
        assert "Remove 14 subscriptions" in page.text and "boat" not in page.text
        assert client.get("/console/bulk?action=remove&id=boat").status_code == 404
        client.cookies.set("selectroute-token", reader)
        assert second_step(client, "remove", fields).status_code == 403 and len(filled) == 15
        client.cookies.set("selectroute-token", secret)
        assert "14 subscriptions removed." in second_step(client, "remove", fields).text
        assert [one.id for one in filled.list(limit=9).items] == ["boat"]
