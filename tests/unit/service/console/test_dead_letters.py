"""The console's screens of dead letters, without a browser."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from selectroute.spark.replay.replay import Replays
from tests.unit.service.console.conftest import MARKUP, OWN, console_of


@pytest.fixture
def client(world, jobs, registry):
    with console_of(registry, snapshots=world.snapshots, jobs=jobs) as client:
        yield client


def test_from_the_list_of_jobs_to_a_replay_that_is_done(client, world):
    jobs = client.get("/console/jobs").text
    assert "30 dead letters not replayed" in jobs and "not-json" in jobs
    listed = client.get("/console/jobs/flights/dead-letters?reason=not-json").text
    assert listed.count("<article") == 25 and "Older dead letters" in listed
    assert client.get("/console/jobs/flights/dead-letters?cursor=").status_code == 200
    (link,) = re.findall(r'href="(\?[^"]+)">Older dead letters', listed)
    older = client.get(f"/console/jobs/flights/dead-letters{link.replace('&amp;', '&')}").text
    assert older.count("<article") == 5 and "Older" not in older
    assert "not-json: 0.jsonl, partition 0, offset 29" in older
    only = re.findall(r'href="(/console/jobs/flights/replay\?[^"]+)">Replay this one', older)[0]
    preview = client.get(only.replace("&amp;", "&")).text
    assert "Replay 1 dead letter<" in preview and "its bytes are not valid JSON" in preview
    path, query = only.replace("&amp;", "&").split("?")
    fields = dict(one.split("=") for one in query.split("&"))
    endless = client.post(path, data={**fields, "expected": "9" * 5_000}, headers=OWN)
    assert endless.status_code == 422 and "how many dead letters" in endless.text
    changed = client.post(path, data={**fields, "expected": "7"}, headers=OWN)
    assert changed.status_code == 409 and "1 dead letter can be replayed now, and not 7" in changed.text
    assert "not-json: 0.jsonl, partition 0, offset " in client.get(only.replace("&amp;", "&")).text
    sent = client.post(path, data={**fields, "expected": "1"}, headers=OWN)
    assert sent.status_code == 200 and "It waits for the job" in sent.text
    assert "It asks for 1 dead letter." in sent.text
    followed = client.get(f"{sent.url.path}/progress").json()
    assert followed["follow"] and followed["rows"] == [] and followed["sentence"] in sent.text
    assert f'data-follow="{sent.url.path}/progress"' in sent.text
    asked = client.get("/console/jobs/flights/replay").text
    assert "1 dead letter is not counted here" in asked and "Replay 29 dead letters" in asked
    again = client.get(only.replace("&amp;", "&")).text
    assert "No other dead letters are left to replay" in again and "<button class" not in again
    replays = Replays(world.router(), print)
    assert len(list(iter(lambda: replays.next("q"), None))) == 1
    done = client.get(sent.url.path).text
    assert "It is done. 1 of 1 dead letter taken: 1 message, of which 0 routed" in done
    followed = client.get(f"{sent.url.path}/progress").json()
    assert not followed["follow"] and [row[0] for row in followed["rows"]] == ["-1"]
    assert "data-follow" not in done and followed["rows"][0][2] == "1"
    # One of the 30 was replayed, and is a dead letter of the replay.
    assert "30 dead letters" in client.get("/console/jobs/flights/replay").text
    left = client.get("/console/jobs/flights/dead-letters").text
    assert left.index("Batch -1, ") < left.index("Batch 0, "), "what failed again is the newest"
    of_batch = client.get("/console/jobs/flights/dead-letters?batch=0&offset=25").text
    assert "There are no dead letters left to replay that this filter finds." in of_batch
    every = client.get("/console/jobs/flights/dead-letters?batch=0&offset=25&all=1").text
    assert every.count("<article") == 1 and "Replay this one" not in every
    assert "The replay in batch -1 took it." in every
    assert 'a href="/console/jobs/flights/dead-letters?batch=-1&amp;all=1"' in every


def test_what_is_cut_is_told_and_can_be_saved(client, world):
    text = "é" * 9_999 + "<" * 10_000
    other = b"\xff" * 300
    router = world.router(max_message_bytes=100_000)
    lines = text.encode() + b"\n" + other + b"\n"
    router.route(1, [world.drop_bytes("1.jsonl", lines)], "q")
    page = client.get("/console/jobs/flights/dead-letters?batch=1").text
    assert "Cut: the first 19,999 of 29,998 bytes." in page and page.count("Cut:") == 1
    assert "The first 256 of 300 bytes, in hexadecimal digits" in page
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="([^"]+/bytes\?[^"]+)"', page)]
    saved = [client.get(link) for link in links]
    assert {one.content for one in saved} == {text.encode(), other}
    for one in saved:
        assert one.headers["Content-Disposition"].startswith("attachment; filename=")
        assert one.headers["X-Content-Type-Options"] == "nosniff"
    short = world.router(max_message_bytes=100)
    short.route(2, [world.drop_bytes("2.jsonl", text.encode() + b"\n")], "q")
    assert "It was too large: only its first" in client.get("/console/jobs/flights/dead-letters?batch=2").text


def test_lines_that_a_table_leaves_out_are_told(client, monkeypatch):
    assert "there are more" not in client.get("/console/jobs").text
    monkeypatch.setattr("selectroute.service.jobs.calls._BATCHES", 0)
    assert "30 dead letters not replayed" in client.get("/console/jobs").text


def test_bytes_with_markup_are_text(client):
    for path in ("jobs", "jobs/flights/dead-letters", "jobs/flights/replay", f"jobs/{MARKUP}/dead-letters"):
        page = client.get(f"/console/{path}")
        assert "<img" not in page.text
    assert "&lt;img" in client.get("/console/jobs/flights/dead-letters").text


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


def test_a_replay_is_taken_from_the_console_alone(client, jobs):
    for headers in ({}, {"Sec-Fetch-Site": "cross-site"}):
        answer = client.post("/console/jobs/flights/replay", data={"expected": "30"}, headers=headers)
        assert answer.status_code == 403
    assert (
        client.post("/console/jobs/flights/replay", data={"expected": "all"}, headers=OWN).status_code == 422
    )
    assert jobs["flights"].waiting() == []


def test_without_jobs_the_page_says_how_to_name_one(registry):
    with console_of(registry) as client:
        assert "selectroute serve --job NAME=OUTPUT" in client.get("/console/jobs").text


def test_a_job_that_has_not_run_yet_is_a_sentence(client, world):
    world.output.rename(world.root / "gone")
    answer = client.get("/console/jobs")
    assert answer.status_code == 200
    assert "The output folder of the job can&#39;t be read: there is no folder" in answer.text


def test_an_audit_is_shown_with_what_it_finds(client, world):
    answer = client.post("/console/jobs/flights/audit", headers=OWN)
    assert answer.status_code == 200 and "Everything adds up." in answer.text
    assert "The messages of the batches add up: " in answer.text and "Nothing is half done." in answer.text
    assert "30 = 0 routed + 0 unrouted + 30 dead letters" in answer.text
    assert client.post("/console/jobs/flights/audit").status_code == 403
    next((world.output / "dead-letters" / "batch=0").iterdir()).unlink()
    assert "Batch 0: " in client.post("/console/jobs/flights/audit", headers=OWN).text
