"""Dead letters of a real job over HTTP: looked at, previewed, replayed by the job, once."""

import base64
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from selectroute.index.specification import SubscriptionSpec
from selectroute.job_output import DeadLetter
from selectroute.kafka.binding import KafkaBinding
from selectroute.registry.publisher import RegistryPublisher
from selectroute.service.jobs import calls
from selectroute.spark import job_administration
from selectroute.spark.folder import OutputFolder
from selectroute.spark.job_administration import JobFolder
from selectroute.spark.replay.letters import counts_left
from selectroute.spark.replay.replay import Replays
from selectroute.spark.replay.request import ReplayFilterSpec
from tests.support.replays import make_request
from tests.support.world import World
from tests.unit.service.conftest import Job, problem, service

RED = {"properties": {"color": "red"}}
LONG = {"properties": {"color": "red", "text": "x" * 300}}
PATH = "/v1/jobs/flights"


def run_once(world):
    folder = OutputFolder(world.job())
    folder.claim()
    folder.release()


@pytest.fixture
def world(tmp_path, registry):
    """A job with five dead letters in two batches, four of them too long or not UTF-8."""
    registry.register(SubscriptionSpec("color = 'red'"), id="red")
    made = World(tmp_path / "job")
    with RegistryPublisher(registry, made.snapshots) as published:
        published.catch_up()
    run_once(made)
    router = made.router(max_message_bytes=100)
    router.route(0, [made.drop_json("0.jsonl", RED, LONG, "{<b>", LONG)], "q")
    router.close()
    lines = b'{"a": "\xff\xfe"}\n' + json.dumps(LONG).encode() + b"\n"
    router.route(1, [made.drop_bytes("1.jsonl", lines)], "q")
    return made


@pytest.fixture
def client(world, registry):
    with service(registry, snapshots=world.snapshots, jobs={"flights": JobFolder(world.output)}) as client:
        yield client


def bound_to(source):
    return KafkaBinding.of([f"a:long={source}"]).to_dict()


def places(found):
    return [(one["batch"], one["offset"]) for one in found["items"]]


def carried_out(router):
    """Do what the job does at its next start."""
    replays = Replays(router, print)
    return list(iter(lambda: replays.next("q"), None))


def test_jobs_are_listed_with_what_is_left(client):
    (job,) = client.get("/v1/jobs").json()["items"]
    assert (job["name"], job["left"], job["waiting"]) == ("flights", 5, [])
    by_batch = {(one["batch"], one["reason"]): one["letters"] for one in job["by_batch"]}
    letters = {(0, "too-large"): 2, (0, "not-json"): 1, (1, "not-utf-8"): 1, (1, "too-large"): 1}
    assert by_batch == letters


def test_dead_letters_are_read_page_by_page_the_newest_batch_first(client):
    found = client.get(f"{PATH}/dead-letters", params={"limit": 3}).json()
    assert places(found) == [(1, 0), (1, 1), (0, 1)] and found["more"]
    rest = client.get(f"{PATH}/dead-letters", params={"limit": 3, "cursor": found["next_cursor"]}).json()
    assert places(rest) == [(0, 2), (0, 3)] and not rest["more"]
    found = client.get(f"{PATH}/dead-letters", params={"reason": ["not-json", "not-utf-8"]}).json()
    raw, text = found["items"]
    assert base64.b64decode(raw["raw_base64"]) == b'{"a": "\xff\xfe"}' and raw["raw"] is None
    assert (text["raw"], text["bytes"], text["stage"]) == ("{<b>", 4, "parse") and text["message"]
    one = client.get(f"{PATH}/dead-letters", params={"batch": 0, "source": "0.jsonl", "offset": 3}).json()
    assert [letter["offset"] for letter in one["items"]] == [3]


def test_a_preview_says_who_gets_them_now(client):
    found = client.post(f"{PATH}/dead-letters:preview", json={}).json()
    assert found["letters"] == 5
    assert found["reasons"][0] == {"stage": "read", "reason": "too-large", "letters": 3}
    said = {(one["batch"], one["offset"]): one for one in found["examples"]}
    assert said[0, 1]["why_not"] == "only the beginning of its bytes is kept, and a replay reads all of them"
    for letter in ((0, 2), (1, 0)):
        assert (said[letter]["total"], said[letter]["ids"]) == (None, [])
        assert said[letter]["why_not"].startswith("its bytes are not valid ")
    none = client.post(f"{PATH}/dead-letters:preview", json={"reasons": ["unknown-queue"]}).json()
    assert none == {"letters": 0, "waiting": 0, "reasons": [], "examples": []}


def test_who_gets_a_letter_whose_bytes_are_a_message(client, world, registry):
    class Whole:
        bound = None

        def left(self, wanted):
            return JobFolder(world.output).left(wanted)

        def binding(self):
            return self.bound

        def letters(self, wanted, limit, **_):
            found = JobFolder(world.output).letters(wanted, limit)
            raws = [json.dumps(RED).encode(), b'{"properties": {"a": [1]}}', None, b'{"a": NaN}', b"{}"]
            whole = [
                replace(one, raw=raw, reason="not-json") for (_, one), raw in zip(found, raws, strict=True)
            ]
            whole[4] = replace(whole[4], headers=(("color", b"red"),))
            return [("0.0", one) for one in whole]

    client.app.state.service.jobs["whole"] = Whole()
    found = client.post("/v1/jobs/whole/dead-letters:preview", json={}).json()["examples"]
    assert (found[0]["total"], found[0]["ids"], found[0]["why_not"]) == (1, ["red"], None)
    assert "properties" in found[1]["why_not"]
    assert found[2]["why_not"] == "its bytes are still in the source"
    assert found[3]["why_not"] == "its bytes are not valid JSON: NaN is not a number of JSON at column 7"
    assert found[4]["why_not"] == "it is a Kafka record, and the job has not recorded how it binds its fields"
    with_schema = {**bound_to("$.a"), "schemas": True}
    said = {
        "it is a Kafka record, and the job binds its fields in a way unknown here": {"later": 1},
        "the job binds the time of a record, which is not kept with a dead letter": bound_to("@timestamp"),
        "it is a Kafka record, and its body has a schema, which only the job reads": with_schema,
    }
    for why_not, Whole.bound in said.items():
        (*_, last) = client.post("/v1/jobs/whole/dead-letters:preview", json={}).json()["examples"]
        assert (last["total"], last["why_not"]) == (None, why_not)
    Whole.bound = bound_to("$.a")
    (*_, last) = client.post("/v1/jobs/whole/dead-letters:preview", json={}).json()["examples"]
    assert (last["total"], last["ids"], last["why_not"]) == (1, ["red"], None)


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
        run_once(made)
        assert client.get("/v1/jobs").json()["items"][0]["problem"] is None


def test_one_dead_letter_is_replayed_and_never_again(client, world):
    only = {"batches": [0], "sources": ["0.jsonl"], "partitions": [0], "offsets": [3]}
    answer = client.post(f"{PATH}/replays", json={**only, "expected": 1})
    assert answer.status_code == 202 and answer.json()["letters"] == 1
    twice = make_request(world.output, ReplayFilterSpec(sources=("0.jsonl",), offsets=(3,))).id
    request = answer.json()["request"]
    waits = {"request": request, "done": False, "state": "waiting", "letters": 1, "taken": 0, "batch": None}
    assert client.get(f"{PATH}/replays/{request}").json() == {**waits, "batches": []}
    assert client.get("/v1/jobs").json()["items"][0]["waiting"] == [request, twice]
    (report,) = carried_out(world.router())
    assert (report.counts.messages, report.counts.routed) == (1, 1)
    done = client.get(f"{PATH}/replays/{request}").json()
    (batch,) = done["batches"]
    assert done["done"] and (batch["batch"], batch["letters"], batch["deliveries"]) == (-1, 1, 1)
    assert (done["state"], done["letters"], done["taken"], done["batch"]) == ("done", 1, 1, None)
    none = client.get(f"{PATH}/replays/{twice}").json()
    assert (none["done"], none["batches"], none["letters"], none["taken"]) == (True, [], 1, 0)
    assert world.deliveries()["0.jsonl", 3, "red", 1] == 1 and world.deliveries().total() == 2
    problem(client.post(f"{PATH}/replays", json={**only, "expected": 1}), 409, "letters-changed")
    assert client.get("/v1/jobs").json()["items"][0]["left"] == 4
    left = client.post(f"{PATH}/dead-letters:preview", json={}).json()["examples"]
    assert sorted((one["batch"], one["offset"]) for one in left) == [(0, 1), (0, 2), (1, 0), (1, 1)]
    found = client.get(f"{PATH}/dead-letters", params={"batch": 0}).json()["items"]
    assert [(one["offset"], one["replay"]) for one in found] == [(1, None), (2, None), (3, -1)]
    left = client.get(f"{PATH}/dead-letters", params={"batch": 0, "left": True}).json()
    assert places(left) == [(0, 1), (0, 2)]


def test_what_failed_again_last_comes_first(client, world):
    for offset in (1, 2):
        make_request(world.output, ReplayFilterSpec(batches=(0,), offsets=(offset,)))
    router = world.router(max_message_bytes=100)
    assert len(carried_out(router)) == 2
    newest_first = [(-2, 2), (-1, 1), (1, 0), (1, 1), (0, 1), (0, 2), (0, 3)]
    assert places(client.get(f"{PATH}/dead-letters").json()) == newest_first
    by_batch = client.get("/v1/jobs").json()["items"][0]["by_batch"]
    assert [one["batch"] for one in by_batch] == [-2, -1, 1, 1, 0]
    examples = client.post(f"{PATH}/dead-letters:preview", json={}).json()["examples"]
    assert [one["batch"] for one in examples] == [-2, -1, 1, 1, 0]
    page = client.get(f"{PATH}/dead-letters", params={"limit": 3}).json()
    router.route(2, [world.drop_json("2.jsonl", "{", "{")], "q")
    assert places(client.get(f"{PATH}/dead-letters").json()) == [(2, 0), (2, 1), *newest_first]
    rest = client.get(f"{PATH}/dead-letters", params={"cursor": page["next_cursor"]}).json()
    assert places(page) + places(rest) == newest_first, "what came meanwhile moves no page"
    assert (rest["more"], rest["next_cursor"]) == (False, None)


def test_a_cursor_of_another_list_is_refused(client):
    for cursor in ("x", "1", "1.0.0", "١.٢"):
        found = problem(client.get(f"{PATH}/dead-letters", params={"cursor": cursor}), 400, "invalid-request")
        assert found["detail"] == "the cursor is not one of this list: begin without it"


def test_letters_that_a_waiting_request_asks_for_are_not_counted_again(client, world):
    client.post(f"{PATH}/replays", json={"reasons": ["not-json"], "expected": 1})
    found = client.post(f"{PATH}/dead-letters:preview", json={}).json()
    assert (found["letters"], found["waiting"]) == (4, 1)
    assert "not-json" not in {one["reason"] for one in [*found["reasons"], *found["examples"]]}
    problem(client.post(f"{PATH}/replays", json={"expected": 5}), 409, "letters-changed")
    assert client.get("/v1/jobs").json()["items"][0]["left"] == 5
    client.post(f"{PATH}/replays", json={"expected": 4})
    nothing = client.post(f"{PATH}/dead-letters:preview", json={}).json()
    assert nothing == {"letters": 0, "waiting": 5, "reasons": [], "examples": []}
    first, second = carried_out(world.router())
    assert [first.counts.messages, second.counts.messages] == [1, 4]


def test_a_replay_that_is_being_made_names_its_batch(client, world):
    request = client.post(f"{PATH}/replays", json={"batches": [0], "expected": 3}).json()["request"]
    replays = Replays(world.router(), print)
    path = world.output / "_requests" / f"{request}.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replays._router, "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            replays.next("q")
    found = client.get(f"{PATH}/replays/{request}").json()
    assert (found["state"], found["batch"], found["done"], found["taken"]) == ("running", -1, False, 0)
    report = replays.unfinished("q")
    assert report is not None and path.exists(), "committed, and the request is not yet marked"
    found = client.get(f"{PATH}/replays/{request}").json()
    assert (found["state"], found["taken"], found["letters"]) == ("waiting", 3, 3)
    assert [one["batch"] for one in found["batches"]] == [-1]


def test_the_bytes_of_a_letter_are_returned_as_they_are(client, world):
    one = {"batch": 1, "source": "1.jsonl", "partition": 0, "offset": 0}
    answer = client.get(f"{PATH}/dead-letters:bytes", params=one)
    assert answer.content == b'{"a": "\xff\xfe"}'
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="flights-batch1-0-0.bin"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    problem(client.get(f"{PATH}/dead-letters:bytes", params={**one, "part": "key"}), 404, "not-found")
    problem(client.get(f"{PATH}/dead-letters:bytes", params={**one, "offset": 7}), 404, "not-found")
    problem(client.get(f"{PATH}/dead-letters:bytes", params={"batch": 1}), 400, "invalid-request")


def test_key_and_headers_of_a_record_are_shown(client):
    told = dict.fromkeys(("stage", "reason", "message", "source"), "x") | {"batch": 0, "revision": 1}
    told |= {"partition": 3, "offset": 7, "subscription": None}
    headers = [("a", b"x" * 2_000), ("b", None), *((str(n), b"\xff") for n in range(200))]
    letter = DeadLetter(**told, raw=None, key=b"\xff\x00", headers=headers)
    client.app.state.service.jobs["records"] = Job(1, letter)
    (one,) = client.get("/v1/jobs/records/dead-letters").json()["items"]
    assert (one["key"], one["key_base64"], one["key_bytes"]) == (None, "/wA=", 2)
    assert (len(one["headers"]), one["header_count"]) == (100, 202)
    assert one["headers"][0] == {"name": "a", "value": "x" * 1_000, "value_base64": None, "bytes": 2_000}
    assert one["headers"][1] == {"name": "b", "value": None, "value_base64": None, "bytes": None}
    assert one["headers"][2] == {"name": "0", "value": None, "value_base64": "/w==", "bytes": 1}
    place = {"batch": 0, "source": "x", "partition": 3, "offset": 7, "part": "key"}
    answer = client.get("/v1/jobs/records/dead-letters:bytes", params=place)
    assert answer.content == b"\xff\x00" and "batch0-3-7-key.bin" in answer.headers["Content-Disposition"]


def test_a_batch_is_counted_once_and_again_after_a_replay_of_it(client, world, monkeypatch):
    counted = []

    def counts(output, batch, *others):
        counted.append(batch)
        return counts_left(output, batch, *others)

    def left():
        return client.get("/v1/jobs").json()["items"][0]["left"]

    monkeypatch.setattr(job_administration, "counts_left", counts)
    assert [left(), left()] == [5, 5] and counted == [1, 0]
    client.post(f"{PATH}/replays", json={"batches": [0], "offsets": [3], "expected": 1})
    carried_out(world.router())
    assert [left(), left()] == [4, 4] and counted == [1, 0, 0]
    monkeypatch.setattr(job_administration, "MOST_COUNTED", 2)
    world.router(max_message_bytes=100).route(2, [world.drop_json("2.jsonl", "{")], "q")
    assert [left(), left()] == [5, 5] and counted == [1, 0, 0, 2, 2], "more are not remembered"
    (world.output / "dead-letters" / "batch=1").rename(world.root / "moved")
    assert left() == 3


def test_lines_that_are_left_out_are_told(client, monkeypatch):
    assert client.get("/v1/jobs").json()["items"][0]["more"] is False
    monkeypatch.setattr(calls, "_BATCHES", 2)
    (job,) = client.get("/v1/jobs").json()["items"]
    assert (len(job["by_batch"]), job["more"], job["left"]) == (2, True, 5)


def test_a_file_as_a_whole_is_replayed_alone(client, world):
    world.router().route(2, [world.drop_bytes("2.log", b"{"), world.drop_bytes("3.log", b"{")], "q")
    only = {"batches": [2], "sources": ["2.log"], "partitions": [0], "reasons": ["unknown-format"]}
    found = client.post(f"{PATH}/dead-letters:preview", json=only).json()
    assert found["letters"] == 1 and found["examples"][0]["offset"] is None
    client.post(f"{PATH}/replays", json={**only, "expected": 1})
    carried_out(world.router())
    (left,) = client.get(f"{PATH}/dead-letters", params={"batch": 2, "left": True}).json()["items"]
    assert left["source"] == "3.log"


def test_numbers_that_no_partition_has_find_nothing(client):
    many = {"partitions": [2**40, -(2**63)], "offsets": [2**63 - 1]}
    assert client.post(f"{PATH}/dead-letters:preview", json=many).json()["letters"] == 0
    assert client.get(f"{PATH}/dead-letters", params={"partition": 2**40}).json()["items"] == []
    problem(client.get(f"{PATH}/dead-letters", params={"offset": 2**63}), 400, "invalid-request")


def test_audits_do_not_hold_up_other_calls(client):
    begun, go_on = threading.Semaphore(0), threading.Event()

    class Large:
        def audit(self):
            begun.release()
            assert go_on.wait(30)
            return audits.audit()

    audits = client.app.state.service.jobs["flights"]
    client.app.state.service.jobs["large"] = Large()
    with ThreadPoolExecutor(50) as people:
        waiting = [people.submit(client.post, "/v1/jobs/large/audits") for _ in range(50)]
        try:
            assert begun.acquire(timeout=30)
            for path in ("/v1/subscriptions", f"{PATH}/dead-letters", "/v1/subscriptions:export"):
                assert client.get(path).status_code == 200, path
        finally:
            go_on.set()
        assert {one.result().status_code for one in waiting} == {200}


def test_a_wrong_request_or_number_is_refused(client, world):
    found = problem(client.post(f"{PATH}/replays", json={"expected": 4}), 409, "letters-changed")
    assert found["detail"] == "5 dead letters can be replayed now, and not 4"
    assert client.get("/v1/jobs").json()["items"][0]["waiting"] == []
    assert carried_out(world.router()) == []
    for body in ({}, {"expected": 0}, {"expected": 1, "batch": [1]}, {"expected": 1, "offsets": ["1"]}):
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
