"""Digests: of what was written, and of nothing else."""

from __future__ import annotations

from itertools import combinations

from selectroute.store.engine import START, canonical, chained, row_digest


def test_fields_that_differ_are_written_differently():
    rows = [(), (None,), (None, None), ("",), ("", ""), ("a", "b"), ("ab",), ("1:a",), ("a", None), ("-",)]
    rows += [(1,), (11,)]
    for one, other in combinations(rows, 2):
        assert canonical(*one) != canonical(*other), (one, other)


def test_a_number_is_what_its_digits_are():
    assert row_digest(12) == row_digest("12")  # the databases disagree on the types of what they return


def test_a_chain_depends_on_all_before_it():
    one, other = chained(START, "a"), chained(START, "b")
    assert chained(one, "c") != chained(other, "c")
    assert len(one) == len(START) == 32
