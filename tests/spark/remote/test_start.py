"""A start in an object store that fails: nothing of it goes on, and the next one need not wait."""

import json
import os
import subprocess
import sys
import threading

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

import selectroute as sr
from selectroute.spark import JobError
from selectroute.spark.folder import OutputFolder
from selectroute.spark.sources.files.source import FileSource
from selectroute.spark.stream.fan_out import FanOut
from selectroute.storage import Location
from selectroute.storage.lease import LEASE
from tests.spark.queue_world import A, Queues, numbered
from tests.spark.store_job import RED, drop, job_of, publish, run
from tests.support.components import after_first
from tests.support.servers.faulty_proxy import faulty_proxy
from tests.support.servers.s3 import BUCKET, SECRET, environment, store_at

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FOLDERS = {"input": "in", "snapshots": "snapshots", "output": "out"}


def failing(*_, **__):
    raise JobError("it fails here")


@pytest.mark.parametrize(
    "owner, name", after_first(pytest.mark.nightly, (OutputFolder, "query"), (FileSource, "stream"))
)
def test_a_start_that_fails_leaves_nothing_behind_and_the_next_one_waits_for_nobody(
    spark, world, tmp_path, monkeypatch, owner, name
):
    queues = Queues(world, f"sqlite:///{tmp_path}/queues.db")
    queues.create("A")
    queues.publish(1, a=("", A))
    world.drop_json("0.jsonl", *numbered(2))
    job, warnings, reports = world.job(queues=queues.url), [], []
    real = getattr(owner, name)
    # A query is there already when its id is asked for the last time.
    fan = FanOut(spark, job, on_warning=warnings.append)
    monkeypatch.setattr(
        owner, name, lambda *given: failing() if name == "stream" or fan.query is not None else real(*given)
    )
    before = {*threading.enumerate()}
    with pytest.raises(JobError, match="it fails here"):
        fan.start()
    monkeypatch.setattr(owner, name, real)
    assert fan.query is None or not fan.query.isActive
    left = [one.name for one in {*threading.enumerate()} - before if one.name.startswith("selectroute-")]
    assert not {"selectroute-lease", "selectroute-upkeep", "selectroute-registry"} & {*left}, left
    assert json.loads((world.output / LEASE).read())["released"]
    again = FanOut(spark, job, reports.append, on_warning=warnings.append)
    again.start(available_now=True)
    again.wait()
    assert sum(one.counts.queued for one in reports) in (0, 2)  # what was routed before it failed is kept
    assert sum(queues.ids("A").values()) == 2 and warnings == []


def test_the_folder_is_released_even_if_something_else_can_not_be_closed(spark, world, tmp_path, monkeypatch):
    queues = Queues(world, f"sqlite:///{tmp_path}/queues.db")
    queues.create("A")
    queues.publish(1, a=("", A))
    fan = FanOut(spark, world.job(queues=queues.url))
    monkeypatch.setattr(fan._queues, "close", failing)
    fan.start(available_now=True)
    with pytest.raises(JobError, match="it fails here"):
        fan.wait()
    assert json.loads((world.output / LEASE).read())["released"]


@pytest.mark.parametrize(
    ("url", "given", "code", "sentence"),
    after_first(
        pytest.mark.nightly,
        (f"s3://{BUCKET}/in", False, 1, f"s3://{BUCKET}/in can't be read: no credentials were found"),
        ("s3://nothing-here/in", True, 3, "s3://nothing-here/in can't be read: the bucket does not exist"),
        ("ftp://host/in", True, 2, "ftp://host/in: the scheme 'ftp' is not known"),
        ("s3://KEY:geheim@bucket/in", True, 2, "s3://…: a URL must not have credentials"),
    ),
)
def test_the_command_says_in_one_sentence_what_can_not_be_used(s3, tmp_path, url, given, code, sentence):
    sr.publish(sr.build_snapshot([("all", "")]), tmp_path / "snapshots")
    environ = {**os.environ, **environment(s3)}
    if not given:
        del environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"]
    folders = ["--input", url, "--snapshots", tmp_path / "snapshots", "--output", tmp_path / "out"]
    command = [sys.executable, "-m", "selectroute", "stream", "run", *folders, "--available-now"]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
    assert ran.stderr.startswith(f"selectroute: {sentence}") and ran.stderr.count("\n") == 1
    assert "geheim" not in ran.stderr and SECRET not in ran.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("held", "code", "sentence"),
    [
        ("no-writes", 1, "can't be written: the credentials do not allow it"),
        ("skew", 1, "the clock of this machine is wrong, and the storage rejects its requests"),
        ("ok", 4, "deliveries is of the job "),
    ],
)
def test_the_command_leaves_what_is_there_as_it_is(spark, s3, tmp_path, held, code, sentence):
    store, switch = store_at(s3), tmp_path / "switch"
    switch.write_text(held)
    with store.client():
        base = Location.of(f"{store.root}/{tmp_path.name}")
        publish(base, red="color = 'red'")
        drop(base, "a.jsonl", RED)
        run(spark, store, job_of(base))
        drop(base, "b.jsonl", RED)
        if held == "ok":  # the store is well, and the tables are another job's
            record = base / "out" / "_job.json"
            record.put_json(record.read_json() | {"id": "another"})
        before = {one.key: base.storage.read(one.key) for one in base.entries(deep=True)}
        folders = [f"--{name}={base / place}" for name, place in FOLDERS.items()]
        with faulty_proxy(store.endpoint, tmp_path / "log", switch=switch) as proxy:
            command = [sys.executable, "-m", "selectroute", "stream", "run", *folders, "--available-now"]
            environ = {**os.environ, **store.behind(proxy).environment}
            ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
        assert ran.stderr.startswith("selectroute: ") and ran.stderr.count("\n") == 1
        assert sentence in ran.stderr
        assert {one.key: base.storage.read(one.key) for one in base.entries(deep=True)} == before
