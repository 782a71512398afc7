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
    assert client.get("/console/jobs/flights/dead-letters?skip=").status_code == 200
    older = client.get("/console/jobs/flights/dead-letters?reason=not-json&skip=25").text
    assert older.count("<article") == 5 and "Older" not in older
    only = re.findall(r'href="(/console/jobs/flights/replay\?[^"]+)">Replay this one', older)[0]
    preview = client.get(only.replace("&amp;", "&")).text
    assert "Replay 1 dead letter<" in preview and "its bytes are not valid JSON" in preview
    path, query = only.replace("&amp;", "&").split("?")
    fields = dict(one.split("=") for one in query.split("&"))
    changed = client.post(path, data={**fields, "expected": "7"}, headers=OWN)
    assert changed.status_code == 409 and "1 dead letter can be replayed now, and not 7" in changed.text
    sent = client.post(path, data={**fields, "expected": "1"}, headers=OWN)
    assert sent.status_code == 200 and "It waits for the job" in sent.text
    replays = Replays(world.router(), print)
    assert len(list(iter(lambda: replays.next("q"), None))) == 1
    assert "It is done." in client.get(sent.url.path).text
    # One of the 30 was replayed, and is a dead letter of the replay.
    assert "30 dead letters" in client.get("/console/jobs/flights/replay").text


def test_bytes_with_markup_are_text(client):
    for path in ("jobs", "jobs/flights/dead-letters", "jobs/flights/replay", f"jobs/{MARKUP}/dead-letters"):
        page = client.get(f"/console/{path}")
        assert "<img" not in page.text
    assert "&lt;img" in client.get("/console/jobs/flights/dead-letters").text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("jobs/other/dead-letters", 404),
        ("jobs/flights/dead-letters?batch=x", 400),
        ("jobs/flights/dead-letters?skip=x", 400),
        ("jobs/flights/replay?batch=x", 422),
        ("jobs/flights/replays/other", 404),
    ],
)
def test_what_is_wrong_in_a_url_is_a_sentence(client, path, status):
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
    assert "30 = 0 routed + 0 unrouted + 30 dead letters" in answer.text
    assert client.post("/console/jobs/flights/audit").status_code == 403
    next((world.output / "dead-letters" / "batch=0").iterdir()).unlink()
    assert "Batch 0: " in client.post("/console/jobs/flights/audit", headers=OWN).text
