"""A stream that follows a snapshot folder: each micro-batch by one revision, the newest when it began."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

import selectroute as sr
from selectroute.index.errors import SnapshotError
from selectroute.index.retention import collect
from selectroute.spark import BindingError, OutputError, deliveries, route
from selectroute.spark.frames.route import current, pinned
from selectroute.storage import Location
from tests.support.components import after_first

SCHEMA = "n int, color string, price double, placed timestamp"


@pytest.fixture
def folder(tmp_path):
    sr.publish(sr.build_snapshot([("red", "color = 'red'")]), tmp_path / "snapshots")
    return tmp_path / "snapshots"


def change(folder, *changes):
    sr.publish(sr.Snapshot.open(folder).changed(changes), folder)


class Stream:
    """Files that arrive, and a query that runs until it has read them all; each run is a new start."""

    def __init__(self, spark, tmp_path, made):
        self.spark, self.tmp_path, self.made = spark, tmp_path, made
        self.rows, self.number = [], 0

    def run(self, *rows):
        if rows:
            frame = self.spark.createDataFrame(rows, SCHEMA).coalesce(1)
            frame.write.mode("append").parquet(str(self.tmp_path / "in"))
        stream = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        query = (
            self.made(stream.parquet(str(self.tmp_path / "in")))
            .writeStream.foreachBatch(
                lambda df, number: self.rows.extend((number, *row) for row in df.collect())
            )
            .option("checkpointLocation", str(self.tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return str(query.id)


ONE = (1, "red", 1.0, None)


@pytest.mark.spark
def test_a_subscription_that_is_published_between_two_batches_gets_the_second(spark, tmp_path, folder):
    stream = Stream(spark, tmp_path, lambda df: route(df, str(folder)).select("n", "subscriptions"))
    stream.run(ONE)
    # It reads a column that nobody read when the stream was planned.
    change(folder, sr.Add("cheap", "price < 5"), sr.Remove("red"))
    stream.run((2, "red", 2.0, None))
    assert [(number, n, list(ids)) for number, n, ids in stream.rows] == [(0, 1, ["red"]), (1, 2, ["cheap"])]


@pytest.mark.slow
@pytest.mark.spark
def test_a_query_that_goes_on_follows_without_a_new_start(spark, tmp_path, folder):
    (tmp_path / "in").mkdir()
    rows = []
    source = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    query = (
        deliveries(source, folder, keep=["n"])
        .writeStream.foreachBatch(
            lambda df, _: rows.extend(df.select("subscription", "revision", "n").collect())
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        for n in (1, 2, 3):
            frame = spark.createDataFrame([(n, "red", 1.0, None)], SCHEMA).coalesce(1)
            frame.write.mode("append").parquet(str(tmp_path / "in"))
            query.processAllAvailable()
            change(folder, sr.Replace("red", "color = 'red'"), sr.Add(f"s{n}", "color = 'red'"))
    finally:
        query.stop()
    wanted = {"red": (1, 2, 3), "s1": (2, 3), "s2": (3,)}
    assert sorted(map(tuple, rows)) == [(id, n, n) for id, numbers in wanted.items() for n in numbers]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("form", after_first(pytest.mark.nightly, deliveries, route))
def test_with_a_snapshot_a_stream_stays_where_it_is_and_says_so(spark, tmp_path, folder, caplog, form):
    snapshot = sr.Snapshot.open(folder)

    def made(df):
        return (
            deliveries(df, snapshot).select("subscription", "revision")
            if form is deliveries
            else route(df, snapshot, output="ids").select("subscriptions", F.lit(1))
        )

    stream = Stream(spark, tmp_path, made)
    with caplog.at_level(logging.INFO, logger="selectroute"):
        stream.run(ONE)
    (said,) = [one.message for one in caplog.records if "micro-batches" in one.message]
    assert said.startswith(f"the stream is routed with revision 1 of {folder} in all of its micro-batches")
    assert said.endswith("to follow new revisions, pass the path of the snapshot folder")
    change(folder, sr.Add("all", None), sr.Remove("red"))
    stream.run((2, "red", 2.0, None))
    one = "red" if form is deliveries else ["red"]
    assert stream.rows == [(0, one, 1), (1, one, 1)]


@pytest.mark.spark
def test_deliveries_have_the_revision_of_their_batch_also_when_it_comes_again(spark, tmp_path, folder):
    stream = Stream(spark, tmp_path, lambda df: deliveries(df, folder).select("subscription", "revision"))
    query = stream.run(ONE)
    commit = tmp_path / "checkpoint" / "commits"
    for path in commit.glob("*0*"):  # as if the job had died before Spark had written the batch down as done
        path.unlink()
    change(folder, sr.Add("all", None), sr.Remove("red"))
    stream.run()
    stream.run((2, "blue", 1.0, None))
    assert stream.rows == [(0, "red", 1), (0, "red", 1), (1, "all", 2)]
    names = sorted(path.name for path in (folder / "followers").iterdir())
    assert names == [f"{query}-0.json", f"{query}-1.json"]


@pytest.mark.slow
@pytest.mark.spark
def test_ordinals_cannot_be_had_of_a_folder_that_is_followed(spark, folder):
    stream = spark.readStream.format("rate").load().selectExpr("cast(value as string) as color")
    with pytest.raises(OutputError, match="ordinals are valid within one revision only"):
        route(stream, folder, output="array")
    with pytest.raises(BindingError, match="pass the snapshot of that revision"):
        deliveries(route(stream, sr.Snapshot.open(folder)), folder)


def test_each_micro_batch_has_one_revision_and_few_are_remembered(folder):
    first = pinned(Location.of(folder), "q", 0)
    assert first.revision == 1
    change(folder, sr.Add("all", None))
    assert pinned(Location.of(folder), "q", 0) == first
    assert (
        pinned(Location.of(folder), "q", 1).revision == pinned(Location.of(folder), "other", 7).revision == 2
    )
    for batch in range(2, 6):
        pinned(Location.of(folder), "q", batch)
    names = sorted(path.name for path in (folder / "followers").iterdir())
    assert names == ["other-7.json", "q-4.json", "q-5.json"]


def test_tasks_that_begin_together_have_one_revision_and_one_lease(folder):
    """Also while the folder gets newer revisions; without an exclusive lock they write one file at once."""
    tasks = 8
    together = threading.Barrier(tasks + 1)

    def first(query):
        together.wait()
        return pinned(Location.of(folder), query, 0).revision

    with ThreadPoolExecutor(tasks) as threads:
        for query in (f"q{number}" for number in range(20)):
            found = [threads.submit(first, query) for _ in range(tasks)]
            together.wait()
            change(folder, sr.Add(f"also-{query}", "n = 1"))
            (revision,) = {one.result() for one in found}
            leased = Location.of(folder / "leases" / f"{query}.json").read_json()
            assert leased is not None and leased["revision"] == revision


def test_a_revision_that_may_be_needed_again_is_not_collected(folder):
    first = pinned(Location.of(folder), "q", 0)
    for number in range(4):
        change(folder, sr.Add(f"s{number}", None))
    assert pinned(Location.of(folder), "q", 1).revision == 5
    collect(folder, keep=1, grace_seconds=0)
    assert sr.Snapshot.open(folder, first.revision).digest == first.digest
    pinned(Location.of(folder), "q", 2)
    collect(folder, keep=1, grace_seconds=0)
    with pytest.raises(SnapshotError):
        sr.Snapshot.open(folder, first.revision)


def test_revisions_only_go_up(folder):
    change(folder, sr.Add("all", None))
    pinned(Location.of(folder), "q", 0)
    (folder / "manifest-2.json").unlink()
    with pytest.raises(SnapshotError, match="revisions only increase"):
        pinned(Location.of(folder), "q", 1)


def test_outside_of_a_stream_nothing_is_followed(folder):
    with pytest.raises(SnapshotError, match="only the micro-batches of a stream can follow"):
        current(str(folder))


def test_a_folder_that_cannot_be_written_is_one_sentence(folder):
    (folder / "followers").write_text("in the way")
    with pytest.raises(SnapshotError, match="can't be written"):
        pinned(Location.of(folder), "q", 0)
