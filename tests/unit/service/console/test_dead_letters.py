"""The console's screens of dead letters, without a browser."""

import re

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from selectroute.spark.replay.replay import Replays
from tests.unit.service.console.conftest import console_of, sent, shown


@pytest.fixture
def client(world, jobs, registry):
    with console_of(registry, snapshots=world.snapshots, jobs=jobs) as client:
        yield client


def test_from_the_list_of_jobs_to_a_replay_that_is_done(client, world):
    jobs = shown(client, "jobs")
    assert "30 dead letters not replayed" in jobs and "not-json" in jobs
    listed = shown(client, "jobs/flights/dead-letters?reason=not-json")
    assert listed.count("<article") == 25 and "Older dead letters" in listed
    assert client.get("/console/jobs/flights/dead-letters?cursor=").status_code == 200
    (link,) = re.findall(r'href="(\?[^"]+)">Older dead letters', listed)
    older = shown(client, f"jobs/flights/dead-letters{link.replace('&amp;', '&')}")
    assert older.count("<article") == 5 and "Older" not in older
    assert "not-json: 0.jsonl, partition 0, offset 29" in older
    only = re.findall(r'href="(/console/jobs/flights/replay\?[^"]+)">Replay this one', older)[0]
    only = only.replace("&amp;", "&")
    preview = client.get(only).text
    assert "Replay 1 dead letter<" in preview and "its bytes are not valid JSON" in preview
    assert "not-json: 0.jsonl, partition 0, offset " in preview
    fields = dict(one.split("=") for one in only.partition("?")[2].split("&"))
    for expected, status, sentence in (
        ("9" * 5_000, 422, "how many dead letters"),
        ("all", 422, "how many dead letters"),
        ("7", 409, "1 dead letter can be replayed now, and not 7"),
    ):
        answer = sent(client, "jobs/flights/replay", {**fields, "expected": expected})
        assert answer.status_code == status and sentence in answer.text
    asked = sent(client, "jobs/flights/replay", {**fields, "expected": "1"})
    assert asked.status_code == 200 and "It waits for the job" in asked.text
    assert "It asks for 1 dead letter." in asked.text
    progress = f"{asked.url.path}/progress"
    followed = client.get(progress).json()
    assert followed["follow"] and followed["rows"] == [] and followed["sentence"] in asked.text
    assert f'data-follow="{progress}"' in asked.text
    others = shown(client, "jobs/flights/replay")
    assert "1 dead letter is not counted here" in others and "Replay 29 dead letters" in others
    again = client.get(only).text
    assert "No other dead letters are left to replay" in again and "<button class" not in again
    replays = Replays(world.router(), print)
    assert len(list(iter(lambda: replays.next("q"), None))) == 1
    done = client.get(asked.url.path).text
    assert "It is done. 1 of 1 dead letter taken: 1 message, of which 0 routed" in done
    followed = client.get(progress).json()
    assert not followed["follow"] and [row[0] for row in followed["rows"]] == ["-1"]
    assert "data-follow" not in done and followed["rows"][0][2] == "1"
    # One of the 30 was replayed, and is a dead letter of the replay.
    assert "30 dead letters" in shown(client, "jobs/flights/replay")
    left = shown(client, "jobs/flights/dead-letters")
    assert left.index("Batch -1, ") < left.index("Batch 0, "), "what failed again is the newest"
    of_batch = shown(client, "jobs/flights/dead-letters?batch=0&offset=25")
    assert "There are no dead letters left to replay that this filter finds." in of_batch
    every = shown(client, "jobs/flights/dead-letters?batch=0&offset=25&all=1")
    assert every.count("<article") == 1 and "Replay this one" not in every
    assert "The replay in batch -1 took it." in every
    assert 'a href="/console/jobs/flights/dead-letters?batch=-1&amp;all=1"' in every


def test_what_is_cut_is_told_and_can_be_saved(client, world):
    text = "é" * 9_999 + "<" * 10_000
    other = b"\xff" * 300
    router = world.router(max_message_bytes=100_000)
    router.route(1, [world.drop_bytes("1.jsonl", text.encode() + b"\n" + other + b"\n")], "q")
    page = shown(client, "jobs/flights/dead-letters?batch=1")
    assert "Cut: the first 19,999 of 29,998 bytes." in page and page.count("Cut:") == 1
    assert "The first 256 of 300 bytes, in hexadecimal digits" in page
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="([^"]+/bytes\?[^"]+)"', page)]
    assert {client.get(link).content for link in links} == {text.encode(), other}
    world.router(max_message_bytes=100).route(2, [world.drop_bytes("2.jsonl", text.encode() + b"\n")], "q")
    assert "It was too large: only its first" in shown(client, "jobs/flights/dead-letters?batch=2")


def test_lines_that_a_table_leaves_out_are_told(client, monkeypatch):
    assert "there are more" not in shown(client, "jobs")
    monkeypatch.setattr("selectroute.service.jobs.calls._BATCHES", 0)
    assert "30 dead letters not replayed" in shown(client, "jobs")


def test_what_is_wrong_in_a_url_is_a_sentence(client):
    for path, status in (
        ("jobs/other/dead-letters", 404),
        ("jobs/flights/dead-letters?batch=x", 400),
        ("jobs/flights/dead-letters?batch=5.0", 400),
        ("jobs/flights/dead-letters?offset=1_0", 400),
        ("jobs/flights/dead-letters?cursor=x", 400),
        ("jobs/flights/dead-letters/bytes?batch=x", 400),
        ("jobs/flights/replay?offset=5.0", 422),
        ("jobs/flights/replays/other/progress", 404),
        ("jobs/flights/replay?batch=x", 422),
        ("jobs/flights/replays/other", 404),
    ):
        answer = client.get(f"/console/{path}")
        assert answer.status_code == status and "<h1>" in answer.text


def test_without_jobs_the_page_says_how_to_name_one(registry):
    with console_of(registry) as client:
        assert "selectroute serve --job NAME=OUTPUT" in shown(client, "jobs")


def test_a_job_that_has_not_run_yet_is_a_sentence(client, world):
    world.output.rename(world.root / "gone")
    answer = client.get("/console/jobs")
    assert answer.status_code == 200
    assert "The output folder of the job can&#39;t be read: there is no folder" in answer.text


def test_an_audit_is_shown_with_what_it_finds(client, world):
    answer = sent(client, "jobs/flights/audit", {})
    assert answer.status_code == 200 and "Everything adds up." in answer.text
    assert "The messages of the batches add up: " in answer.text and "Nothing is half done." in answer.text
    assert "30 = 0 routed + 0 unrouted + 30 dead letters" in answer.text
    next((world.output / "dead-letters" / "batch=0").iterdir()).unlink()
    assert "Batch 0: " in sent(client, "jobs/flights/audit", {}).text
