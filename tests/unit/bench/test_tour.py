"""A run tells what it has finished, so that one that is ended early leaves a record."""

from __future__ import annotations

import pytest

from bench import report
from bench.definition import sizes
from bench.measure import WrongCountError, machine
from bench.tour import Choice, Tour

pytestmark = pytest.mark.slow


def test_each_finished_size_is_told(tmp_path):
    told = []
    tour = Tour(Choice(True, 1, ["parse"], [1_000]), sizes(), tmp_path)
    tour.run(lambda done, of: told.append((done, of, len(tour.samples))))
    assert [done for done, _, _ in told] == list(range(1, told[-1][1] + 1))
    assert told[-1][2] == len(tour.samples) > 0


@pytest.mark.nightly
def test_an_error_in_one_benchmark_does_not_end_the_run(tmp_path, monkeypatch):
    def fails(tour, benchmark, *_):
        raise RuntimeError("no memory")

    tour = Tour(Choice(True, 1, ["parse", "memory"], [1_000, 10_000]), sizes(), tmp_path)
    monkeypatch.setattr(Tour, "_one", fails)
    tour.run()
    assert {one.benchmark for one in tour.samples} == {"parse"}
    assert "`memory` at Z 10k" in tour.failed


def test_a_wrong_count_ends_the_run(tmp_path, monkeypatch):
    def fails(*_):
        raise WrongCountError("one too many")

    tour = Tour(Choice(True, 1, ["parse"], [1_000]), sizes(), tmp_path)
    monkeypatch.setattr(Tour, "_measure", fails)
    with pytest.raises(WrongCountError):
        tour.run()


def test_what_follows_a_job_by_the_clock_is_run_only_by_name(tmp_path):
    def chosen(*only):
        return {one.name for one in Tour(Choice(False, 1, only, []), [], tmp_path)._benchmarks}

    assert "kafka-memory" not in chosen() and "kafka-rates" in chosen()
    assert chosen("kafka-memory") == {"kafka-memory"}
    assert {"kafka-rates", "kafka-memory"} <= chosen("kafka")


def test_a_record_says_that_its_run_was_ended():
    described = machine(1)
    assert "; sources" in report.render([], described)
    ended = "the run was ended after 12 of 34 sizes"
    assert f"; {ended}; sources" in report.render([], {**described, "remark": ended})
    assert report.render([], {**described, "remark": ""}) == report.render([], described)
