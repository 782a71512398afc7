"""Reports of streams over HTTP, and the verdict on all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from selectroute.registry import reports
from selectroute.service.subscriptions.streams import LAG_SECONDS, SILENT_SECONDS
from tests.unit.service.conftest import problem, service

COUNTS = {"messages": 10, "routed": 7, "unrouted": 2, "dead_lettered": 1, "deliveries": 30}
PATH = "/v1/queries/stream/reports"


def batch(number, **others):
    ended = f"2026-11-25T03:04:{number:02}.5Z"
    return {"batch": number, "revision": 1, "ended": ended, **COUNTS, "dead_lettered": 0, **others}


def report(client, *batches, **state):
    answer = client.post(PATH, json={"batches": list(batches), "state": state})
    assert answer.status_code == 204, answer.text


def test_what_is_reported_is_read_page_by_page_the_newest_first(client):
    report(client, batch(0), batch(1, seconds={"match": 0.25}, reasons={"no JSON": 1}), behind=5)
    report(client, batch(2, kind="stream"), waiting={"queue": 0})
    found = client.get(PATH, params={"limit": 2}).json()
    assert [one["batch"] for one in found["batches"]] == [2, 1]
    assert found["batches"][1]["seconds"] == {"match": 0.25} and found["batches"][1]["sent"] == 0
    found = client.get(PATH, params={"cursor": found["next_cursor"]}).json()
    assert [one["batch"] for one in found["batches"]] == [0] and found["next_cursor"] is None
    (stream,) = client.get("/v1/streams").json()["items"]
    assert (stream["query"], stream["newest"]["batch"]) == ("stream", 2)
    assert stream["state"] == {"name": None, "waiting": {"queue": 0}, "behind": None}
    assert stream["name"] == "stream", "its query"
    assert client.get("/v1/queries/nothing/reports").json() == {"batches": [], "next_cursor": None}


@pytest.mark.parametrize(
    "wrong",
    [
        {"batches": [batch(0, messages=-1)]},
        {"batches": [batch(0, ended="yesterday")]},
        {"batches": [batch(0, seconds={"match": float("1e300")})]},
        {"batches": [batch(0, reasons={"x" * 100: 1})]},
        {"batches": [batch(0, other=1)]},
        {"batches": [batch(0, busiest={"a": -1})]},
        {"batches": [batch(0, busiest={"a b": 1})]},
        {"batches": [batch(0, busiest={str(number): 1 for number in range(101)})]},
        {"batches": [batch(0, ended="2026-02-30T00:00:00Z")]},
        {"batches": [batch(0, ended="0001-01-01T00:00:00Z")]},
        {"batches": [batch(0)] * 1_001},
        {"state": {"waiting": {"queue": "many"}}},
    ],
)
def test_a_wrong_report_is_refused_whole(client, wrong):
    problem(client.post(PATH, json=wrong), 422, "invalid-body")
    assert client.get("/v1/streams").json() == {"items": []}


def test_streams_are_seen_and_reported_with_tokens_for_all_topics(registry):
    registry.add_token("admin")
    secrets = {
        "reader": registry.add_token("reader")[1],
        "writer": registry.add_token("writer")[1],
        "limited": registry.add_token("writer", topics=["cars/#"])[1],
    }
    for name, secret in secrets.items():
        with service(registry, headers={"Authorization": f"Bearer {secret}"}) as client:
            may_see, may_report = name != "limited", name == "writer"
            for path in (PATH, "/v1/streams", "/v1/health"):
                assert client.get(path).status_code == (200 if may_see else 403), (name, path)
            assert client.post(PATH, json={}).status_code == (204 if may_report else 403), name


class TestHealth:
    def health(self, client):
        return client.get("/v1/health").json()

    def test_all_is_well(self, client, add):
        add("a = 1")
        client.post("/v1/messages:match", json={"message": {}})  # waits until it is published
        assert self.health(client)["verdict"] == "All is well: 0 streams, revision 1 is published."
        report(client, batch(0))
        found = self.health(client)
        assert found["status"] == "ok" and found["verdict"].startswith("All is well: 1 stream, revision 1")
        assert [one["ok"] for one in found["evidence"]] == [True] * 3

    def test_each_fault_is_named(self, client, add, monkeypatch):
        add("a = 1")
        client.post("/v1/messages:match", json={"message": {}})
        report(client, batch(0, dead_lettered=2, refused=1), waiting={"queue": 2, "kafka": 0})
        found = self.health(client)
        wrong = [one["text"] for one in found["evidence"] if not one["ok"]]
        assert found["status"] == "attention" and found["verdict"] == "; ".join(wrong) + "."
        assert wrong == [
            "2 destinations of the kind queue make the stream stream wait",
            "3 dead letters came of the newest 1 batch of stream",
        ]
        later = datetime.now(UTC) + timedelta(seconds=SILENT_SECONDS + 200)

        class Later(datetime):
            @classmethod
            def now(cls, tz=None):
                return later

        monkeypatch.setattr("selectroute.service.subscriptions.streams.datetime", Later)
        wrong = [one["text"] for one in self.health(client)["evidence"] if not one["ok"]]
        assert wrong[0] == "the stream stream was heard of 4 minutes ago"

    def test_a_revision_that_is_not_published_is_named(self, registry, tmp_path):
        (tmp_path / "file").write_text("")
        with service(registry, snapshots=str(tmp_path / "file")) as client:
            client.post("/v1/subscriptions", json={})
            found = self.health(client)
            assert found["status"] == "attention"
            assert "published" in found["verdict"]
        assert LAG_SECONDS > 0


def test_reports_beyond_the_newest_thousand_are_removed(client, monkeypatch):
    monkeypatch.setattr(reports, "KEPT", 3)
    report(client, *(batch(number) for number in range(6)))
    assert [one["batch"] for one in client.get(PATH).json()["batches"]] == [5, 4, 3]
