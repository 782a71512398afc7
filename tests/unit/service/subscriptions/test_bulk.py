"""Pages, batches, import and export over HTTP."""

import json
from urllib.parse import urlsplit

import pytest

from selectroute.index.specification import SubscriptionSpec
from selectroute.service.limits import ServiceLimits
from selectroute.service.subscriptions import bulk
from tests.unit.service.conftest import problem, service

PATH = "/v1/subscriptions"


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def send(client, content, **params):
    headers = {"Content-Type": "application/x-ndjson"}
    return client.post(f"{PATH}:import", content=content, headers=headers, params=params)


def followed(client, url):
    """The ids of all pages, and how many pages there were."""
    ids, pages = [], 0
    while url:
        answer = client.get(url)
        assert answer.status_code == 200, answer.text
        ids += [one["id"] for one in answer.json()["items"]]
        pages += 1
        link = answer.headers.get("link")
        assert (link is None) is (answer.json()["next_cursor"] is None)
        url = link and link.partition("<")[2].partition(">")[0]
    return ids, pages


class TestPages:
    def test_every_subscription_comes_once_by_the_links(self, client):
        send(client, lines(*({"id": f"s{n:03}"} for n in range(25))))
        assert followed(client, f"{PATH}?limit=10") == ([f"s{n:03}" for n in range(25)], 3)

    def test_a_link_keeps_the_filters_and_survives_changes(self, client):
        rows = ({"id": f"s{n}", "topic": "a/b&c=d/#", "labels": {"team": "x y"}} for n in range(4))
        send(client, lines({"id": "other"}, *rows))
        query = "limit=2&topic=a/b%26c%3Dd/%23&label=team%3Dx%20y"
        first = client.get(f"{PATH}?{query}")
        assert [one["id"] for one in first.json()["items"]] == ["s0", "s1"]
        client.delete(f"{PATH}/s1", headers={"If-Match": "*"})
        url = first.headers["link"].partition("<")[2].partition(">")[0]
        assert urlsplit(url).path == PATH
        assert followed(client, url)[0] == ["s2", "s3"]

    @pytest.mark.parametrize(
        ("query", "ids"),
        [("status=paused", ["b"]), ("dialect=ibm-mq", ["c"]), ("name=n", ["a"]), ("topic=t/%2B", ["a", "b"])],
    )
    def test_filters(self, client, query, ids):
        rows = [
            {"id": "a", "name": "n", "topic": "t/+"},
            {"id": "b", "status": "paused", "topic": "t/+"},
            {"id": "c", "dialect": "ibm-mq"},
        ]
        assert send(client, lines(*rows)).status_code == 200
        assert followed(client, f"{PATH}?{query}")[0] == ids

    @pytest.mark.parametrize(
        ("query", "status", "kind"),
        [
            ("limit=0", 400, "invalid-request"),
            ("limit=1001", 400, "invalid-request"),
            ("limit=x", 400, "invalid-request"),
            ("status=gone", 400, "invalid-request"),
            ("dialect=sql", 400, "invalid-request"),
            ("label=team", 400, "invalid-request"),
            ("topic=%00", 400, "invalid-request"),
            ("cursor=%2F", 400, "invalid-request"),
            ("cursor=AAAA", 422, "invalid-subscription"),
        ],
    )
    def test_a_query_that_cannot_be_is_refused(self, shared, query, status, kind):
        problem(shared.get(f"{PATH}?{query}"), status, kind)

    def test_a_cursor_of_other_filters_is_refused(self, client):
        send(client, lines({"id": "a"}, {"id": "b"}))
        cursor = client.get(f"{PATH}?limit=1").json()["next_cursor"]
        problem(client.get(f"{PATH}?limit=1&status=active&cursor={cursor}"), 422, "invalid-subscription")


class TestBatch:
    def test_several_changes_share_one_revision(self, client, add):
        made = add("a = 1")
        operations = [
            {"op": "add", "id": "x", "selector": "b = 1", "topic": "t/#"},
            {"op": "replace", "id": made["id"], "selector": "a = 2", "expected": made["revision"]},
            {"op": "pause", "id": "x"},
        ]
        done = client.post(f"{PATH}:batch", json={"operations": operations})
        assert done.status_code == 200, done.text
        revisions = {one["revision"] for one in done.json()["subscriptions"]}
        assert revisions == {done.json()["revision"]} == {made["revision"] + 1}
        assert client.get(f"{PATH}/x").json()["status"] == "paused"
        rest = [{"op": "resume", "id": "x", "from": "last-processed"}, {"op": "remove", "id": made["id"]}]
        assert client.post(f"{PATH}:batch", json={"operations": rest}).status_code == 200
        assert client.get(f"{PATH}/x").json()["status"] == "active"

    @pytest.mark.parametrize("topics", [[], ["cars/#"]])
    def test_a_batch_that_comes_again_gets_its_answer_again(self, registry, topics):
        _, secret = registry.tokens.add("writer", topics=topics)
        registry.register(SubscriptionSpec(topic="cars/eu"), id="a")
        body = {"operations": [{"op": "remove", "id": "a"}]}
        headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": "k"}
        with service(registry, headers=headers) as client:
            first, again = (client.post(f"{PATH}:batch", json=body) for _ in range(2))
            assert first.status_code == again.status_code == 200, again.text
            assert first.json() == again.json()
            body["operations"][0]["id"] = "b"
            problem(client.post(f"{PATH}:batch", json=body), 422, "idempotency-conflict")

    @pytest.mark.parametrize(
        ("operation", "status", "kind", "pointer"),
        [
            ({"op": "add", "selector": "a ="}, 422, "invalid-selector", "/operations/1/selector"),
            ({"op": "add", "topic": "a+"}, 422, "invalid-topic-filter", "/operations/1/topic"),
            ({"op": "add", "id": "x"}, 409, "id-taken", "/operations/1/id"),
            ({"op": "add", "name": "x"}, 409, "name-taken", "/operations/1/name"),
            ({"op": "remove", "id": "no"}, 404, "subscription-not-found", "/operations/1"),
            ({"op": "remove"}, 422, "invalid-subscription", "/operations/1/id"),
            ({"op": "pause", "id": "x", "topic": "t"}, 422, "invalid-subscription", "/operations/1/topic"),
            ({"op": "pause", "id": "x", "expected": 99}, 412, "stale-revision", "/operations/1"),
            ({"op": "explode", "id": "x"}, 422, "invalid-body", "/operations/1/op"),
        ],
    )
    def test_one_that_cannot_be_undoes_all(self, shared, operation, status, kind, pointer):
        operations = [{"op": "add", "id": "x"}, operation]
        found = problem(shared.post(f"{PATH}:batch", json={"operations": operations}), status, kind)
        assert shared.app.state.service.registry.revision == 0
        assert found["errors"][0]["pointer"] == pointer


class TestImport:
    def test_all_lines_become_one_revision(self, client):
        rows = [{"id": "a", "selector": "x = 1"}, {"id": "b", "topic": "t/#", "status": "paused"}]
        assert send(client, lines(*rows) + "\n").json() == {"rows": 2, "revision": 1}
        assert client.get(f"{PATH}/b").json()["status"] == "paused"
        problem(send(client, lines(rows[0])), 409, "id-taken")
        assert send(client, lines({**rows[0], "selector": "x = 2"}), mode="replace").status_code == 200
        assert client.get(f"{PATH}/a").json()["selector"] == "x = 2"

    @pytest.mark.parametrize(
        ("line", "status", "kind", "pointer"),
        [
            ('{"selector": "a ="}', 422, "invalid-selector", "/1/selector"),
            ('{"topic": "a+"}', 422, "invalid-topic-filter", "/1/topic"),
            ('{"name": 1}', 422, "invalid-subscription", "/1/name"),
            ('{"id": "a"}', 409, "id-taken", "/1/id"),
        ],
    )
    def test_a_line_that_cannot_be_is_named_and_nothing_is_stored(self, shared, line, status, kind, pointer):
        found = problem(send(shared, lines({"id": "a"}) + line + "\n"), status, kind)
        assert found["errors"][0]["pointer"] == pointer
        assert found["detail"].startswith("line 2: ")
        assert shared.app.state.service.registry.revision == 0

    def test_an_import_is_read_as_it_comes_whatever_its_size(self, client, registry):
        def parts():
            for n in range(3_000):
                line = json.dumps({"id": f"s{n}", "selector": f"a = {n}", "labels": {"l": "x" * 200}})
                yield line[:20].encode()
                yield line[20:].encode() + b"\n"

        assert send(client, parts()).json()["rows"] == len(registry) == 3_000

    def test_what_is_too_large_is_refused(self, registry):
        with service(registry, limits=ServiceLimits(import_rows=2, import_bytes=1_000)) as client:
            many = (b"{}\n" for _ in range(1_000))
            for content in (lines({}, {}, {}), lines({"selector": "x" * 1_000}), many):
                problem(send(client, content), 413, "too-large")
            assert registry.revision == 0
            assert send(client, lines({}, {})).status_code == 200

    def test_a_line_without_an_end_is_named(self, client, monkeypatch):
        monkeypatch.setattr(bulk, "MAX_LINE_BYTES", 4_000)
        monkeypatch.setattr(bulk, "MAX_LINE", 1_000)
        found = problem(send(client, b"{}\n{}\n" + b" " * 5_000), 413, "too-large")
        assert found["errors"][0]["pointer"] == "/2" and found["detail"].startswith("line 3: ")

    def test_another_media_type_is_refused(self, client):
        answer = client.post(f"{PATH}:import", content=b"{}", headers={"Content-Type": "application/json"})
        problem(answer, 415, "unsupported-media-type")
        problem(send(client, lines({}), mode="guess"), 400, "invalid-request")


class TestExport:
    def test_an_export_can_be_imported(self, client, add, registry):
        add("a = 1", name="one", labels={"l": "é"})
        add("b = 1", topic="t/#")
        exported = client.get(f"{PATH}:export")
        assert exported.headers["content-type"] == "application/x-ndjson"
        rows = [json.loads(line) for line in exported.text.splitlines()]
        assert rows == [one.to_json() for one in registry.list().items]
        for row in rows:
            client.delete(f"{PATH}/{row['id']}", headers={"If-Match": "*"})
        assert client.get(f"{PATH}:export").content == b""
        assert send(client, exported.content).json()["rows"] == 2
        assert client.get(f"{PATH}:export", params={"revision": 2}).content == exported.content

    def test_an_export_of_many_is_whole(self, client):
        send(client, lines(*({"id": f"s{n:05}", "selector": f"a = {n}"} for n in range(2_000))))
        rows = client.get(f"{PATH}:export").text.splitlines()
        assert [json.loads(row)["id"] for row in rows] == [f"s{n:05}" for n in range(2_000)]
