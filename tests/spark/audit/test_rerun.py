import json
import shutil

import pyarrow as pa
import pytest

from selectroute.spark.audit.rerun import Reruns
from selectroute.spark.batch.commits import Commits
from selectroute.spark.job import DELTA, JobError
from selectroute.storage import Location
from tests.spark.published import republished
from tests.spark.queue_world import A, numbered
from tests.spark.storages import ON_EVERY_STORAGE, ON_HDFS_TOO

RED, BLUE = {"properties": {"color": "red"}}, {"properties": {"color": "blue"}}


def own(world):
    """Make the folder a job's, whose record a world of Parquet has not."""
    record = Location.of(world.output / "_job.json")
    if not record.exists():
        record.put_json({})


def contents(folder):
    """What is in a folder, with what changes when it is written again."""
    return {one: one.modified for one in Location.of(folder).entries(deep=True)}


def deliveries_in(commits):
    found = (rows for batch in (0, 1) for rows in commits.tables.rows("deliveries", batch))
    return sorted(str(row) for rows in found for row in rows.to_pylist())


@pytest.fixture
def routed(world):
    """Two batches of a job, the second with a later revision."""
    world.publish(1, red="color = 'red'", all="color IS NOT NULL")
    router = world.router()
    router.route(0, [world.drop_json("a.jsonl", RED, "no json", {}), world.drop_json("b.jsonl", BLUE)], "q")
    world.publish(2, blue="color = 'blue'")
    router.route(1, [world.drop_json("c.jsonl", RED, BLUE)], "q")
    own(world)
    return world


def reruns(world, tasks=2, into="again", **options):
    job = world.job(**options)
    return Reruns(job, world.source(job, tasks), world.root / into)


def verdicts(found):
    return [(one.batch, one.revision, one.verdict) for one in found]


@ON_HDFS_TOO
def test_batches_are_routed_again_at_their_revisions_and_give_the_same_files(routed):
    before = contents(routed.output)
    again = reruns(routed)
    assert verdicts(again.run()) == [(0, 1, "same files"), (1, 2, "same files")]
    assert contents(routed.output) == before
    assert deliveries_in(again._router.commits) == deliveries_in(Commits(routed.output)) != []
    lines = Location.of(routed.root / "again" / "accounting.jsonl").read().decode().splitlines()
    assert [json.loads(line)["batch"] for line in lines] == [0, 1]


@ON_EVERY_STORAGE
def test_batches_can_be_chosen_and_the_run_be_stopped_between_them(routed):
    assert verdicts(reruns(routed).run(1)) == [(1, 2, "same files")]
    assert verdicts(reruns(routed, into="other").run(0, 0)) == [(0, 1, "same files")]
    assert verdicts(reruns(routed, into="none").run(should_stop=lambda: True)) == []
    with pytest.raises(JobError, match=r"no batch of .* from 2 on"):
        reruns(routed, into="more").run(2)


@ON_EVERY_STORAGE
def test_another_number_of_tasks_gives_the_same_rows_in_other_files(routed):
    assert verdicts(reruns(routed, tasks=1).run()) == [(0, 1, "same rows"), (1, 2, "same files")]


def replaced(table, name, value):
    place = table.column_names.index(name)
    return table.set_column(place, table.schema.field(name), pa.array([value] * len(table), table[name].type))


def first_gone(table):
    return table.slice(1)


def first_twice(table):
    return pa.concat_tables([table, table.slice(0, 1)])


def other_revision(table):
    return replaced(table, "revision", 9)


@pytest.mark.parametrize(
    ("sink", "change", "why"),
    [
        ("deliveries", first_gone, "deliveries: 1 row was not published, the first a.jsonl/0/0/"),
        ("deliveries", other_revision, "deliveries: rows have other values"),
        ("deliveries", first_twice, "deliveries: rows have other values"),
        ("unrouted", first_gone, "unrouted: 1 row was not published, the first a.jsonl/0/2"),
        ("dead-letters", first_gone, "dead-letters: 1 row was not published, the first a.jsonl/0/1"),
    ],
)
@ON_EVERY_STORAGE
def test_what_was_published_and_does_not_come_out_again_is_named(routed, sink, change, why):
    republished(routed, sink, change)
    one, other = reruns(routed).run()
    if change is first_gone and routed.table_format == DELTA:
        # As after a delete of a reader's, which is not compared.
        assert (one.verdict, other.verdict) == ("gone", "same files")
        return
    assert (one.verdict, other.verdict) == ("other rows", "same files")
    assert why in one.why and not one.held and other.held


@ON_EVERY_STORAGE
def test_what_comes_out_and_was_published_otherwise_is_named(routed):
    republished(routed, "unrouted", lambda table: replaced(table, "offset", 7))
    (one,) = reruns(routed).run(0, 0)
    assert one.why == (
        "unrouted: 1 row is missing, the first a.jsonl/0/7 and 1 row was not published, the first a.jsonl/0/2"
    )


def test_what_is_not_there_any_more_is_said(routed):
    (routed.input / "c.jsonl").write_text("another")
    republished(routed, "unrouted", lambda table: table)
    shutil.rmtree(routed.output / "unrouted" / "batch=0")
    first, second = reruns(routed).run()
    assert (first.verdict, second.verdict) == ("gone", "gone")
    assert "unrouted/batch=0/" in first.why and "c.jsonl" in second.why
    shutil.rmtree(routed.snapshots)
    routed.publish(2, blue="color = 'blue'")
    (first,) = reruns(routed, into="other").run(0, 0)
    assert first.verdict == "gone" and "revision 1" in first.why


@ON_HDFS_TOO
def test_deliveries_that_a_queue_did_not_take_are_made_again(sqlite, world):
    sqlite.create("A", max_message_length=100)
    sqlite.publish(1, small=("n >= 0", A), files=("n = 1", None))
    long = {"properties": {"n": 2}, "body": "x" * 200}
    router = sqlite.router(queues=sqlite.url)
    report = router.route(0, [world.drop_json("a.jsonl", *numbered(2), long)], "q")
    assert (report.counts.refused, report.counts.unrouted, report.counts.queued) == (1, 1, 2)
    own(world)
    assert verdicts(reruns(world, queues=sqlite.url).run()) == [(0, 1, "same rows")]
    assert len(sqlite.get_all("A")) == 2
    republished(world, "dead-letters", lambda table: replaced(table, "offset", 1))
    (one,) = reruns(world, into="other", queues=sqlite.url).run()
    assert one.verdict == "other rows"


def test_files_of_parquet_are_not_made_in_remote_storage(routed):
    with pytest.raises(JobError, match="in remote storage, where outcomes are Delta tables"):
        Reruns(routed.job(), routed.source(routed.job(), 1), "s3://bucket/again")


@ON_EVERY_STORAGE
@pytest.mark.parametrize("into", ["out/again", "in put é%20/again", "snapshots/again"])
def test_folders_of_the_job_are_refused(routed, into):
    with pytest.raises(JobError, match=r"is in the (output|input|snapshots) folder"):
        reruns(routed, into=into)
    assert not Location.of(routed.root / into).is_folder()


@ON_EVERY_STORAGE
def test_a_folder_that_holds_something_and_an_output_that_is_no_jobs_are_refused(routed):
    Location.of(routed.root / "again").make_folder()
    Location.of(routed.root / "again" / "file").put(b"")
    with pytest.raises(JobError, match="is not an empty folder"):
        reruns(routed)
    Location.of(routed.output / "_job.json").delete()
    with pytest.raises(JobError, match="is not the output folder of a job"):
        reruns(routed, into="other")


def test_batches_of_delta_tables_are_routed_again_as_such(delta):
    delta.publish(1, red="color = 'red'", all="color IS NOT NULL")
    router = delta.router(compact_every=2)
    for batch in range(3):
        router.route(batch, [delta.drop_json(f"{batch}.jsonl", RED, BLUE, {}, "no json")], "q")
    again = reruns(delta)
    assert verdicts(again.run()) == [(batch, 1, "same files") for batch in range(3)]
    assert (delta.root / "again" / "deliveries" / "_delta_log").is_dir()
    # With files that were merged, digests are compared, or rows.
    router.commits.tables.maintain(lambda: False)
    delta.drop_json("3.jsonl", *([RED] * 5))
    router.route(3, [delta.input / "3.jsonl", delta.input / "0.jsonl"], "q")
    router.commits.tables.maintain(lambda: False)
    expected = [(batch, 1, "same files") for batch in range(3)] + [(3, 1, "same rows")]
    assert verdicts(reruns(delta, tasks=1, into="merged").run()) == expected
