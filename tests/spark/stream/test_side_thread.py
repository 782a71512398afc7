"""The link between a stream and its registry: told once and in full, waited for by nobody."""

import threading
import time

import pytest

from selectroute.registry.errors import AuthError
from selectroute.spark import BatchReport
from selectroute.spark.job import JobError
from selectroute.spark.stream.fan_out import check
from selectroute.spark.stream.reports import BatchReporter, EffectiveFromReporter, Sampler
from selectroute.spark.stream.side_thread import FairLock, SideThread
from selectroute.spark.tables.schemas import Counts
from tests.spark.registry_log import Log, Run, delivered
from tests.support.crashes import kills
from tests.support.world import World

RED = {"properties": {"color": "red"}}


def follower_of(log, run, warnings, failures):
    sampler = Sampler(run.router.source, 0)
    common = warnings.append, failures.append, BatchReporter(dict), sampler
    return SideThread(log, run.router, FairLock(), lambda _: None, *common)


@pytest.fixture
def log(world):
    made = Log(world)
    made.add("red", "color = 'red'")
    return made


@pytest.fixture
def owed(world, log):
    """A job that has to make a batch good to a subscription that was resumed."""
    run = Run(world, log)
    run.route(0, RED)
    log.pause("red")
    run.route(1, RED)
    log.resume("red")
    return run


def told(log):
    return [note for note in log.notes if len(note) == 3]


def test_the_first_batch_of_each_revision_is_told(world, log):
    run = Run(world, log)
    run.effective_from.report(log, "q")
    for batch in range(5):
        if batch == 2:
            log.add("two", "")
        run.route(batch, RED)
        run.effective_from.report(log, "q")
    assert log.notes == [("q", str(world.input), True, None), ("q", 0, 1), ("q", 2, 2)]


def test_what_a_registry_was_not_there_to_hear_is_told_later_also_by_the_next_start(world, log):
    run = Run(world, log)
    log.reachable = False
    for batch in range(3):
        log.add(f"s{batch}", "")
        run.route(batch, RED)
        with pytest.raises(Exception, match="nobody answers"):
            run.effective_from.report(log, "q")
    log.reachable = True
    again = Run(world, log)
    again.route(3, RED)
    again.effective_from.report(log, "q")
    assert told(log) == [("q", 0, 2), ("q", 1, 3), ("q", 2, 4)]
    again.effective_from.report(log, "q")
    Run(world, log).effective_from.report(log, "q")
    assert len(told(log)) == 3


def test_a_backfill_is_no_cut_off(log, owed):
    owed.backfill()
    owed.effective_from.report(log, "q")
    assert [batch for _, batch, _ in told(log)] == [0, 1]


def test_a_source_whose_files_go_can_not_replay_and_says_so(world, log):
    Run(world, log).route(0, RED)
    (world.input / "0.jsonl").unlink()
    Run(world, log).effective_from.report(log, "q")
    _, _, can_replay, reason = log.notes[0]
    assert not can_replay and reason == "of batch 0, removed or changed since it was routed: 0.jsonl"


def test_a_registry_that_refuses_the_job_ends_it_in_one_sentence_also_before_it_starts(
    world, log, monkeypatch
):
    def refused(*_, **__):
        raise AuthError("a job needs a writer's token for all topics")

    sentence = "the registry rejects this job: a job needs a writer's token for all topics"
    for log.reachable in (True, False):  # what is out of reach keeps no job from starting
        check(world.job(), log)
    log.reachable = True
    with monkeypatch.context() as patch, pytest.raises(JobError, match=sentence):
        patch.setattr(Log, "queries", refused)
        check(world.job(), log)
    run = Run(world, log)
    run.route(0, RED)
    monkeypatch.setattr(Log, "note_query", refused)
    warnings, failures = [], []
    follower = follower_of(log, run, warnings, failures)
    follower.start("q")
    follower.finish()
    (failure,) = failures
    assert isinstance(failure, JobError) and not warnings and str(failure) == sentence


def test_a_token_that_is_revoked_later_is_a_warning(world, log, monkeypatch):
    run = Run(world, log)
    run.route(0, RED)
    warnings, failures = [], []
    follower = follower_of(log, run, warnings, failures)
    follower._round("q")

    def refused(*_, **__):
        raise AuthError("this is no token")

    monkeypatch.setattr(Log, "note_batch", refused)
    log.add("two", "")
    run.route(1, RED)
    follower._round("q")
    assert len(warnings) == 1 and "this is no token" in warnings[0] and not failures


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_while_telling_leaves_nothing_untold(tmp_path_factory, after):
    for at, kill in kills(after):
        world = World(tmp_path_factory.mktemp("crash"))
        log = Log(world)
        log.add("red", "color = 'red'")
        run = Run(world, log)
        run.route(0, RED)
        log.add("more", "")
        run.route(1, RED)
        with kill:
            run.effective_from.report(log, "q")
        EffectiveFromReporter(run.router.job, run.router.commits, run.router.source).report(log, "q")
        assert set(told(log)) == {("q", 0, 1), ("q", 1, 2)}, at


class Following:
    """A follower beside batches that a test routes itself."""

    def __init__(self, world, log):
        self.run = Run(world, log)
        self.turns = FairLock()
        self.reports, self.warnings, self.failures = [], [], []
        common = self.turns, self.reports.append, self.warnings.append, self.failures.append
        sampler = Sampler(self.run.router.source, 0)
        self.follower = SideThread(log, self.run.router, *common, BatchReporter(dict), sampler)

    def once(self, **ending):
        """Follow the log for a round."""
        self.follower.start("q")
        self.follower.finish(**ending)

    def route(self, batch, *messages):
        with self.turns.held():
            report = self.run.route(batch, *messages)
        self.follower.wake("q", report)

    def until(self, done):
        deadline = time.monotonic() + 300
        while not done():
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.usefixtures("owed")
def test_the_last_reports_have_the_side_batches_of_the_last_round_and_how_the_stream_ends(world, log):
    one = Following(world, log)
    for number in range(100):
        one.follower._reporter.note(BatchReport(number, 1, 1, Counts(), {}))
    one.once(ending="stopped")
    told = [number for _, batches, _ in log.reports for number in batches]
    assert sorted(told) == [-1, *range(100)]
    assert log.reports[-1] == ("q", [], {"ended": "stopped"})


def test_a_stream_whose_side_batch_fails_says_so(world, log, monkeypatch):
    Run(world, log).route(0, RED)
    one = Following(world, log)

    def fails(*_):
        raise JobError("it fails")

    monkeypatch.setattr(one.follower, "_next", fails)
    one.once()
    assert len(one.failures) == 1 and log.reports[-1] == ("q", [], {"ended": "failed"})


def test_a_registry_out_of_reach_is_not_asked_once_more_at_the_end(world, log, monkeypatch):
    Run(world, log).route(0, RED)
    log.reachable = False
    one = Following(world, log)
    monkeypatch.setattr(one.follower._reporter, "finish", lambda *_: one.failures.append("asked"))
    one.once()
    assert not one.failures and len(one.warnings) == 1


def test_an_idle_stream_makes_backfills_too(world, log):
    one = Following(world, log)
    one.follower.start(None)
    one.route(0, RED)
    log.pause("red")
    one.route(1, RED)
    log.resume("red")
    one.until(lambda: one.reports)
    one.follower.finish()
    assert [report.batch for report in one.reports] == [-1] and not one.failures
    assert {place[:2] for place in delivered(world)} == {(0, "0.jsonl"), (-1, "1.jsonl")}


@pytest.mark.slow
def test_a_registry_out_of_reach_is_one_warning_and_no_delay(world, log):
    log.reachable = False
    one = Following(world, log)
    one.follower.start("q")
    for batch in range(3):
        one.route(batch, RED)
    one.until(lambda: one.warnings)
    time.sleep(1.2)
    assert len(one.warnings) == 1 and "nobody answers" in one.warnings[0]
    log.reachable = True
    one.until(lambda: one.follower._reached)  # a whole round, of which telling is only the first half
    assert told(log)
    log.reachable = False
    log.add("more", "")
    one.until(lambda: len(one.warnings) == 2)
    one.follower.finish()
    assert not one.failures


@pytest.mark.usefixtures("owed")
def test_a_backfill_that_fails_ends_the_follower_with_its_error(world, log, monkeypatch):
    one = Following(world, log)
    monkeypatch.setattr(one.run.router.source, "run", lambda *_: [])
    one.once()
    assert len(one.failures) == 1 and "1 tasks were run, and 0 reported" in str(one.failures[0])


@pytest.mark.usefixtures("owed")
def test_who_hurries_leaves_the_rest_to_the_next_start(world, log):
    one = Following(world, log)
    one.follower.hurry()
    one.once()
    assert not one.reports and told(log), "what costs nothing is told all the same"


def test_who_gives_a_turn_back_waits_for_who_waited():
    turns, order = FairLock(), []

    def other():
        with turns.held():
            order.append("other")

    with turns.held():
        waiting = threading.Thread(target=other)
        waiting.start()
        while not turns._next.locked():
            time.sleep(0.001)
    with turns.held():
        order.append("again")
    waiting.join(60)
    assert order == ["other", "again"]
