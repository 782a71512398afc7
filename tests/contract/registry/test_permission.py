"""What a caller may write: decided on what is stored, whatever way it takes, until his token is revoked."""

from __future__ import annotations

import json

import pytest

from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import Destination, SubscriptionSpec
from selectroute.registry.authorization import EVERYTHING, Permission
from selectroute.registry.errors import (
    AuthError,
    ForbiddenError,
    IdTakenError,
    ImportLineError,
    NotFoundError,
    OperationError,
)
from selectroute.registry.model import Operation
from selectroute.registry.registry import Registry

CARS = SubscriptionSpec(topic="cars/eu")


def permission(registry, **filters):
    token, secret = registry.tokens.add("writer", **filters)
    return Permission.of(registry.tokens.authenticate(secret)), token


CARS_ONLY = {"topics": ["cars/#"]}
CARS_IN = {**CARS_ONLY, "queues": ["CARS.*"]}


NAMES = [
    ({}, "queue", ["ANY"], []),
    ({}, "mail", ["any"], []),
    (CARS_ONLY, "none", [None], []),
    *((CARS_ONLY, kind, [], ["CARS", "cars"]) for kind in ("queue", "kafka", "mail")),
    (CARS_IN, "queue", ["CARS.IN", "CARS."], ["CARS", "OLDCARS.IN", "cars.in", None]),
    (CARS_IN, "kafka", [], ["CARS.IN"]),
    ({**CARS_ONLY, "queues": ["C?RS"]}, "queue", ["CARS"], ["CRS"]),
    ({**CARS_ONLY, "queues": ["A", "B"]}, "queue", ["B"], []),
    ({**CARS_ONLY, "kafka": ["cars.*"]}, "kafka", ["cars.eu"], ["carsXeu"]),
    ({"kafka": ["cars"]}, "kafka", ["cars?grouping=message"], []),
    ({"kafka": ["*message"]}, "kafka", [], ["cars?grouping=message"]),
    ({"queues": ["CARS.*"]}, "queue", ["CARS.IN"], ["PAYROLL"]),
    ({"queues": ["CARS.*"]}, "kafka", [], ["any"]),
]
"""Filters of a token, and names of destinations of a kind that it may have, and may not."""


def test_a_destination_is_permitted_by_its_whole_name(registry):
    for filters, kind, permitted, refused in NAMES:
        by, _ = permission(registry, **filters)
        assert [name for name in permitted + refused if by.may_name(kind, name)] == permitted, filters


def test_a_pattern_has_no_letters_but_those_of_names(registry):
    wrong = {"queues": (["A", "[AB]"], [""], ["A" * 49], ["A\n"]), "kafka": (["a/b"], ["a!"])}
    for name, several in wrong.items():
        for patterns in several:
            with pytest.raises(InvalidSpecError) as caught:
                registry.tokens.add("writer", **{name: patterns})
            assert caught.value.pointer == f"/{name}/{len(patterns) - 1}"
    assert registry.tokens.all() == []


WRITES = {
    "register": lambda registry, by: registry.register(CARS, by=by),
    "replace": lambda registry, by: registry.replace("seen", CARS, by=by),
    "change": lambda registry, by: registry.change("seen", {"labels": {"a": "b"}}, by=by),
    "remove": lambda registry, by: registry.remove("seen", by=by),
    "pause": lambda registry, by: registry.pause("seen", by=by),
    "resume": lambda registry, by: registry.resume("seen", by=by),
    "apply": lambda registry, by: registry.apply([Operation("add", spec=CARS)], by=by),
    "import": lambda registry, by: registry.import_(['{"topic": "cars/eu"}'], by=by),
    "add_token": lambda registry, by: registry.tokens.add("reader", by=by),
    "revoke_token": lambda registry, by: registry.tokens.revoke(registry.tokens.all()[-1].id, by=by),
}


@pytest.fixture
def filled(registry):
    registry.register(CARS, id="seen")
    registry.register(SubscriptionSpec(topic="boats/eu"), id="hidden")
    return registry


@pytest.mark.parametrize("write", WRITES)
def test_a_revoked_token_writes_nothing(filled, write):
    by, token = permission(filled, topics=["cars/#"])
    filled.tokens.add("reader", name="spare")
    WRITES[write](filled, by)
    filled.import_(['{"id": "seen", "topic": "cars/eu"}'], mode="replace")
    filled.tokens.add("reader", name="another")
    filled.tokens.revoke(token.id)
    before, tokens = filled.revision, filled.tokens.all()
    with pytest.raises(AuthError, match="revoked"):
        WRITES[write](filled, by)
    assert (filled.revision, filled.tokens.all()) == (before, tokens)


def test_an_import_whose_token_is_revoked_while_it_is_sent_is_not_done(filled):
    by, token = permission(filled, topics=["cars/#"])
    before = filled.revision

    def lines():
        yield '{"topic": "cars/1"}'
        filled.tokens.revoke(token.id)
        yield '{"topic": "cars/2"}'

    with pytest.raises(AuthError):
        filled.import_(lines(), by=by)
    assert (filled.revision, len(filled)) == (before, 2)


OUTSIDE = [
    (SubscriptionSpec(topic="boats/x"), "/topic"),
    (SubscriptionSpec(), "/topic"),
    (SubscriptionSpec(topic="cars/x", destination=Destination("queue", "PAYROLL")), "/destination"),
    (SubscriptionSpec(topic="cars/x", destination=Destination("kafka", "payments")), "/destination"),
]


@pytest.mark.parametrize(("spec", "pointer"), OUTSIDE)
def test_nothing_is_written_beyond_a_permission_in_any_way(filled, spec, pointer):
    by, _ = permission(filled, topics=["cars/#"], queues=["CARS.*"], kafka=["cars.*"])
    before = filled.revision
    line = json.dumps({"id": "seen", **spec.to_json()})
    patch = {"topic": spec.topic, "destination": spec.destination.to_json()}
    for write in (
        lambda: filled.register(spec, by=by),
        lambda: filled.register(spec, id="new", by=by),
        lambda: filled.replace("seen", spec, by=by),
        lambda: filled.change("seen", patch, by=by),
        lambda: filled.apply([Operation("add", spec=spec)], by=by),
        lambda: filled.apply([Operation("replace", "seen", spec)], by=by),
        lambda: filled.import_([json.dumps(spec.to_json())], by=by),
        lambda: filled.import_([line], mode="replace", by=by),
    ):
        with pytest.raises((ForbiddenError, OperationError, ImportLineError)) as caught:
            write()
        error = getattr(caught.value, "cause", caught.value)
        assert isinstance(error, ForbiddenError)
        assert error.pointer == pointer
    assert filled.revision == before


def test_what_a_caller_does_not_see_is_not_there_and_its_id_is_taken(filled):
    by, _ = permission(filled, topics=["cars/#"])
    before = filled.revision
    for write in (
        lambda: filled.replace("hidden", CARS, by=by),
        lambda: filled.change("hidden", {"topic": "cars/x"}, by=by),
        lambda: filled.remove("hidden", by=by),
        lambda: filled.pause("hidden", by=by),
        lambda: filled.resume("hidden", by=by),
    ):
        with pytest.raises(NotFoundError):
            write()
    line = '{"id": "hidden", "topic": "cars/x"}'
    for write in (
        lambda: filled.register(CARS, id="hidden", by=by),
        lambda: filled.import_([line], by=by).rows,
        lambda: filled.import_([line], mode="replace", by=by).rows,
    ):
        with pytest.raises((IdTakenError, ImportLineError)) as caught:
            write()
        assert isinstance(getattr(caught.value, "cause", caught.value), IdTakenError)
    assert filled.revision == before


def test_a_destination_of_somebody_elses_is_kept_by_a_pause_alone(registry):
    foreign = SubscriptionSpec(topic="cars/x", destination=Destination("queue", "PAYROLL"))
    registry.register(foreign, id="a")
    by, _ = permission(registry, topics=["cars/#"])
    registry.pause("a", by=by)
    assert registry.resume("a", by=by).subscription.destination == foreign.destination
    with pytest.raises(ForbiddenError):
        registry.change("a", {"selector": "a = 1"}, by=by)  # it would choose what goes there
    with pytest.raises(ForbiddenError):
        registry.replace("a", foreign, by=by)
    assert registry.change("a", {"destination": None}, by=by).destination == Destination()


def test_everything_may_be_done_with_the_database_itself(registry):
    assert not EVERYTHING.is_limited
    assert registry.register(SubscriptionSpec(destination=Destination("queue", "Q"))).topic is None


def test_a_registry_remembers_that_it_had_tokens(url):
    with Registry.open(url) as registry:
        assert not registry.tokens.had_any()
        token, _ = registry.tokens.add("reader")
        registry.tokens.revoke(token.id)
    with Registry.open(url) as registry:
        assert registry.tokens.all() == []
        assert registry.tokens.had_any()
        assert registry.tokens.add("admin")[0].role == "admin"
