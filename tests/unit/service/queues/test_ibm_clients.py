"""Requests in the shapes of public clients of IBM MQ's messaging REST API: curl, Python, Java, Node."""

import base64
import logging

import pytest

from tests.support.queue_calls import created, id_of
from tests.unit.service.conftest import bearer, problem, service

MANAGER = "/ibmmq/rest/{}/messaging/qmgr/selectroute"
QUEUE = f"{MANAGER}/queue/Q/message"
TOPIC = f"{MANAGER}/topic/cars/eu/message"
HEX = "414d5120514d4144455620202020202067d8bf5923582e02"
CSRF = {"ibm-mq-rest-csrf-token": ""}
TEXT = {**CSRF, "Content-Type": "text/plain;charset=utf-8"}
CLIENTS = {
    "curl": {**TEXT, "User-Agent": "curl/8.5.0", "Accept": "*/*"},
    "curl -d": {**CSRF, "Content-Type": "application/x-www-form-urlencoded"},
    "python": {**TEXT, "Accept-Encoding": "gzip, deflate", "Connection": "keep-alive"},
    "java": {
        "ibm-mq-rest-csrf-token": "token",
        "Content-Type": "application/json;charset=UTF-8",
        "Accept": "text/plain, application/json, application/*+json, */*",
        "Accept-Language": "en-US",
        "ibm-mq-md-expiry": "0",
        "ibm-mq-md-persistence": "nonPersistent",
    },
    "node": {
        "ibm-mq-rest-csrf-token": "value",
        "Content-Type": 'text/xml; charset="utf-8"',
        "ibm-mq-md-correlationId": HEX,
        "ibm-mq-md-expiry": "unlimited",
        "ibm-mq-md-replyTo": "myReplyQueue@myReplyQMgr",
    },
}


def basic(secret, user="app"):
    credentials = base64.b64encode(f"{user}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {credentials}"}


@pytest.fixture(params=[False, True], ids=["without tokens", "with tokens"])
def known(request, registry):
    """A client with HTTP Basic, whose password is a token if the service needs tokens."""
    secret = registry.tokens.add("admin")[1] if request.param else "passw0rd"
    with service(registry, headers=basic(secret)) as client:
        client.app.state.service.queues.create("Q")
        yield client


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
@pytest.mark.parametrize("who", CLIENTS)
def test_clients_put_browse_list_and_get(known, version, who):
    headers, path = CLIENTS[who], QUEUE.format(version)
    made = known.post(path, content=b"Hello World!", headers=headers)
    assert (made.status_code, made.content) == (201, b"")
    id = made.headers["ibm-mq-md-messageId"]
    assert (len(id), id.startswith("ID:")) == ((51, True) if version == "v3" else (48, False))
    (listed,) = known.get(f"{path}list", headers=headers).json()["messages"]
    assert listed["messageId"] == id
    for method in ("GET", "DELETE"):
        found = known.request(method, path, params={"messageId": id}, headers=CSRF)
        assert (found.status_code, found.content) == (200, b"Hello World!")
        assert found.headers["ibm-mq-md-expiry"] == "unlimited"
        assert ("ibm-mq-md-priority" in found.headers) == (version == "v3")
        if "ibm-mq-md-correlationId" in headers:
            given = f"ID:{HEX.upper()}" if version == "v3" else HEX
            assert found.headers["ibm-mq-md-correlationId"] == listed["correlationId"] == given
    assert known.delete(path, params={"wait": 1}, headers=CSRF).status_code == 204


def test_version_2_has_a_correlation_id_in_digits_and_no_properties(known):
    headers = {"ibm-mq-md-correlationId": "order-7", "ibm-mq-usr": "a;1;integer"}
    known.post(QUEUE.format("v3"), content=b"x", headers=headers)
    found = known.get(QUEUE.format("v2"), params={"correlationId": id_of("order-7").hex()})
    assert found.headers["ibm-mq-md-correlationId"] == id_of("order-7").hex()
    assert "ibm-mq-usr" not in found.headers


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "id", "reason"),
    [
        ("GET", QUEUE.replace("/Q/", "/NONE/"), {}, 404, "MQWB0300E", 2085),
        ("GET", QUEUE.replace("selectroute", "QM1"), {}, 404, "MQWB0009E", 2058),
        ("POST", QUEUE, {"ibm-mq-md-expiry": "soon"}, 400, "MQWB0302E", 2013),
        ("POST", QUEUE, {"Content-Type": "text/plain; charset=iso-8859-1"}, 415, "MQWB0305E", 0),
        ("POST", QUEUE, {"Content-Encoding": "gzip"}, 415, "MQWB0306E", 0),
        ("POST", QUEUE, {"Origin": "https://evil.example"}, 403, "MQWB0103E", 2035),
        ("POST", TOPIC.replace("eu", "+"), {}, 400, "MQWB0303E", 0),
        ("GET", QUEUE.replace("{}", "v4"), {}, 404, "MQWB0303E", 0),
        ("POST", TOPIC.replace("{}", "v1"), {}, 404, "MQWB0303E", 0),
        ("PUT", QUEUE, {}, 405, "MQWB0303E", 0),
        ("POST", "/ibmmq/rest/v3/login", {}, 404, "MQWB0303E", 0),
    ],
)
def test_errors_have_ibms_form(known, method, path, headers, status, id, reason):
    answer = known.request(method, path.format("v2"), content=b"x", headers=headers)
    (error,) = answer.json()["error"]
    problem(answer, status, error["problem"]["type"].rpartition(":")[2])
    assert (error["type"], error["msgId"], error["reasonCode"]) == ("rest", id, reason)
    assert error["completionCode"] == (2 if reason else 0)
    assert error["explanation"] and error["action"]


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic app:secret",
        "Basic " + base64.b64encode(b"app").decode(),
        "Basic " + base64.b64encode(b"app:").decode(),
        "Basic " + base64.b64encode(b"app:\xff").decode(),
        basic("passw0rd-not-a-token")["Authorization"],
        basic("", user="SECRET")["Authorization"],
    ],
)
def test_a_password_that_is_no_token_is_refused_and_not_shown(registry, caplog, header):
    caplog.set_level(logging.DEBUG)
    _, secret = registry.tokens.add("admin")
    header = header.replace("SECRET", secret)
    with service(registry) as client:
        answer = client.get(QUEUE.format("v2"), headers={"Authorization": header})
    assert problem(answer, 401, "unauthorised")
    assert answer.json()["error"][0]["msgId"] == "MQWB0104E"
    assert answer.headers["www-authenticate"].startswith("Basic realm=")
    assert "passw0rd" not in answer.text + caplog.text and secret not in answer.text + caplog.text


def test_a_page_of_another_site_cannot_use_a_password_that_the_browser_knows(registry):
    _, secret = registry.tokens.add("admin")
    foreign = {"Origin": "https://evil.example"}
    with service(registry) as client:
        problem(client.put("/v1/queues/Q", headers={**basic(secret), **foreign}), 403, "forbidden")
        assert client.put("/v1/queues/Q", headers={**bearer(secret), **foreign}).status_code == 201


def test_without_tokens_a_password_does_not_open_the_service_to_other_hosts(client):
    answer = client.get(QUEUE.format("v2"), headers={**basic("x"), "Host": "evil.example"})
    problem(answer, 421, "misdirected")
    front = client.get("/", headers={**basic("x"), "Host": "evil.example"})
    assert "Revision" in client.get("/").text and "Revision" not in front.text


def subscribe(client, id, queue, **fields):
    """Register a subscription whose deliveries go to a queue."""
    destination = {"kind": "none"} if queue is None else {"kind": "queue", "name": queue}
    spec = {"selector": "", **fields, "destination": destination}
    assert client.put(f"/v1/subscriptions/{id}", json=spec, headers={"If-None-Match": "*"}).is_success


class TestTopic:
    def test_a_message_is_put_on_the_queue_of_each_subscription_that_matches(self, client):
        queues = [created(client.app.state.service.queues, name) for name in ("Q", "R")]
        subscribe(client, "a", "Q", selector="weight > 1", topic="cars/#")
        subscribe(client, "b", "R", selector="JMSPriority = 7")
        subscribe(client, "c", "R", selector="weight > 9")
        subscribe(client, "d", "R", topic="boats")
        subscribe(client, "e", None)
        headers = {**TEXT, "ibm-mq-usr": "weight;5;integer", "ibm-mq-md-priority": "7"}
        made = client.post(TOPIC.format("v3"), content=b"sold", headers=headers)
        assert (made.status_code, made.content) == (201, b"")
        assert [queue.depth for queue in queues] == [1, 1]
        found = queues[1].get()
        assert made.headers["ibm-mq-md-messageId"] == f"ID:{found.descriptor.msg_id.hex().upper()}"
        assert (found.body, found.descriptor.priority) == (b"sold", 7)
        assert {name: str(getattr(value, "value", value)) for name, value in found.properties.items()} == {
            "weight": "5",
            "selectroute_subscription": "b",
            "selectroute_topic": "cars/eu",
            "selectroute_revision": "5",
            "selectroute_delivery_id": f"{found.descriptor.msg_id.hex()}/b",
        }

    def test_a_publication_that_nobody_gets_succeeds(self, client):
        assert client.post(TOPIC.format("v2"), content=b"x", headers=TEXT).status_code == 201

    @pytest.mark.parametrize(
        ("settings", "status", "kind", "reason"),
        [
            ({"max_depth": 0}, 409, "queue-full", 2053),
            ({"max_message_length": 0}, 413, "message-too-large", 2030),
            (None, 404, "queue-not-found", 2085),
        ],
    )
    def test_all_or_no_queue_gets_the_message(self, client, settings, status, kind, reason):
        queue = created(client.app.state.service.queues, "Q")
        for id, name in (("a", "Q"), ("b", "R")):
            subscribe(client, id, name)
        if settings is not None:
            assert client.put("/v1/queues/R", json=settings).status_code == 201
        answer = client.post(TOPIC.format("v2"), content=b"x", headers=TEXT)
        assert problem(answer, status, kind)["mqrc"] == reason and queue.depth == 0

    def test_a_message_that_cannot_be_judged_and_one_for_too_many_are_not_put(self, client, monkeypatch):
        queue = created(client.app.state.service.queues, "Q")
        subscribe(client, "a", "Q")
        subscribe(client, "b", "Q", selector="a == 1 ~", seltype="EXTENDED", dialect="ibm-mq")
        problem(client.post(TOPIC.format("v2"), content=b"x"), 422, "invalid-message")
        monkeypatch.setattr("selectroute.service.queues.administration.MOST_PUTS", 1)
        client.delete("/v1/subscriptions/b", headers={"If-Match": "*"})
        subscribe(client, "c", "Q")
        problem(client.post(TOPIC.format("v2"), content=b"x"), 413, "message-too-large")
        assert queue.depth == 0
