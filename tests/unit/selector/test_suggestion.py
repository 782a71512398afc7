"""Suggestions for misspelt names are near, bounded and safe to print."""

from __future__ import annotations

import time

from selectroute.selector.errors import did_you_mean, nearest, unknown_field

FIELDS = ("id", "selector", "topic", "dialect")


def test_the_nearest_name() -> None:
    meant = {"selektor": "selector", "SELECTOR": "selector", "Topic": "topic", "zzz": None, 5: None, "": None}
    assert {name: nearest(name, FIELDS) for name in meant} == meant


def test_a_name_without_a_near_one_gets_the_list() -> None:
    assert did_you_mean("zzz", FIELDS, "the fields are") == "the fields are id, selector, topic, dialect"
    assert did_you_mean("zzz", [f"n{i}" for i in range(100)]).endswith("n29, …")


def test_what_a_user_wrote_is_cut_and_cannot_steer_a_terminal() -> None:
    said = unknown_field("a subscription", "\x1b[2J" + "x" * 500, FIELDS)
    assert "\x1b" not in said
    assert len(said) < 200


def test_a_long_name_costs_no_time() -> None:
    started = time.perf_counter()
    unknown_field("a subscription", "selectorselector" * 100_000, FIELDS)
    assert time.perf_counter() - started < 1
