"""Whose output folder is it? Whatever does not fit is one sentence, and nothing is touched."""

import json
import math
import threading

import pytest

import selectroute as sr
from selectroute.durable import disk
from selectroute.durable.lock import FileLock
from selectroute.kafka.binding import KafkaBinding
from selectroute.spark import Job, JobError, check
from selectroute.spark.folder import OutputFolder
from selectroute.spark.job import OtherJobError
from selectroute.spark.job_administration import JobFolder
from selectroute.spark.sources.checkpoint import SourceError
from selectroute.storage import Location
from selectroute.storage.lease import is_owned


@pytest.fixture
def ready(world):
    world.publish(1, red="color = 'red'")
    return world


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def made_checkpoint(world, query):
    folder = world.job().checkpoint.path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))


def claimed(world):
    folder = OutputFolder(world.job())
    folder.claim()
    made_checkpoint(world, "query-1")
    folder.bind()
    folder.release()


def refused(world, match, **options):
    before = contents(world.root)
    with pytest.raises(JobError, match=match) as error:
        OutputFolder(world.job(**options)).claim()
    assert "\n" not in str(error.value)
    assert contents(world.root) == before


def test_the_same_job_may_start_again(ready):
    claimed(ready)
    again = OutputFolder(ready.job())
    again.claim()
    assert again.bind() == "query-1"
    again.release()


def test_the_binding_of_records_is_noted_and_may_change_at_a_later_start(ready):
    seen = JobFolder(ready.output)
    claimed(ready)
    assert seen.binding() is None, "not of Kafka"
    folder = OutputFolder(ready.job())
    for texts in (["a:long=$.a"], ["b"]):
        folder.claim()
        noted = KafkaBinding.of(texts).to_dict() | {"schemas": False}
        folder.note_binding(noted)
        folder.release()
        assert seen.binding() == noted and folder.query() == "query-1"


def test_an_output_that_is_of_another_job_or_format_or_no_jobs_is_refused(ready):
    ready.output.write_text("mine")
    refused(ready, "is not a directory")
    ready.output.unlink()
    ready.output.mkdir()
    (ready.output / "thesis.tex").write_text("mine")
    refused(ready, "not empty and not a job.s .*thesis.tex")
    (ready.output / "thesis.tex").unlink()
    claimed(ready)
    record = Location.of(ready.output / "_job.json")
    good = record.read_json()
    for name in ("input", "snapshots"):
        record.put_json(good | {name: "/elsewhere"})
        refused(ready, f"belongs to another job: its {name} is /elsewhere")
    record.put_json(good | {"format": 99})
    refused(ready, "format 99")
    with pytest.raises(JobError, match="is in the input folder"):
        Job.of(ready.input, ready.snapshots, ready.input / "out")


def test_a_folder_whose_job_never_came_to_a_batch_may_be_another_jobs(ready):
    wrong = OutputFolder(Job.of(ready.input, ready.root / "mistyped", ready.output))
    wrong.claim()
    wrong.release()
    again = OutputFolder(ready.job())
    again.claim()
    made_checkpoint(ready, "query-1")
    assert again.bind() == "query-1"
    again.release()
    with pytest.raises(OtherJobError, match="its snapshots is"):
        wrong.claim()


def test_a_lost_checkpoint_and_another_one_are_refused(ready):
    claimed(ready)
    metadata = ready.job().checkpoint.path / "metadata"
    metadata.unlink()
    refused(ready, "checkpoint .* is gone: .* restore it")
    metadata.write_text(json.dumps({"id": "query-2"}))
    refused(ready, "is not that of the output folder")


def test_a_used_checkpoint_with_a_new_output_folder_is_refused(ready):
    job = Job.of(ready.input, ready.snapshots, ready.output, ready.root / "checkpoint")
    job.checkpoint.path.mkdir()
    (job.checkpoint.path / "commits").mkdir()
    (job.checkpoint.path / "commits" / "0").write_text("v1\n{}")
    with pytest.raises(JobError, match=r"has run batches, but the output folder .* is new"):
        OutputFolder(job).claim()


@pytest.mark.parametrize("own", [None, "checkpoint"])
def test_two_jobs_on_one_checkpoint_are_refused_also_before_its_first_batch(ready, own):
    at = None if own is None else ready.root / own
    running = OutputFolder(Job.of(ready.input, ready.snapshots, ready.output, at))
    running.claim()
    other = Job.of(ready.input, ready.snapshots, ready.root / "other", running.job.checkpoint)
    before = contents(ready.root)
    with pytest.raises(OtherJobError, match=r"another process runs a job on the checkpoint"):
        OutputFolder(other).claim()
    assert contents(ready.root) == before
    running.release()
    (running.job.checkpoint.path / "offsets").mkdir()
    (running.job.checkpoint.path / "offsets" / "0").write_text("v1")
    with pytest.raises(OtherJobError, match="has run batches, but the output folder"):
        OutputFolder(other).claim()


def test_who_looks_whether_a_job_runs_keeps_none_from_starting(ready):
    claimed(ready)
    assert not is_owned(Location.of(ready.output))
    look = FileLock(ready.output / "_lock", shared=True)  # as `is_owned` does, for an instant
    threading.Timer(0.2, look.close).start()
    running = OutputFolder(ready.job())
    running.claim()
    assert is_owned(Location.of(ready.output))
    running.release()


def test_a_crash_at_any_step_of_a_claim_leaves_a_folder_that_can_be_claimed(ready, monkeypatch):
    def killed(path, _):
        path.with_name(f".{path.name}.tmp").write_text("{")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            half = OutputFolder(ready.job())
            half.claim()
        half.release()
    OutputFolder(ready.job()).claim()
    made_checkpoint(ready, "query-1")  # Spark has begun, and no batch has
    OutputFolder(ready.job()).check()


def test_a_folder_on_which_a_job_runs_is_refused(ready):
    running = OutputFolder(ready.job())
    running.claim()
    refused(ready, "another process runs a job")
    running.release()
    OutputFolder(ready.job()).claim()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"file_format": "xml"}, "auto, parquet, json"),
        ({"unrouted": "burn"}, "keep, drop, fail"),
        ({"max_files": 0}, "max_files must be from 1 to 2,147,483,647, not 0"),
        ({"destination_wait": math.nan}, "destination_wait must be from 0 to inf, not nan"),
        ({"sample_messages": 201}, "must be from 0 to 200"),
        ({"name": ""}, "1 to 128 printable"),
        ({"name": "a\tb"}, "1 to 128 printable"),
    ],
)
def test_options_out_of_range_are_refused(ready, options, match):
    with pytest.raises(JobError, match=match):
        ready.job(**options)


def test_check_wants_input_and_snapshot(world):
    with pytest.raises(sr.SnapshotError, match="no snapshot is published"):
        check(world.job())
    world.publish(1)
    check(world.job())
    world.input.rmdir()
    with pytest.raises(SourceError, match="does not exist"):
        check(world.job())
    assert not world.output.exists()


def test_a_stream_is_named_after_its_output_folder_unless_it_is_given_a_name(tmp_path):
    folders = tmp_path / "in", tmp_path / "s"
    assert Job.of(*folders, tmp_path / "flights").name == "flights"
    assert Job.of(*folders, tmp_path / "a\nb").name == "ab"
    assert Job.of(*folders, tmp_path / ("x" * 200)).name == "x" * 128
    assert Job.of(*folders, "s3://bucket", table_format="delta").name == "stream"
    assert Job.of(*folders, tmp_path / "out", name="flights of the day").name == "flights of the day"
