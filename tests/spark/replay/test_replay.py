"""Dead letters that are replayed: which messages, to whom, once, through any crash, and with a trace."""

import os
import threading
from collections import Counter

import pyarrow as pa
import pytest

from selectroute.spark import start_fanout
from selectroute.spark.audit.audit import audit
from selectroute.spark.folder import OutputFolder
from selectroute.spark.job_administration import status
from selectroute.spark.replay.replay import Replays
from selectroute.spark.replay.request import ReplayFilterSpec, replays_of, waiting
from selectroute.storage import Location
from tests.spark.queue_world import A, B, Queues, delivery_ids, numbered
from tests.spark.registry_log import Log, Run, committed, delivered, side_leases
from tests.spark.storages import ON_EVERY_STORAGE, ON_HDFS_TOO
from tests.support.crashes import kills
from tests.support.replays import make_request
from tests.support.world import World

RED = {"properties": {"color": "red"}}
LONG = {"properties": {"color": "red", "text": "x" * 300}}
LONG_BLUE = {"properties": {"color": "blue", "text": "x" * 300}}
SHORT = 100
"""Bytes of a line that the first start of these jobs takes at most."""


def ask(world, **wanted):
    return make_request(world.output, ReplayFilterSpec(**wanted))


def replay(router, warn=lambda _: None, revision=None):
    """Make every replay that was asked for, as a start of the job does."""
    replays = Replays(router, warn)
    first = replays.unfinished("q")
    more = list(iter(lambda: replays.next("q", revision), None))
    return more if first is None else [first, *more]


def begin(world):
    """Make the folder a job's, as a start does."""
    folder = OutputFolder(world.job())
    folder.claim()
    folder.release()
    return world


@pytest.fixture
def world(world):
    world.publish(1, red="color = 'red'")
    return begin(world)


def too_long(world, *files):
    """Route files, a batch each, with lines that are too long; return the job without such a bound."""
    router = world.router(max_message_bytes=SHORT)
    for batch, lines in enumerate(files):
        router.route(batch, [world.drop_json(f"{batch}.jsonl", *lines)], "q")
    return world.router()


@ON_HDFS_TOO
def test_what_was_a_dead_letter_is_judged_by_what_was_mended_and_accounted_for_on_its_own(world):
    router = too_long(world, [RED, LONG, RED, LONG_BLUE, "{"])
    before = world.deliveries()
    request = ask(world, reasons=("too-large",))
    (report,) = replay(router)
    counts = report.counts
    assert (report.batch, report.kind, report.missing) == (-1, "replay", ())
    assert (counts.messages, counts.routed, counts.unrouted, counts.dead_lettered) == (2, 1, 1, 0)
    assert world.deliveries() - before == Counter([("0.jsonl", 1, "red", 1)])
    assert [(row["batch"], row["offset"]) for row in world.rows("unrouted")] == [(-1, 3)]
    record = committed(world, -1)["replay"]
    assert (record["request"], record["batches"], record["letters"]) == (request.id, [0], 2)
    assert record["wanted"]["reasons"] == ["too-large"] and record["missing"] == []
    live, line = world.accounting()
    assert (line["batch"], line["replay"], live["messages"]) == (-1, True, 5)
    assert line["messages"] == line["routed"] + line["unrouted"] + line["dead_lettered"]
    assert replays_of(world.output, request.id) == [-1] and waiting(world.output) == []
    assert side_leases(world) == []
    world.router()
    assert world.accounting() == [live, line], "the same when it is made anew"


@ON_EVERY_STORAGE
def test_a_dead_letter_is_replayed_once_and_what_fails_again_is_one_of_the_replay(world):
    router = too_long(world, [RED, LONG, "{"], ["{", LONG])
    for _ in range(2):
        ask(world)
    (report,) = replay(router)
    assert report.counts.reasons == {"not-json": 2}
    assert committed(world, -1)["replay"]["batches"] == [0, 1]
    assert {(row["batch"], row["source"], row["offset"]) for row in world.rows("dead-letters")} == {
        (batch, *where)
        for batch, where in (
            (0, ("0.jsonl", 1)), (0, ("0.jsonl", 2)), (1, ("1.jsonl", 0)), (1, ("1.jsonl", 1)),
            (-1, ("0.jsonl", 2)), (-1, ("1.jsonl", 0)),
        )
    }  # fmt: skip
    ask(world)
    (again,) = replay(router)
    assert (again.batch, again.counts.messages) == (-2, 2)
    assert committed(world, -2)["replay"]["batches"] == [-1]
    ask(world, batches=(0, 1, -1))
    assert replay(router) == []
    assert set(world.deliveries().values()) == {1} and len(world.deliveries()) == 3


@ON_EVERY_STORAGE
def test_a_replay_takes_what_is_wanted_and_a_later_one_the_rest(world):
    router = too_long(world, [LONG, "{"], [LONG])
    ask(world, batches=(1,))
    ask(world, stages=("parse",))
    ask(world, reasons=("too-large",), batches=(0, 1))
    reports = replay(router)
    assert [report.counts.messages for report in reports] == [1, 1, 1]
    assert [committed(world, report.batch)["replay"]["batches"] for report in reports] == [[1], [0], [0]]
    ask(world)
    (report,) = replay(router)
    assert committed(world, report.batch)["replay"]["batches"] == [-2], "what could not be parsed once more"


@ON_EVERY_STORAGE
def test_a_request_is_for_the_dead_letters_that_there_are_when_it_is_made(world):
    router = too_long(world, [LONG])
    request = ask(world)
    world.router(max_message_bytes=SHORT).route(1, [world.drop_json("1.jsonl", LONG)], "q")
    replay(router)
    assert world.deliveries() == Counter([("0.jsonl", 0, "red", 1)])
    assert replays_of(world.output, request.id) == [-1]


@ON_EVERY_STORAGE
def test_letters_of_a_batch_that_is_not_published_yet_are_replayed(world, monkeypatch):
    router = world.router(max_message_bytes=SHORT)
    asked = threading.Event()
    publish, finish = router.commits.tables.publish, router.commits.finish
    monkeypatch.setattr(router.commits.tables, "publish", lambda *batch: (asked.wait(60), publish(*batch)))
    router.route(0, [world.drop_json("0.jsonl", LONG)], "q")
    monkeypatch.setattr(router.commits, "finish", lambda: (asked.set(), finish()))
    make_request(world.root / "out", ReplayFilterSpec())
    (report,) = replay(router)
    assert report.counts.messages == 1


def test_a_file_as_a_whole_is_replayed_with_all_its_messages(world):
    text = b'{"properties": {"color": "red"}}\n{\n{"properties": {}}\n'
    paths = [world.drop_bytes("a.log", text), world.drop_json("b.jsonl", RED)]
    world.router().route(0, paths, "q")
    ask(world)
    (report,) = replay(world.router(file_format="json"))
    assert (report.counts.messages, report.counts.routed, report.counts.dead_lettered) == (3, 1, 1)
    assert world.deliveries() == Counter([("a.log", 0, "red", 1), ("b.jsonl", 0, "red", 1)])
    ask(world)
    assert [report.counts.messages for report in replay(world.router(file_format="json"))] == [1]


@ON_EVERY_STORAGE
def test_parquet_whose_column_nobody_reads_any_more_is_judged(world):
    world.publish(2, red="color = 'red'", when="at = 1")
    table = pa.Table.from_arrays(
        [pa.array(["red", "blue"]), *[pa.array([1, 2])] * 2], names=["color", "at", "at"]
    )
    world.router().route(0, [world.drop_parquet("a.parquet", table)], "q")
    world.publish(3, red="color = 'red'")
    ask(world)
    (report,) = replay(world.router())
    assert (report.revision, report.counts.routed, report.counts.unrouted) == (3, 1, 1)
    assert world.deliveries() == Counter([("a.parquet", 0, "red", 3)])


@ON_EVERY_STORAGE
def test_messages_that_nobody_wants_never_end_the_job_in_a_replay(world):
    router = too_long(world, [LONG_BLUE])
    ask(world)
    router = world.router(unrouted="fail")
    (report,) = replay(router)
    assert report.counts.policies == {"keep": 1}
    assert [row["batch"] for row in world.rows("unrouted")] == [-1]


@ON_HDFS_TOO
def test_refused_deliveries_are_judged_for_their_subscription_alone(sqlite):
    world = sqlite.world
    sqlite.create("A")
    sqlite.publish(2, a=("n > 0", A), b=("n < 2", B), c=("", None))
    sqlite.router().route(0, [world.drop_json("m.jsonl", *numbered(3))], "q")
    assert {row["subscription"] for row in world.rows("dead-letters")} == {"b"}
    before = world.deliveries()
    sqlite.create("B")
    sqlite.publish(3, a=("", A), b=("n < 1", B), c=("", None))
    ask(world, subscriptions=("b",))
    (report,) = replay(sqlite.router())
    assert (report.counts.messages, report.counts.routed, report.counts.unrouted) == (2, 1, 1)
    assert world.deliveries() - before == Counter([("m.jsonl", 0, "b", 3)])
    assert sqlite.ids("B") == delivery_ids("m.jsonl", "b", [0])
    assert sqlite.ids("A") == delivery_ids("m.jsonl", "a", [1, 2]), "no other subscription got anything"
    assert not world.rows("unrouted"), "these messages were accounted for before"
    ask(world)
    assert replay(sqlite.router()) == []


@ON_EVERY_STORAGE
def test_a_refused_delivery_whose_message_can_no_longer_be_judged_stays_one(sqlite):
    world = sqlite.world
    sqlite.create("A")
    sqlite.publish(2, b=("n < 2", B), gone=("n = 1", B))
    sqlite.router().route(0, [world.drop_json("m.jsonl", *numbered(3))], "q")
    ask(world)
    sqlite.publish(3, b=("n < 2", B))
    (report,) = replay(sqlite.router(max_message_bytes=5))
    counts = report.counts
    assert (counts.messages, counts.unrouted, counts.refused, counts.dead_lettered) == (2, 2, 2, 0)
    letters = [row for row in world.rows("dead-letters") if row["batch"] == -1]
    assert [(row["offset"], row["subscription"], row["reason"]) for row in letters] == [
        (0, "b", "too-large"),
        (1, "b", "too-large"),
    ]
    sqlite.create("B")
    ask(world)
    replay(sqlite.router())
    assert sqlite.ids("B") == delivery_ids("m.jsonl", "b", [0, 1])


@ON_EVERY_STORAGE
def test_inputs_that_are_gone_are_named_and_are_replayed_when_they_are_back(world):
    router = too_long(world, [LONG], [LONG])
    taken = Location.of(world.input / "0.jsonl")
    content, before = taken.read(), taken.entry()
    taken.delete()
    ask(world)
    (report,) = replay(router)
    assert report.missing == ("of batch 0, removed or changed since it was routed: 0.jsonl",)
    assert world.deliveries() == Counter([("1.jsonl", 0, "red", 1)])
    assert committed(world, -1)["replay"]["missing"][0]["files"] == ["0.jsonl"]
    assert waiting(world.output) == []
    taken.put(content)
    if taken.is_local:
        os.utime(taken.path, (before.modified, before.modified))
    ask(world)
    replay(router)
    assert world.deliveries() == Counter([("0.jsonl", 0, "red", 1), ("1.jsonl", 0, "red", 1)])


def test_a_file_that_was_changed_without_a_change_of_its_size_is_not_replayed(world):
    router = too_long(world, [LONG], [LONG])
    path = world.input / "0.jsonl"
    path.write_bytes(path.read_bytes().replace(b"red", b"rot"))
    ask(world)
    (report,) = replay(router)
    assert report.missing == ("of batch 0, removed or changed since it was routed: 0.jsonl",)
    assert world.deliveries() == Counter([("1.jsonl", 0, "red", 1)])


def test_a_file_whose_name_is_no_text_is_replayed_too(world):
    name = b"odd-\xff.jsonl".decode("utf-8", "surrogateescape")
    path = world.drop_json(name, RED, LONG)
    world.router(max_message_bytes=SHORT).route(0, [path], "q")
    aside = path.rename(world.root / "aside")
    ask(world)
    (report,) = replay(world.router())
    assert report.missing and report.counts.messages == 0
    aside.rename(path)
    ask(world)
    replay(world.router())
    assert world.deliveries() == Counter([("odd-?.jsonl", row, "red", 1) for row in (0, 1)])


@ON_EVERY_STORAGE
def test_a_replay_takes_no_more_inputs_than_a_batch_and_several_are_made_of_one_request(world):
    too_long(world, *[[LONG]] * 5)
    request = ask(world)
    reports = replay(world.router(max_files=2))
    assert [committed(world, r.batch)["replay"]["batches"] for r in reports] == [[0, 1], [2, 3], [4]]
    assert replays_of(world.output, request.id) == [-1, -2, -3]


@ON_EVERY_STORAGE
def test_a_damaged_request_is_left_alone_with_a_warning_and_others_are_done(world):
    router = too_long(world, [LONG])
    bad = Location.of(world.output / "_requests" / f"{ask(world).id}.json")
    bad.put(bad.read()[:-9])
    (bad.parent / "20000101T000000000000-00000000.json").put_json({"request": "other"})
    ask(world)
    warnings = []
    assert len(replay(router, warnings.append)) == 1
    assert len(warnings) == 2 and all("a request for a replay is ignored" in text for text in warnings)


@ON_EVERY_STORAGE
def test_an_audit_and_the_status_count_replays_on_their_own(world):
    router = too_long(world, [LONG, "{"])
    ask(world)
    replay(router)
    found = audit(world.output)
    assert (found.batches, found.backfills, found.replays) == (1, 0, 1)
    assert (found.counts.messages, found.replayed.messages, found.replayed.routed) == (2, 2, 1)
    assert [one for one in found.findings if one.batch is not None and one.batch < 0] == []
    shown = status(world.output)
    assert (shown.backfills, shown.replays, shown.counts.messages) == (0, 1, 2)


# ---- beside a registry


@pytest.fixture
def log(world):
    made = Log(world, 1)
    made.add("red", "color = 'red'")
    made.add("all", "")
    return made


@ON_EVERY_STORAGE
def test_who_was_given_a_batch_by_a_backfill_gets_its_letters_from_there_and_nowhere_else(world, log):
    run = Run(world, log, max_message_bytes=SHORT)
    run.route(0, RED)
    log.pause("red")
    run.route(1, RED, LONG)
    log.resume("red")
    run.backfill()
    assert [row["batch"] for row in world.rows("dead-letters")] in ([1, -1], [-1, 1])
    ask(world)
    reports = replay(world.router())
    assert [committed(world, r.batch)["replay"]["batches"] for r in reports] == [[1], [-1]]
    assert [committed(world, r.batch)["replay"]["only"] for r in reports] == [None, ["red"]]
    got = Counter((place[0], place[3]) for place in delivered(world).elements() if place[2] == 1)
    assert got == {(-2, "all"): 1, (-3, "red"): 1}


@ON_EVERY_STORAGE
def test_what_fails_twice_goes_to_the_same_subscriptions_at_last(world, log):
    run = Run(world, log, max_message_bytes=SHORT)
    run.route(0, LONG)
    log.pause("red")
    run.route(1, LONG)
    ask(world)
    replay(world.router(max_message_bytes=SHORT))
    assert committed(world, -1)["replay"]["batches"] == [0, 1]
    log.resume("red")
    run = Run(world, log, max_message_bytes=SHORT)
    run.backfill()
    assert committed(world, -2)["backfill"]["batches"] == [1]
    for _ in range(2):
        ask(world)
    replay(world.router())
    got = Counter((place[1], place[3]) for place in delivered(world).elements())
    assert got == Counter((f"{n}.jsonl", name) for n in (0, 1) for name in ("red", "all"))


@ON_EVERY_STORAGE
def test_a_backfill_of_a_batch_whose_letters_were_replayed_gives_each_message_once(world, log):
    run = Run(world, log, max_message_bytes=SHORT)
    run.route(0, RED)
    log.pause("red")
    run.route(1, RED, LONG)
    ask(world)
    replay(world.router())
    log.resume("red")
    Run(world, log).backfill()
    got = Counter((place[1], place[2], place[3]) for place in delivered(world).elements())
    assert set(got.values()) == {1}
    assert {key for key in got if key[0] == "1.jsonl"} == {
        ("1.jsonl", row, name) for row in (0, 1) for name in ("red", "all")
    }


@pytest.mark.nightly
def test_a_crash_at_any_step_of_a_replay_gives_each_message_once(tmp_path_factory):
    for at, kill in kills(after=False, least=40):  # after one is before the next
        world = World(tmp_path_factory.mktemp("crash"))
        queues = Queues(world, f"sqlite:///{world.root}/queues.db")
        queues.create("A")
        world.input.mkdir()
        begin(world)
        queues.publish(1, red=("color = 'red'", A))
        first = queues.router(max_message_bytes=SHORT)
        for batch in range(2):
            path = world.drop_json(f"{batch}.jsonl", RED, LONG, LONG_BLUE, "{")
            first.route(batch, [path], "q")
        ask(world)
        router = queues.router(max_files=1)
        with kill:
            assert len(replay(router)) == 2
            router.commits.finish()
        pinned = Location.of(world.output / "pins" / "-1.json").read_json()
        # The registry goes on before the job starts again.
        queues.publish(2, red=("color IN ('red', 'blue')", A))
        again = queues.router(max_files=1)
        replay(again)
        made_good = [row for row in world.rows("deliveries") if row["batch"] < 0]
        revision = {row["source"]: row["revision"] for row in made_good}
        assert pinned is None or revision["0.jsonl"] == pinned["revision"] == 1, at
        expected = Counter(
            (source, row) for source, by in revision.items() for row in ((1,) if by == 1 else (1, 2))
        )
        assert len(revision) == 2, at
        assert Counter((row["source"], row["offset"]) for row in made_good) == expected, at
        every = Counter((row["source"], row["offset"]) for row in world.rows("deliveries"))
        ids = Counter(f"{source}/0/{row}/red" for source, row in every.elements())
        assert queues.ids("A") == ids and set(ids.values()) == {1}, at
        queues.router()
        assert [line["batch"] for line in world.accounting()] == [0, 1, -1, -2], at
        assert waiting(world.output) == [], at
        assert Location.of(world.output / "_staging").folders() == [], at
        assert side_leases(world) == [], at


@pytest.mark.slow
@pytest.mark.spark
def test_a_job_without_a_registry_does_what_was_asked_for_when_it_starts(spark, world):
    def run(**options):
        reports = []
        start_fanout(spark, world.job(**options), available_now=True, on_batch=reports.append).wait()
        return reports

    world.drop_json("a.jsonl", RED, LONG, "{")
    run(max_message_bytes=SHORT)
    ask(world)
    (report,) = run()
    assert (report.kind, report.batch, report.counts.messages) == ("replay", -1, 2)
    assert world.deliveries() == Counter([("a.jsonl", 0, "red", 1), ("a.jsonl", 1, "red", 1)])
    assert audit(world.output).findings == []
    assert run() == []
