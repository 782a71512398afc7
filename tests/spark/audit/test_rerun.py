from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from selectroute.spark.audit.rerun import Reruns
from selectroute.spark.job.job import JobError
from selectroute.testing.world import files_of
from tests.spark.published import republished
from tests.spark.queue_world import A, numbered

RED, BLUE = {"properties": {"color": "red"}}, {"properties": {"color": "blue"}}


@pytest.fixture
def routed(world):
    """Two batches of a job, the second with a later revision."""
    world.publish(1, red="color = 'red'", all="color IS NOT NULL")
    router = world.router()
    router.route(0, [world.drop_json("a.jsonl", RED, "no json", {}), world.drop_json("b.jsonl", BLUE)], "q")
    world.publish(2, blue="color = 'blue'")
    router.route(1, [world.drop_json("c.jsonl", RED, BLUE)], "q")
    (world.output / "_job.json").write_text("{}")
    return world


def reruns(world, tasks=2, into="again", **options):
    job = world.job(**options)
    return Reruns(job, files_of(job, tasks), world.root / into)


def verdicts(found):
    return [(one.batch, one.revision, one.verdict) for one in found]


def test_batches_are_routed_again_at_their_revisions_and_give_the_same_files(routed):
    before = {path: path.stat().st_mtime_ns for path in routed.output.rglob("*")}
    found = reruns(routed).run()
    assert verdicts(found) == [(0, 1, "same files"), (1, 2, "same files")]
    assert {path: path.stat().st_mtime_ns for path in routed.output.rglob("*")} == before
    again = pq.read_table(routed.root / "again" / "deliveries").to_pylist()
    assert sorted(map(str, again)) == sorted(map(str, routed.rows("deliveries")))


def test_batches_can_be_chosen_and_the_run_be_stopped_between_them(routed):
    assert verdicts(reruns(routed).run(1)) == [(1, 2, "same files")]
    assert verdicts(reruns(routed, into="other").run(0, 0)) == [(0, 1, "same files")]
    assert verdicts(reruns(routed, into="none").run(should_stop=lambda: True)) == []
    with pytest.raises(JobError, match=r"no batch of .* from 2 on"):
        reruns(routed, into="more").run(2)


def test_another_number_of_tasks_gives_the_same_rows_in_other_files(routed):
    assert verdicts(reruns(routed, tasks=1).run()) == [(0, 1, "same rows"), (1, 2, "same files")]


def first_gone(table):
    return table.slice(1)


def first_twice(table):
    return pa.concat_tables([table, table.slice(0, 1)])


def other_revision(table):
    return table.set_column(table.column_names.index("revision"), "revision", [[9] * len(table)])


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
def test_what_was_published_and_does_not_come_out_again_is_named(routed, sink, change, why):
    republished(routed, sink, change)
    one, other = reruns(routed).run()
    assert (one.verdict, other.verdict) == ("other rows", "same files")
    assert why in one.why and not one.held and other.held


def test_what_comes_out_and_was_published_otherwise_is_named(routed):
    republished(routed, "unrouted", lambda table: table.set_column(3, "offset", [[7]]))
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


def test_deliveries_that_a_queue_did_not_take_are_made_again(sqlite, world):
    sqlite.create("A", max_message_length=100)
    sqlite.publish(1, small=("n >= 0", A), files=("n = 1", None))
    long = {"properties": {"n": 2}, "body": "x" * 200}
    router = sqlite.router(queues=sqlite.url)
    report = router.route(0, [world.drop_json("a.jsonl", *numbered(2), long)], "q")
    assert (report.counts.refused, report.counts.unrouted, report.counts.queued) == (1, 1, 2)
    (world.output / "_job.json").write_text("{}")
    assert verdicts(reruns(world, queues=sqlite.url).run()) == [(0, 1, "same rows")]
    assert len(sqlite.get_all("A")) == 2
    republished(world, "dead-letters", lambda table: table.set_column(5, "offset", [[1]]))
    (one,) = reruns(world, into="other", queues=sqlite.url).run()
    assert one.verdict == "other rows"


@pytest.mark.parametrize("into", ["out/again", "in put é%20/again", "snapshots/again"])
def test_folders_of_the_job_are_refused(routed, into):
    with pytest.raises(JobError, match=r"is in the (output|input|snapshots) folder"):
        reruns(routed, into=into)
    assert not (routed.root / into).exists()


def test_a_folder_that_holds_something_and_an_output_that_is_no_jobs_are_refused(routed):
    (routed.root / "again").mkdir()
    (routed.root / "again" / "file").touch()
    with pytest.raises(JobError, match="is not an empty folder"):
        reruns(routed)
    (routed.output / "_job.json").unlink()
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
