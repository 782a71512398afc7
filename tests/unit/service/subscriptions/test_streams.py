"""Reports of streams over HTTP, and the verdict on all of them."""

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry import reports
from selectroute.registry.model import time_text
from selectroute.registry.reports import GONE_SECONDS, SILENT_SECONDS
from selectroute.service.subscriptions.streams import BATCHES_COME_SECONDS, OUTDATED_SECONDS
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
    assert stream["state"] == {"name": None, "waiting": {"queue": 0}, "behind": None, "ended": None}
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
        {"state": {"ended": "well"}},
    ],
)
def test_a_wrong_report_is_refused_whole(shared, wrong):
    problem(shared.post(PATH, json=wrong), 422, "invalid-body")
    assert shared.get("/v1/streams").json() == {"items": []}


def test_a_stream_is_removed_with_its_reports(registry, client):
    report(client, batch(0))
    assert client.delete("/v1/streams/stream").status_code == 204
    assert client.get("/v1/streams").json() == {"items": []}
    assert client.get(PATH).json()["batches"] == []
    found = problem(client.delete("/v1/streams/stream"), 404, "not-found")
    assert found["detail"] == "there is no stream 'stream'"
    registry.verify()


class TestRates:
    """The rates of a stream are of its newest batches up to now, by the registry's clock."""

    def note(self, registry, second, *batches, **state):
        with patch.object(registry.streams, "_now", lambda: at(second)):
            registry.streams.note_reports("q", batches, state)

    def rates(self, registry, second):
        with patch.object(registry.streams, "_now", lambda: at(second)):
            (one,) = registry.streams.all()
        return one.status, one.messages_per_second, one.deliveries_per_second

    def test_they_fall_while_nothing_comes_and_end_with_the_stream(self, registry):
        self.note(registry, 0, batch(0))
        assert self.rates(registry, 0) == ("running", None, None)
        self.note(registry, 10, batch(1), batch(2, kind="backfill", deliveries=10))
        assert self.rates(registry, 10) == ("running", 1.0, 4.0), "a backfill brings no messages"
        assert self.rates(registry, 40) == ("running", 0.25, 1.0)
        assert self.rates(registry, 10 + SILENT_SECONDS + 1) == ("silent", None, None)
        assert self.rates(registry, 10 + GONE_SECONDS + 1) == ("gone", None, None)
        self.note(registry, 50)
        assert self.rates(registry, 50) == ("running", 0.2, 0.8)
        for ended in ("ended", "stopped", "failed"):
            self.note(registry, 60, ended=ended)
            assert self.rates(registry, 61) == (ended, None, None)
            assert self.rates(registry, 60 + GONE_SECONDS + 1) == (ended, None, None)


def at(second):
    return datetime(2026, 11, 25, tzinfo=UTC) + timedelta(seconds=second)


class TestHealth:
    @pytest.fixture
    def later(self, monkeypatch):
        """A function that moves the clock of the registry and of the service."""

        def move(seconds):
            moved = datetime.now(UTC) + timedelta(seconds=seconds)

            class Later(datetime):
                @classmethod
                def now(cls, tz=None):
                    return moved

            for module in ("service.subscriptions.streams", "registry.reports"):
                monkeypatch.setattr(f"selectroute.{module}.datetime", Later)

        return move

    @pytest.fixture
    def published(self, client, add):
        add("a = 1")
        client.post("/v1/messages:match", json={"message": {}})  # waits until it is published

    def faults(self, client):
        return [one["text"] for one in self.health(client)["evidence"] if not one["ok"]]

    def test_a_stream_that_ends_says_so_and_is_no_fault(self, client, published, later):
        report(client, batch(0), name="flights", ended="ended")
        later(400)
        found = self.health(client)
        assert found["verdict"].startswith("All is well: 0 running streams")
        text = "the stream flights ended 6 minutes ago, after all of its input"
        assert {"ok": True, "text": text, "query": "stream", "job": None} in found["evidence"]
        report(client, ended="stopped", behind=5, waiting={"queue": 1})
        assert self.faults(client) == []
        report(client, ended="failed")
        assert self.faults(client) == ["the stream stream failed 0 seconds ago; its log says why"]
        report(client)
        assert self.faults(client) == [], "it runs again"

    def test_a_stream_that_vanished_is_a_fault_until_it_is_removed_or_for_a_week(
        self, client, published, later
    ):
        report(client, batch(0, dead_lettered=1))
        later(SILENT_SECONDS + 3_600)
        silent, dead = self.faults(client)
        assert silent == "the stream stream was heard of 61 minutes ago, and has not said that it ended"
        assert dead == "the stream stream has 1 dead letter in its newest 1 batch"
        later(GONE_SECONDS + 60)
        assert self.faults(client) == []
        gone = "the stream stream was heard of 7 days ago, and is taken for gone"
        assert gone in [one["text"] for one in self.health(client)["evidence"]]
        later(SILENT_SECONDS + 3_600)
        assert len(self.faults(client)) == 2
        client.delete("/v1/streams/stream")
        assert self.faults(client) == []

    def test_batches_with_an_old_revision_are_a_fault(self, client, registry, published, later):
        registry.register(SubscriptionSpec("b = 1"), id="later")
        client.post("/v1/messages:match", json={"message": {}})
        changed = datetime.now(UTC)

        def of(ended, heard=None, **others):
            others |= {"ended": time_text(changed + timedelta(seconds=ended))}
            now = changed + timedelta(seconds=ended if heard is None else heard)
            with patch.object(registry.streams, "_now", lambda: now):
                registry.streams.note_reports("stream", [batch(0, **others)], {})
            return [one for one in self.faults(client) if "routes with" in one]

        old = "the stream stream routes with revision 1, although revision 2 is published"
        late = OUTDATED_SECONDS + 2
        assert of(OUTDATED_SECONDS - 5) == [] and of(late) == [old]
        assert of(late, revision=2) == []
        assert of(late, seconds={"match": 30.0}) == [], "it began in time"
        assert of(late, kind="backfill") == []
        assert of(late + 10_000, heard=OUTDATED_SECONDS - 5) == [], "the clock of the stream is ahead"
        idle = late + BATCHES_COME_SECONDS
        later(idle - 5)
        assert of(late, heard=idle) == [old]
        later(idle + 5)
        assert of(late, heard=idle) == [], "the newest batch may have been before the publication"

    class Job:
        def __init__(self, left=0, is_held=True, error=None):
            self.number, self.held, self.error, self.looks = left, is_held, error, 0

        def has_run(self):
            return True

        def all_left(self):
            self.looks += 1
            if self.error is not None:
                raise self.error
            return [SimpleNamespace(letters=self.number)] if self.number else []

        def is_held(self):
            return self.held

    def test_the_dead_letters_of_a_known_job_are_those_left(self, registry):
        job = self.Job(3)
        with service(registry, jobs={"flights": job}) as client:
            client.post("/v1/messages:match", json={"message": {}})
            report(client, *(batch(number, dead_lettered=5) for number in range(2)), name="flights")
            report_of = client.get("/v1/streams").json()["items"][0]
            assert (report_of["job"], report_of["dead_letters"], report_of["batches"]) == ("flights", 3, 2)
            evidence = self.health(client)["evidence"]
            of_job = {"query": None, "job": "flights"}
            left = {"ok": False, "text": "3 dead letters of the job flights are not replayed", **of_job}
            assert [one for one in evidence if not one["ok"]] == [left]
            held = "a driver holds the output folder of the job flights"
            assert {"ok": True, "text": held, **of_job} in evidence
            for _ in range(5):
                self.health(client)
            assert job.looks == 1, "files are read now and then"
        job.number, job.held = 0, False
        with service(registry, jobs={"flights": job}) as client:
            client.post("/v1/messages:match", json={"message": {}})
            assert self.faults(client) == [], "all are replayed, although reports of batches had some"
            found = [one["text"] for one in self.health(client)["evidence"]]
            assert "the job flights is not running" in found

    def test_a_job_that_cannot_be_read_hides_no_other(self, registry):
        jobs = {"a": self.Job(error=OSError("no disk")), "b": self.Job(error=ValueError("odd"))}
        with service(registry, jobs={**jobs, "c": self.Job(1)}) as client:
            client.post("/v1/messages:match", json={"message": {}})
            assert self.faults(client) == [
                "the dead letters of the job a are not known: no disk",
                "the dead letters of the job b are not known: the service's log says why",
                "1 dead letter of the job c is not replayed",
            ]

    def test_a_job_that_takes_long_to_count_delays_the_verdict_for_a_moment(self, registry):
        class Slow(self.Job):
            may_go = threading.Event()

            def all_left(self):
                assert self.may_go.wait(60)
                return super().all_left()

        slow = Slow(2)
        with service(registry, jobs={"flights": slow}) as client:
            client.post("/v1/messages:match", json={"message": {}})
            report(client, name="flights")
            found = [one["text"] for one in self.health(client)["evidence"]]
            assert "the dead letters of the job flights are being counted" in found
            assert client.get("/v1/streams").json()["items"][0]["dead_letters"] is None
            slow.may_go.set()
            assert self.faults(client) == ["2 dead letters of the job flights are not replayed"]

    def health(self, client):
        return client.get("/v1/health").json()

    def test_all_is_well_until_each_fault_is_named(self, client, published):
        assert self.health(client)["verdict"] == "All is well: 0 running streams, revision 1 is published."
        report(client, batch(0), behind=12_345)
        found = self.health(client)
        assert found["status"] == "ok"
        assert found["verdict"].startswith("All is well: 1 running stream, revision 1")
        assert [one["ok"] for one in found["evidence"]] == [True] * 4
        behind = "the stream stream is 12,345 messages behind its source"
        assert behind in [one["text"] for one in found["evidence"]]
        report(client, batch(1, dead_lettered=2, refused=1), waiting={"queue": 2, "kafka": 0})
        found = self.health(client)
        wrong = self.faults(client)
        assert found["status"] == "attention" and found["verdict"] == "; ".join(wrong) + "."
        assert wrong == [
            "2 destinations of the kind queue make the stream stream wait",
            "the stream stream has 3 dead letters in its newest 2 batches",
        ]

    def test_a_revision_that_is_not_published_is_named(self, registry, tmp_path):
        (tmp_path / "file").write_text("")
        with service(registry, snapshots=str(tmp_path / "file")) as client:
            client.post("/v1/subscriptions", json={})
            found = self.health(client)
            assert found["status"] == "attention" and "published" in found["verdict"]


def test_reports_beyond_the_newest_thousand_are_removed(client, monkeypatch):
    monkeypatch.setattr(reports, "KEPT", 3)
    report(client, *(batch(number) for number in range(6)))
    assert [one["batch"] for one in client.get(PATH).json()["batches"]] == [5, 4, 3]
