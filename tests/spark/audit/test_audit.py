"""An audit finds whatever does not add up, and nothing where everything does."""

import json
import os
import shutil

import pytest

from selectroute.spark.audit.audit import audit
from selectroute.spark.folder import OutputFolder
from selectroute.spark.job import JobError
from selectroute.spark.job_administration import status
from selectroute.storage import Location
from tests.support.world import note_plan

RED = {"properties": {"color": "red"}}
BLUE = {"properties": {"color": "blue"}}
BATCHES = 13
"""Enough for Spark to have compacted its list of files once."""


@pytest.fixture
def job(world):
    return made(world)


@pytest.fixture
def delta_job(delta):
    return made(delta)


def made(world):
    """A job that has routed some batches, with what Spark would have noted of them."""
    world.publish(7, red="color = 'red'", any="color IS NOT NULL")
    router = world.router()
    folder = OutputFolder(router.job)
    (world.input / "x").mkdir(parents=True)
    folder._record.put_json((folder._record.read_json() or {}) | folder._own("q"))
    for batch in range(BATCHES):
        paths = [world.drop_json(f"x/{batch}.jsonl", RED, BLUE, {}, "{")]
        if batch == 3:
            paths.append(world.drop_bytes("b.parquet", b"torn"))
        note_plan(router.job, batch, *paths)
        router.route(batch, sorted(paths), "q")
        write_log(checkpoint(world) / "commits" / str(batch), {})
    return world


def checkpoint(world):
    return world.output / "_checkpoint"


def write_log(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("v1\n" + "\n".join(json.dumps(record, separators=(",", ":")) for record in records))


def sentences(world, **options):
    return [finding.sentence for finding in audit(world.output, **options).findings]


def committed(world, batch):
    return world.output / "_commits" / f"{batch}.json"


def changed(path, change):
    content = Location.of(path).read_json()
    change(content)
    Location.of(path).put_json(content)


def test_an_untouched_job_adds_up(job):
    found = audit(job.output, recount=True)
    assert found.findings == [] and found.absent == [] and found.pending == []
    assert (found.batches, found.recounted, found.inputs) == (BATCHES, BATCHES, BATCHES + 1)
    counts = found.counts
    assert (counts.messages, counts.routed, counts.unrouted) == (4 * BATCHES + 1, 2 * BATCHES, BATCHES)
    assert counts.deliveries == 3 * BATCHES and counts.dead_lettered == BATCHES + 1
    assert found.files == 3 * BATCHES + 1  # two tasks wrote dead letters in batch 3


def test_a_published_file_that_is_gone_or_other_is_found(job):
    (path,) = (job.output / "deliveries" / "batch=2").iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:10] + bytes([data[10] ^ 1]) + data[11:])
    assert len(sentences(job)) == 1
    assert sentences(job, digests=False) == [], "a turned bit is found by its digest only"
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "SHA-256" in sentences(job)[0] or "rows" in sentences(job)[0]
    path.write_bytes(data + b"x")
    assert f"has {len(data) + 1:,} bytes" in sentences(job)[0]
    path.rename(path.with_name("other.parquet"))
    gone, stray = sentences(job)
    assert gone.endswith("is gone") and stray.endswith("is in no commit")


def test_folders_that_readers_have_moved_are_no_finding(job):
    shutil.rmtree(job.output / "deliveries" / "batch=2")
    found = audit(job.output)
    assert (found.findings, found.absent) == ([], ["deliveries/batch=2"])


def test_counts_that_do_not_add_up_and_a_commit_that_is_damaged_or_missing_are_found(job):
    changed(committed(job, 1), lambda commit: commit["counts"].update(messages=99))
    assert sentences(job)[0] == "it read 99 messages but accounts for 4"
    changed(committed(job, 1), lambda commit: commit["counts"].update(messages=4, deliveries=5))
    assert any("counts 5 deliveries, but its files have 3 rows" in one for one in sentences(job))
    path = committed(job, 4)
    path.write_bytes(path.read_bytes().replace(b'"messages": 4', b'"messages": 5'))
    assert any("is damaged" in one for one in sentences(job))
    path.unlink()
    found = sentences(job)
    assert any("no commit of batch 4" in one for one in found)
    assert any("in no commit: input x/4.jsonl" in one for one in found)


def test_an_input_in_two_batches_and_one_that_nobody_handed_over_are_found(job):
    sizes = Location.of(committed(job, 5)).read_json()["inputs"]["sizes"]
    changed(committed(job, 6), lambda commit: commit["inputs"].update(sizes=sizes))
    changed(committed(job, 7), lambda commit: commit["inputs"]["sizes"].update({"made-up.jsonl": 1}))
    found = sentences(job)
    assert any("in more than one commit: input x/5.jsonl" in one for one in found)
    assert any("in no commit: input x/6.jsonl" in one for one in found)
    assert any("not planned: input made-up.jsonl" in one for one in found)


def test_inputs_that_changed_in_place_are_found_when_they_are_counted_again(job):
    path = job.input / "x" / "7.jsonl"
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"\n", b" ", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sentences(job) == []
    assert sentences(job, recount=True) == ["its inputs have 3 messages, but it counts 4"]


def test_a_batch_that_spark_has_done_and_nobody_has_committed_is_found(job):
    note_plan(job.job(), BATCHES)
    found = audit(job.output)
    assert (found.findings, found.pending) == ([], [BATCHES])
    write_log(checkpoint(job) / "commits" / str(BATCHES), {})
    assert [finding.batch for finding in audit(job.output).findings] == [BATCHES]


def test_a_checkpoint_that_is_gone_or_older_is_found(job):
    (checkpoint(job) / "offsets" / str(BATCHES - 1)).unlink()
    assert any("is older than this output" in one for one in sentences(job))
    shutil.rmtree(checkpoint(job))
    assert len(sentences(job)) == 1


def test_accounting_that_says_otherwise_is_found(job):
    path = job.output / "accounting.jsonl"
    path.write_text(path.read_text().replace('"routed": 2', '"routed": 3', 1))
    assert any("differs from the commits of batch 0" in one for one in sentences(job))
    path.unlink()
    assert any("can't be read" in one for one in sentences(job))


def test_what_is_no_job_is_refused(tmp_path):
    for function in (audit, status):
        with pytest.raises(JobError, match=r"no _job\.json"):
            function(tmp_path)


def test_status_says_how_far_a_job_is(job):
    found = status(job.output)
    assert (found.query, found.running, found.batches, found.batch) == ("q", False, BATCHES, BATCHES - 1)
    assert (found.revision, found.published, found.planned) == (7, 7, ())
    assert found.counts.messages == 4 * BATCHES + 1
    job.publish(9, red="color = 'red'")
    note_plan(job.job(), BATCHES)
    folder = OutputFolder(job.job())
    folder._own_folder(Location.of(job.output), "output folder")
    found = status(job.output)
    folder.release()
    assert (found.running, found.published, found.planned) == (True, 9, (BATCHES,))
    assert not status(job.output).running


def test_delta_tables_add_up_with_their_commits_until_a_file_is_gone_or_other(delta_job):
    found = audit(delta_job.output)
    assert (found.findings, found.files) == ([], 3 * BATCHES + 1)
    (path,) = (delta_job.output / "deliveries").glob("part-2-*.parquet")
    data = path.read_bytes()
    path.write_bytes(data[:10] + bytes([data[10] ^ 1]) + data[11:])
    other = f"deliveries/{path.name} was changed: its SHA-256 is not that of its commit"
    assert sentences(delta_job) == [other]
    assert sentences(delta_job, digests=False) == []
    path.rename(path.with_name("other.parquet"))
    assert sentences(delta_job) == [f"deliveries/{path.name} is gone"]


def test_after_files_were_merged_the_rows_of_each_batch_are_counted(delta_job):
    tables = delta_job.router(compact_every=4).commits.tables
    tables.maintain(lambda: False)
    assert list((delta_job.output / "deliveries").glob("merged-1-*.parquet"))
    found = audit(delta_job.output)
    assert (found.findings, found.files) == ([], 0)


def test_rows_that_a_delta_table_has_lost_has_twice_or_of_no_commit_are_found(delta_job):
    from deltalake import DeltaTable, write_deltalake

    path = str(delta_job.output / "deliveries")
    table = DeltaTable(path)
    rows = table.to_pyarrow_table()
    table.delete("batch = 3 AND subscription = 'red'")
    (of_batch,) = sentences(delta_job)
    assert of_batch == "the table deliveries has 2 rows of it, and its files had 3"
    write_deltalake(path, rows.slice(0, 1), mode="append")
    assert len(sentences(delta_job)) == 2
    (delta_job.output / "_commits" / f"{BATCHES - 1}.json").unlink()
    found = [one for one in sentences(delta_job) if "in no commit" in one]
    assert len(found) == 3
