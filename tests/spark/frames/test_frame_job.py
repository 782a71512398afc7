"""Jobs whose messages are the rows of a streaming DataFrame: all that a job promises, of any source."""

import json
import sys
import threading
from collections import Counter

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import selectroute as sr
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.publisher import RegistryPublisher
from selectroute.spark import (
    Binding,
    BindingError,
    FrameInput,
    Job,
    OtherJobError,
    Position,
    check,
    rerun,
    start_fanout,
)
from selectroute.spark.audit.audit import audit
from selectroute.spark.audit.outcomes import newest_outcomes
from selectroute.spark.folder import repair
from selectroute.spark.replay.request import ReplayFilterSpec, replays_of
from selectroute.spark.stream.fan_out import StreamError
from selectroute.spark.tables.schemas import DELIVERIES
from selectroute.storage import Location
from tests.spark.queue_world import A
from tests.spark.storages import ON_EVERY_STORAGE
from tests.support.components import after_first
from tests.support.replays import make_request

# The workers of Spark do not have the tests on their path: what they need of this module travels by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.spark

SCHEMA = "n int, color string"
ROWS = [(n, "red" if n % 2 else "blue") for n in range(40)]
"""As the first of `Numbers`, of which each frame costs a process of Python's."""
RED = "color = 'red'"


class Numbers(DataSource):
    """Source in Python that replays: rows are numbers, so many a batch, in two partitions.

    ``limit`` is a file with the number up to which there are rows; ``salt`` one whose text is in the rows.
    """

    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "topic string, part int, n bigint, color string"

    def streamReader(self, schema):
        return NumbersReader(self.options)


class Slice(InputPartition):
    def __init__(self, start, end):
        self.start, self.end = start, end


class NumbersReader(DataSourceStreamReader):
    def __init__(self, options):
        self.limit, self.salt = options["limit"], options.get("salt")

    def initialOffset(self):
        return {"n": 0}

    def latestOffset(self, *_):
        with open(self.limit) as file:
            return {"n": int(file.read())}

    def partitions(self, start, end):
        middle = (start["n"] + end["n"]) // 2
        return [Slice(start["n"], middle), Slice(middle, end["n"])]

    def read(self, partition):
        salt = 0
        if self.salt:
            with open(self.salt) as file:
                salt = int(file.read())
        for n in range(partition.start, partition.end):
            yield ("t", n % 3, n + salt, "red" if n % 2 else "blue")


@pytest.fixture
def numbers(spark, tmp_path):
    """A function that lets the source have rows up to a number, and returns its frame."""
    spark.dataSource.register(Numbers)
    limit, salt = tmp_path / "limit", tmp_path / "salt"
    salt.write_text("0")

    def up_to(count):
        limit.write_text(str(count))
        options = {"limit": str(limit), "salt": str(salt)}
        return spark.readStream.format("numbers").options(**options).load()

    return up_to


@pytest.fixture
def arriving(spark, tmp_path):
    """A function that lets rows arrive as a file, and returns the frame of Spark's own source of files."""

    def arrive(*rows):
        folder = tmp_path / "arrived"
        if rows:
            spark.createDataFrame(rows, SCHEMA).coalesce(1).write.mode("append").parquet(str(folder))
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))

    return arrive


def run(frame, world, **options):
    """Route everything that is there; return the reports of the batches."""
    reports, registry = [], options.get("registry")
    snapshots = world.snapshots if registry is None else registry.snapshots_folder
    options |= {"snapshots": snapshots, "output": world.output, "table_format": world.table_format}
    start_fanout(frame=frame, available_now=True, on_batch=reports.append, **options).wait()
    return reports


def die(*_):
    raise KeyboardInterrupt("the process dies")


def killed_before_the_commit(monkeypatch, frame, world, **options):
    with monkeypatch.context() as patched:
        patched.setattr("selectroute.spark.batch.commits.Commits.commit", die)
        with pytest.raises(StreamError):
            run(frame, world, **options)
    assert not world.rows("deliveries")


def delivered(world):
    return Counter((row["subscription"], row["offset"]) for row in world.rows("deliveries"))


@ON_EVERY_STORAGE
def test_rows_of_spark_s_own_files_are_routed_and_a_repeat_is_the_same(spark, world, arriving, monkeypatch):
    world.publish(1, red=RED, big="n > 2")
    frame = arriving((1, "red"), (2, "blue"), (3, "blue"))
    killed_before_the_commit(monkeypatch, frame, world, name="rows")
    world.publish(2, all="")
    reports = run(arriving((4, "red")), world, name="rows")
    assert [(one.batch, one.revision, one.inputs, one.counts.messages) for one in reports] == [
        (0, 1, 1, 3),
        (1, 2, 1, 1),
    ]
    assert world.deliveries() == Counter(
        {("rows/batch=0", 0, "red", 1): 1, ("rows/batch=0", 2, "big", 1): 1, ("rows/batch=1", 0, "all", 2): 1}
    )
    (unrouted,) = world.rows("unrouted")
    assert (unrouted["source"], unrouted["offset"]) == ("rows/batch=0", 1)
    assert [row["messages"] for row in world.accounting()] == [3, 1]
    found = audit(world.output)
    assert found.findings == [] and found.inputs == 2
    commit = Location.of(world.output / "_commits" / "1.json").read_json()
    assert (commit["inputs"]["count"], commit["inputs"]["offsets"]) == (1, ['{"logOffset":1}'])
    assert run(arriving(), world, name="rows") == []


@pytest.mark.slow
def test_a_batch_that_spark_repeats_is_skipped_and_one_with_another_or_a_damaged_plan_refused(
    world, arriving
):
    world.publish(1, red=RED)
    run(arriving((1, "red")), world)
    checkpoint = world.output / "_checkpoint"
    (checkpoint / "commits" / "0").unlink()
    (again,) = run(arriving(), world)
    assert again.skipped and delivered(world) == {("red", 0): 1}
    (checkpoint / "commits" / "0").unlink()
    offsets = checkpoint / "offsets" / "0"
    offsets.write_text(offsets.read_text().replace('"logOffset":0', '"logOffset":7'))
    assert ["it read other offsets" in one.sentence for one in audit(world.output).findings] == [True]
    for damage in (b"v9\n{}\n{}", b"\xff" * 40):
        offsets.write_bytes(damage)
        with pytest.raises(sr.SelectRouteError) as error:
            run(arriving(), world)
        assert "\n" not in str(error.value)
        assert ["offsets/0" in one.sentence for one in audit(world.output).findings] == [True]


@pytest.mark.slow
@ON_EVERY_STORAGE
@pytest.mark.parametrize("shuffled", after_first(pytest.mark.nightly, True, False))
def test_a_python_source_killed_after_its_puts_puts_nothing_twice(
    world, sqlite, numbers, monkeypatch, shuffled
):
    sqlite.create("A")
    sqlite.publish(1, red=(RED, A), all=("", None))
    position = Position(source="topic", partition="part", offset="n")
    options = {"position": position, "queues": sqlite.url}

    def frame(count):
        # Rows that came through a shuffle are in any order.
        return numbers(count).repartition(3) if shuffled else numbers(count)

    killed_before_the_commit(monkeypatch, frame(40), world, **options)
    sqlite.publish(2, other=("color = 'blue'", A))
    (first,) = run(frame(40), world, **options)
    assert (first.revision, first.counts.queued, first.counts.messages) == (1, 20, 40)
    wanted = Counter(f"t/{n % 3}/{n}/red" for n in range(1, 40, 2))
    assert sqlite.ids("A") == wanted
    (second,) = run(frame(50), world, **options)
    assert (second.batch, second.revision, second.counts.queued) == (1, 2, 5)
    assert sqlite.ids("A") == Counter(f"t/{n % 3}/{n}/other" for n in range(40, 50, 2))
    assert delivered(world) == Counter(
        {("red", n): 1 for n in range(1, 40, 2)}
        | {("all", n): 1 for n in range(40)}
        | {("other", n): 1 for n in range(40, 50, 2)}
    )
    assert not [one for one in Location.of(world.output / "pins").files() if one.name.endswith(".rows")]
    assert audit(world.output).findings == []


@pytest.mark.slow
def test_a_repeat_with_other_rows_or_in_other_partitions_is_refused_once_something_was_put(
    world, sqlite, numbers, monkeypatch, tmp_path
):
    sqlite.create("A")
    sqlite.publish(1, red=(RED, A))
    killed_before_the_commit(monkeypatch, numbers(40), world, queues=sqlite.url)
    with pytest.raises(sr.SelectRouteError) as error:
        run(numbers(40).coalesce(1), world, queues=sqlite.url)
    assert "batch 0 was put to queues or sent to Kafka in part, and its input has changed" in str(error.value)
    assert "rows without an offset must come in the partitions that they had" in str(error.value)
    (tmp_path / "salt").write_text("1000")
    with pytest.raises(sr.SelectRouteError) as error:
        run(numbers(40), world, queues=sqlite.url)
    assert "now has other rows, or in another order" in str(error.value)
    assert "\n" not in str(error.value) and "Traceback" not in str(error.value)
    # As it was, it goes on; and it is warned of rows without an offset where they are put.
    (tmp_path / "salt").write_text("0")
    said = []
    (report,) = run(numbers(40), world, queues=sqlite.url, on_warning=said.append)
    assert report.counts.queued == 20 and sum(sqlite.ids("A").values()) == 20
    (sentence,) = said
    assert "its rows have no position with an offset" in sentence
    run(numbers(50), world, queues=None, on_warning=said.append)
    assert len(said) == 2 and "queue:A" in said[1]


@pytest.mark.slow
def test_two_rows_of_one_position_are_both_put_through_a_crash_and_none_where_the_policy_is_to_fail(
    world, sqlite, arriving, monkeypatch
):
    sqlite.create("A")
    sqlite.publish(1, red=(RED, A))
    twice = arriving(*ROWS).withColumn("n", F.expr("n div 4"))
    options = {"position": Position(offset="n"), "queues": sqlite.url}
    with pytest.raises(sr.SelectRouteError, match="20 unrouted messages, and the policy is to fail"):
        run(twice, world, unrouted="fail", **options)
    assert not sqlite.ids("A")
    killed_before_the_commit(monkeypatch, twice, world, **options)
    run(twice, world, **options)
    assert sqlite.ids("A") == Counter({f"frame/0/{n}/red": 2 for n in range(10)})


@pytest.mark.slow
def test_a_repeat_in_other_partitions_is_routed_if_nothing_leaves_the_folder(world, arriving, monkeypatch):
    world.publish(1, red=RED)
    killed_before_the_commit(monkeypatch, arriving(*ROWS).repartition(2), world)
    (report,) = run(arriving().coalesce(1), world)
    assert report.counts.routed == 20


def test_a_full_queue_holds_back_only_its_own_and_gets_the_rest(world, sqlite, arriving):
    sqlite.create("A", max_depth=5)
    sqlite.create("B")
    sqlite.publish(1, red=(RED, A), all=("", {"kind": "queue", "name": "B"}))
    (report,) = run(arriving(*ROWS), world, queues=sqlite.url, destination_wait=0.5)
    assert (report.counts.queued, report.counts.refused) == (45, 15)
    assert {row["reason"] for row in world.rows("dead-letters")} == {"destination-full"}
    assert sum(sqlite.ids("A").values()) == 5 and sum(sqlite.ids("B").values()) == 40


@pytest.mark.slow
def test_a_queued_message_has_topic_body_id_and_every_property_and_no_list(world, sqlite, arriving):
    sqlite.create("A")
    sqlite.publish(1, red=(RED, A), all=("", None))
    frame = arriving((7, "red"), (8, "red")).select(
        "n",
        "color",
        F.lit("cars/eu").alias("level"),
        F.lit("text").alias("@body"),
        F.lit("m-1").alias("key"),
        F.lit("2026-01-02T03:04:05.678Z").cast("timestamp").alias("at"),
        F.when(F.col("n") == 8, F.array(F.lit(1))).alias("parts"),
    )
    binding = Binding.of(["@topic=level", "@id=key", "at:long=cast"])
    (report,) = run(frame, world, queues=sqlite.url, binding=binding)
    assert (report.counts.deliveries, report.counts.refused) == (3, 1)
    (message,) = sqlite.get_all("A")
    assert message.body == b"text"
    assert {name: message.properties[name] for name in ("n", "color", "at", "selectroute_topic")} == {
        **{"n": sr.Int(7), "color": "red", "at": sr.Long(1_767_323_045_678), "selectroute_topic": "cars/eu"}
    }
    assert {row["message_id"] for row in world.rows("deliveries")} == {"m-1"}
    (letter,) = world.rows("dead-letters")
    assert (letter["reason"], letter["subscription"], letter["offset"]) == ("not-for-queues", "red", 1)


def test_a_position_that_is_null_is_a_dead_letter_with_the_row(world, arriving):
    world.publish(1, all="")
    null = arriving((0, "red"), (1, "red"), (None, "blue"), (3, "red"))
    (report,) = run(null, world, position=Position(offset="n"), name="telemetry")
    assert (report.counts.routed, report.counts.dead_lettered) == (3, 1)
    (letter,) = world.rows("dead-letters")
    assert (letter["stage"], letter["reason"], letter["source"]) == ("read", "no-position", "telemetry")
    assert letter["offset"] is None and json.loads(letter["raw"]) == {"color": "blue"}
    assert delivered(world) == {("all", n): 1 for n in (0, 1, 3)}


WRONG = {
    "the position's offset is column 'nr', but the frame has no such column": {"position": {"offset": "nr"}},
    "'color' of type string: it must be a bigint, or a smaller integer": {"position": {"offset": "color"}},
    "'n' of type bigint: it must be an int, a smallint": {"position": {"partition": "n", "offset": "n"}},
    "the position's source is column 'part' of type int: it must be a str": {"position": {"source": "part"}},
    "has a partition, 'part', but no offset": {"position": {"partition": "part"}},
    "'color' is bound to column 'colour', but the frame has no such column": {"binding": ["color=colour"]},
    "with a cast to string, but the column has type string": {"binding": ["n:string=cast(color)"]},
    "column 'part' has type int: the body must be a string or binary": {"binding": ["@body=part"]},
    "'a/b' is not a valid name of an input": {"name": "a/b"},
}


def test_what_is_wrong_with_a_frame_is_one_sentence_before_the_stream_starts(world, numbers):
    world.publish(1, all="")
    for sentence, wrong in WRONG.items():
        with pytest.raises(sr.SelectRouteError) as error:
            run(
                numbers(4),
                world,
                binding=Binding.of(wrong.get("binding", ())),
                position=Position(**wrong.get("position", {})),
                name=wrong.get("name", "frame"),
            )
        assert sentence in str(error.value) and "\n" not in str(error.value)
        assert not world.output.exists()


def test_a_frame_that_does_not_stream_or_comes_with_a_job_is_refused(spark, world, numbers):
    world.publish(1, all="")
    with pytest.raises(BindingError, match="the frame is not a streaming DataFrame"):
        run(spark.range(1), world)
    with pytest.raises(TypeError, match="frame is a list: give a streaming DataFrame"):
        run([1], world)
    job = Job.of(FrameInput(numbers(1)), world.snapshots, world.output)
    with pytest.raises(TypeError, match="give either a session and a job, or a frame"):
        start_fanout(spark, job, frame=numbers(1))
    with pytest.raises(TypeError, match="are for a frame"):
        start_fanout(spark, job, output=world.output)
    with pytest.raises(TypeError, match="snapshots is None"):
        start_fanout(frame=numbers(1))
    with pytest.raises(TypeError, match="spark is None: give the SparkSession"):
        start_fanout()


@pytest.mark.slow
def test_a_job_of_a_frame_is_a_job_whose_rows_cannot_be_read_again(spark, world, arriving, tmp_path):
    world.publish(1, red=RED)
    frame, position = arriving(*ROWS[:10], (None, "blue")), Position(offset="n")
    job = Job.of(FrameInput(frame, name="telemetry", position=position), world.snapshots, world.output)
    check(job)
    start_fanout(spark, job, available_now=True).wait()
    assert job.source == "frame:telemetry" and "DataFrame" not in repr(job)
    assert sum(delivered(world).values()) == 5
    with pytest.raises(OtherJobError, match="its input is frame:telemetry, not frame:other"):
        check(Job.of(FrameInput(frame, name="other"), world.snapshots, world.output))
    with pytest.raises(sr.SelectRouteError, match="give that of a FrameInput to the FrameInput"):
        Job.of(FrameInput(frame), world.snapshots, world.output, binding=Binding.of(["a=b"]))

    gone = "the inputs of batch 0 are no longer known"
    (again,) = rerun(spark, job, tmp_path / "again")
    assert again.verdict == "gone"
    assert again.why.startswith(f"{gone}: the rows of a DataFrame can be read only while")
    *_, one = newest_outcomes(world.output, DELIVERIES, 9, subscription="red")
    assert one.message is None
    assert one.missing == "rows of a DataFrame can be read only while their batch is routed"
    made = make_request(world.output, ReplayFilterSpec())
    (report,) = run(frame, world, position=position, name="telemetry")
    assert (report.kind, report.counts.messages) == ("replay", 0)
    assert gone in report.missing[0] and replays_of(world.output, made.id) == [-1]
    assert audit(world.output).findings == []


@pytest.mark.slow
def test_two_jobs_read_one_frame_and_a_frame_may_have_two_sources(world, numbers, arriving, tmp_path):
    from tests.support.world import World

    other = World(tmp_path / "other")
    world.publish(1, red=RED)
    other.publish(1, blue="color = 'blue'")
    frame = (
        numbers(10).select("n", "color").unionByName(arriving((99, "red")).selectExpr("bigint(n) n", "color"))
    )
    fans = [
        start_fanout(frame=frame, snapshots=one.snapshots, output=one.output, available_now=True)
        for one in (world, other)
    ]
    for fan in fans:
        fan.wait()
    assert (sum(delivered(world).values()), sum(delivered(other).values())) == (6, 5)
    for one in (world, other):
        found = audit(one.output)
        assert found.findings == [] and found.inputs == 2
        commit = Location.of(one.output / "_commits" / "0.json").read_json()
        assert len(commit["inputs"]["offsets"]) == 2
    checkpoint = world.output / "_checkpoint"
    unused = checkpoint / "sources" / "1" / "1"
    unused.write_bytes(b"")
    assert repair(checkpoint, lambda _: True) == [unused]
    (checkpoint / "sources" / "1" / "0").write_bytes(b"")
    assert repair(checkpoint, lambda _: True) == []  # it is part of a plan


@pytest.mark.slow
def test_columns_are_warned_of_once_with_the_bind_that_mends_them(world, arriving):
    world.publish(1, later="at > 0", gone="wheels = 4")

    def stamped(number):
        return arriving((number, "red")).withColumn("at", F.lit("2026-01-02").cast("timestamp"))

    said = []
    run(stamped(1), world, on_warning=said.append)
    run(stamped(2), world, on_warning=lambda sentence: said.append(f"again: {sentence}"))
    assert len(said) == 4
    gone, type_ = sorted(said[:2], key=lambda sentence: "bind" in sentence)
    assert "selectors read 1 column that the frame 'frame' does not have: wheels" in gone
    assert "column 'at' has type timestamp" in type_ and "'at:long=cast'" in type_
    run(stamped(3), world, binding=Binding.of(["at:long=cast"]))
    assert delivered(world) == {("later", 0): 1}


@pytest.mark.slow
def test_a_registry_is_told_so_and_a_backfill_names_the_batch(world, arriving, tmp_path):
    red, everything = SubscriptionSpec(RED), SubscriptionSpec("")
    with sr.Registry.open(f"sqlite:///{tmp_path}/r.db") as registry, RegistryPublisher(registry) as publisher:

        def routed(number, then):
            publisher.catch_up()
            reports = run(arriving((number, "red")), world, registry=registry)
            then()
            return reports

        registry.register(red, id="red")
        registry.register(everything, id="all")
        routed(1, lambda: registry.pause("red"))
        routed(2, lambda: None)
        (query,) = registry.streams.queries()
        assert not query.can_replay and "the rows of a DataFrame can be read only" in query.reason
        registry.resume("red", from_="last-processed")
        reports = routed(3, lambda: None)
        told = {one["batch"]: one["busiest"] for one in registry.streams.reports(query.query).batches}
    assert told == {-1: {}, 0: {"red": 1, "all": 1}, 1: {"all": 1}, 2: {"red": 1, "all": 1}}
    (backfill,) = [one for one in reports if one.kind == "backfill"]
    assert backfill.counts.messages == 0
    assert "the inputs of batch 1 are no longer known" in backfill.missing[0]
    assert Counter(row["subscription"] for row in world.rows("deliveries")) == {"red": 2, "all": 3}
    assert audit(world.output).findings == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "option", "least"),
    after_first(pytest.mark.nightly, ("rate-micro-batch", "rowsPerBatch", 25), ("rate", "rowsPerSecond", 1)),
)
def test_a_stream_of_rates_goes_on_where_it_stopped(spark, world, source, option, least):
    world.publish(1, even="value >= 0")
    frame = spark.readStream.format(source).option(option, 5).load()
    rates = {
        "frame": frame,
        "snapshots": world.snapshots,
        "output": world.output,
        "position": Position(offset="value"),
    }
    for _ in range(2):
        routed = threading.Semaphore(0)
        fan = start_fanout(**rates, on_batch=lambda _, routed=routed: routed.release())
        for _ in range(3):
            assert routed.acquire(timeout=300)
        fan.stop()
        fan.wait()
    found = delivered(world)
    assert found == {("even", n): 1 for n in range(len(found))} and len(found) >= least
    assert audit(world.output).findings == []
