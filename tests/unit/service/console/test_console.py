"""The console's pages without a browser: who may see them, what is refused, what they never do."""

import html
import re
from datetime import UTC, datetime, timedelta
from unittest.mock import patch
from urllib.parse import quote

import pytest

from selectroute.index.specification import Destination, SubscriptionSpec
from selectroute.queues.sql import bulk as bulks
from selectroute.selector.values import Byte, Double, Float, Int, Long
from selectroute.service.console import queues as console_queues
from selectroute.service.console.page import COOKIE, MOST_BYTES, rate
from selectroute.service.limits import ServiceLimits
from tests.support.queue_calls import created
from tests.support.waiting import wait_until
from tests.unit.service.conftest import Job
from tests.unit.service.console.conftest import OWN, console_of, sent, shown

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


class TestSigningIn:
    @pytest.fixture
    def tokens(self, filled):
        filled.register(SubscriptionSpec("a = 1", topic="boats"), id="hidden")
        secrets = {"admin": filled.tokens.add("admin", name="chief")[1]}
        secrets["reader"] = filled.tokens.add("reader", topics=["cars/#"], name="board")[1]
        secrets["writer"] = filled.tokens.add("writer", topics=["cars/#"], name="desk")[1]
        return secrets

    @pytest.fixture
    def client(self, filled, tokens):
        with console_of(filled) as client:
            yield client

    def test_the_cookie_is_out_of_reach_of_scripts_and_ends_with_the_token(self, client, filled, tokens):
        fields = {"token": tokens["reader"], "next": "/console/who-gets?x=1"}
        answer = sent(client, "sign-in", fields, follow_redirects=False)
        assert answer.headers["location"] == "/console/who-gets?x=1"
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=lax" in cookie and "path=/console" in cookie
        assert "expires" not in cookie and "max-age" not in cookie
        page = shown(client, "subscriptions")
        assert "board, reader, topics cars/#" in page and tokens["reader"] not in page
        (board,) = (one for one in filled.tokens.all() if one.name == "board")
        filled.tokens.revoke(board.id)
        assert client.get("/console/subscriptions").url.path == "/console/sign-in"

    def test_consoles_on_two_ports_of_a_host_have_a_cookie_each(self, client, tokens):
        for port, role in (("8080", "reader"), ("8081", "admin")):
            own = {**OWN, "Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}
            client.post("/console/sign-in", data={"token": tokens[role]}, headers=own)
            assert client.cookies.get(f"{COOKIE}-{port}") == tokens[role]
        assert (
            "board, reader" in client.get("/console/subscriptions", headers={"Host": "localhost:8080"}).text
        )
        client.post("/console/sign-out", headers=own)
        assert [*client.cookies] == [f"{COOKIE}-8080"]
        assert client.get("/console/subscriptions").url.path == "/console/sign-in"

    def test_a_wrong_token_is_told_and_not_kept(self, client):
        for secret in ("", "wrong", "ä", "a\nb", "x" * 5_000):
            answer = sent(client, "sign-in", {"token": secret})
            assert answer.status_code == 401 and 'role="alert"' in answer.text
            assert not client.cookies.get(COOKIE) and "xxxx" not in answer.text
        for value in ("wrong", "a\xffb", "a b", ""):
            headers = {"Cookie": f"{COOKIE}={value}".encode("latin-1")}
            answer = client.get("/console/subscriptions", headers=headers, follow_redirects=False)
            assert answer.status_code == 303 and "sign-in" in answer.headers["location"]

    def test_a_token_for_some_topics_sees_and_changes_no_others(self, client, filled, tokens):
        sent(client, "sign-in", {"token": tokens["writer"]})
        for query in ("", "?text=e", "?order=newest"):
            page = shown(client, f"subscriptions{query}")
            assert ">heavy</a>" in page and ">hidden<" not in page and "boats" not in page, query
        assert "1 subscription," in shown(client, "subscriptions")
        assert client.get("/console/subscriptions/hidden").status_code == 404
        answer = sent(client, "subscriptions/hidden/pause", {"revision": "2"})
        assert answer.status_code == 404 and filled.get("hidden").status == "active"
        message = '{"topic": "boats", "properties": {"a": 1}}'
        page = client.get("/console/who-gets", params={"message": message, "explain": "hidden"})
        assert page.status_code == 404 and "weight" not in page.text

    def test_a_reader_is_offered_no_change_and_refused_one(self, client, filled):
        note(filled, 300)
        client.cookies.set(COOKIE, filled.tokens.add("reader")[1], path="/console")
        queue = created(client.app.state.service.queues, "orders")
        token = queue.put(b"x").msg_token.hex()
        changes = {
            "subscriptions": ("Register", "Pause …", 'type="checkbox"'),
            "subscriptions/new": (">Save<",),
            "subscriptions/heavy": ("<button>Pause",),
            "subscriptions/heavy/edit": (">Save<",),
            "subscriptions/heavy/remove": ("<button", "Remove it"),
            "bulk?action=remove&id=heavy": ('class="danger"',),
            "streams/q1": ("Remove from the list",),
            f"queue-message/orders?token={token}": ("Get it",),
            f"queue-get/orders?token={token}": ("<button>Get",),
        }
        for path, words in changes.items():
            main = shown(client, path).partition("<main")[2]
            assert main.count("<h1>") == 1
            assert not [word for word in words if word in main], path
        assert "Your token may only read" in main
        assert client.get(f"/console/queue-body/orders?token={token}").content == b"x"
        for path in ("subscriptions/heavy/pause", "streams/q1/remove", "queue-get/orders"):
            answer = sent(client, path, {"revision": "1", "token": token})
            assert answer.status_code == 403 and "needs the role writer" in answer.text, path
        assert (len(filled.streams.all()), filled.revision, queue.depth) == (1, 2, 1)


def test_an_older_browser_is_known_by_its_origin(client, filled):
    path, headers = "/console/subscriptions/heavy/pause", {"Origin": "http://localhost"}
    answer = client.post(path, data={"revision": "1"}, headers=headers)
    assert answer.status_code == 200 and filled.get("heavy").status == "paused"


def test_without_tokens_another_name_of_this_machine_is_refused(client):
    answer = client.get("/console/subscriptions", headers={"Host": "evil.example"})
    assert answer.status_code == 421 and "answers only" in answer.text


def test_what_is_not_a_form_is_refused(client):
    for content, headers, status in (
        (b"a=1", {"Content-Type": "text/plain"}, 415),
        (b"a=" + b"x" * MOST_BYTES, {}, 413),
        (b"&".join(b"a=1" for _ in range(1_001)), {}, 400),
        ("ä=1".encode(), {}, 400),
        (b"a=%ff", {}, 400),
    ):
        given = {"Content-Type": "application/x-www-form-urlencoded", **OWN, **headers}
        answer = client.post("/console/subscriptions/new", content=content, headers=given)
        assert answer.status_code == status and 'role="alert"' in answer.text


def test_without_a_sample_a_dry_run_says_how_to_get_one(client, filled):
    form = {"selector": "weight > 1", "dialect": "jms", "kind": "none", "do": "try", "revision": "1"}
    answer = sent(client, "subscriptions/heavy/edit", form)
    assert answer.status_code == 200 and "--sample-messages 20" in answer.text
    answer = sent(client, "subscriptions/new", form)
    assert answer.status_code == 200 and "There are no recent messages" in answer.text
    assert filled.get("heavy").selector == "weight > 2500" and len(filled) == 1
    assert client.get("/console/selector/identifiers").json() == {"messages": 0, "items": []}


def test_a_second_click_registers_no_second_subscription(client, filled):
    key = re.search(r'name="key" value="([^"]+)"', shown(client, "subscriptions/new"))[1]
    given = {"selector": "a = 1", "dialect": "jms", "kind": "none", "key": key}
    first, second = (sent(client, "subscriptions/new", given) for _ in range(2))
    assert first.url == second.url and filled.revision == 2
    other = sent(client, "subscriptions/new", {**given, "selector": "a = 2"})
    assert other.status_code == 422 and filled.revision == 2


def batch_row(number, **fields):
    row = dict.fromkeys(("messages", "routed", "unrouted", "dead_lettered", "deliveries", "refused"), 0)
    row |= {"batch": number, "revision": 1, "kind": "stream", "ended": f"2026-11-25T00:00:{number:02}Z"}
    return {**row, "seconds": {}, **fields}


def note(registry, ago=0.0, *batches, query="q1", **state):
    """Note what a stream reported these seconds ago."""
    heard = datetime.now(UTC) - timedelta(seconds=ago)
    rows = [batch_row(one["batch"], **one) for one in batches]
    with patch.object(registry.streams, "_now", lambda: heard):
        registry.streams.note_reports(query, rows, {"behind": None, **state})


class TestStreams:
    def cells(self, client):
        """The cells of the one stream on the overview, by their heads."""
        page = shown(client, "overview")
        heads = re.findall(r'<th scope="col">(.*?)</th>', page)
        (row,) = re.findall(r'<tr>(<th scope="row">.*?)</tr>', page, re.DOTALL)
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
        return dict(zip(heads, (re.sub("<[^>]*>", "", cell) for cell in cells), strict=True))

    def test_none_has_reported(self, client):
        page = client.get("/console/")
        assert page.url.path == "/console/overview" and "None has reported yet" in page.text
        assert client.get("/console/streams").url.path == "/console/overview"
        assert "It has not reported a batch" in shown(client, "streams/nothing")

    def test_they_are_shown_and_judged(self, client, filled):
        for number in range(3):
            batch = {"batch": number, "deliveries": 1_000 * number, "messages": 500}
            note(filled, 20 - 10 * number, batch, name="flights", behind=7)
        wait_until(lambda: client.get("/readyz").is_success, 60, "the service is ready", 0.05)
        found = self.cells(client)
        assert (found["Stream"], found["Status"], found["Newest batch"]) == ("flights", "running", "2")
        assert 40 < float(found["Messages/s"]) <= 50 and 120 < float(found["Deliveries/s"]) <= 150
        assert (found["Messages behind"], found["Dead letters"]) == ("7", "0 in 3 batches")
        page = shown(client, "overview")
        assert '<a href="/console/streams/q1">flights</a>' in page
        assert "All is well: 1 running stream, revision 1" in page
        page = shown(client, "streams/q1")
        assert "<h1>Stream flights</h1>" in page and "Query q1" in page
        assert page.index('<th scope="row">2</th>') < page.index('<th scope="row">0</th>')
        note(filled, name="flights")
        assert self.cells(client)["Messages behind"] == "unknown"

    def test_one_that_is_silent_has_no_rates(self, client, filled):
        for number in range(3):
            note(filled, 150 - 10 * number, {"batch": number, "messages": 500}, behind=7)
        found = self.cells(client)
        assert found["Status"] == "silent"
        assert {found[name] for name in ("Messages/s", "Deliveries/s", "Messages behind")} == {""}

    def test_charts_have_names_a_legend_and_their_numbers_in_the_table(self, client, filled):
        for number in range(3):
            batch = {"batch": number, "messages": 500, "deliveries": 1_000 * number}
            note(filled, 0, {**batch, "seconds": {"pin": 0.25, "match": 0.5} if number else {"pin": 1.0}})
        page = shown(client, "streams/q1")
        charts = re.findall(r'<svg class="chart" role="img" aria-label="([^"]+)".*?</svg>', page, re.DOTALL)
        steps = "Seconds of each step of each batch"
        assert charts == ["Messages of each batch", "Deliveries of each batch", steps]
        assert re.findall(r"</svg> (\w+)</li>", page) == ["pin", "match"]
        titles = re.findall("<title>(batch .*?)</title>", page)
        assert "batch 2: 2,000 deliveries" in titles and "batch 1: 500 messages" in titles
        steps = ("0: pin 1.000", "1: pin 0.250", "1: match 0.500", "2: pin 0.250", "2: match 0.500")
        assert titles[6:] == [f"batch {step} seconds" for step in steps]
        stacked = re.findall(r'<rect class="part-(\d)" x="50.0" y="([\d.]+)"[^>]*height="([\d.]+)"', page)
        assert stacked[2:] == [("0", "120.0", "40.0"), ("1", "40.0", "80.0")], "one upon the other"
        assert '<caption id="batches">' in page and 'aria-describedby="batches"' in page
        assert '<th scope="col">match, s</th>' in page and ">0.500</td>" in page

    def test_batches_of_the_stream_heard_of_last_are_one_click_away(self, client, filled):
        note(filled, 30, query="old", name="older")
        note(filled, 10, query="new", name="newer")
        page = client.get("/console/streams")
        assert page.url.path == "/console/streams/new"
        assert '<a href="/console/streams" aria-current="page">Batches</a>' in page.text
        assert '<a href="/console/streams/old">older</a>, running' in page.text

    def test_one_that_vanished_is_removed_in_two_steps(self, client, filled):
        note(filled, 0, {"batch": 0}, name="flights")
        assert "Remove from the list" not in shown(client, "streams/q1"), "it runs"
        note(filled, 300, name="flights")
        page = shown(client, "overview")
        assert 'has not said that it ended (<a href="/console/streams/q1">batches of flights</a>)' in page
        page = shown(client, "streams/q1")
        assert "Remove from the list" in page and "Remove it" not in page
        page = shown(client, "streams/q1?do=remove")
        assert "Remove flights from the list?" in page and len(filled.streams.all()) == 1
        assert (
            sent(client, "streams/q1/remove", {}).url.path == "/console/overview" and not filled.streams.all()
        )
        again = sent(client, "streams/q1/remove", {})
        assert again.status_code == 404 and "there is no stream" in again.text

    def test_a_known_job_leads_to_its_dead_letters_and_its_audit(self, filled):
        note(filled, 0, {"batch": 0, "dead_lettered": 9}, name="flights")
        with console_of(filled, jobs={"flights": Job(4)}) as client:
            page = shown(client, "overview")
            letters = '<a href="/console/jobs/flights/dead-letters">'
            assert f"4 dead letters of the job flights are not replayed ({letters}" in page
            assert f"the job flights is not running ({letters}" in page
            assert self.cells(client)["Dead letters"] == "4 not replayed"
            page = shown(client, "streams/q1")
            assert f"{letters}4 dead letters not replayed of the job flights</a>" in page
            assert 'action="/console/jobs/flights/audit"><button>Audit flights' in page


class TestActivity:
    def report(self, registry, number, **busiest):
        registry.streams.note_reports("q1", [batch_row(number, busiest=busiest)], {})

    def test_last_deliveries_and_rates_are_shown(self, client, filled):
        for path in ("subscriptions", "subscriptions/heavy"):
            assert "none known" in shown(client, path)
        page = shown(client, "subscriptions/heavy")
        assert "none known: a batch names its 100 busiest subscriptions" in page and "<dt>Rate" not in page
        self.report(filled, 1, heavy=1_234)
        page = shown(client, "subscriptions/heavy")
        assert "2026-11-25 00:00:01 UTC: 1,234 deliveries in batch 1 of the stream" in page
        assert '<a href="/console/streams/q1">q1</a>' in page and "<dt>Rate" not in page
        self.report(filled, 2, heavy=1)
        page = shown(client, "subscriptions/heavy")
        assert "00:00:02 UTC: 1 delivery in batch 2" in page and "deliveries a second" in page
        page = shown(client, "subscriptions")
        assert "<td>2026-11-25 00:00:02</td>" in page and "none known" not in page
        sent(client, "subscriptions/heavy/remove", {"revision": "1"})
        assert "It was removed" in shown(client, "subscriptions/heavy")

    def test_the_list_asks_once_for_its_page(self, client, filled, monkeypatch):
        filled.import_(f'{{"id": "n{number}"}}' for number in range(60))
        asked, activities = [], filled.streams.activities
        monkeypatch.setattr(filled.streams, "activities", lambda ids: asked.append(ids) or activities(ids))
        assert client.get("/console/subscriptions").status_code == 200
        assert [len(ids) for ids in asked] == [50]
        assert client.get("/console/subscriptions", params={"name": "nothing"}).status_code == 200
        assert len(asked) == 1

    def test_a_token_for_some_topics_is_told_of_no_stream(self, filled):
        filled.register(SubscriptionSpec("a = 1", topic="boats"), id="hidden")
        self.report(filled, 1, heavy=3, hidden=77_777)
        secret = filled.tokens.add("reader", topics=["cars/#"])[1]
        with console_of(filled) as client:
            sent(client, "sign-in", {"token": secret})
            for path in ("subscriptions", "subscriptions/heavy"):
                page = shown(client, path)
                assert "2026-11-25 00:00:01" in page and "77,777" not in page
                assert not re.search(r"\bq1\b", page)  # as a word: ids of tokens are random

    def test_a_stream_names_its_busiest_subscriptions(self, client, filled):
        self.report(filled, 1, heavy=5, light=1_000)
        self.report(filled, 2, heavy=2_000, **{f"s{number}": 1 for number in range(40)})
        self.report(filled, 3)
        page = shown(client, "streams/q1")
        rows = re.findall(r'subscriptions/(\w+)">\1</a></th><td class="number">([\d,]+)</td>', page)
        assert rows[:3] == [("heavy", "2,005"), ("light", "1,000"), ("s0", "1")] and len(rows) == 20
        filled.streams.note_reports("none", filled.streams.reports("q1", limit=1).batches, {})
        assert "Busiest" not in shown(client, "streams/none")

    @pytest.mark.parametrize(
        ("value", "text"),
        [(0.00001, "under 0.001"), (0.00123, "0.0012"), (1.26, "1.3"), (12.4, "12"), (9_876.5, "9,876")],
    )
    def test_a_rate_is_short(self, value, text):
        assert rate(value) == text


def test_errors_of_the_api_are_sentences_beside_what_was_written(client, filled):
    given = {"selector": "a = NULL", "dialect": "jms", "kind": "none", "labels": "x=y", "topic": "t"}
    page = sent(client, "subscriptions/new", given)
    assert page.status_code == 422
    assert "NULL cannot be compared" in page.text and "line 1, column 5" in page.text
    assert "IS NOT NULL" in page.text and ">\na = NULL</textarea>" in page.text and "x=y" in page.text
    page = sent(client, "subscriptions/new", {**given, "labels": "x"})
    assert "labels, line 1: write NAME=VALUE" in page.text
    for path, params, status, sentence in (
        ("who-gets", {"message": "{"}, 422, "not valid JSON"),
        ("who-gets", {"message": '{"a": 1, "a": 2}'}, 422, "duplicate member `a` at column 10"),
        ("who-gets", {"message": '{"propertis": {}}'}, 422, "propertis"),
        ("who-gets", {"message": '{"properties": {"a": [1]}}'}, 422, "/message/properties/a"),
        ("queues/orders", {"selector": "color = "}, 422, "the selector ends too early"),
        ("queues/nothing", {}, 404, "There is no such queue"),
        ("subscriptions", {"cursor": "bm8"}, 422, ""),
    ):
        page = client.get(f"/console/{path}", params=params)
        assert page.status_code == status and sentence in page.text, path
    assert filled.revision == 1


def taken(client, token):
    """The page after a get of the message with a token."""
    return sent(client, "queue-get/orders", {"token": token})


def texts_of(page, kind="pre"):
    """The texts of elements of a page, as a browser has them."""
    found = re.findall(rf"<{kind}[^>]*>(.*?)</{kind}>", page.text, re.DOTALL)
    return [html.unescape(text.removeprefix("\n")) for text in found]


PROPERTIES = {
    "text": ("grüß <dich> & mich", "string", "grüß <dich> & mich"),
    "yes": (True, "boolean", "true"),
    "long": (Long(1 << 60), "long", str(1 << 60)),
    "int": (Int(-3), "int", "-3"),
    "byte": (Byte(7), "byte", "7"),
    "float": (Float(1.5), "float", "1.5"),
    "double": (Double(float("inf")), "double", "Infinity"),
    "bytes": (b"\x00\xff", "bytes", "00FF"),
    "much": ("x" * 40_000, "string", "x" * 40_000),
}
"""Values of properties, with the types and texts that are shown."""


class TestOneMessage:
    """A message that is got is nowhere else than on the page: all of it has to be there."""

    @pytest.fixture
    def queue(self, client):
        return client.app.state.service.queues.open("orders")

    def token(self, queue):
        return queue.browse().descriptor.msg_token.hex().upper()

    def test_all_properties_are_there_with_their_types_before_and_after_a_get(self, client, queue):
        properties = {name: value for name, (value, *_) in PROPERTIES.items()}
        queue.put(b"x", properties=properties, correl_id=b"c".ljust(24))
        token = self.token(queue)
        opened = client.get(f"/console/queue-message/orders?token={token}&whole=1")
        for page in (opened, taken(client, token)):
            assert page.status_code == 200
            rows = re.findall("<tr><th.*?</tr>", page.text.partition("Properties")[2], re.DOTALL)
            cells = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows[1:]]
            cells = [[html.unescape(re.sub("<.*?>", "", cell)).strip("\n") for cell in row] for row in cells]
            assert {name: cell for name, *cell in cells} == {
                name: shown for name, (_, *shown) in PROPERTIES.items()
            }
            assert "priority" in page.text and "correlationid" in page.text
        assert queue.depth == 0

    def test_the_whole_body_is_there_after_a_get(self, client, queue):
        for body, text, digits in (
            (b"a" * 30_007, True, False),
            ("\n grüß\tdich\n\n".encode(), True, False),
            (b"<pre>&amp;</pre>", True, False),
            (b"a\r\nb\x00c", True, True),
            (b"", True, False),
            (bytes(range(256)) * 70, False, True),
        ):
            queue.put(body)
            token = self.token(queue)
            page = taken(client, token)
            found = texts_of(page)
            assert len(found) == text + digits and f"{len(body):,} byte" in page.text
            assert not text or found[0].encode() == body
            assert not digits or bytes.fromhex(found[-1]) == body
            assert queue.depth == 0 and "The first" not in page.text
            again = taken(client, token)
            assert again.status_code == 404 and "no longer on the queue" in again.text

    def test_a_body_that_is_too_long_for_a_page_is_got_as_a_file(self, client, queue, monkeypatch):
        monkeypatch.setattr(console_queues, "_MOST_SHOWN", 1_000)
        body = b"\x00\r\n" * 400
        queue.put(body, properties={"a": 1})
        token = self.token(queue)
        asked = shown(client, f"queue-get/orders?token={token}")
        assert "you get it as a file" in asked and "The download has the whole body" not in asked
        answer = taken(client, token)
        assert answer.content == body and queue.depth == 0
        assert answer.headers["content-disposition"].startswith("attachment; ")

    def test_the_longest_body_that_a_queue_takes_by_default_is_shown_whole(self, client, queue):
        body = bytes(range(256)) * (4_194_304 // 256)
        queue.put(body)
        assert bytes.fromhex(texts_of(taken(client, self.token(queue)))[0]) == body and queue.depth == 0

    def test_a_body_is_downloaded_byte_by_byte_and_stays(self, client):
        for name in ("orders", "A/b.%_c", "...", "%"):
            client.put(f"/v1/queues/{quote(name, safe='')}")
            queue = client.app.state.service.queues.open(name)
            body = b"<script>hit=1</script>\r\n\x00\xff"
            queue.put(body)
            path = f"/console/queue-body/{quote(name, safe='')}?token={self.token(queue)}"
            answer = client.get(path)
            assert answer.content == body and queue.depth == 1
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["x-content-type-options"] == "nosniff"
            name = r'attachment; filename="[A-Za-z0-9][A-Za-z0-9_-]+\.bin"'
            assert re.fullmatch(name, answer.headers["content-disposition"])
            queue.get()
            assert client.get(path).status_code == 404

    def test_a_page_that_cuts_says_where_and_leads_to_the_whole(self, client, queue):
        queue.put(b"b" * 30_007, properties={"much": "p" * 25_000, "little": "p"})
        token = self.token(queue)
        page = shown(client, f"queue-message/orders?token={token}")
        assert "The first 20,000 of 30,007 characters:" in page and "b" * 20_001 not in page
        assert "(the first 20,000 of 25,000 characters)" in page
        assert f'href="/console/queue-message/orders?token={token}&amp;whole=1"' in page
        whole = shown(client, f"queue-message/orders?token={token}&whole=1")
        assert "b" * 30_007 in whole and "p" * 25_000 in whole and "Not all of it" not in whole
        row = shown(client, "queues/orders")
        assert "(the first 200 of 25,000 characters)" in row and "p" * 201 not in row
        queue.get()
        queue.put(bytes(20_000) + b"\xff")
        page = shown(client, f"queue-message/orders?token={self.token(queue)}")
        assert "The first 6,667 of 20,001 bytes:" in page

    def test_a_get_is_asked_for_with_the_number_of_matches(self, client, queue):
        for number in range(3):
            queue.put(str(number).encode(), properties={"number": number})
        token = queue.listed(3)[1].descriptor.msg_token.hex().upper()
        page = shown(client, f"queue-get/orders?token={token}&selector=number+%3E+0")
        assert "1 message will leave the queue: this one, of 2 messages that match." in page
        assert "<code>number &gt; 0</code>" in page and queue.depth == 3
        assert "this one, of 3 messages on it." in shown(client, f"queue-get/orders?token={token}")
        for path in ("queue-get/orders", "queue-message/orders", "queue-body/orders"):
            assert client.get(f"/console/{path}").status_code == 404, "any message would be found"
        assert taken(client, "").status_code == 404 and queue.depth == 3


WRITTEN = {"body": "\nfirst <line>\n", "correlationId": "c1", "priority": "3", "properties": "a"}


class TestPutting:
    def put(self, client, **changed):
        return sent(client, "queue-put/orders", WRITTEN | changed, follow_redirects=False)

    def kept(self, page, **changed):
        given = WRITTEN | changed
        assert texts_of(page, "textarea") == [given.pop("body")]
        for name, value in given.items():
            kind = 'inputmode="numeric"' if name == "priority" else f'name="{name}"'
            assert f'{kind} value="{value}"' in page.text

    def test_it_says_how_many_are_there_before_it_is_done(self, client):
        queue = client.app.state.service.queues.open("orders")
        queue.put(b"x")
        assert "1 message will be put on orders, which has 1 message." in shown(client, "queue-put/orders")
        client.put("/v1/queues/B", json={"max_depth": 0})
        assert "which has 0 messages, of at most 0: it is full." in shown(client, "queue-put/B")
        answer = self.put(client, properties="a;1;integer")
        assert answer.headers["location"] == "/console/queues/orders?done=put"
        (message,) = [one for one in queue.listed(2) if one.properties]
        body = queue.get(msg_token=message.descriptor.msg_token).body
        assert body == WRITTEN["body"].encode()

    def test_a_refusal_keeps_what_was_written(self, client, filled):
        page = self.put(client)
        assert page.status_code == 400 and "ibm-mq-usr" in page.text
        self.kept(page)
        long = "ä" * 2_097_152 + "x"
        page = self.put(client, properties="", body=long)
        assert page.status_code == 413
        self.kept(page, properties="", body=long)
        client.delete("/v1/queues/orders")
        page = self.put(client, properties="")
        assert page.status_code == 404 and "there is no queue" in page.text
        self.kept(page, properties="")

    def test_so_does_one_for_want_of_a_role_or_a_token(self, client, filled):
        chief, secret = filled.tokens.add("writer")
        filled.tokens.add("admin")
        reader = filled.tokens.add("reader")[1]
        with console_of(filled) as client:
            client.cookies.set(COOKIE, reader, path="/console")
            page = self.put(client)
            assert page.status_code == 403 and "needs the role writer" in page.text
            self.kept(page)
            assert self.put(client, body="x" * (1 << 20)).status_code == 413  # not received for nothing
            client.cookies.clear()
            client.cookies.set(COOKIE, secret, path="/console")
            filled.tokens.revoke(chief.id)
            page = self.put(client)
            assert page.status_code == 401 and "Sign in in another window" in page.text
            self.kept(page)


class TestBrowsing:
    @pytest.fixture
    def queue(self, client):
        queue = client.app.state.service.queues.open("orders")
        for number in range(120):
            queue.put(msg_seq_number=number + 1, offset=number % 2, properties={"number": number})
        return queue

    def test_one_pages_through_all_that_match_and_the_url_says_where(self, client, queue):
        path, numbers = "/console/queues/orders?selector=number+%3E%3D+10", []
        for size in (50, 50, 10):
            page = client.get(path).text
            found = re.findall(r"number=(\d+)</code>", page)
            assert len(found) == size
            numbers += map(int, found)
            following = re.search(r'rel="next" href="([^"]*)"', page)
            assert ("First page" in page) == (len(numbers) > 50)
            path = html.unescape(following[1]) if following else None
            assert path is None or "selector=number" in path
        assert numbers == [*range(10, 120)] and path is None
        page = shown(client, "queues/orders", after=queue.listed(50)[-1].descriptor.msg_token.hex())
        one = re.search(r'href="(/console/queue-message/[^"]*)"', page)
        assert "after=" in one[1], "the way back leads to the same page"
        assert client.get("/console/queues/orders?after=x").status_code == 400

    def test_a_service_with_smaller_pages_ends_no_list_early(self, filled, queue):
        with console_of(filled, limits=ServiceLimits(page=20)) as client:
            assert shown(client, "queues/orders").count("<tr><th") == 21
            assert 'rel="next"' in shown(client, "queues/orders")

    @pytest.mark.parametrize(
        ("lookup", "count"),
        [("msgSeqNumber=7", 1), ("offset=1", 60), ("msgSeqNumber=7&offset=1", 0), ("msgToken={}", 1)],
    )
    def test_every_condition_of_a_get_is_one_of_a_search(self, client, queue, lookup, count):
        lookup = lookup.format(queue.listed(5)[-1].descriptor.msg_token.hex())
        page = shown(client, f"queue-purge/orders?{lookup}")
        assert f"{count} message{'' if count == 1 else 's'} of the queue match" in page
        assert shown(client, f"queues/orders?{lookup}").count("<code>number=") == min(count, 50)
        given = dict(one.split("=") for one in lookup.split("&")) | {"expected": str(count)}
        sent(client, "queue-purge/orders", given)
        assert queue.depth == 120 - count

    def test_a_number_that_is_none_is_a_sentence(self, client, queue):
        page = client.get("/console/queues/orders?msgSeqNumber=x")
        assert page.status_code == 400 and "msgSeqNumber" in page.text and 'value="x"' in page.text
        page = sent(client, "queue-purge/orders", {"msgSeqNumber": "x", "expected": "120"})
        assert page.status_code == 400 and queue.depth == 120

    def test_the_oldest_and_those_who_wait_are_shown(self, client, queue):
        text = shown(client, "queues/orders")
        put = queue.oldest.strftime("%Y-%m-%d %H:%M:%S")
        assert re.search(rf"The oldest was put {put} UTC, \d+ seconds? ago", text)
        assert "0 gets of this process of the service wait" in text
        call = queue.call(lambda: None, selector="FALSE")
        call.look()
        assert "1 get of this process of the service waits" in shown(client, "queues/orders")
        assert put in shown(client, "queues")
        call.end()

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(-5, "0 seconds"), (1, "1 second"), (119, "1 minute"), (7_200, "2 hours"), (1e6, "11 days")],
    )
    def test_an_age_is_short(self, seconds, text):
        assert console_queues._age((datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()) == text


class TestManyMessages:
    @pytest.fixture
    def queue(self, client):
        client.put("/v1/queues/backout", json={"max_depth": 3})
        queue = client.app.state.service.queues.open("orders")
        for number in range(6):
            queue.put(str(number).encode(), properties={"number": number, "markup": MARKUP})
        return queue

    def test_the_first_step_counts_and_the_second_does_it(self, client, queue):
        page = shown(client, "queue-purge/orders?selector=number+%3E+3")
        assert "2 messages of the queue match" in page and "Purge 2 messages" in page
        assert "<script>hit" not in page and queue.depth == 6
        page = sent(client, "queue-purge/orders", {"selector": "number > 3", "expected": "2"}).text
        assert "2 messages were removed" in page and queue.depth == 4

    def test_another_number_than_was_shown_asks_again(self, client, queue):
        given = {"to": "backout", "expected": "5"}
        answer = sent(client, "queue-move/orders", given)
        assert answer.status_code == 409 and queue.depth == 6
        assert "6 messages match now, not 5" in answer.text and "Move 6 messages" in answer.text
        assert '<option value="backout" selected>' in answer.text
        page = sent(client, "queue-move/orders", {**given, "expected": "6"}).text
        assert "3 messages were moved to" in page
        assert "3 messages stayed: the other queue is full" in page and queue.depth == 3

    def test_a_long_one_goes_on_from_its_position(self, filled, queue, monkeypatch):
        monkeypatch.setattr(bulks, "CHUNK", 4)
        with console_of(filled, limits=ServiceLimits(bulk_seconds=1e-9)) as client:
            page = sent(client, "queue-purge/orders", {"expected": "6"}).text
            assert "4 messages were removed" in page and queue.depth == 2
            given = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.partition("<main")[2]))
            page = sent(client, "queue-purge/orders", given).text
        assert "6 messages were removed" in page and queue.depth == 0

    def test_without_a_number_nothing_is_done(self, client, queue):
        for expected in ("", "x", "-1", "9" * 30, "٣"):
            answer = sent(client, "queue-purge/orders", {"expected": expected})
            assert answer.status_code == 400 and queue.depth == 6


ODD = SubscriptionSpec(
    "\n a = 'x\r\ny' OR\tb = 1\r",
    topic="cars/\n/eu",
    name="odd  one",
    labels={"k": "one\u2028two=3", "s": " pad ", " n ": "="},
    destination=Destination("queue", "OUT"),
)


def _form_of(text):
    """Return the fields of the editor as a browser shows them and sends them back."""
    found = {}
    for tag, attributes, inner in re.findall(r"<(input|textarea)\b([^>]*)>(?:([^<]*)</textarea>)?", text):
        name = re.search(r'name="([^"]*)"', attributes)
        value = re.search(r'value="([^"]*)"', attributes)
        if name is None:
            continue
        given = html.unescape(inner if tag == "textarea" else value[1] if value else "")
        given = given.replace("\r\n", "\n").replace("\r", "\n")
        if tag == "textarea":  # without its first line end
            given = given.removeprefix("\n").replace("\n", "\r\n")
        found[name[1]] = given if tag == "textarea" else given.replace("\n", "")
    for name, options in re.findall(r'<select [^>]*name="([^"]*)">(.*?)</select>', text, re.S):
        chosen = re.search(r'<option(?: value="([^"]*)")? selected>([^<]*)', options)
        found[name] = chosen[1] or chosen[2]
    return found


def test_saving_without_a_change_changes_nothing(client, filled):
    filled.register(ODD, id="odd")
    before = filled.get("odd")
    given = _form_of(shown(client, "subscriptions/odd/edit"))
    answer = sent(client, "subscriptions/odd/edit", given | {"do": "save"})
    assert answer.status_code == 200 and "The change is saved." in answer.text
    same = ("selector", "topic", "name", "labels", "dialect", "seltype", "destination", "status")
    after = filled.get("odd")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]


def test_one_field_changes_and_the_others_stay(client, filled):
    filled.register(ODD, id="odd")
    given = _form_of(shown(client, "subscriptions/odd/edit"))
    changed = given | {"do": "save", "labels": given["labels"] + "\r\nteam = eu \r\n", "dialect": "ibm-jms"}
    sent(client, "subscriptions/odd/edit", changed)
    after = filled.get("odd")
    assert after.labels == {**ODD.labels, "team": "eu"} and after.dialect == "ibm-jms"
    assert (after.selector, after.topic, after.name) == (ODD.selector, ODD.topic, ODD.name)
    assert after.destination == ODD.destination


def test_a_search_keeps_the_exact_values_and_a_list_has_an_order(client, filled):
    for number in range(3):
        filled.register(SubscriptionSpec("weight > 1", name=f"{3 - number} name"), id=f"w{number}")
    filled.pause("w0")

    def ids(query):
        return re.findall(r'<th scope="row"><a href="[^"]*">([^<]*)', shown(client, query))

    assert ids("subscriptions?text=weight&status=paused") == ["w0"]
    assert ids("subscriptions?text=weight&status=active") == ["heavy", "w1", "w2"]
    assert ids("subscriptions?text=weight&status=active&topic=cars/eu") == ["heavy"]
    assert ids("subscriptions?order=newest") == ["w0", "w2", "w1", "heavy"]
    assert ids("subscriptions?order=name") == ["w2", "w1", "w0", "heavy"]
    assert client.get("/console/subscriptions?order=size").status_code == 400
    page = shown(client, "subscriptions?text=%3Cb%3Enothing%3C/b%3E&field=topic")
    assert "There are none with “&lt;b&gt;nothing&lt;/b&gt;” in their topic" in page
    filled.import_(f'{{"id": "n{number:03}"}}' for number in range(116))
    path, sizes = "/console/subscriptions", []
    while path is not None:
        page = client.get(path).text
        sizes.append(len(re.findall('<th scope="row">', page)))
        following = re.search(r'rel="next" href="([^"]*)"', page)
        path = html.unescape(following[1]) if following else None
    assert sizes == [50, 50, 20]


def test_a_url_of_any_length_is_no_failure_of_the_console(client):
    assert client.get(f"/console/subscriptions?done=paused&count={'9' * 5_000}").status_code == 200
    many = "&".join(["a=b"] * 1_001)
    answer = client.get(f"/console/bulk?action=pause&{many}")
    assert answer.status_code == 400 and "at most 1,000 values" in answer.text


def test_who_resumes_with_what_was_missed_reads_which_stream_cannot(client, filled):
    filled.streams.note_query("yes", source="/in", can_replay=True)
    filled.streams.note_query("no", source="/other", can_replay=False, reason="its files are gone")
    filled.pause("heavy")
    given = {"revision": str(filled.get("heavy").revision), "from": "last-processed"}
    text = sent(client, "subscriptions/heavy/resume", given).text
    assert "The stream yes delivers what it missed." in text
    assert "The stream no cannot replay what it missed: its files are gone." in text
    assert filled.get("heavy").status == "active"


def test_the_page_of_a_change_learns_which_batch_used_it(client, filled):
    (path,) = re.findall('data-sentence="([^"]*)"', shown(client, "subscriptions/heavy"))
    filled.streams.note_query("q", source="/in", can_replay=True)
    filled.streams.note_batch("q", 1_234, filled.revision)
    assert client.get(path).json() == {"sentence": "in the stream q from batch 1,234 on"}


def test_a_match_and_a_near_miss_are_explained_by_one_click(client, filled):
    filled.register(SubscriptionSpec("weight > 2500 AND color = 'red'", topic="cars/eu"), id="near")
    message = '{"topic": "cars/eu", "properties": {"weight": 3000, "color": "blue"}}'
    text = sent(client, "who-gets", {"message": message}).text
    assert set(re.findall('name="explain" value="([^"]+)"', text)) == {"heavy", "near"}
    found = sent(client, "who-gets", {"message": message, "explain": "near"}, follow_redirects=False)
    assert found.headers["location"].endswith("#why")
    assert "near does not get it" in client.get(found.headers["location"]).text


def test_behind_a_proxy_with_tls_the_cookie_is_for_tls_alone(client, filled):
    secret = filled.tokens.add("reader")[1]
    for scheme, is_secure in (("https", True), ("http", False)):
        client.headers["X-Forwarded-Proto"] = scheme
        answer = sent(client, "sign-in", {"token": secret}, follow_redirects=False)
        assert ("secure" in answer.headers["set-cookie"].lower()) is is_secure


def test_a_dry_run_of_a_paused_subscription_says_so(client, filled):
    filled.streams.note_messages("q", [{"topic": "cars/eu"}])
    filled.pause("heavy")
    given = _form_of(shown(client, "subscriptions/heavy/edit")) | {"do": "try"}
    assert "The subscription is paused" in sent(client, "subscriptions/heavy/edit", given).text


def test_a_recent_message_without_a_topic_is_offered(client, filled):
    filled.streams.note_messages("q", [{"properties": {"weight": 1}}, {"topic": "cars/eu"}])
    answer = client.get("/console/who-gets")
    assert answer.status_code == 200 and answer.text.count("/console/who-gets?message=") == 2
