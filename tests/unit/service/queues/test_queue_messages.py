"""Messages over HTTP, in the shape of IBM MQ's messaging REST API."""

import logging
import threading
import time
from itertools import count, product
from types import SimpleNamespace
from urllib.parse import quote

import anyio
import anyio.to_thread
import pytest
from starlette.requests import ClientDisconnect

import selectroute as sr
from selectroute.queues import lookup
from selectroute.queues.errors import ScanLimitError
from selectroute.queues.rest.properties import header_of
from selectroute.service.context import while_connected
from selectroute.service.limits import ServiceLimits
from selectroute.service.queues import messages
from tests.support.queue_calls import hex_of, id_of
from tests.support.waiting import wait_until
from tests.unit.service.conftest import client_of, meanwhile, problem, service
from tests.unit.service.http.test_secrets import HOSTILE, assert_data_in_log

QUEUE = "/ibmmq/rest/v3/messaging/qmgr/selectroute/queue/Q"
PATH = f"{QUEUE}/message"
LIST = f"{QUEUE}/messagelist"


@pytest.fixture
def queue(client):
    return opened(client)


@pytest.fixture(scope="module")
def shared_queue(shared):
    """A queue with one message, to which the tests of a module do nothing."""
    queue = opened(shared)
    queue.put(b"stays")
    return queue


def opened(client, **settings):
    """The queue of the service."""
    assert client.put("/v1/queues/Q", json=settings).status_code == 201
    return client.app.state.service.queues.open("Q")


@pytest.mark.parametrize(
    ("body", "sent_as", "media_type"),
    [
        (b"hello", "text/plain;charset=utf-8", "text/plain; charset=utf-8"),
        ('{"a": "é"}'.encode(), "application/json", "text/plain; charset=utf-8"),
        (b"\0\xff\xfe", "application/octet-stream", "application/octet-stream"),
        (b"", "text/plain", "text/plain; charset=utf-8"),
        (b"<a/>", "text/xml", "text/plain; charset=utf-8"),
        (b"x", None, "text/plain; charset=utf-8"),
    ],
)
def test_a_body_comes_back_byte_by_byte(client, queue, body, sent_as, media_type):
    made = client.post(PATH, content=body, headers={} if sent_as is None else {"Content-Type": sent_as})
    assert (made.status_code, made.content) == (201, b"")
    for method in ("GET", "DELETE"):
        answer = client.request(method, PATH)
        assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, body, media_type)
        assert answer.headers["ibm-mq-md-messageId"] == made.headers["ibm-mq-md-messageId"]
    answer = client.delete(PATH)
    assert (answer.status_code, answer.content) == (204, b"")
    assert client.get(PATH).status_code == 204


def test_what_is_put_by_headers_is_what_the_queue_has(client, queue):
    headers = {
        "ibm-mq-rest-csrf-token": "",
        "ibm-mq-md-messageId": "ID:" + "0a" * 24,
        "ibm-mq-md-correlationId": "ID:0b0c",
        "ibm-mq-md-groupId": "ID:0d",
        "ibm-mq-md-msgSeqNumber": "3",
        "ibm-mq-md-offset": "7",
        "ibm-mq-md-lastInGroup": "true",
        "ibm-mq-md-priority": "8",
        "ibm-mq-md-persistence": "persistent",
        "ibm-mq-md-expiry": "600000",
        "ibm-mq-md-replyTo": "REPLIES@QM",
        "ibm-mq-usr": 'weight;3000;integer, color;"light blue";string',
    }
    assert client.post(PATH, content=b"x", headers=headers).status_code == 201
    message = queue.browse()
    descriptor = message.descriptor
    ids = (b"\x0a" * 24, b"\x0b\x0c" + bytes(22), b"\x0d" + bytes(23))
    assert (descriptor.msg_id, descriptor.correl_id, descriptor.group_id) == ids
    assert (descriptor.msg_seq_number, descriptor.offset, descriptor.last_in_group) == (3, 7, True)
    assert (descriptor.priority, descriptor.persistence) == (8, True)
    assert 0 < descriptor.expiry <= 6000
    properties = {"weight": sr.Int(3000), "color": "light blue", "JMSReplyTo": "queue://QM/REPLIES"}
    assert message.properties == properties
    headers |= {
        "ibm-mq-md-messageId": "ID:" + "0A" * 24,
        "ibm-mq-md-correlationId": "ID:0B0C" + "00" * 22,
        "ibm-mq-md-putDate": f"{descriptor.put_time:%Y%m%d}",
    }
    answer = client.delete(PATH)
    for name in ("messageId", "correlationId", "priority", "persistence", "replyTo", "putDate"):
        assert answer.headers[f"ibm-mq-md-{name}"] == headers[f"ibm-mq-md-{name}"]
    assert answer.headers["ibm-mq-usr"] == headers["ibm-mq-usr"]
    assert 0 < int(answer.headers["ibm-mq-md-expiry"]) <= 600_000
    assert answer.headers["ibm-mq-md-putTime"][:6] == f"{descriptor.put_time:%H%M%S}"


def test_headers_of_properties_may_be_several_and_are_utf_8(client, queue):
    headers = [("ibm-mq-usr", "a;1;long"), ("ibm-mq-usr", 'b;"é";string'.encode())]
    assert client.post(PATH, headers=headers).status_code == 201
    assert queue.get().properties == {"a": sr.Long(1), "b": "é"}


def test_a_header_that_says_two_things_is_refused(client, queue):
    answer = client.post(PATH, headers=[("ibm-mq-md-priority", "1"), ("ibm-mq-md-priority", "2")])
    assert problem(answer, 400, "invalid-request")["errors"][0]["pointer"] == "ibm-mq-md-priority"
    assert queue.depth == 0


def test_a_text_of_an_application_is_a_correlation_id_too(client, queue):
    client.post(PATH, content=b"a", headers={"ibm-mq-md-correlationId": "order-7"})
    client.post(PATH, content=b"b", headers={"ibm-mq-md-correlationId": "it's longer than 24 bytes"})
    assert queue.browse(correl_id=id_of("order-7")).body == b"a"
    found = client.get(PATH, params={"correlationId": "order-7"})
    assert (found.content, found.headers["ibm-mq-md-correlationId"]) == (b"a", "order-7")
    assert client.get(PATH, params={"correlationId": hex_of(id_of("order-7"))}).content == b"a"
    found = client.delete(PATH, params={"correlationId": "it's longer than 24 bytes"})
    assert (found.content, found.headers["ibm-mq-md-correlationId"]) == (b"b", "it's longer than 24 bytes")


def test_a_text_longer_than_an_id_is_looked_up_by_its_first_24_bytes(client, queue):
    text = "3fa85f64-5717-4562-b3fc-2c963f66afa6"
    ids = {"ibm-mq-md-groupId": text, "ibm-mq-md-correlationId": text}
    for name, value in product(("groupId", "correlationId"), (text, text[:24], hex_of(text[:24].encode()))):
        client.post(PATH, content=b"x", headers=ids)
        answer = client.delete(PATH, params={name: value})
        assert (answer.status_code, answer.content) == (200, b"x")
        assert {name: answer.headers[name] for name in ids} == ids


def test_a_message_is_found_by_each_of_its_ids_and_by_all_of_them(client, queue):
    for number in range(3):
        ids = {"msg_id": id_of(f"m{number}"), "correl_id": id_of(f"c{number % 2}"), "group_id": id_of("g")}
        place = {"msg_seq_number": number + 1, "offset": number}
        queue.put(str(number).encode(), properties={"number": number}, **ids, **place)
    token = queue.listed(3)[1].descriptor.msg_token.hex()
    for found, params in (
        (b"0", {}),
        (b"2", {"messageId": hex_of(id_of("m2"))}),
        (b"2", {"messageId": id_of("m2").hex()}),
        (b"0", {"messageId": "ID:" + "0" * 48}),
        (b"1", {"correlationId": "ID:" + b"c1".hex()}),
        (b"1", {"correlationId": "c1"}),
        (b"2", {"groupId": "g", "msgSeqNumber": 3}),
        (b"1", {"groupId": "ID:67", "offset": 1}),
        (b"1", {"msgToken": token}),
        (b"2", {"selector": "number > 0 AND JMSXGroupSeq = 3"}),
        (b"2", {"selector": "number > 0", "correlationId": "c0"}),
        (b"1", {"selector": "jms.Seq = 2", "dialect": "ibm-mq"}),
        (b"", {"messageId": hex_of(id_of("m2")), "correlationId": "c1"}),
        (b"0", {"selector": ""}),
    ):
        answer = client.get(PATH, params=params)
        assert (answer.status_code, answer.content) == (200 if found else 204, found), params
    assert client.delete(PATH, params={"groupId": "g", "msgSeqNumber": 2}).content == b"1"
    assert queue.depth == 2


@pytest.mark.parametrize(
    ("params", "status", "kind", "mqrc"),
    [
        ({"messageId": "ID:00"}, 400, "invalid-request", 2206),
        ({"messageId": "order-7"}, 400, "invalid-request", 2206),
        ({"correlationId": "ID:xy"}, 400, "invalid-request", 2207),
        ({"correlationId": ""}, 400, "invalid-request", 2207),
        ({"groupId": "ID:" + "0" * 49}, 400, "invalid-request", 2258),
        ({"msgToken": "00"}, 400, "invalid-request", 2331),
        ({"msgToken": "0" * 32, "wait": 1}, 400, "invalid-request", 2331),
        ({"msgSeqNumber": 0}, 400, "invalid-request", None),
        ({"offset": "x"}, 400, "invalid-request", None),
        ({"wait": -1}, 400, "invalid-request", None),
        ({"dialect": "sql"}, 400, "invalid-request", None),
        ({"selector": "a >"}, 422, "invalid-selector", 2551),
        ({"selector": "a = 'x" + "y" * 10_300 + "'"}, 422, "invalid-selector", 2551),
        ({"selector": 'a = "0x0"', "dialect": "ibm-mq"}, 422, "invalid-selector", 2459),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["GET", "DELETE", "LIST"])
def test_what_no_lookup_can_be_is_refused_with_its_reason(
    shared, shared_queue, method, params, status, kind, mqrc
):
    if method == "LIST" and "wait" in params:
        mqrc = None  # a list has no such parameter
    method, path = ("GET", LIST) if method == "LIST" else (method, PATH)
    assert problem(shared.request(method, path, params=params), status, kind).get("mqrc") == mqrc
    assert shared_queue.depth == 1


@pytest.mark.parametrize(
    ("headers", "status", "kind", "mqrc"),
    [
        ({"ibm-mq-md-messageId": "ID:00"}, 400, "invalid-request", 2206),
        ({"ibm-mq-md-priority": "10"}, 400, "invalid-request", 2050),
        ({"ibm-mq-md-expiry": "soon"}, 400, "invalid-request", 2013),
        ({"ibm-mq-usr": "a"}, 400, "invalid-request", None),
        ({"ibm-mq-usr": "JMSPriority;4;integer"}, 422, "invalid-message", 2442),
        ({"ibm-mq-usr": '"";4;integer'}, 422, "invalid-message", 2442),
        ({"ibm-mq-usr": "JMSType;4;integer"}, 422, "invalid-message", 2473),
        ({"ibm-mq-usr": ",".join(f"p{n};1;i1" for n in range(1_001))}, 422, "invalid-message", 2478),
        ({"ibm-mq-md-correlationId": "ID:01", "ibm-mq-usr": "JMSCorrelationID;x;string"},
         400, "invalid-request", 2207),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_what_no_message_can_be_is_refused_with_its_reason(shared, shared_queue, headers, status, kind, mqrc):
    assert problem(shared.post(PATH, content=b"x", headers=headers), status, kind).get("mqrc") == mqrc
    assert shared_queue.depth == 1


def test_a_body_beyond_a_limit_is_2030(registry):
    with service(registry, limits=ServiceLimits(message_bytes=1_000, body_bytes=10)) as client:
        queue = opened(client)
        for content in (b"x" * 1_001, (b"x" * 10 for _ in range(101))):
            assert problem(client.post(PATH, content=content), 413, "message-too-large")["mqrc"] == 2030
        assert client.post(PATH, content=b"x" * 1_000).status_code == 201
        assert queue.depth == 1


def test_a_queues_own_limits_hold(client):
    queue = opened(client, max_message_length=3, max_depth=1)
    assert problem(client.post(PATH, content=b"1234"), 413, "message-too-large")["mqrc"] == 2030
    assert client.post(PATH, content=b"123").status_code == 201
    assert problem(client.post(PATH, content=b"123"), 409, "queue-full")["mqrc"] == 2053
    assert queue.depth == 1


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "LIST"])
def test_other_queues_and_queue_managers_are_not_there(shared, shared_queue, method):
    method, end = ("GET", "messagelist") if method == "LIST" else (method, "message")
    base = "/ibmmq/rest/v3/messaging/qmgr"
    for name in ("q", "X", "a b", "%00", "Q%27", "x" * 60):
        answer = shared.request(method, f"{base}/selectroute/queue/{name}/{end}")
        assert problem(answer, 404, "queue-not-found")["mqrc"] == 2085
    for manager in ("QM1", "SELECTROUTE", "%00"):
        answer = shared.request(method, f"{base}/{manager}/queue/Q/{end}")
        assert problem(answer, 404, "queue-manager-not-found")["mqrc"] == 2058


def test_the_queue_manager_has_the_name_that_is_given(registry):
    with service(registry, queue_manager="QM1") as client:
        opened(client)
        assert client.post(PATH.replace("selectroute", "QM1"), content=b"a").status_code == 201
        problem(client.post(PATH, content=b"a"), 404, "queue-manager-not-found")


def test_a_name_may_have_slashes(client):
    client.put("/v1/queues/a%2Fmessage%2Fb")
    path = "/ibmmq/rest/v3/messaging/qmgr/selectroute/queue/a%2Fmessage%2Fb/message"
    assert client.post(path, content=b"x").status_code == 201
    assert client.delete(path).content == b"x"


def test_a_list_has_the_first_matches_in_order_without_bodies(client, queue):
    for number in range(15):
        queue.put(b"x", priority=number % 10, properties={"number": number}, correl_id=id_of(f"c{number}"))
    found = client.get(LIST).json()["messages"]
    assert [one["priority"] for one in found] == [9, 8, 7, 6, 5, 4, 4, 3, 3, 2]
    descriptor = queue.browse().descriptor
    assert found[0] == {
        "messageId": hex_of(descriptor.msg_id), "correlationId": hex_of(id_of("c9")), "groupId": None,
        "msgSeqNumber": 1, "offset": 0, "lastInGroup": False, "priority": 9, "persistence": "nonPersistent",
        "expiry": "unlimited", "timestamp": descriptor.timestamp, "backoutCount": 0, "expiration": 0,
        "msgToken": descriptor.msg_token.hex().upper(), "properties": {"number": 9},
    }  # fmt: skip
    assert len(client.get(LIST, params={"limit": 12}).json()["messages"]) == 12
    found = client.get(LIST, params={"selector": "number >= 12"}).json()["messages"]
    assert [one["properties"]["number"] for one in found] == [14, 13, 12]
    assert client.get(LIST, params={"correlationId": "c20"}).json() == {"messages": [], "next": None}
    assert queue.depth == 15


def test_a_list_is_no_longer_than_a_page(registry):
    with service(registry, limits=ServiceLimits(page=3)) as client:
        queue = opened(client)
        for _ in range(5):
            queue.put()
        assert len(client.get(LIST, params={"limit": 2**31 - 1}).json()["messages"]) == 3


@pytest.mark.parametrize("order", ["priority", "fifo"])
@pytest.mark.parametrize("selector", ["", "number <> 3"])
def test_a_list_goes_on_after_its_last_message_even_if_that_is_gone(registry, order, selector):
    with service(registry, limits=ServiceLimits(page=4)) as client:
        queue = opened(client, order=order)
        for number in range(11):
            queue.put(properties={"number": number}, priority=number % 3)
        wanted = [one["msgToken"] for one in all_pages(client, selector)]
        assert len(wanted) == len(set(wanted)) == (10 if selector else 11)
        found = client.get(LIST, params={"selector": selector}).json()
        client.delete(PATH, params={"msgToken": found["next"]})
        rest = client.get(LIST, params={"selector": selector, "after": found["next"]}).json()["messages"]
        assert [one["msgToken"] for one in rest] == wanted[4:8]


def all_pages(client, selector):
    found, after = [], None
    while True:
        page = client.get(LIST, params={"selector": selector, **({"after": after} if after else {})}).json()
        found += page["messages"]
        if (after := page["next"]) is None:
            return found


@pytest.mark.parametrize("token", ["00", "0" * 32, "F" * 32, "own"])
def test_a_list_goes_on_from_a_token_of_its_queue_alone(client, queue, token):
    queue.put()
    if token == "own":
        token = queue.browse().descriptor.msg_token[:8].hex() + "F" * 16
    assert problem(client.get(LIST, params={"after": token}), 400, "invalid-request")["mqrc"] == 2331


def test_a_message_that_no_header_can_carry_keeps_nobody_from_the_next(registry):
    """Whoever put it, in a job or by Python: over HTTP it is refused."""
    with service(registry, limits=ServiceLimits(message_header_bytes=4_096)) as client:
        queue = opened(client)
        properties = {"first": 1, "long": "y" * 5_000, "JMSCorrelationID": "z" * 5_000, "last": "é"}
        queue.put(b"x", properties=properties)
        queue.put(b"next")
        (listed,) = client.get(LIST, params={"limit": 1}).json()["messages"]
        assert listed["properties"]["long"] == "y" * 5_000
        for method in ("GET", "DELETE"):
            answer = client.request(method, PATH)
            assert (answer.status_code, answer.content) == (200, b"x")
            assert answer.headers["ibm-mq-usr-omitted"] == "2"
            assert answer.headers["ibm-mq-usr"] == 'first;1;long, last;"\\u00e9";string'
            assert answer.headers["ibm-mq-md-messageId"] == listed["messageId"]
            assert sum(len(name) + len(value) + 4 for name, value in answer.headers.items()) < 4_096
        answer = client.delete(PATH)
        assert (answer.content, "ibm-mq-usr-omitted" in answer.headers) == (b"next", False)


def test_of_many_properties_those_that_fit_are_told(registry):
    with service(registry, limits=ServiceLimits(message_header_bytes=4_096)) as client:
        opened(client).put(b"x", properties={f"property{number:03}": "y" * 20 for number in range(200)})
        answer = client.delete(PATH)
        told = answer.headers["ibm-mq-usr"].split(", ")
        assert len(told) + int(answer.headers["ibm-mq-usr-omitted"]) == 200 and len(told) > 30
        assert told[0] == f'property000;"{"y" * 20}";string'
        assert len(answer.headers["ibm-mq-usr"]) < 4_096


@pytest.mark.parametrize("text", ["é" * 6_000, "y" * 31_300])
def test_a_message_that_could_not_be_got_over_http_is_not_put(client, queue, text):
    """It would be the first of its queue for ever, and nobody would come past it."""
    answer = client.post(PATH, headers={"ibm-mq-usr": f'a;"{text}";string'.encode()})
    assert problem(answer, 422, "invalid-message")["errors"][0]["pointer"] == "ibm-mq-usr"
    assert client.post(PATH, content=b"next").status_code == 201
    assert client.post(PATH, headers={"ibm-mq-usr": f'a;"{text[:4_500]}";string'.encode()}).status_code == 201
    assert client.delete(PATH).content == b"next" and client.delete(PATH).status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_request_waits_for_its_message_and_no_other(client, queue, method):
    def ask(correlation):
        return client.request(method, PATH, params={"correlationId": correlation, "wait": 20_000}).content

    with meanwhile(lambda: ask("a"), lambda: ask("b")) as found:
        wait_for(client, 2)
        assert "selectroute_queue_waiting 2.0" in client.get("/metrics").text
        takers = 2 if method == "DELETE" else 0  # those that browse do not take it
        assert client.get("/v1/queues/Q").json()["waiting"] == takers
        client.post(PATH, content=b"for nobody", headers={"ibm-mq-md-correlationId": "c"})
        client.post(PATH, content=b"for b", headers={"ibm-mq-md-correlationId": "b"})
        wait_until(lambda: found, 60, "the message for b is got")
        queue.put(b"for a", properties={"JMSCorrelationID": "a"})
    assert found == [b"for b", b"for a"]
    assert queue.depth == (3 if method == "GET" else 1)
    assert len(client.app.state.service.queue_waiting) == 0
    assert client.get("/v1/queues/Q").json()["waiting"] == 0


def wait_for(client, count):
    """Return when so many requests wait and have looked in vain."""
    waiting = client.app.state.service.queue_waiting
    watch = client.app.state.service.queues.open("Q")._store.watch
    wait_until(lambda: min(len(waiting), watch.count) >= count, 60, "the requests wait")


def test_who_waits_on_a_queue_that_is_deleted_is_told(client, queue):
    with meanwhile(lambda: client.delete(PATH, params={"wait": 20_000})) as found:
        wait_for(client, 1)
        assert client.delete("/v1/queues/Q").status_code == 204
    assert problem(found[0], 404, "queue-not-found")["mqrc"] == 2085


@pytest.mark.parametrize("name", ["JMSXUserID", "Root.MQMD.UserIdentifier"])
def test_who_put_a_message_is_said_by_the_service(registry, client, queue, name):
    given = {"ibm-mq-usr": f"{name};the boss;string"}
    problem(client.post(PATH, content=b"x", headers=given), 400, "invalid-request")
    assert client.post(PATH, content=b"x").is_success
    assert "JMSXUserID" not in queue.get().properties
    with client_of(registry, "writer", name="the garage") as client:
        problem(client.post(PATH, content=b"x", headers=given), 400, "invalid-request")
        assert client.post(PATH, content=b"x", headers={"ibm-mq-usr": "a;1;integer"}).is_success
    assert dict(queue.get(selector="JMSXUserID = 'the garage'").properties)["JMSXUserID"] == "the garage"


def test_what_fails_before_the_answer_begins_loses_no_message(client, queue, monkeypatch):
    queue.put(b"a")
    monkeypatch.setattr("selectroute.service.queues.messages.headers_of", None)
    problem(client.delete(PATH), 500, "internal")
    monkeypatch.undo()
    answer = client.delete(PATH)
    assert (answer.content, answer.headers["ibm-mq-md-backoutCount"]) == (b"a", "1")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_data_everywhere(client, queue, caplog, text):
    caplog.set_level(logging.DEBUG)
    quoted = quote(text, safe="")
    usr = header_of({"a": text, text: sr.Long(1)})
    answers = [
        client.put(f"/v1/queues/{quoted}"),
        client.get(f"/v1/queues/{quoted}"),
        client.post(PATH.replace("/Q/", f"/{quoted}/"), content=b"x"),
        client.get(PATH.replace("selectroute", quoted)),
        client.post(PATH, content=text.encode(), headers={"ibm-mq-usr": usr}),
        client.get(PATH, params={"correlationId": text}),
        client.get(PATH, params={"messageId": text, "msgToken": text}),
        client.get(PATH, params={"selector": text}),
        client.get(LIST, params={"groupId": text}),
        client.get(LIST, params={"dialect": text}),
    ]
    if text.isprintable():
        answers.append(client.post(PATH, content=b"x", headers={"ibm-mq-md-correlationId": text.encode()}))
    for answer in answers:
        assert answer.status_code < 500, answer.text
        assert "x-injected" not in answer.headers
        if answer.status_code >= 400:
            found = answer.json()
            kind = found.get("error", [{"problem": found}])[0]["problem"]["type"].rpartition(":")[2]
            assert text not in problem(answer, answer.status_code, kind)["detail"]
    escaped = text.replace("'", "''")
    found = client.get(PATH, params={"selector": f"a = '{escaped}'"})
    if len(text) < 500:
        assert found.content == text.encode() and "x-injected" not in found.headers
        assert queue.get(selector=f"a = '{escaped}'").properties["a"] == text
    named = {one["name"] for one in client.get("/v1/queues").json()["items"]}
    assert named - {"Q"} <= {text}  # a path is a name like any other
    assert_data_in_log(caplog)


def test_a_misspelt_parameter_does_not_take_another_message(client, queue):
    """DELETE without a filter takes the first message, whichever it is."""
    queue.put(b"x")
    answer = client.delete(PATH, params={"correlationID": "order-7"})
    assert answer.status_code == 400 and "correlationId" in answer.text
    assert client.get(PATH).content == b"x"


def test_a_scan_has_a_budget_and_leaves_the_queue_as_it_is(registry, monkeypatch):
    monkeypatch.setattr(messages, "_MOMENT", -1.0)
    with service(registry, limits=ServiceLimits(scan_seconds=1e-9)) as client:
        opened(client).put(b"x", properties={"a": 1})
        for method, path, sent in (
            ("GET", PATH, "params"),
            ("DELETE", PATH, "params"),
            ("GET", LIST, "params"),
            ("GET", "/v1/queues/Q:count", "params"),
            ("POST", "/v1/queues/Q:purge", "json"),
        ):
            found = problem(client.request(method, path, **{sent: {"selector": "a <> 2"}}), 422, "too-costly")
            assert found["errors"][0]["pointer"] == "selector"
            assert client.get(PATH).status_code == 200  # without a selector nothing is compared
            assert client.app.state.service.scanning._each == {}


def test_a_long_purge_goes_on_where_its_budget_ended(registry, monkeypatch):
    monkeypatch.setattr(messages, "_STEP_SECONDS", 2.0)
    monkeypatch.setattr(lookup, "time", SimpleNamespace(monotonic=count().__next__))  # a second for a look
    with service(registry, limits=ServiceLimits(scan_seconds=3_600)) as client:
        queue = opened(client)
        for number in range(5):
            queue.put(properties={"a": number})
        done = client.post("/v1/queues/Q:purge", json={"selector": "a <> 2"}).json()
        assert (done["done"], done["position"], queue.depth) == (4, None, 1)


def test_a_purge_that_has_not_come_to_any_message_goes_on(registry, monkeypatch):
    asked = {"selector": "a <> 2"}
    with service(registry, limits=ServiceLimits(bulk_seconds=1e-9)) as client:
        opened(client).put(properties={"a": 1})
        with monkeypatch.context() as patch:
            patch.setattr(messages, "_STEP_SECONDS", -1.0)
            first = client.post("/v1/queues/Q:purge", json=asked).json()
        then = client.post("/v1/queues/Q:purge", json={**asked, "position": first["position"]}).json()
        assert (first["done"], then["done"], then["position"]) == (0, 1, None)


def test_a_scan_ends_with_its_client():
    budget, begun = lookup.ScanBudget(), threading.Event()

    class Gone:
        async def receive(self):
            await anyio.to_thread.run_sync(begun.wait, 60)
            return {"type": "http.disconnect"}

    def scan():
        begun.set()
        while True:
            lookup.check_budget()

    async def asked():
        async with while_connected(Gone(), budget.cancel):
            await anyio.to_thread.run_sync(budget.run, 60, scan)

    with pytest.raises(ClientDisconnect):
        anyio.run(asked)
    assert begun.is_set() and time.monotonic() < budget._until  # it did not end by itself


def test_a_scan_is_cancelled_although_it_was_about_to_begin(monkeypatch):
    budget = lookup.ScanBudget()
    monkeypatch.setattr(lookup, "time", SimpleNamespace(monotonic=lambda: budget.cancel() or 0.0))
    with pytest.raises(ScanLimitError):
        budget.run(60, lookup.check_budget)
