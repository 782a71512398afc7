"""Attacks on the console, each on every screen: markup, forms of other sites, frames, planted cookies."""

import json
import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from itertools import product
from urllib.parse import quote

import pytest

from selectroute.index.specification import SubscriptionSpec
from selectroute.job_output import DeadLetter, Finding, LettersLeft, ReplayedBatch, ReplayProgress
from selectroute.queues.sql.queue import SqlQueues
from selectroute.service.console import (
    dead_letters,
    queues,
    streams,
    subscriptions,
)
from selectroute.service.console.console import HEADERS
from selectroute.service.console.page import COOKIE
from tests.unit.service.conftest import Job
from tests.unit.service.console.conftest import console_of, sent

ROUTES = [
    (method, path)
    for room in (streams, subscriptions, queues, dead_letters)
    for method, path, _ in room.ROUTES
]
PAGES = ["/", "/sign-in", *(path for method, path in ROUTES if method == "GET")]
FORMS = ["/sign-in", "/sign-out", *(path for method, path in ROUTES if method == "POST")]

POLICY = HEADERS["Content-Security-Policy"]

FOREIGN = {
    "another site": {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    "another port": {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:8081"},
    "a typed address": {"Sec-Fetch-Site": "none"},
    "an older browser": {"Origin": "https://evil.example"},
    "no origin": {"Origin": "null"},
    "nothing at all": {},
    "a lie about one": {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
}

MARKUP = (
    """<script>hit=1</script> "><img src=x onerror=hit=1> '><svg onload=hit=1>""",
    "</textarea><iframe src=javascript:hit=1> </title></style><script src=//evil.example></script>",
    """" autofocus onfocus=hit=1 x=" <a href=javascript:hit=1>x</a> {{7*10001}}${7*10001}<%=7*10001%>""",
    "&lt;script&gt;hit=1&lt;/script&gt; <math><mi xlink:href=javascript:hit=1>",
    "\x00<b>\x08\u2028\ufeff<form action=//evil.example>",
)


def sample_of(path):
    """A path with things that exist in the place of its parameters."""
    named = {"id": "heavy", "query": "q", "queue": "orders", "name": "orders", "job": "flights"}
    return re.sub(r"{(\w+)(:\w+)?}", lambda found: named.get(found[1], "0"), path)


@pytest.fixture
def filled(registry):
    registry.register(SubscriptionSpec("weight > 2500", topic="cars/eu"), id="heavy")
    with SqlQueues(registry.url) as queues:
        queues.create("orders")
        queues.create("backout")
    return registry


class Letters(Job):
    """A job with a dead letter, which has this text wherever a message or an error may have it."""

    text = "plain"
    binding = staticmethod(lambda: None)
    is_held = staticmethod(lambda: True)
    waiting = staticmethod(lambda: [WAITS])

    def letters(self, wanted, limit, **_):
        told = dict.fromkeys(("stage", "reason", "message", "source", "subscription"), self.text)
        data = self.text.encode()
        headers = [(self.text, data), (self.text, None), (self.text, b"\xff")]
        told |= {"revision": 1, "raw": data, "key": data, "headers": headers}
        one = DeadLetter(batch=0, partition=0, offset=1, **told)
        return [("0.0", one), ("0.1", replace(one, replay=-1, offset=None))]

    def left(self, wanted=None):
        return [LettersLeft(0, self.text, self.text, 2, 1)]

    def replayed(self, id):
        names = {field.name for field in fields(ReplayedBatch)} - {"batch", "missing"}
        one = ReplayedBatch(**dict.fromkeys(names, 1), batch=-1, missing=[self.text])
        told = {"letters": 3, "taken": 1, "batch": -2, "batches": [one]}
        return ReplayProgress(request=id, done=False, state="running", **told)

    def audit(self):
        return replace(super().audit(), pending=[1], findings=[Finding(0, self.text)])


WAITS = "20261125T000000000000-00000000"


@pytest.fixture
def client(filled):
    with console_of(filled, jobs={"flights": Letters(2)}) as client:
        yield client


def test_a_form_of_another_site_changes_nothing(client, filled):
    before, given = filled.revision, {"revision": "1", "selector": "a = 1"}
    for headers, path in product(FOREIGN.values(), FORMS):
        answer = client.post(f"/console{sample_of(path)}", data=given, headers=headers)
        assert answer.status_code == 403, (headers, path)
        assert "does not come from a page of this console" in answer.text, (headers, path)
        assert filled.revision == before and not client.cookies.get(COOKIE), path


def test_no_page_is_shown_in_a_frame_copied_or_runs_what_is_not_the_consoles(client, monkeypatch):
    assert "frame-ancestors 'none'" in POLICY and "unsafe" not in POLICY
    monkeypatch.setattr(subscriptions, "_WAIT_SECONDS", 0)
    for path in [*PAGES, "/nothing", "/static/console.js", "/static/nothing"]:
        answer = client.get(f"/console{sample_of(path)}", follow_redirects=False)
        assert answer.status_code in ({404} if path.endswith("nothing") else {200, 303, 400, 404, 422}), path
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, path
        if "html" in answer.headers.get("content-type", ""):
            foreign = r"<script(?! src=)|style=|\son\w+=|javascript:|https?://(?!www\.w3)"
            assert not re.search(foreign, answer.text) and answer.text.count("<h1>") == 1, path


class Tags(HTMLParser):
    """What a browser would make of a page, apart from its text."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def handle_starttag(self, tag, attrs):
        self.found |= {tag} | {f"{tag} {name}" for name, _ in attrs}
        for name, value in attrs:
            if name in {"href", "src", "action", "formaction"}:
                self.found.add(f"{tag} to {'this host' if (value or '').startswith('/') else value}")


def tags(page):
    reader = Tags()
    reader.feed(page.text)
    return reader.found


def written(registry, text):
    """Everything that people write, with this text in it; returns the paths of the pages that show it, and
    those of the forms that lead to one, with what is sent.
    """
    kept = re.sub("[\\0-\\x1f]", "", text)  # the registry refuses these, and = in the name of a label
    quoted = kept.replace("'", "''")
    labels = {kept.replace("=", "-")[:63]: kept}
    topic = f"t/{kept.replace('/', '.')}"
    one = registry.register(SubscriptionSpec(f"a = '{quoted}'", name=kept, topic=topic, labels=labels))
    with SqlQueues(registry.url) as queues:
        orders, properties = queues.open("orders"), {"p": text, "q": kept}
        orders.purge()
        tokens = [orders.put(text.encode(), properties=properties).msg_token.hex() for _ in range(3)]
    registry.streams.note_messages(
        "q", [{"topic": text, "properties": {"p": text}, "headers": {"JMSType": text}}]
    )
    batch = dict.fromkeys(("messages", "routed", "unrouted", "dead_lettered", "refused"), 1)
    batch |= {"batch": 0, "revision": 1, "kind": text, "ended": "2026-11-25T00:00:00Z", "deliveries": 1}
    batch |= {"queued": 0, "sent": 0, "reasons": {text: 1}, "seconds": {text: 0.1}}
    Letters.text = text
    registry.streams.note_reports(text, [batch], {"waiting": {text: 1}, "behind": None})
    near = quote(json.dumps({"properties": {"a": text}}))
    named = quote(text, safe="")
    found = {"selector": f"q = '{quoted}'"}
    editor = {"dialect": "jms", "kind": "none", "labels": f"x={kept}", "name": kept}
    forms = [
        ("subscriptions/new", editor | {"do": "try"}),
        ("subscriptions/heavy/edit", editor | {"do": "save", "revision": "999"}),
        ("queue-get/orders", {**found, "token": tokens[0], "after": text}),
        ("queue-move/orders", {**found, "expected": "2", "to": "backout"}),
        ("queue-purge/backout", {**found, "expected": "2"}),
        ("queue-purge/backout", {"correlationId": text, "expected": "7"}),
        ("queue-move/backout", {"messageId": text, "to": text, "expected": "0"}),
        ("queue-put/orders", dict.fromkeys(("body", "correlationId", "priority", "properties"), text)),
    ]
    ids = {"id": one.id, "named": named, "near": near, "token": tokens[0], "waits": WAITS}
    return [path.format(**ids) for path in PATHS.split()], forms


PATHS = """
    overview streams/{named} jobs jobs/{named}/dead-letters?stage={named} sign-in?next={named} {named}
    jobs/flights/dead-letters?stage={named}&source={named}&all={named} jobs/flights/replays/{waits}
    jobs/flights/replay?source={named}&subscription={named} jobs/flights/replays/{named}
    subscriptions subscriptions?text={named} subscriptions?text={named}&field=selector
    subscriptions?name={named} subscriptions?topic={named}&label={named} subscriptions?cursor={named}
    subscriptions?done={named}&count={named} subscriptions/{id} subscriptions/{id}/edit
    subscriptions/{id}/remove subscriptions/{named} bulk?action=remove&text={named} bulk?action={named}
    who-gets?message={near}&explain={id} who-gets?message={named}&explain={named} queues queues/orders
    queues/orders?selector={named} queues/orders?after={named}&correlationId={named}&done={named}
    queue-message/orders?token={token}&selector={named}&after={named} queue-body/orders?token={named}
    queue-message/orders?token={token}&whole={named} queue-message/orders?token={named}
    queue-get/orders?token={token}&groupId={named} queue-put/orders queue-put/{named} queues/{named}
    queue-purge/orders?selector={named} queue-move/orders?selector={named}
"""
"""Pages that show what people write, or what is in their URL."""


def answers(client, registry, text):
    """Each page that shows what people write, with its path: those one opens, and those after a form."""
    paths, forms = written(registry, text)
    for path in paths:
        yield path, client.get(f"/console/{path}")
    for path, given in forms:
        yield path, sent(client, path, given)


def test_what_people_write_is_text_on_every_page(filled, client):
    plain = dict(answers(client, filled, "plain"))
    known = set().union(*map(tags, plain.values())) | tags(client.get("/console/sign-in"))
    assert "It has left the queue" in plain["queue-get/orders"].text
    assert "Gained" in plain["subscriptions/new"].text
    assert plain["subscriptions/heavy/edit"].status_code == 412
    for text in MARKUP:
        shown = done = 0
        for path, page in answers(client, filled, text):
            done += path == "subscriptions/new" and "Gained" in page.text
            done += "It has left the queue" in page.text
            done += "2 messages were moved" in page.text or "2 messages were removed" in page.text
            assert tags(page) <= known, path
            assert "70007" not in page.text, f"{path} computes what people write"
            shown += "hit=1" in page.text or "7*10001" in page.text or "evil.example" in page.text
        assert shown > 10, "the text is on the pages"
        assert done == 4, "a change was tried, a message got, two moved, and then removed"
        given = {"selector": text, "name": text, "topic": text, "labels": f"{text}={text}", "dialect": text}
        for path in ("subscriptions/new", "subscriptions/heavy/edit", "bulk", "queue-put/orders", "sign-in"):
            assert tags(sent(client, path, {**given, "body": text, "do": text})) <= known, path
        audit = sent(client, "jobs/flights/audit", {})
        assert audit.status_code == 200 and tags(audit) <= known
        steps = client.get(f"/console/jobs/flights/replays/{WAITS}/progress")
        assert steps.headers["Content-Type"] == "application/json" and steps.json()["missing"] == [text]
        assert_saved(client, text)


def assert_saved(client, text):
    """The bytes of a letter are a file to keep: no browser makes a page of them."""
    place = {"batch": "0", "source": text, "partition": "0", "offset": "1"}
    for part in ("value", "key"):
        saved = client.get("/console/jobs/flights/dead-letters/bytes", params={**place, "part": part})
        assert saved.content == text.encode()
        assert saved.headers["Content-Type"] == "application/octet-stream"
        assert saved.headers["Content-Disposition"].startswith('attachment; filename="flights-batch0-0-1')
        for name, value in HEADERS.items():
            assert saved.headers[name] == value


class TestCookies:
    """A planted cookie is another person's token at most: it is never taken over by who signs in."""

    @pytest.fixture
    def secrets(self, filled):
        return {role: filled.tokens.add(role, name=role)[1] for role in ("reader", "admin")}

    @pytest.fixture
    def client(self, filled, secrets):
        with console_of(filled) as client:
            yield client

    def test_every_screen_asks_for_a_token_and_comes_back(self, client):
        for path in map(sample_of, {*PAGES} - {"/", "/sign-in"}):
            asked = f"/console{path}?action=pause&token=00"
            answer = client.get(asked, follow_redirects=False)
            wanted = f"/console/sign-in?next={quote(asked, safe='')}"
            assert (answer.status_code, answer.headers.get("location")) == (303, wanted), path

    def test_no_change_is_made_without_a_token(self, client, filled):
        before = filled.revision
        given = {"revision": "1", "selector": "what = 'was written'", "expected": "1"}
        given |= {"action": "pause", "query": "id=heavy", "digest": "0"}
        for path in map(sample_of, {*FORMS} - {"/sign-in", "/sign-out", "/who-gets"}):
            answer = sent(client, path[1:], given, follow_redirects=False)
            if path.endswith(("/new", "/edit", "/check")):
                assert answer.status_code == 401, path
            else:
                assert answer.headers.get("location") == "/console/sign-in", path
            if path.endswith(("/new", "/edit")):
                assert "You are no longer signed in" in answer.text, path
                assert "what = &#39;was written&#39;" in answer.text, path
        assert filled.revision == before

    def test_signing_in_replaces_what_was_planted(self, client, secrets):
        for planted in ("attacker", "", "x" * 4_000, "a=b; c=d", secrets["reader"]):
            client.cookies.set(COOKIE, planted, path="/console")
            answer = sent(client, "sign-in", {"token": secrets["admin"]}, follow_redirects=False)
            (given,) = answer.headers.get_list("set-cookie")
            assert given.startswith(f"{COOKIE}={secrets['admin']};"), "the cookie is the token, not a session"
            client.cookies.clear()
            client.cookies.set(COOKIE, secrets["admin"], path="/console")
            assert "admin, admin" in client.get("/console/subscriptions").text
            client.cookies.clear()

    def test_a_url_signs_nobody_in(self, client, secrets):
        for path in ("subscriptions?token={}", "subscriptions?selectroute-token={}", "overview;{}"):
            answer = client.get(f"/console/{path.format(secrets['admin'])}", follow_redirects=False)
            assert answer.status_code in {303, 404} and "set-cookie" not in answer.headers

    def test_the_sign_in_leads_to_this_console_alone(self, client, secrets):
        for after in ("https://evil.example", "//evil.example", "/\\evil.example", "/console/\\evil.example",
                      "/console/\nx", "/console//evil.example/%0d%0aSet-Cookie: a=b\r\n", "javascript:hit=1",
                      "/v1/tokens", ""):  # fmt: skip
            fields = {"token": secrets["admin"], "next": after}
            answer = sent(client, "sign-in", fields, follow_redirects=False)
            assert answer.headers["location"] == "/console/", after
            assert len(answer.headers.get_list("set-cookie")) == 1
