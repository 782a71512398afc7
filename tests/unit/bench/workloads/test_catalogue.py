"""Every workload: its recorded counts, by brute force, the kernel, the index and the reference evaluator."""

import numpy as np
import pytest

import selectroute as sr
from bench.definition import MESSAGES, TEXTS, sizes
from bench.matching.brute import BruteEngine, expected
from bench.matching.engines import IndexEngine, KernelEngine, KernelOneEngine, build, to_messages
from bench.workloads.catalogue import WORKLOADS
from bench.workloads.conditions import And, Columns, Compare, IsNull, Not, matching
from bench.workloads.oracle import Oracle

SIZES = [size for size in sizes() if size.workload not in (TEXTS, MESSAGES)]
SMALL = [size for size in SIZES if size.rules <= 1_000 and size.rules * size.checked <= 2_000_000]
ENTRIES = {"or": 2, "like": 20}
"""How many rules a short run takes of a workload, 300 of the others."""


def _batch(size, count):
    return WORKLOADS[size.workload].messages(size.rules, count, 0)


def test_every_workload_has_a_size_and_every_size_a_workload():
    assert {size.workload for size in SIZES} == WORKLOADS.keys()


@pytest.mark.nightly
@pytest.mark.parametrize("size", SMALL, ids=lambda size: size.name)
def test_brute_force_finds_the_recorded_counts(size):
    conditions = list(WORKLOADS[size.workload].conditions(size.rules))
    engine = BruteEngine(conditions, [_batch(size, size.checked)], size.checked)
    assert engine.judge() == size.check
    assert engine.run() == size.check.matches


@pytest.mark.parametrize(
    "size", [size for size in SMALL if size.workload != "or"], ids=lambda size: size.name
)
def test_kernel_finds_the_recorded_counts(size, tmp_path):
    # Long strings are slow for a general pattern: brute force and the kernel agree on fewer of them.
    checked = min(size.checked, 20) if size.workload == "like" else size.checked
    batch = _batch(size, checked)
    built = build(lambda: WORKLOADS[size.workload].texts(size.rules), tmp_path)
    check = expected(list(WORKLOADS[size.workload].conditions(size.rules)), batch)
    assert checked < size.checked or check == size.check
    assert KernelEngine(built, [batch], checked).judge() == check


@pytest.mark.nightly
@pytest.mark.parametrize("name", WORKLOADS)
def test_all_agree_with_the_reference_evaluator(name, tmp_path):
    workload, rules, count = WORKLOADS[name], ENTRIES.get(name, 300), 30
    batch = workload.messages(max(rules, 1_000), count, 0)
    sent = to_messages(batch)
    texts = list(workload.texts(rules))
    judged = [sr.Selector(text, limits=sr.Limits(length=10**6)) for text in texts]
    found = [number for number, one in enumerate(judged) for message in sent if one.matches(message)]
    check = expected(list(workload.conditions(rules)), batch)
    assert (check.matches, check.rule_sum) == (len(found), sum(found))
    built = build(lambda: texts, tmp_path)
    assert KernelEngine(built, [batch], count).judge() == check
    assert KernelOneEngine(built, batch, count, count).run().matches == check.matches
    assert IndexEngine(built.index, sent, count).judge() == check


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_message_does_not_depend_on_where_one_starts(name):
    messages = WORKLOADS[name].messages
    assert messages(1_000, 5, 7).equals(messages(1_000, 12, 0).slice(7))


@pytest.mark.parametrize("size", [size for size in SIZES if size.workload == "G"], ids=lambda size: size.name)
def test_growth_has_five_matches_a_message(size):
    from bench.workloads.growth import messages, rules

    assert Oracle(rules(size.rules)).expected(messages(size.rules, size.checked)[0]) == size.check
    assert size.check.matches / size.checked == pytest.approx(5, rel=0.1)


@pytest.mark.parametrize("size", [size for size in SIZES if size.workload == "D"], ids=lambda size: size.name)
def test_many_subscribe_to_the_same_thousand_selectors(size):
    from bench.matching.expanded import ExpandedEngine
    from bench.workloads.alike import DISTINCT, rules
    from bench.workloads.plain import messages

    sent, batch = messages(size.checked)
    assert Oracle(rules(size.rules)).expected(sent) == size.check
    engine = ExpandedEngine(WORKLOADS["D"].texts, size.rules, [batch], size.checked)
    assert engine.judge() == size.check
    assert engine.run() == size.check.matches
    assert len(set(WORKLOADS["D"].texts(size.rules))) <= DISTINCT


@pytest.mark.parametrize("size", [size for size in SIZES if size.workload == "R"], ids=lambda size: size.name)
def test_nine_replies_of_ten_are_waited_for(size):
    from bench.workloads.replies import expected

    assert expected(size.rules, size.checked) == size.check
    assert size.check.matches / size.checked == pytest.approx(0.9, abs=0.02)


def test_ids_of_replies_are_three_draws_of_sixteen_digits():
    def draw(place):
        z = (3 + 0x9E3779B97F4A7C15 * (place + 1)) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    texts = list(WORKLOADS["R"].texts(3))
    digits = "".join(f"{draw(place):016x}" for place in (6, 7, 8))
    assert texts[2] == f"JMSCorrelationID = 'ID:{digits}'"


def test_brute_force_takes_null_as_unknown():
    batch = WORKLOADS["M"].messages(0, 50, 0)
    columns, name = Columns(batch), "p0"
    null = set(np.flatnonzero(batch.column(name).is_null().to_numpy(zero_copy_only=False)).tolist())
    is_x = Compare(name, "=", "x")
    assert 0 < len(null) < 50
    assert set(matching(IsNull(name), columns).tolist()) == null
    assert not null & set(matching(Not(is_x), columns).tolist())
    # FALSE AND UNKNOWN is FALSE: its opposite is TRUE of a row without a value.
    never = Compare("p2", "=", "x")
    both = set(matching(Not(And((is_x, never))), columns).tolist())
    assert both & null == null - set(matching(IsNull("p2"), columns).tolist())


def test_brute_force_knows_a_column_that_is_missing():
    columns = Columns(WORKLOADS["R"].messages(1_000, 10, 0))
    assert len(matching(IsNull("none"), columns)) == 10
    assert len(matching(Not(Compare("none", ">", 1)), columns)) == 0
