"""What resumed subscriptions missed: who gets which messages, once, by which revision, through any crash."""

from collections import Counter

import pytest

from selectroute.index.retention import collect
from selectroute.index.snapshot_files import revisions
from selectroute.spark.batch import pins as revisions_of_stream
from selectroute.spark.batch.pins import PinError
from selectroute.spark.replay.backfill import BackfillError
from selectroute.spark.sources.files.source import FileBatchInput
from selectroute.storage import Location
from tests.spark.registry_log import Log, Run, committed, delivered, side_leases
from tests.spark.storages import ON_EVERY_STORAGE, ON_HDFS_TOO
from tests.support.crashes import killed, kills
from tests.support.world import World

RED = {"properties": {"color": "red"}}
BLUE = {"properties": {"color": "blue"}}
ROUTE = [(FileBatchInput, "route")]


@pytest.fixture
def log(world):
    made = Log(world)
    made.add("red", "color = 'red'")
    made.add("all", "")
    return made


@pytest.fixture
def run(world, log):
    """The job after a batch, with one of its subscriptions paused since."""
    made = Run(world, log)
    made.route(0, RED)
    log.pause("red")
    return made


@ON_HDFS_TOO
def test_who_is_resumed_from_last_processed_gets_what_it_missed_as_a_batch_below_zero(world, log, run):
    paused = log.revision
    run.route(1, RED, BLUE, RED)
    assert run.backfill() == []
    log.published = False
    resumed = log.resume("red")
    assert run.backfill() == [], "the resume is not published"
    log.published = True
    log.publish()
    run.route(2, RED)
    (report,) = run.backfill()
    assert (report.batch, report.revision, report.missing) == (-1, resumed, ())
    assert (report.counts.messages, report.counts.routed, report.counts.unrouted) == (3, 2, 1)
    got = {place for place in delivered(world) if place[3] == "red"}
    assert got == {
        (0, "0.jsonl", 0, "red", paused - 1),
        (-1, "1.jsonl", 0, "red", resumed),
        (-1, "1.jsonl", 2, "red", resumed),
        (2, "2.jsonl", 0, "red", resumed),
    }
    assert set(delivered(world).values()) == {1}
    commit = committed(world, -1)
    assert commit["backfill"]["subscriptions"] == ["red"] and commit["backfill"]["batches"] == [1]
    pin = Location.of(world.output / "pins" / "-1.json").read_json()
    assert (pin["revision"], pin["digest"]) == (resumed, commit["digest"])
    assert not world.rows("unrouted"), "what matches none of its subscriptions is listed nowhere"
    assert run.backfill() == []


@ON_EVERY_STORAGE
def test_who_is_resumed_from_latest_or_removed_gets_nothing(world, log):
    run = Run(world, log)
    run.route(0, RED)
    log.pause("red", "all")
    run.route(1, RED)
    log.resume("red", from_="latest")
    log.published = False
    log.resume("all")
    log.remove("all")
    log.published = True
    log.add("all", "")
    run.route(2, RED)
    assert run.backfill() == []
    assert {place[:4] for place in delivered(world) if place[0] != 0} == {
        (2, "2.jsonl", 0, "red"),
        (2, "2.jsonl", 0, "all"),
    }


@ON_EVERY_STORAGE
def test_several_pauses_are_made_good_one_by_one_and_overlapping_ones_together(world, log, run):
    run.route(1, RED)
    log.pause("all")
    run.route(2, RED)
    log.resume("red")
    run.route(3, RED)
    log.pause("red")
    run.route(4, RED)
    log.resume("red")
    log.resume("all")
    reports = run.backfill()
    given = [committed(world, report.batch)["backfill"] for report in reports]
    assert [(one["batches"], one["subscriptions"]) for one in given] == [
        *(([1], ["red"]), ([2], ["all", "red"]), ([3], ["all"]), ([4], ["all", "red"]))
    ]
    everything = Counter((place[1], place[3]) for place in delivered(world).elements())
    assert everything == Counter((f"{n}.jsonl", id) for n in range(5) for id in ("red", "all"))


@ON_EVERY_STORAGE
def test_a_backfill_takes_consecutive_batches_up_to_the_files_of_a_batch(world, log):
    run = Run(world, log, max_files=3)
    run.route(0, RED)
    log.pause("red")
    for batch in range(1, 8):
        run.route(batch, RED)
    log.resume("red")
    reports = run.backfill()
    assert [committed(world, r.batch)["backfill"]["batches"] for r in reports] == [[1, 2, 3], [4, 5, 6], [7]]
    assert [r.batch for r in reports] == [-1, -2, -3]


@ON_EVERY_STORAGE
def test_who_is_paused_again_before_the_backfill_gets_it_after_being_resumed_from_wherever(world, log, run):
    run.route(1, RED)
    log.resume("red")
    log.pause("red")
    assert run.backfill() == [], "a paused subscription gets nothing"
    run.route(2, RED)
    assert run.backfill() == []
    last = log.resume("red", from_="latest")
    again = Run(world, log)
    again.backfill()
    got = {place for place in delivered(world) if place[3] == "red"}
    assert got == {(0, "0.jsonl", 0, "red", 2), (-1, "1.jsonl", 0, "red", last)}


@ON_EVERY_STORAGE
def test_a_selector_that_was_replaced_meanwhile_judges_the_backfill_which_has_dead_letters_of_its_own(
    world, log, run
):
    run.route(1, RED, BLUE, "{")
    log.replace("red", "color = 'blue'")
    log.resume("red")
    (report,) = run.backfill()
    assert {place[1:4] for place in delivered(world) if place[0] == -1} == {("1.jsonl", 1, "red")}
    assert (report.counts.routed, report.counts.dead_lettered) == (1, 1)
    dead = {(row["batch"], row["offset"], row["reason"]) for row in world.rows("dead-letters")}
    assert dead == {(1, 2, "not-json"), (-1, 2, "not-json")}


@ON_EVERY_STORAGE
def test_subscriptions_that_are_more_than_one_backfill_names_get_several(world, log, monkeypatch):
    monkeypatch.setattr("selectroute.spark.replay.backfill.MOST_SUBSCRIPTIONS", 2)
    ids = [f"s{number}" for number in range(5)]
    for id in ids:
        log.add(id, "color = 'red'")
    run = Run(world, log)
    run.route(0, RED)
    log.pause(*ids)
    run.route(1, RED)
    run.route(2, RED)
    log.resume(*ids)
    assert len(run.backfill()) == 3
    made_good = Counter((place[1], place[3]) for place in delivered(world).elements() if place[0] < 0)
    assert made_good == Counter((f"{n}.jsonl", id) for n in (1, 2) for id in ids)


@ON_EVERY_STORAGE
def test_files_that_are_gone_or_changed_are_named_and_the_rest_is_delivered(world, log, run):
    for batch in range(1, 4):
        run.route(batch, RED)
    Location.of(world.input / "1.jsonl").delete()
    Location.of(world.input / "2.jsonl").put(b"others")
    log.resume("red")
    (report,) = run.backfill()
    assert report.missing == (
        "of batch 1, removed or changed since it was routed: 1.jsonl",
        "of batch 2, removed or changed since it was routed: 2.jsonl",
    )
    assert [(one["batch"], one["files"]) for one in committed(world, -1)["backfill"]["missing"]] == [
        (1, ["1.jsonl"]),
        (2, ["2.jsonl"]),
    ]
    assert {place[1] for place in delivered(world) if place[0] == -1} == {"3.jsonl"}
    assert run.backfill() == [], "what is gone is not asked for again"


@ON_EVERY_STORAGE
def test_the_accounting_has_backfills_as_lines_of_their_own_where_they_were_made(world, log, run):
    run.route(1, RED)
    log.resume("red")
    run.route(2, RED)
    run.backfill()
    run.route(3, RED)
    lines = [(line["batch"], line.get("backfill", False)) for line in world.accounting()]
    assert lines == [(0, False), (1, False), (2, False), (-1, True), (3, False)]
    accounting = Location.of(world.output / "accounting.jsonl")
    written = accounting.read()
    accounting.delete()
    Run(world, log)
    assert Location.of(world.output / "accounting.jsonl").read() == written


@ON_EVERY_STORAGE
def test_nothing_is_given_before_the_batch_that_was_pinned_before_the_resume_is_committed(world, log, run):
    with killed(1, ROUTE, after=False):
        run.route(1, RED)
    log.resume("red")
    again = Run(world, log)
    assert again.backfill() == []
    again.route(1)
    (report,) = again.backfill()
    assert committed(world, report.batch)["backfill"]["batches"] == [1]


@ON_EVERY_STORAGE
def test_without_its_record_the_log_is_read_again_and_nothing_is_given_twice(world, log, run):
    run.route(1, RED)
    log.resume("red")
    run.backfill()
    before = delivered(world)
    Location.of(world.output / "_backfill.json").delete()
    assert Run(world, log).backfill() == []
    log.add("more", "color = 'red'")
    log.pause("red")
    run = Run(world, log)
    run.route(2, RED)
    log.resume("red")
    Location.of(world.output / "_backfill.json").delete()
    (report,) = run.backfill()
    assert committed(world, report.batch)["backfill"]["batches"] == [2]
    assert all(delivered(world)[place] == 1 for place in before)


@ON_EVERY_STORAGE
def test_of_a_long_log_only_what_says_what_is_owed_is_read(world, log, monkeypatch):
    read, whole = [], Log.follow_changes

    def watched(self, after, *, ops):
        for change in whole(self, after, ops=ops):
            read.append(change.op)
            yield change

    monkeypatch.setattr(Log, "follow_changes", watched)
    run = Run(world, log)
    run.route(0, RED)
    log.pause("red", "all")
    run.route(1, RED)
    for number in range(9):
        log.add(f"s{number}", "color = 'green'")
    log.resume("red", "all")
    assert len(run.backfill()) == 1
    assert Location.of(world.output / "_backfill.json").read_json()["revision"] == log.revision
    assert read == ["resume", "resume"]


@ON_EVERY_STORAGE
def test_snapshots_of_another_registry_are_one_sentence(world, log):
    run = Run(world, log)
    run.route(0, RED)
    log.revision += 5
    log.publish()
    log.revision -= 5
    with pytest.raises(BackfillError, match="are at revision 7, but the registry is at 2"):
        run.backfill()


def test_an_interrupted_backfill_keeps_its_revision_from_being_collected(world, log, run):
    run.route(1, RED)
    resumed = log.resume("red")
    with killed(1, ROUTE, after=False):
        run.backfill()
    log.remove("red")
    again = Run(world, log)
    again.route(2, RED)
    log.add("more", "")
    again.route(3, RED)
    collect(world.snapshots, keep=1, grace_seconds=0)
    assert resumed in revisions(world.snapshots)
    (report,) = again.backfill()
    assert report.revision == resumed, "as its pin says"
    again.route(4, RED)
    again.backfill()
    collect(world.snapshots, keep=1, grace_seconds=0)
    assert resumed not in revisions(world.snapshots)


@ON_EVERY_STORAGE
def test_a_pinned_revision_that_is_gone_is_one_sentence(world, log, run):
    run.route(1, RED)
    resumed = log.resume("red")
    with killed(1, ROUTE, after=False):
        run.backfill()
    log.add("more", "")
    Location.of(world.snapshots / f"manifest-{resumed}.json").delete()
    with pytest.raises(PinError, match=f"batch -1 is pinned to revision {resumed}"):
        Run(world, log).backfill()


@pytest.mark.slow
@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_crash_at_any_step_of_a_backfill_gives_each_message_once(tmp_path_factory, after):
    for at, kill in kills(after, least=40):
        world = World(tmp_path_factory.mktemp("crash"))
        log = Log(world)
        log.add("red", "color = 'red'")
        log.add("all", "")
        run = Run(world, log, max_files=1)
        run.route(0, RED)
        log.pause("red")
        run.route(1, RED, BLUE, "{")
        run.route(2, RED)
        first = log.resume("red")
        with kill:
            assert len(run.backfill()) == 2
            run.backfills.close()
            run.router.commits.finish()
        pinned = Location.of(world.output / "pins" / "-1.json").read_json()
        # The registry goes on before the job starts again, and so does the stream.
        second = log.replace("red", "color IN ('red', 'blue')")
        again = Run(world, log)
        again.route(3, RED)
        again.backfill()
        made_good = [place for place in delivered(world).elements() if place[0] < 0]
        revision = {source: revision for _, source, _, _, revision in made_good}
        assert set(revision.values()) <= {first, second}, at
        assert pinned is None or revision["1.jsonl"] == pinned["revision"], at
        expected = [("1.jsonl", 0), ("2.jsonl", 0)] + [("1.jsonl", 1)] * (revision["1.jsonl"] == second)
        assert Counter(place[1:3] for place in made_good) == Counter(expected), at
        assert all(place[4] == revision[place[1]] for place in made_good), "one revision a message"
        assert Counter(place[3] for place in delivered(world).elements())["all"] == 5, at
        # The next start leaves nothing behind, and finds the accounts whole.
        Run(world, log).backfill()
        lines = [line["batch"] for line in world.accounting()]
        assert sorted(lines) == sorted(set(lines)) and set(lines) >= {-1, 0, 1, 2, 3}, at
        assert Location.of(world.output / "_staging").folders() == [], at
        assert side_leases(world) == [], at


@pytest.mark.slow
@pytest.mark.parametrize("world", ["s3"], indirect=True)
def test_a_stream_that_learns_of_a_resume_later_than_its_backfill_leaves_no_batch_out(
    world, log, monkeypatch
):
    run = Run(world, log)
    run.route(0, RED)
    log.pause("red")
    run.route(1, RED)
    # From now on what the stream knows is some seconds old.
    monkeypatch.setattr(revisions_of_stream, "_OLD_SECONDS", 600.0)
    log.resume("red")
    run.backfill()
    run.route(2, RED)
    monkeypatch.setattr(revisions_of_stream, "_OLD_SECONDS", -1.0)
    run.route(3, RED)
    run.backfill()
    got = Counter(place[1] for place in delivered(world).elements() if place[3] == "red")
    assert got == Counter(f"{batch}.jsonl" for batch in range(4))
