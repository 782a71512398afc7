"""What only a network does to the commands of queues: answers that are lost, or that no service gives."""

import json

import httpx
import pytest

import selectroute as sr
from selectroute.client.http import HttpClient, ServiceUnreachableError
from selectroute.client.queues import RemoteQueues
from selectroute.queues.errors import CountChangedError
from selectroute.queues.queue import MessageCount
from selectroute.queues.rest.headers import descriptor_headers
from selectroute.queues.settings import QueueSettings
from selectroute.registry.errors import AuthError, RegistryError
from tests.support.queue_calls import id_of


def over(answer):
    """Queues behind a network that is a function."""
    options = {"transport": httpx.MockTransport(answer), "sleep": lambda _: None}
    return RemoteQueues(HttpClient("http://service.test", None, 1.0, **options), "selectroute", 1.0)


def refused(status, kind, **more):
    document = {"type": f"urn:selectroute:problem:{kind}", "title": "t", "status": status, "detail": "why"}
    body = json.dumps({"error": [{"type": "rest", "problem": {**document, **more}}]}).encode()
    return lambda _: httpx.Response(status, content=body)


@pytest.mark.parametrize("call", ["put", "get"])
def test_a_put_or_get_whose_answer_is_lost_is_not_done_again(call):
    asked = []

    def answer(request):
        asked.append(request.method)
        raise httpx.ReadError("reset", request=request)

    queue = over(answer).open("Q")
    with pytest.raises(ServiceUnreachableError) as caught:
        getattr(queue, call)()
    assert "may have taken effect" in caught.value.__notes__[0]
    assert len(asked) == 1


def test_what_may_be_asked_again_is():
    asked = []

    def answer(request):
        asked.append(request.method)
        if len(asked) < 3:
            raise httpx.ReadError("reset", request=request)
        return httpx.Response(200, json={"items": [{"name": "A"}]})

    assert over(answer).names() == ["A"]
    assert asked == ["GET"] * 3


def test_a_long_wait_is_several_requests(monkeypatch):
    monkeypatch.setattr("selectroute.client.queues.MAX_WAIT_SECONDS", 0.05)
    waits = []

    def answer(request):
        waits.append(int(request.url.params.get("wait", "0")))  # the time may be over before it asks
        return httpx.Response(204)

    with pytest.raises(sr.MQError) as caught:
        over(answer).open("Q").browse(wait=0.001, correl_id=id_of("order-7"))
    assert caught.value.reason == 2033
    assert waits and waits[0] <= 1
    waits.clear()

    def later(request):
        waits.append(int(request.url.params["wait"]))
        return httpx.Response(204 if len(waits) < 4 else 404, json={})

    with pytest.raises(RegistryError, match="not as a registry does"):
        over(later).open("Q").browse(wait=60.0)
    assert waits == [50] * 4


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (refused(404, "queue-not-found", mqrc=2085), sr.MQError, 2085),
        (refused(404, "queue-manager-not-found", mqrc=2058), sr.MQError, 2058),
        (refused(409, "queue-full", mqrc=2053), sr.MQError, 2053),
        (refused(413, "message-too-large", mqrc=2030), sr.MQError, 2030),
        (refused(400, "invalid-request", mqrc=2331), sr.MQError, 2331),
        (refused(403, "forbidden", mqrc=2035), AuthError, None),
        (refused(401, "unauthorised"), AuthError, None),
        (refused(400, "invalid-request", mqrc="2331"), RegistryError, None),
        (refused(400, "invalid-request", mqrc=99), RegistryError, None),
        (lambda _: httpx.Response(500, content=b"oops"), RegistryError, None),
        (lambda _: httpx.Response(404, json={"error": [{"reasonCode": 2085}]}), RegistryError, None),
        (lambda _: httpx.Response(404, json={"error": "x"}), RegistryError, None),
        (lambda _: httpx.Response(200, content=b"no headers"), RegistryError, None),
        (lambda _: httpx.Response(200, headers={"ibm-mq-md-messageId": "x"}), RegistryError, None),
    ],
)
def test_an_answer_is_the_error_that_it_stands_for(answer, kind, reason):
    with pytest.raises(kind) as caught:
        over(answer).open("Q").browse()
    assert getattr(caught.value, "reason", None) == reason


def test_an_invalid_selector_is_shown_as_where_it_was_found():
    fault = {"pointer": "/selector", "reason": "r", "kind": "unexpected-end", "offset": 3, "length": 0}

    def answer(request):
        if request.url.path == "/v1/queues/Q":
            settings = QueueSettings(dialect="ibm-mq")
            found = {field: getattr(settings, field) for field in settings.__slots__}
            return httpx.Response(200, json={"name": "Q", **found, "depth": 0, "oldest": None, "waiting": 0})
        return refused(422, "invalid-selector", mqrc=2551, errors=[fault])(request)

    with pytest.raises(sr.MQError) as caught:
        over(answer).open("Q").listed(5, selector="a =")
    cause = caught.value.__cause__
    assert (caught.value.reason, cause.dialect, cause.text) == (2551, "ibm-mq", "a =")


def test_an_id_that_is_none_is_refused_before_anybody_is_asked():
    def answer(_):
        raise AssertionError("it was asked")

    with pytest.raises(sr.MQError, match="an id must be 24 bytes"):
        over(answer).open("Q").browse(msg_id=b"x")


def test_properties_that_an_answer_leaves_out_are_warned_of():
    headers = {**descriptor_headers(sr.MemoryQueue().put(b"x")), "ibm-mq-usr": "a;1;integer"}
    queue = over(lambda _: httpx.Response(200, headers=headers, content=b"x")).open("Q")
    got = [queue.get()]  # a warning would be an error
    headers["ibm-mq-usr-omitted"] = "2"
    with pytest.warns(UserWarning, match="did not fit into the response are left out: 2"):
        got.append(queue.get())
    assert [dict(one.properties) for one in got] == [{"a": sr.Int(1)}] * 2


def test_a_purge_goes_on_where_the_service_stopped_and_a_changed_count_ends_it():
    asked = []
    stayed = {"full": 0, "too_long": 1, "in_use": 0}
    part = {"matched": {"count": 9, "exact": True}, "done": 4, "stayed": stayed}

    def answer(request):
        asked.append(json.loads(request.content))
        return httpx.Response(200, json={**part, "position": {1: "9-4", 2: None}[len(asked)]})

    done = over(answer).open("Q").move("R", selector="a = 1", expected=9)
    wanted = {"to": "R", "selector": "a = 1"}
    assert asked == [{**wanted, "expected": 9}, {**wanted, "position": "9-4"}]
    assert (done.matched, done.done, done.stayed.too_long, done.is_complete) == (
        MessageCount(9, True),
        8,
        2,
        True,
    )
    with pytest.raises(CountChangedError) as caught:
        over(refused(409, "count-changed", expected=9, found=8)).open("Q").purge(expected=9)
    assert (caught.value.expected, caught.value.actual) == (9, 8)
    with pytest.raises(RegistryError, match="not a queue's"):
        over(lambda _: httpx.Response(200, json={"done": 4})).open("Q").purge()
