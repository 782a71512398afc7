"""Tokens of OAUTHBEARER: the grant, how long a token is used, and what an endpoint may not do."""

from __future__ import annotations

import base64
import json
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from selectroute.kafka.config import ClientCredentials, TokenError, TokenProvider, checked_url

SECRET = "hunter2:%&"


@contextmanager
def endpoint(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Answer requests one after the other, the last one again and again; give the URL and what was sent."""
    left, asked = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.headers["Authorization"], body))
            status, headers, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token?realm=a", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(token="t.o.k", status=200, **more):
    return status, {}, json.dumps({"access_token": token, **more}).encode()


def credentials(url, **more):
    return ClientCredentials(url, "me", SECRET, **more)


def test_a_token_is_asked_for_with_id_secret_and_scope():
    with endpoint(answer(expires_in=100)) as (url, asked):
        assert credentials(url, scope="a b").fetch() == ("t.o.k", 100)
        assert credentials(url).fetch() == ("t.o.k", 100)
    basic = f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"
    form = b"grant_type=client_credentials"
    assert asked == [(basic, form + b"&scope=a+b"), (basic, form)]


def test_a_token_is_used_until_a_fifth_of_its_life_is_left(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with endpoint(answer("one", expires_in=100), answer("two", expires_in=100)) as (url, asked):
        provider = TokenProvider(credentials(url))
        assert [provider.token(), provider.token()] == ["one", "one"]
        now[0] += 79
        assert provider.token() == "one" and len(asked) == 1
        now[0] += 2
        assert provider.token() == "two" and len(asked) == 2


@pytest.mark.parametrize("life", [{}, {"expires_in": None}, {"expires_in": float("nan")}])
def test_a_token_of_unknown_life_is_used_once(life):
    with endpoint(answer("one", **life), answer("two", expires_in="60")) as (url, _):
        provider = TokenProvider(credentials(url))
        assert [provider.token() for _ in range(3)] == ["one", "two", "two"]


@pytest.mark.parametrize(
    ("response", "problem", "retriable"),
    [
        ((401, {}, b'{"error": "invalid_client"}'), "answered 401 (invalid_client)", False),
        ((400, {}, b'{"error": "hunter2:%&"}'), "answered 400", False),
        ((400, {}, b"[]"), "answered 400", False),
        ((429, {}, b""), "answered 429", True),
        ((503, {}, b"<html>"), "answered 503", True),
        ((302, {"Location": "/other"}, b""), "answered 302", False),
        ((200, {}, b"<html>hunter2"), "answered without a valid token", False),
        ((200, {}, b"[" * 200_000), "answered without a valid token", False),
        ((200, {}, b'{"access_token": 1}'), "answered without a valid token", False),
        ((200, {}, b'{"access_token": "a\\u0001b"}'), "answered without a valid token", False),
        ((200, {}, b'{"access_token": "a", "expires_in": "soon"}'), "answered without a valid token", False),
    ],
)
def test_other_answers_are_errors_that_say_whether_to_try_again(response, problem, retriable):
    with endpoint(response) as (url, asked), pytest.raises(TokenError) as raised:
        credentials(url).fetch()
    assert str(raised.value) == f"the token endpoint at 127.0.0.1 {problem}"
    assert raised.value.retriable is retriable and len(asked) == 1
    copied = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - what this test pickled itself
    assert (str(copied), copied.retriable) == (str(raised.value), retriable)


def test_an_endpoint_out_of_reach_is_retriable():
    with endpoint(answer()) as (url, _):
        pass
    with pytest.raises(TokenError, match=r"at 127\.0\.0\.1 can't be reached: ") as raised:
        credentials(url).fetch()
    assert raised.value.retriable


def test_no_proxy_is_asked_for_an_endpoint_of_this_machine(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with endpoint(answer(expires_in=1)) as (url, _):
        assert credentials(url).fetch() == ("t.o.k", 1)


def test_a_failed_fetch_is_tried_again_by_the_next_connection():
    with endpoint((503, {}, b""), answer(expires_in=10)) as (url, _):
        provider = TokenProvider(credentials(url))
        with pytest.raises(TokenError):
            provider.token()
        assert provider.token() == "t.o.k"


def test_https_is_accepted_and_http_on_this_machine():
    urls = ["https://idp.example/token", "https://idp.example:8443/realms/a/token?x=y"]
    urls += ["http://localhost:8080/token", "http://127.0.0.1/", "http://[::1]:1/token"]
    assert [checked_url(url) for url in urls] == urls


OTHERS = [
    *("", "token", "http://idp.example/hunter2", "http://127.0.0.1.example/hunter2"),
    *("http://localhost.example/hunter2", "ftp://localhost/hunter2", "file:///hunter2"),
    *("https://me:hunter2@idp.example/", "https://me@idp.example/", "https://idp.example:hunter2/"),
    *("https://idp.example/a\nhunter2: b", "https:///hunter2"),
]


@pytest.mark.parametrize("url", OTHERS)
def test_other_urls_are_refused_without_showing_them(url):
    with pytest.raises(ValueError, match=r"^must ") as raised:
        checked_url(url)
    assert "hunter2" not in repr(raised.value)
