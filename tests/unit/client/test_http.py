"""What only a network does: answers that are lost, late, too large, or not a registry's."""

from functools import partialmethod

import httpx
import pytest

from selectroute.client.http import ATTEMPTS, REFUSED_ATTEMPTS, HttpClient, ServiceUnreachableError
from selectroute.client.registry import RemoteRegistry
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.errors import (
    IdTakenError,
    NotFoundError,
    ReadOnlyError,
    RegistryError,
    StaleRevisionError,
)  # fmt: skip
from selectroute.registry.registry import Registry
from tests.support.servers.serving import served

CAR = SubscriptionSpec("JMSType = 'car' AND weight > 2500", topic="cars/+")
MEDIA = "application/problem+json"


@pytest.fixture
def local(tmp_path):
    with Registry.open(f"sqlite:///{tmp_path}/registry.db") as opened:
        yield opened


def over(answer, **options):
    """A remote registry whose network is a function."""
    return RemoteRegistry("http://service.test", transport=httpx.MockTransport(answer), **options)


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses between attempts, which take no time."""
    found = []
    monkeypatch.setattr(HttpClient, "__init__", partialmethod(HttpClient.__init__, sleep=found.append))
    return found


def failing(error, asked):
    """A network on which each request fails."""

    def answer(request):
        asked.append(request.method)
        b"".join(request.stream)
        raise error("refused", request=request)

    return answer


def test_a_registration_whose_answer_is_lost_is_made_once(local):
    """The service does what it is asked, and every first answer is lost."""
    with served(local) as url, httpx.Client(base_url=url, timeout=60) as behind:
        seen = []

        def answer(request):
            seen.append(request)
            target = request.url.copy_with(host=behind.base_url.host, port=behind.base_url.port)
            headers = {**request.headers, "host": f"{target.host}:{target.port}"}
            found = behind.request(request.method, target, content=request.content, headers=headers)
            if len(seen) % 2:
                raise httpx.ReadError("the connection was lost", request=request)
            return httpx.Response(found.status_code, headers=found.headers, content=found.content)

        remote = over(answer)
        made = remote.register(CAR)
        assert len(local) == 1 and local.get(made.id) == made
        assert seen[0].headers["Idempotency-Key"] == seen[1].headers["Idempotency-Key"]
        assert remote.register(CAR, id="chosen") == local.get("chosen")
        assert remote.replace("chosen", SubscriptionSpec("b = 2")).selector == "b = 2"
        with pytest.raises(StaleRevisionError) as stale:
            remote.change("chosen", {"selector": "c = 3"}, expected=local.get("chosen").revision)
        assert "may have taken effect" in stale.value.__notes__[0] and local.get("chosen").selector == "c = 3"
        with pytest.raises(NotFoundError) as gone:
            remote.remove("chosen")
        assert "may have taken effect" in gone.value.__notes__[0] and len(local) == 1


def test_another_subscription_under_the_id_is_none_of_ours(local):
    local.register(SubscriptionSpec("other = 1"), id="chosen")
    with served(local) as url, RemoteRegistry(url) as remote, pytest.raises(IdTakenError):
        remote.register(CAR, id="chosen")


def test_a_service_that_is_not_there_is_asked_some_times(pauses):
    asked = []
    with pytest.raises(
        ServiceUnreachableError, match=r"http://service\.test does not answer: refused"
    ) as caught:
        over(failing(httpx.ConnectError, asked)).get("a")
    assert len(asked) == ATTEMPTS and not caught.value.sent
    assert len(pauses) == ATTEMPTS - 1 and pauses == sorted(pauses)


def test_what_is_not_harmless_twice_is_sent_once(pauses):
    asked = []
    lost = failing(httpx.ReadTimeout, asked)
    exchange = HttpClient("http://service.test", None, 1.0, transport=httpx.MockTransport(lost))
    for send in (lambda: exchange.once("DELETE", "/message"), lambda: over(lost).import_(["{}"])):
        with pytest.raises(ServiceUnreachableError, match="timed out") as caught:
            send()
        assert caught.value.sent and "may have taken effect" in caught.value.__notes__[0]
    assert asked == ["DELETE", "POST"] and pauses == []
    busy = httpx.MockTransport(lambda request: httpx.Response(503, headers={"Retry-After": "1"}))
    exchange = HttpClient("http://service.test", None, 1.0, transport=busy)
    assert exchange.once("POST", "/message", content=b"x").status == 503
    assert pauses == []


def test_a_service_that_can_write_nothing_says_when_to_ask_again(pauses):
    problem = {"type": "urn:selectroute:problem:read-only", "detail": "the disk is full"}
    answer = httpx.Response(503, json=problem, headers={"Retry-After": "7", "Content-Type": MEDIA})
    with pytest.raises(ReadOnlyError, match="the disk is full"):
        over(lambda _: answer).pause("a")
    assert pauses == [7.0] * (REFUSED_ATTEMPTS - 1)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json={"id": "a"}),
        httpx.Response(200, json=[[]]),
        httpx.Response(200, content=b"[" * 100_000),
        httpx.Response(302, headers={"Location": "http://elsewhere.test/"}),
        httpx.Response(404, text="no such page"),
        httpx.Response(418, json={"type": "about:blank"}),
        *(
            httpx.Response(422, json={"type": "urn:selectroute:problem:invalid-selector", "errors": errors})
            for errors in (7, [7], [{"pointer": "/selector", "kind": "too-long", "offset": 7, "length": -9}])
        ),
    ],
)
def test_what_no_registry_answers_is_one_error(answer):
    with pytest.raises(RegistryError):
        over(lambda _: answer).register(CAR, id="a")


def test_no_answer_is_larger_than_is_read(monkeypatch):
    monkeypatch.setattr("selectroute.client.http.MAX_LINE_BYTES", 1_000)
    with pytest.raises(RegistryError, match="more than 1,000 bytes"):
        list(over(lambda _: httpx.Response(200, content=b"x" * 100_000)).export())
    large = httpx.MockTransport(lambda _: httpx.Response(200, content=b"x" * 2_000))
    exchange = HttpClient("http://service.test", None, 1, transport=large)
    with pytest.raises(RegistryError, match="more than 1,999 bytes"):
        exchange.ask("GET", "/", max_bytes=1_999)
    assert exchange.ask("GET", "/", max_bytes=2_000).body == b"x" * 2_000


@pytest.mark.parametrize(
    "url", ["http://user:secret@host", "ftp://host", "http://", "http://host/?a=1", "http://[::1", "host"]
)
def test_a_url_of_no_service_is_refused_without_its_password(url):
    with pytest.raises(RegistryError) as caught:
        RemoteRegistry(url)
    assert "secret" not in str(caught.value)
