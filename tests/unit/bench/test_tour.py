"""A run tells what it has finished, so that one that is ended early leaves a record."""

from __future__ import annotations

import pytest

from bench import report
from bench.definition import sizes
from bench.measure import machine
from bench.tour import Choice, Tour

pytestmark = pytest.mark.slow


def test_each_finished_size_is_told(tmp_path):
    told = []
    tour = Tour(Choice(True, 1, ["parse"], [1_000]), sizes(), tmp_path)
    tour.run(lambda done, of: told.append((done, of, len(tour.samples))))
    assert [done for done, _, _ in told] == list(range(1, told[-1][1] + 1))
    assert told[-1][2] == len(tour.samples) > 0


def test_a_record_says_that_its_run_was_ended():
    described = machine(1)
    assert "; sources" in report.render([], described)
    ended = "the run was ended after 12 of 34 sizes"
    assert f"; {ended}; sources" in report.render([], {**described, "remark": ended})
    assert report.render([], {**described, "remark": ""}) == report.render([], described)
