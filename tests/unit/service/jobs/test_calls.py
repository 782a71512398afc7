"""Dead letters of a real job over HTTP: looked at, previewed, replayed by the job, once."""

from __future__ import annotations

import base64
import json

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from selectroute.registry.model import SubscriptionSpec
from selectroute.registry.publisher import RegistryPublisher
from selectroute.spark.serving.job_folder import JobFolder
from selectroute.spark.job.output_folder import OutputFolder
from selectroute.spark.replay.replay import Replays
from selectroute.testing.world import World
from tests.unit.service.conftest import problem, service

RED = {"properties": {"color": "red"}}
LONG = {"properties": {"color": "red", "text": "x" * 300}}
PATH = "/v1/jobs/flights"


@pytest.fixture
def world(tmp_path, registry):
    """A job with five dead letters in two batches, four of them too long or not UTF-8."""
    registry.register(SubscriptionSpec("color = 'red'"), id="red")
    made = World(tmp_path / "job")
    with RegistryPublisher(registry, made.snapshots) as published:
        published.catch_up()
    folder = OutputFolder(made.job())
    folder.claim()
    folder.release()
    router = made.router(max_message_bytes=100)
    router.route(0, [made.drop_json("0.jsonl", RED, LONG, "{<b>", LONG)], "q")
    router.route(
        1, [made.drop_bytes("1.jsonl", b'{"a": "\xff\xfe"}\n' + json.dumps(LONG).encode() + b"\n")], "q"
    )
    return made


@pytest.fixture
def client(world, registry):
    with service(registry, snapshots=world.snapshots, jobs={"flights": JobFolder(world.output)}) as client:
        yield client


def carried_out(world):
    """Do what the job does at its next start."""
    replays = Replays(world.router(), print)
    return list(iter(lambda: replays.next("q"), None))


def test_jobs_are_listed_with_what_is_left(client):
    (job,) = client.get("/v1/jobs").json()["items"]
    assert (job["name"], job["left"], job["waiting"]) == ("flights", 5, [])
    assert {(one["batch"], one["reason"]): one["letters"] for one in job["by_batch"]} == {
        (0, "too-large"): 2,
        (0, "not-json"): 1,
        (1, "not-utf-8"): 1,
        (1, "too-large"): 1,
    }


def test_dead_letters_are_read_page_by_page_the_newest_batch_first(client):
    found = client.get(f"{PATH}/dead-letters", params={"limit": 3}).json()
    assert [(one["batch"], one["offset"]) for one in found["items"]] == [(1, 0), (1, 1), (0, 1)]
    assert found["more"]
    rest = client.get(f"{PATH}/dead-letters", params={"limit": 3, "skip": 3}).json()
    assert [(one["batch"], one["offset"]) for one in rest["items"]] == [(0, 2), (0, 3)] and not rest["more"]
    by_reason = client.get(f"{PATH}/dead-letters", params={"reason": ["not-json", "not-utf-8"]}).json()[
        "items"
    ]
    raw, text = by_reason
    assert base64.b64decode(raw["raw_base64"]) == b'{"a": "\xff\xfe"}' and raw["raw"] is None
    assert (text["raw"], text["bytes"], text["stage"]) == ("{<b>", 4, "parse") and text["message"]
    one = client.get(f"{PATH}/dead-letters", params={"batch": 0, "source": "0.jsonl", "offset": 3}).json()
    assert [letter["offset"] for letter in one["items"]] == [3]


def test_a_preview_says_who_gets_them_now(client):
    found = client.post(f"{PATH}/dead-letters:preview", json={}).json()
    assert found["letters"] == 5 and found["reasons"][0] == {
        "stage": "read",
        "reason": "too-large",
        "letters": 3,
    }
    said = {
        (one["batch"], one["offset"]): (one["total"], one["ids"], one["why_not"]) for one in found["examples"]
    }
    assert said[0, 1][2] == "only the beginning of its bytes is kept, and a replay reads all of them"
    assert said[0, 2] == (None, [], "its bytes are not valid JSON")
    assert said[1, 0] == (None, [], "its bytes are not valid JSON")
    assert client.post(f"{PATH}/dead-letters:preview", json={"reasons": ["unknown-queue"]}).json() == {
        "letters": 0,
        "reasons": [],
        "examples": [],
    }


def test_who_gets_a_letter_whose_bytes_are_a_message(client, world, registry):
    class Whole:
        def left(self, wanted):
            return JobFolder(world.output).left(wanted)

        def letters(self, wanted, skip, limit, left_only):
            found = JobFolder(world.output).letters(wanted, skip, limit)
            raws = [json.dumps(RED).encode(), b'{"properties": {"a": [1]}}', None, b'{"a": NaN}', b"{}"]
            whole = [{**one, "raw": raw, "reason": "not-json"} for one, raw in zip(found, raws, strict=True)]
            whole[4]["headers"] = ()
            return whole

    client.app.state.service.jobs["whole"] = Whole()
    found = client.post("/v1/jobs/whole/dead-letters:preview", json={}).json()["examples"]
    assert (found[0]["total"], found[0]["ids"], found[0]["why_not"]) == (1, ["red"], None)
    assert "properties" in found[1]["why_not"]
    assert found[2]["why_not"] == "its bytes are still in the source"
    assert found[3]["why_not"] == "its bytes are not valid JSON"
    assert found[4]["why_not"] == "it is a Kafka record, and the job binds its fields"


def test_a_folder_that_is_gone_is_a_sentence(client, world):
    said = "the output folder of the job can't be read: "
    world.output.rename(world.root / "gone")
    assert problem(client.get(f"{PATH}/dead-letters"), 503, "unavailable")["detail"].startswith(said)
    client.app.state.service.jobs["another"] = JobFolder(world.root / "gone")
    gone, another = client.get("/v1/jobs").json()["items"]
    assert gone["problem"].startswith(said) and (gone["left"], gone["by_batch"]) == (0, [])
    assert (another["problem"], another["left"]) == (None, 5), "one job does not hide the others"


def test_a_job_that_has_not_run_yet_is_shown_when_it_has(registry, tmp_path):
    made = World(tmp_path / "later")
    with service(registry, jobs={"later": JobFolder(made.output)}) as client:
        assert "there is no folder" in client.get("/v1/jobs").json()["items"][0]["problem"]
        folder = OutputFolder(made.job())
        folder.claim()
        folder.release()
        assert client.get("/v1/jobs").json()["items"][0]["problem"] is None


def test_one_dead_letter_is_replayed_and_never_again(client, world):
    only = {"batches": [0], "sources": ["0.jsonl"], "partitions": [0], "offsets": [3]}
    answer = client.post(f"{PATH}/replays", json={**only, "expected": 1})
    assert answer.status_code == 202 and answer.json()["letters"] == 1
    twice = client.post(f"{PATH}/replays", json={**only, "expected": 1}).json()["request"]
    request = answer.json()["request"]
    waits = {"request": request, "done": False, "batches": []}
    assert client.get(f"{PATH}/replays/{request}").json() == waits
    assert client.get("/v1/jobs").json()["items"][0]["waiting"] == [request, twice]
    (report,) = carried_out(world)
    assert (report.counts.messages, report.counts.routed) == (1, 1)
    done = client.get(f"{PATH}/replays/{request}").json()
    (batch,) = done["batches"]
    assert done["done"] and (batch["batch"], batch["letters"], batch["deliveries"]) == (-1, 1, 1)
    assert client.get(f"{PATH}/replays/{twice}").json() == {"request": twice, "done": True, "batches": []}
    assert world.deliveries()["0.jsonl", 3, "red", 1] == 1 and world.deliveries().total() == 2
    problem(client.post(f"{PATH}/replays", json={**only, "expected": 1}), 409, "letters-changed")
    assert client.get("/v1/jobs").json()["items"][0]["left"] == 4
    left = client.post(f"{PATH}/dead-letters:preview", json={}).json()["examples"]
    assert sorted((one["batch"], one["offset"]) for one in left) == [(0, 1), (0, 2), (1, 0), (1, 1)]


def test_a_number_that_has_changed_requests_nothing(client, world):
    found = problem(client.post(f"{PATH}/replays", json={"expected": 4}), 409, "letters-changed")
    assert found["detail"] == "5 dead letters can be replayed now, and not 4"
    assert client.get("/v1/jobs").json()["items"][0]["waiting"] == []
    assert carried_out(world) == []


@pytest.mark.parametrize(
    "body", [{}, {"expected": 0}, {"expected": 1, "batch": [1]}, {"expected": 1, "offsets": ["1"]}]
)
def test_a_wrong_request_is_refused(client, body):
    problem(client.post(f"{PATH}/replays", json=body), 422, "invalid-body")


def test_unknown_jobs_and_requests_are_not_there(client):
    problem(client.get("/v1/jobs/other/dead-letters"), 404, "job-not-found")
    problem(client.get(f"{PATH}/replays/20260101T000000000000-00000000"), 404, "not-found")
    problem(client.get(f"{PATH}/replays/other"), 404, "not-found")
    assert client.get(f"{PATH}/replays/..%2F_job").status_code in (404, 422)


def test_an_audit_says_whether_the_accounts_balance(client, world):
    found = client.post(f"{PATH}/audits").json()
    assert (found["batches"], found["messages"], found["dead_lettered"]) == (2, 6, 5)
    assert [one["sentence"] for one in found["findings"] if "no plan of it" not in one["sentence"]] == []
    assert (found["pending"], found["more"]) == ([], False)
    before = len(found["findings"])  # this job has no checkpoint of Spark
    next((world.output / "dead-letters" / "batch=1").iterdir()).write_bytes(b"torn")
    found = client.post(f"{PATH}/audits").json()
    assert len(found["findings"]) > before and {one["batch"] for one in found["findings"]} == {1}
    problem(client.post("/v1/jobs/other/audits"), 404, "job-not-found")
