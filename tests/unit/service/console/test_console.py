"""The console's pages without a browser: who may see them, what is refused, what they never do."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from selectroute.queues.sql import bulk as bulks
from selectroute.registry import reports
from selectroute.registry.model import SubscriptionSpec
from selectroute.registry.registry import Registry
from selectroute.service.console.console import HEADERS
from selectroute.service.console.page import COOKIE, MOST_BYTES, rate
from selectroute.service.limits import ServiceLimits
from tests.unit.service.console.conftest import OWN, console_of

SCREENS = ("subscriptions", "subscriptions/new", "subscriptions/heavy", "subscriptions/heavy/edit")
SCREENS = (
    *SCREENS,
    "subscriptions/heavy/remove",
    "jobs",
    "who-gets",
    "queues",
    "queues/orders",
    "queue-purge/orders",
    "queue-move/orders",
    "overview",
    "streams/q",
)
CHANGES = ("new", "heavy/edit", "heavy/pause", "heavy/resume", "heavy/remove")
CHANGES = (
    *(f"subscriptions/{one}" for one in CHANGES),
    "jobs/flights/audit",
    "streams/q1/remove",
    "queue-put/orders",
    "queue-get/orders",
    "queue-purge/orders",
    "queue-move/orders",
)
MARKUP = "\"'><script>hit = 1</script><img src=x onerror=hit=1>{{7*10001}}"


@pytest.fixture
def filled(registry):
    registry.register(SubscriptionSpec("weight > 2500", topic="cars/eu"), id="heavy")
    return registry


@pytest.fixture
def client(filled):
    with console_of(filled) as client:
        assert client.put("/v1/queues/orders", json={}).status_code == 201
        yield client


def test_a_browser_is_sent_to_the_console_and_others_to_the_facts(client):
    answer = client.get("/", headers={"Accept": "text/html,*/*"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/")
    assert client.get("/console", follow_redirects=False).headers["location"] == "/console/"
    assert client.get("/", headers={"Accept": "*/*"}, follow_redirects=False).status_code == 200
    assert client.get("/v1/subscriptions", headers={"Accept": "text/html"}).json()["items"]


@pytest.mark.parametrize("path", [*SCREENS, "sign-in", "nothing", "static/console.js", "static/nothing"])
def test_every_response_forbids_foreign_scripts_frames_and_copies(client, path):
    answer = client.get(f"/console/{path}")
    assert answer.status_code == (404 if "nothing" in path else 200)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    if "html" in answer.headers["content-type"]:
        assert not re.search(
            r"<script(?! src=)|style=|\son\w+=|javascript:|https?://(?!www\.w3)", answer.text
        )
        assert len(re.findall("<h1>", answer.text)) == 1


class TestSigningIn:
    @pytest.fixture
    def tokens(self, filled):
        filled.register(SubscriptionSpec("a = 1", topic="boats"), id="hidden")
        secrets = {"admin": filled.add_token("admin", name="chief")[1]}
        secrets["reader"] = filled.add_token("reader", topics=["cars/#"], name="board")[1]
        secrets["writer"] = filled.add_token("writer", topics=["cars/#"], name="desk")[1]
        return secrets

    @pytest.fixture
    def client(self, filled, tokens):
        with console_of(filled) as client:
            yield client

    def sign_in(self, client, secret, **fields):
        return client.post("/console/sign-in", data={"token": secret, **fields}, headers=OWN)

    @pytest.mark.parametrize("path", SCREENS)
    def test_every_screen_asks_for_a_token_and_comes_back(self, client, path):
        answer = client.get(f"/console/{path}?a=b", follow_redirects=False)
        assert answer.status_code == 303
        assert (
            answer.headers["location"]
            == f"/console/sign-in?next=%2Fconsole%2F{path.replace('/', '%2F')}%3Fa%3Db"
        )

    @pytest.mark.parametrize("path", CHANGES)
    def test_no_change_is_made_without_a_token(self, client, filled, path):
        answer = client.post(f"/console/{path}", data={"revision": "1"}, headers=OWN, follow_redirects=False)
        assert answer.headers["location"] == "/console/sign-in"
        assert filled.revision == 2

    def test_the_cookie_is_out_of_reach_of_scripts_and_ends_with_the_token(self, client, filled, tokens):
        answer = client.post(
            "/console/sign-in",
            data={"token": tokens["reader"], "next": "/console/who-gets?x=1"},
            headers=OWN,
            follow_redirects=False,
        )
        assert answer.headers["location"] == "/console/who-gets?x=1"
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=lax" in cookie and "path=/console" in cookie
        assert "expires" not in cookie and "max-age" not in cookie
        page = client.get("/console/subscriptions")
        assert "board, reader, topics cars/#" in page.text and tokens["reader"] not in page.text
        (board,) = (one for one in filled.tokens() if one.name == "board")
        filled.revoke_token(board.id)
        assert client.get("/console/subscriptions").url.path == "/console/sign-in"

    def test_signing_out_takes_the_cookie_away(self, client, tokens):
        self.sign_in(client, tokens["admin"])
        assert client.cookies.get(COOKIE)
        client.post("/console/sign-out", headers=OWN)
        assert not client.cookies.get(COOKIE)

    @pytest.mark.parametrize("secret", ["", "wrong", "ä", "a\nb", "x" * 5_000])
    def test_a_wrong_token_is_told_and_not_kept(self, client, secret):
        answer = self.sign_in(client, secret)
        assert answer.status_code == 401 and 'role="alert"' in answer.text
        assert not client.cookies.get(COOKIE) and "xxxx" not in answer.text

    @pytest.mark.parametrize(
        "after",
        ["https://evil.example", "//evil.example", "/console/\\evil", "/v1/tokens", "/console/\nx", ""],
    )
    def test_the_sign_in_leads_to_no_other_site(self, client, tokens, after):
        given = {"token": tokens["admin"], "next": after}
        answer = client.post("/console/sign-in", data=given, headers=OWN, follow_redirects=False)
        assert answer.headers["location"] == "/console/"

    def test_a_token_for_some_topics_sees_and_changes_no_others(self, client, filled, tokens):
        self.sign_in(client, tokens["writer"])
        page = client.get("/console/subscriptions").text
        assert "heavy" in page and "hidden" not in page and "1 subscription," in page
        assert client.get("/console/subscriptions/hidden").status_code == 404
        answer = client.post("/console/subscriptions/hidden/pause", data={"revision": "2"}, headers=OWN)
        assert answer.status_code == 404 and filled.get("hidden").status == "active"
        message = '{"topic": "boats", "properties": {"a": 1}}'
        page = client.get("/console/who-gets", params={"message": message, "explain": "hidden"})
        assert page.status_code == 404 and "weight" not in page.text

    def test_a_reader_is_offered_no_change_and_refused_one(self, client, filled, tokens):
        self.sign_in(client, tokens["reader"])
        assert "<button>Pause" not in client.get("/console/subscriptions/heavy").text
        answer = client.post("/console/subscriptions/heavy/pause", data={"revision": "1"}, headers=OWN)
        assert answer.status_code == 403 and "needs the role writer" in answer.text


def test_an_older_browser_is_known_by_its_origin(client, filled):
    given = {"revision": "1"}
    answer = client.post(
        "/console/subscriptions/heavy/pause", data=given, headers={"Origin": "http://localhost"}
    )
    assert answer.status_code == 200 and filled.get("heavy").status == "paused"


def test_without_tokens_another_name_of_this_machine_is_refused(client):
    answer = client.get("/console/subscriptions", headers={"Host": "evil.example"})
    assert answer.status_code == 421 and "answers only" in answer.text


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"a=1", {"Content-Type": "text/plain"}, 415),
        (b"a=" + b"x" * MOST_BYTES, {}, 413),
        (b"&".join(b"a=1" for _ in range(1_001)), {}, 400),
        ("ä=1".encode(), {}, 400),
        (b"a=%ff", {}, 400),
    ],
)
def test_what_is_not_a_form_is_refused(client, content, headers, status):
    given = {"Content-Type": "application/x-www-form-urlencoded", **OWN, **headers}
    answer = client.post("/console/subscriptions/new", content=content, headers=given)
    assert answer.status_code == status and 'role="alert"' in answer.text


def test_without_a_sample_a_dry_run_says_how_to_get_one(client, filled):
    form = {"selector": "weight > 1", "dialect": "jms", "kind": "none", "do": "try", "revision": "1"}
    answer = client.post("/console/subscriptions/heavy/edit", data=form, headers=OWN)
    assert answer.status_code == 200 and "--sample-messages 20" in answer.text
    answer = client.post("/console/subscriptions/new", data=form, headers=OWN)
    assert answer.status_code == 200 and "There are no recent messages" in answer.text
    assert filled.get("heavy").selector == "weight > 2500" and len(filled) == 1
    assert client.get("/console/selector/identifiers").json() == {"messages": 0, "items": []}


def test_a_second_click_registers_no_second_subscription(client, filled):
    page = client.get("/console/subscriptions/new").text
    key = re.search(r'name="key" value="([^"]+)"', page)[1]
    given = {"selector": "a = 1", "dialect": "jms", "kind": "none", "key": key}
    first, second = (client.post("/console/subscriptions/new", data=given, headers=OWN) for _ in range(2))
    assert first.url == second.url and filled.revision == 2
    other = client.post("/console/subscriptions/new", data={**given, "selector": "a = 2"}, headers=OWN)
    assert other.status_code == 422 and filled.revision == 2


def test_a_cookie_of_any_content_is_a_wrong_token_and_not_an_error(filled):
    filled.add_token("admin")
    with console_of(filled) as client:
        for value in ("wrong", "a\xffb", "a b", ""):
            headers = {"Cookie": f"{COOKIE}={value}".encode("latin-1")}
            answer = client.get("/console/subscriptions", headers=headers, follow_redirects=False)
            assert answer.status_code == 303 and "sign-in" in answer.headers["location"]


class TestStreams:
    def note(self, registry, ago=0.0, *batches, query="q1", **state):
        counts = dict.fromkeys(
            ("messages", "routed", "unrouted", "dead_lettered", "deliveries", "refused"), 0
        )
        rows = [{**counts, "revision": 1, "kind": "stream", "seconds": {}, **one} for one in batches]
        rows = [{**one, "ended": f"2026-11-25T00:00:{one['batch']:02}Z"} for one in rows]
        with registry._store.writing() as connection:
            heard = datetime.now(UTC) - timedelta(seconds=ago)
            reports.note_reports(connection, query, rows, {"behind": None, **state}, heard)

    def cells(self, client):
        """The cells of the one stream on the overview, by their heads."""
        page = client.get("/console/overview").text
        heads = re.findall(r'<th scope="col">(.*?)</th>', page)
        (row,) = re.findall(r'<tr>(<th scope="row">.*?)</tr>', page, re.DOTALL)
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
        return dict(zip(heads, (re.sub("<[^>]*>", "", cell) for cell in cells), strict=True))

    def test_none_has_reported(self, client):
        page = client.get("/console/")
        assert page.url.path == "/console/overview" and "None has reported yet" in page.text
        assert client.get("/console/streams").url.path == "/console/overview"
        assert "It has not reported a batch" in client.get("/console/streams/nothing").text

    def test_they_are_shown_and_judged(self, client, filled):
        for number in range(3):
            batch = {"batch": number, "deliveries": 1_000 * number, "messages": 500}
            self.note(filled, 20 - 10 * number, batch, name="flights", behind=7)
        while not client.get("/readyz").is_success:
            time.sleep(0.05)
        found = self.cells(client)
        assert (found["Stream"], found["Status"], found["Newest batch"]) == ("flights", "running", "2")
        assert 40 < float(found["Messages/s"]) <= 50 and 120 < float(found["Deliveries/s"]) <= 150
        assert (found["Messages behind"], found["Dead letters"]) == ("7", "0 in 3 batches")
        page = client.get("/console/overview").text
        assert '<a href="/console/streams/q1">flights</a>' in page
        assert "All is well: 1 running stream, revision 1" in page
        page = client.get("/console/streams/q1").text
        assert "<h1>Stream flights</h1>" in page and "Query q1" in page
        assert page.index('<th scope="row">2</th>') < page.index('<th scope="row">0</th>')
        self.note(filled, name="flights")
        assert self.cells(client)["Messages behind"] == "unknown"

    def test_one_that_is_silent_has_no_rates(self, client, filled):
        for number in range(3):
            self.note(filled, 150 - 10 * number, {"batch": number, "messages": 500}, behind=7)
        found = self.cells(client)
        assert found["Status"] == "silent"
        assert {found[name] for name in ("Messages/s", "Deliveries/s", "Messages behind")} == {""}

    def test_charts_have_names_a_legend_and_their_numbers_in_the_table(self, client, filled):
        for number in range(3):
            batch = {"batch": number, "messages": 500, "deliveries": 1_000 * number}
            self.note(
                filled, 0, {**batch, "seconds": {"pin": 0.25, "match": 0.5} if number else {"pin": 1.0}}
            )
        page = client.get("/console/streams/q1").text
        charts = re.findall(r'<svg class="chart" role="img" aria-label="([^"]+)".*?</svg>', page, re.DOTALL)
        seconds = "Seconds of each step of each batch"
        assert charts == ["Messages of each batch", "Deliveries of each batch", seconds]
        assert re.findall(r"</svg> (\w+)</li>", page) == ["pin", "match"]
        titles = re.findall("<title>(batch .*?)</title>", page)
        assert "batch 2: 2,000 deliveries" in titles and "batch 1: 500 messages" in titles
        assert titles[6:] == [
            "batch 0: pin 1.000 seconds",
            *(
                f"batch {number}: {step} seconds"
                for number in (1, 2)
                for step in ("pin 0.250", "match 0.500")
            ),
        ]
        stacked = re.findall(r'<rect class="part-(\d)" x="50.0" y="([\d.]+)"[^>]*height="([\d.]+)"', page)
        assert stacked[2:] == [("0", "120.0", "40.0"), ("1", "40.0", "80.0")], "one upon the other"
        assert '<caption id="batches">' in page and 'aria-describedby="batches"' in page
        assert '<th scope="col">match, s</th>' in page and ">0.500</td>" in page

    def test_batches_of_the_stream_heard_of_last_are_one_click_away(self, client, filled):
        self.note(filled, 30, query="old", name="older")
        self.note(filled, 10, query="new", name="newer")
        page = client.get("/console/streams")
        assert page.url.path == "/console/streams/new"
        assert '<a href="/console/streams" aria-current="page">Batches</a>' in page.text
        assert '<a href="/console/streams/old">older</a>, running' in page.text

    def test_one_that_vanished_is_removed_in_two_steps(self, client, filled):
        self.note(filled, 0, {"batch": 0}, name="flights")
        assert "Remove from the list" not in client.get("/console/streams/q1").text, "it runs"
        self.note(filled, 300, name="flights")
        page = client.get("/console/overview").text
        assert 'has not said that it ended (<a href="/console/streams/q1">batches of flights</a>)' in page
        page = client.get("/console/streams/q1").text
        assert "Remove from the list" in page and "Remove it" not in page
        page = client.get("/console/streams/q1?do=remove").text
        assert "Remove flights from the list?" in page and len(filled.streams()) == 1
        page = client.post("/console/streams/q1/remove", data={}, headers=OWN)
        assert page.url.path == "/console/overview" and not filled.streams()
        again = client.post("/console/streams/q1/remove", data={}, headers=OWN)
        assert again.status_code == 404 and "there is no stream" in again.text

    def test_a_reader_is_not_offered_to_remove_one_and_cannot(self, filled):
        self.note(filled, 300)
        secret = filled.add_token("reader")[1]
        with console_of(filled) as client:
            client.post("/console/sign-in", data={"token": secret}, headers=OWN)
            assert "Remove from the list" not in client.get("/console/streams/q1").text
            assert client.post("/console/streams/q1/remove", data={}, headers=OWN).status_code == 403
        assert len(filled.streams()) == 1

    def test_a_known_job_leads_to_its_dead_letters_and_its_audit(self, filled):
        class Job:
            def has_run(self):
                return True

            def is_held(self):
                return False

            def left(self, wanted):
                return [SimpleNamespace(letters=4)]

        self.note(filled, 0, {"batch": 0, "dead_lettered": 9}, name="flights")
        with console_of(filled, jobs={"flights": Job()}) as client:
            page = client.get("/console/overview").text
            letters = '<a href="/console/jobs/flights/dead-letters">'
            assert f"4 dead letters of the job flights are not replayed ({letters}" in page
            assert f"the job flights is not running ({letters}" in page
            assert self.cells(client)["Dead letters"] == "4 not replayed"
            page = client.get("/console/streams/q1").text
            assert f"{letters}4 dead letters not replayed of the job flights</a>" in page
            assert 'action="/console/jobs/flights/audit"><button>Audit flights' in page


class TestActivity:
    def report(self, registry, number, **busiest):
        batch = dict.fromkeys(("messages", "routed", "unrouted", "dead_lettered", "deliveries", "refused"), 9)
        batch |= {"batch": number, "revision": 1, "kind": "stream", "seconds": {}, "busiest": busiest}
        registry.note_reports("q1", [{**batch, "ended": f"2026-11-25T00:00:{number:02}Z"}], {})

    def test_last_deliveries_and_rates_are_shown(self, client, filled):
        for path in ("subscriptions", "subscriptions/heavy"):
            assert "none known" in client.get(f"/console/{path}").text
        page = client.get("/console/subscriptions/heavy").text
        assert "none known: a batch names its 100 busiest subscriptions" in page and "<dt>Rate" not in page
        self.report(filled, 1, heavy=1_234)
        page = client.get("/console/subscriptions/heavy").text
        assert "2026-11-25 00:00:01 UTC: 1,234 deliveries in batch 1 of the stream" in page
        assert '<a href="/console/streams/q1">q1</a>' in page and "<dt>Rate" not in page
        self.report(filled, 2, heavy=1)
        page = client.get("/console/subscriptions/heavy").text
        assert "00:00:02 UTC: 1 delivery in batch 2" in page and "deliveries a second" in page
        page = client.get("/console/subscriptions").text
        assert "<td>2026-11-25 00:00:02</td>" in page and "none known" not in page
        client.post("/console/subscriptions/heavy/remove", data={"revision": "1"}, headers=OWN)
        assert "It was removed" in client.get("/console/subscriptions/heavy").text

    def test_the_list_asks_once_for_its_page(self, client, filled, monkeypatch):
        filled.import_(f'{{"id": "n{number}"}}' for number in range(60))
        asked = []
        activities = Registry.activities
        monkeypatch.setattr(
            Registry, "activities", lambda self, ids: asked.append(ids) or activities(self, ids)
        )
        assert client.get("/console/subscriptions").status_code == 200
        assert [len(ids) for ids in asked] == [50]
        assert client.get("/console/subscriptions", params={"name": "nothing"}).status_code == 200
        assert len(asked) == 1

    def test_a_token_for_some_topics_is_told_of_no_stream(self, filled):
        filled.register(SubscriptionSpec("a = 1", topic="boats"), id="hidden")
        self.report(filled, 1, heavy=3, hidden=77_777)
        secret = filled.add_token("reader", topics=["cars/#"])[1]
        with console_of(filled) as client:
            client.post("/console/sign-in", data={"token": secret}, headers=OWN)
            for path in ("subscriptions", "subscriptions/heavy"):
                page = client.get(f"/console/{path}").text
                assert "2026-11-25 00:00:01" in page and "q1" not in page and "77,777" not in page

    def test_a_stream_names_its_busiest_subscriptions(self, client, filled):
        self.report(filled, 1, heavy=5, light=1_000)
        self.report(filled, 2, heavy=2_000, **{f"s{number}": 1 for number in range(40)})
        self.report(filled, 3)
        page = client.get("/console/streams/q1").text
        rows = re.findall(r'subscriptions/(\w+)">\1</a></th><td class="number">([\d,]+)</td>', page)
        assert rows[:3] == [("heavy", "2,005"), ("light", "1,000"), ("s0", "1")] and len(rows) == 20
        filled.note_reports("none", filled.reports("q1", limit=1).batches, {})
        assert "Busiest" not in client.get("/console/streams/none").text

    @pytest.mark.parametrize(
        ("value", "text"),
        [(0.00001, "under 0.001"), (0.00123, "0.0012"), (1.26, "1.3"), (12.4, "12"), (9_876.5, "9,876")],
    )
    def test_a_rate_is_short(self, value, text):
        assert rate(value) == text


def test_errors_of_the_api_are_sentences_beside_what_was_written(client, filled):
    given = {"selector": "a = NULL", "dialect": "jms", "kind": "none", "labels": "x=y", "topic": "t"}
    page = client.post("/console/subscriptions/new", data=given, headers=OWN)
    assert page.status_code == 422
    assert "NULL cannot be compared" in page.text and "line 1, column 5" in page.text
    assert "IS NOT NULL" in page.text and ">a = NULL</textarea>" in page.text and "x=y" in page.text
    page = client.post("/console/subscriptions/new", data={**given, "labels": "x"}, headers=OWN)
    assert "labels, line 1: write NAME=VALUE" in page.text
    page = client.get("/console/who-gets", params={"message": "{"})
    assert page.status_code == 422 and "not valid JSON" in page.text
    page = client.get("/console/who-gets", params={"message": '{"propertis": {}}'})
    assert page.status_code == 422 and "propertis" in page.text
    page = client.get("/console/queues/nothing")
    assert page.status_code == 404 and "There is no such queue" in page.text
    page = client.get("/console/subscriptions", params={"cursor": "bm8"})
    assert page.status_code == 422
    assert filled.revision == 1


class TestManyMessages:
    @pytest.fixture
    def queue(self, client):
        client.put("/v1/queues/backout", json={"max_depth": 3})
        queue = client.app.state.service.queues.open("orders")
        for number in range(6):
            queue.put(str(number).encode(), properties={"number": number, "markup": MARKUP})
        return queue

    def test_the_first_step_counts_and_the_second_does_it(self, client, queue):
        page = client.get("/console/queue-purge/orders?selector=number+%3E+3").text
        assert "2 messages of the queue match" in page and "Purge 2 messages" in page
        assert "<script>hit" not in page and queue.depth == 6
        given = {"selector": "number > 3", "expected": "2"}
        page = client.post("/console/queue-purge/orders", data=given, headers=OWN).text
        assert "2 messages were removed" in page and queue.depth == 4

    def test_another_number_than_was_shown_asks_again(self, client, queue):
        given = {"to": "backout", "expected": "5"}
        answer = client.post("/console/queue-move/orders", data=given, headers=OWN)
        assert answer.status_code == 409 and queue.depth == 6
        assert "6 messages match now, not 5" in answer.text and "Move 6 messages" in answer.text
        assert '<option value="backout" selected>' in answer.text
        page = client.post("/console/queue-move/orders", data={**given, "expected": "6"}, headers=OWN).text
        assert "3 messages were moved to" in page
        assert "3 messages stayed: the other queue is full" in page and queue.depth == 3

    def test_a_long_one_goes_on_from_its_position(self, filled, queue, monkeypatch):
        monkeypatch.setattr(bulks, "CHUNK", 4)
        with console_of(filled, limits=ServiceLimits(bulk_seconds=1e-9)) as client:
            page = client.post("/console/queue-purge/orders", data={"expected": "6"}, headers=OWN).text
            assert "4 messages were removed" in page and queue.depth == 2
            given = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.partition("<main")[2]))
            page = client.post("/console/queue-purge/orders", data=given, headers=OWN).text
        assert "6 messages were removed" in page and queue.depth == 0

    @pytest.mark.parametrize("expected", ["", "x", "-1", "9" * 30, "٣"])
    def test_without_a_number_nothing_is_done(self, client, queue, expected):
        answer = client.post("/console/queue-purge/orders", data={"expected": expected}, headers=OWN)
        assert answer.status_code == 400 and queue.depth == 6
