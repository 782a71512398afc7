"""The registry's engines leave a registry as they found it, find what it has, and count what they do."""

import json

import pytest

from bench.definition import Size
from bench.measure import WrongCountError, measure
from bench.registry.engines import ENGINES, makers, starts
from bench.registry.registered import Registered
from bench.workloads import replies
from bench.workloads.oracle import Expected
from tests.support.components import POSTGRES

pytestmark = pytest.mark.nightly

RULES = 300
COUNT = 20
SIZE = Size("R", RULES, replies.expected(RULES, 500), 500)
MARKS = {"postgresql": POSTGRES}
LISTED = {"list": COUNT * 50, "list-label": COUNT * 30}
"""A page is 50 of 300, and the whole tenth that has a label."""


@pytest.fixture(scope="module")
def registered(tmp_path_factory):
    with Registered(SIZE, tmp_path_factory.mktemp("bench")) as made:
        yield made


def _all(registered):
    local = sorted(json.loads(line)["id"] for line in registered.local.export())
    remote = sorted(json.loads(line)["id"] for line in registered.remote.export())
    return local, remote, sorted(id for (id,) in registered.table.execute("SELECT id FROM subscription"))


@pytest.mark.parametrize(
    ("benchmark", "name"),
    [
        pytest.param(benchmark, name, marks=MARKS.get(name.partition("-")[0], ()))
        for benchmark, engines in ENGINES.items()
        for name in engines
    ],
)
def test_an_engine_finds_what_is_registered_and_leaves_it_as_it_was(benchmark, name, registered):
    engine = makers(benchmark, registered)[name](COUNT)
    before = _all(registered)
    assert [len(one) for one in before] == [RULES] * 3
    assert engine.judge() == SIZE.check
    outcome = engine.run()
    assert outcome.matches == engine.must_find == LISTED.get(name.removeprefix("http-"), COUNT)
    assert outcome.seconds > 0 and (outcome.each_ns is None or len(outcome.each_ns) == COUNT)
    assert _all(registered) == before
    assert engine.judge() == SIZE.check


def test_engines_take_turns_and_every_batch_is_whole(registered):
    made = makers("registry-batches", registered)
    engines = [made[name](1_500) for name in ("sqlite-many", "apply", "http-batch")]
    samples = measure("registry-batches", "R", RULES, engines, SIZE.check, 1)
    assert [one.engine for one in samples] == ["sqlite-many", "apply", "http-batch"]
    assert all(one.messages == 1_500 for one in samples)


def test_what_is_not_registered_as_expected_ends_the_run(registered):
    engine = makers("registry-register", registered)["register"](COUNT)
    with pytest.raises(WrongCountError):
        measure("registry-register", "R", RULES, [engine], Expected(1, 1), 1)


def test_starts_are_timed_with_and_without_a_folder(tmp_path):
    with Registered(SIZE, tmp_path) as made:
        samples = starts(made, 1)
    assert [one.engine for one in samples] == ["import", "http-import", "start-anew", "start"]
    assert all(one.seconds > 0 for one in samples)
    assert all(one.bytes_a_rule > 1_000 for one in samples[2:])


def test_an_import_over_http_that_publishes_something_else_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(Registered, "imported_over_http", lambda self: (1.0, Expected(1, 1)))
    with Registered(SIZE, tmp_path) as made, pytest.raises(WrongCountError, match="http-import"):
        starts(made, 1)


def test_a_service_that_cannot_start_says_why(tmp_path):
    with Registered(SIZE, tmp_path) as made:
        made.database.write_bytes(b"no database")
        with pytest.raises(RuntimeError, match=r"(?s)did not start: .*database"):
            made.start(made.snapshots)
