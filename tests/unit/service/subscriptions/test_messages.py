"""Questions about messages and selectors over HTTP."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.registry import Registry
from selectroute.selector.limits import UNLIMITED
from selectroute.service.limits import ServiceLimits
from selectroute.topics import TopicFilter
from tests.support.strategies import checked_selectors, messages
from tests.unit.service.conftest import CAR, client_of, problem, service

MATCH, EXPLAIN, CHECK = "/v1/messages:match", "/v1/messages:explain", "/v1/selectors:check"


def test_a_message_reaches_those_whose_filter_and_selector_it_satisfies(client, add):
    heavy = add("JMSType = 'car' AND weight > 2500", topic="cars/+")
    add("weight < 10")
    add("", topic="boats/#")
    everything = add("")
    client.post(f"/v1/subscriptions/{add('')['id']}:pause")
    found = client.post(MATCH, json={"message": CAR}).json()
    assert (found["revision"], found["total"]) == (6, 2)
    assert sorted(found["ids"]) == sorted([heavy["id"], everything["id"]])
    assert len(client.post(MATCH, json={"message": CAR, "limit": 1}).json()["ids"]) == 1


def test_those_that_miss_it_by_one_condition_are_named_where_the_caller_sees_them(client, add):
    add("JMSType = 'car' AND weight > 2500")
    near = add("JMSType = 'car' AND weight > 5000", topic="cars/#")
    add("JMSType = 'bus' AND weight > 5000")
    found = client.post(MATCH, json={"message": CAR, "near": True}).json()
    (one,) = found["near"]
    assert (one["id"], one["topic"], found["near_complete"]) == (near["id"], "cars/#", True)
    assert one["conditions"] == [{"text": "weight > 5000", "truth": "false", "saw": ["weight is int 3000"]}]
    assert "near" not in client.post(MATCH, json={"message": CAR}).json()


def test_what_is_registered_is_asked_for_at_once(client, add):
    for n in range(20):
        made = add(f"n = {n}")
        assert client.post(MATCH, json={"message": {"properties": {"n": n}}}).json()["ids"] == [made["id"]]


def explained(client, one):
    (why,) = client.post(EXPLAIN, json={"message": CAR, "subscriptions": [one["id"]]}).json()["explanations"]
    return why


def test_a_verdict_is_explained_by_the_parts_and_what_they_saw(client, add):
    one = add("JMSType = 'car' AND weight > 5000", topic="cars/+")
    why = explained(client, one)
    assert (why["id"], why["matched"], why["reason"]) == (one["id"], False, "its selector is false")
    assert why["topic"] == {"filter": "cars/+", "matches": True}
    assert (why["access"][0]["attributes"], why["access"][0]["found"]) == (["JMSType"], True)
    tree = why["selector"]
    assert (tree["truth"], [part["truth"] for part in tree["children"]]) == ("false", ["true", "false"])
    assert tree["children"][1]["children"][0] == {
        "text": "weight", "offset": 20, "length": 6, "type": "int", "value": {"type": "int", "value": 3000}
    }  # fmt: skip


def test_the_reason_is_one_sentence(client, add):
    unknown = "its selector is unknown: `color` is NULL: comparing with it is UNKNOWN"
    assert explained(client, add("color = 'red'"))["reason"] == unknown
    assert explained(client, add(topic="boats/#"))["reason"] == "its topic filter does not match"
    assert explained(client, add(topic="cars/#"))["reason"] == "it gets the message"
    assert explained(client, add("(" * 254 + "NOT weight > 1 OR a = 1" + ")" * 254))["matched"] is False


def test_a_paused_or_unknown_subscription_is_said_to_be_one(client, add):
    one = add()
    client.post(f"/v1/subscriptions/{one['id']}:pause")
    assert explained(client, one) == {"id": one["id"], "matched": False, "reason": "it is paused"}
    answer = client.post(EXPLAIN, json={"message": CAR, "subscriptions": [one["id"], "nobody"]})
    problem(answer, 404, "subscription-not-found")


TOPICS = st.none() | st.sampled_from(["a", "a/+", "#", "cars/#", "+/b"])


@pytest.mark.slow
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(checked_selectors(), TOPICS), min_size=8, max_size=8),
    st.lists(messages(), min_size=6, max_size=6),
)
def test_the_service_says_what_the_reference_evaluator_says(tmp_path_factory, given_, messages_):
    path = tmp_path_factory.mktemp("r")
    limits = ServiceLimits(selector_length=1 << 20)
    opened = Registry.open(f"sqlite:///{path}/r.db", limits=UNLIMITED)
    with opened as registry, service(registry, limits=limits) as client:
        operations = [
            {"op": "add", "id": f"s{n}", "selector": one.text, "dialect": one.dialect}
            | ({} if topic is None else {"topic": topic})
            for n, (one, topic) in enumerate(given_)
        ]
        assert client.post("/v1/subscriptions:batch", json={"operations": operations}).status_code == 200
        for message in messages_:
            wanted = {
                f"s{n}"
                for n, (one, topic) in enumerate(given_)
                if (topic is None or TopicFilter.parse(topic).matches(message.topic))
                and sr.Selector(one.text, one.dialect, limits=UNLIMITED).matches(message)
            }
            body = {"message": message.to_json()}
            assert set(client.post(MATCH, json=body).json()["ids"]) == wanted
            every = {**body, "subscriptions": [f"s{n}" for n in range(len(given_))]}
            found = client.post(EXPLAIN, json=every).json()["explanations"]
            assert {one["id"] for one in found if one["matched"]} == wanted


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"properties": {"a.b/c": {"type": "int", "value": "x"}}}, "/message/properties/a.b~1c"),
        ({"headers": {"JMSPriority": 10}}, "/message/headers/JMSPriority"),
        ({"header": {}}, "/message/header"),
        ({"properties": {str(n): 1 for n in range(1_001)}}, "/message/properties"),
        ({"properties": {"x" * 4_096: 1}}, "/message/properties"),
        ({"topic": 1}, "/message/topic"),
        ({"body": {"type": "bytes", "value": "0"}}, "/message/body"),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(shared, message, pointer):
    for path, more in ((MATCH, {}), (EXPLAIN, {"subscriptions": ["x"]})):
        found = problem(shared.post(path, json={"message": message, **more}), 422, "invalid-message")
        assert found["errors"][0]["pointer"] == pointer


def test_limits_of_messages_can_be_lower(registry):
    with service(registry, limits=ServiceLimits(message_properties=1, property_name_length=3)) as client:
        assert client.post(MATCH, json={"message": {"properties": {"abc": 1}}}).status_code == 200
        for properties in ({"a": 1, "b": 2}, {"abcd": 1}):
            problem(client.post(MATCH, json={"message": {"properties": properties}}), 422, "invalid-message")


def test_what_a_subscription_was_while_it_was_hidden_is_not_explained(registry, monkeypatch):
    registry.register(SubscriptionSpec("canary = 1", topic="boats/#"), id="a")
    with client_of(registry, "reader", topics=["cars/#"]) as client:
        publishing = client.app.state.service.publishing
        old = publishing.caught_up(1, 60)
        registry.replace("a", SubscriptionSpec("a = 1", topic="cars/eu"))
        monkeypatch.setattr(publishing, "caught_up", lambda *_: old)
        answer = client.post(EXPLAIN, json={"message": CAR, "subscriptions": ["a"]})
        assert answer.status_code == 200
        assert "canary" not in answer.text and "boats" not in answer.text
        assert answer.json()["explanations"][0]["reason"] == "it is not in the published revision yet"


def test_no_subscription_has_an_id_that_cannot_be(shared):
    for id in ("", "a/b", "\x00"):
        answer = shared.post(EXPLAIN, json={"message": CAR, "subscriptions": [id]})
        problem(answer, 404, "subscription-not-found")


def test_an_explanation_is_left_when_it_gets_too_large(registry):
    registry.register(SubscriptionSpec(" + ".join(["a"] * 1_000) + " = 1"), id="a")
    body = {"message": {"properties": {"a": "x" * 10_000}}, "subscriptions": ["a"]}
    with service(registry, limits=ServiceLimits(explanation_bytes=1_000_000)) as client:
        problem(client.post(EXPLAIN, json=body), 413, "too-large")
        body["message"]["properties"]["a"] = "x"
        assert client.post(EXPLAIN, json=body).status_code == 200
        body["subscriptions"] *= 20
        problem(client.post(EXPLAIN, json=body), 413, "too-large")


def test_so_many_are_explained_at_once(client):
    problem(client.post(EXPLAIN, json={"message": {}, "subscriptions": ["x"] * 101}), 413, "too-large")


class TestCheck:
    def test_a_selector_is_described(self, client):
        assert client.post(CHECK, json={"selector": "color='red' and weight>2500"}).json() == {
            "valid": True, "dialect": "jms", "canonical": "color = 'red' AND weight > 2500",
            "identifiers": ["color", "weight"], "warnings": [],
            "access": [{"attributes": ["color"], "by_prefix": False, "reason": None, "clauses": 1}],
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("selector", "kinds"),
        [
            ("a = 1 AND a = 2", ["always-false", "contradictory-conditions"]),
            ("1 = 1", ["always-true"]),
            ("JMSPriority > 9 OR color = 'red'", ["impossible-comparison"]),
            ("a + b > 1", ["not-indexable"]),
        ],
    )
    def test_what_is_probably_a_mistake_is_said(self, shared, selector, kinds):
        found = shared.post(CHECK, json={"selector": selector}).json()
        assert [one["kind"] for one in found["warnings"]] == kinds

    def test_what_is_no_selector_is_an_answer_too(self, client):
        found = client.post(CHECK, json={"selector": "a = 1 OR b = 2", "dialect": "mqe"}).json()
        error = found["error"]
        assert found["valid"] is False
        assert (error["kind"], error["offset"], error["mqrc"]) == ("not-in-dialect", 6, 2551)
