"""The tuples of a segment: few, and such that a message finds few clauses."""

from collections import Counter
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.clauses.access import Equalities
from selectroute.index.compile.cost_plan import CostPlan
from selectroute.index.compile.keys import SCAN, KeyStatistics
from selectroute.index.describe import statistics
from selectroute.index.invariants import verify_snapshot
from tests.support.index_invariants import verify_index

NAMES = "abcdef"


def found(**keys):
    """What a clause can be filed under: the keys of each attribute."""
    return Equalities({name: frozenset(values) for name, values in keys.items()}, {}, True)


def plan_of(clauses, **options):
    counted, preferences = KeyStatistics(), Counter()
    for one in clauses:
        counted.add(one)
        preferences[tuple(sorted((name, len(keys)) for name, keys in one.keys.items()))] += 1
    return CostPlan(counted, preferences, **options)


def tuples(*selectors):
    snapshot = sr.build_snapshot((f"s{number}", text, None) for number, text in enumerate(selectors))
    return {row.attributes: row.entries for row in statistics(snapshot).tuples if row.entries}


def test_a_second_attribute_is_worth_its_place_where_the_first_is_crowded():
    crowded = [f"t = 't{n % 3}' AND c = 'c{n % 50}'" for n in range(1_000)]
    assert tuples(*crowded) == {("c", "t"): 150}  # those that are alike share an entry
    distinct = [f"id = 'i{n}' AND c = 'c'" for n in range(1_000)]
    assert tuples(*distinct) == {("id",): 1_000}


def test_wishes_share_a_tuple_that_serves_both():
    both = [f"t = 't{n % 40}' AND c = 'c{n // 40}'" for n in range(800)]
    third = [f"t = 't{n % 40}' AND c = 'c{n // 40}' AND w = 'w{n}'" for n in range(20)]
    assert tuples(*both, *third) == {("c", "t"): 820}


def test_tuples_that_a_message_rarely_meets_are_open_however_many_they_are():
    pairs = list(combinations("abcdefghijklmnopqrst", 2))
    values = [(pair, 20 * place + n) for place, pair in enumerate(pairs) for n in range(20)]
    rare = [f"{p} = 'v{value % 100}' AND {q} = 'w{value % 100}'" for (p, q), value in values]
    assert tuples(*rare) == dict.fromkeys(pairs, 20)


def test_fewer_tuples_are_open_where_each_costs_every_message():
    clauses = [found(**{p: [f"{n}"], q: [f"{n % 5}"]}) for p, q in combinations(NAMES, 2) for n in range(30)]
    cheap, dear = (len(plan_of(clauses, skip_ns=cost).tuples) for cost in (0.0, 100.0))
    assert 0 < dear < cheap


def test_a_wish_that_nobody_planned_for_takes_what_is_open():
    plan = plan_of([found(a=[str(n)]) for n in range(50)])
    assert plan.path(found(a="x", b="y"), 1) == ("a",)
    assert plan.path(found(b="y"), 1) == ("b",)
    assert plan.path(found(), 1) == SCAN


def test_an_attribute_with_too_many_keys_is_no_place():
    many = found(a=map(str, range(20_000)))
    assert plan_of([many]).path(many, 1) == SCAN
    some = found(a=map(str, range(200)), b=map(str, range(300)))
    assert len(plan_of([some]).path(some, 1)) == 1


keys = st.dictionaries(
    st.sampled_from(NAMES), st.frozensets(st.sampled_from("uvwxyz"), min_size=1), max_size=5
)


@settings(max_examples=40, deadline=None)
@given(st.lists(keys, min_size=1, max_size=40))
def test_every_clause_is_filed_under_attributes_that_it_has(registry):
    clauses = [Equalities(one, {}, True) for one in registry]
    plan = plan_of(clauses)
    for one in clauses:
        path = plan.path(one, 1)
        assert set(path) <= one.keys.keys()
        assert path == tuple(sorted(path))
        assert len(path) <= 2
        assert bool(path) == bool(one.keys)
        assert not path or path in plan.tuples
    # Nothing is open that nobody uses but for what others would serve as well.
    assert len(plan.tuples) <= len(clauses)


def tuples_of(index):
    return {row.attributes: row for row in statistics(index.freeze()).tuples}


def test_crowded_equalities_are_filed_as_pairs():
    index = sr.Index()
    for number in range(2_000):
        index.add(f"s{number}", f"JMSType = 't{number % 20}' AND color = 'c{number % 99}' AND a > {number}")
    found = tuples_of(index)
    assert found["JMSType", "color"].entries == 2_000
    assert found["JMSType", "color"].largest <= 2


def test_a_unique_equality_needs_no_second_attribute():
    index = sr.Index()
    for number in range(500):
        index.add(f"s{number}", f"JMSCorrelationID = 'id{number}' AND color = 'blue'")
    assert tuples_of(index)["JMSCorrelationID",].entries == 500
    index = sr.Index()
    index.add("s", "color IN ('a', 'b', 'c')")
    assert tuples_of(index)["color",].keys == 3, "each key of an IN"


def test_many_shapes_share_a_bounded_number_of_pairs():
    index = sr.Index()
    for number in range(6_000):
        left, right = number % 60, (number // 60) % 60
        index.add(
            f"s{number}", f"p{left} = 'x' AND q{right} = 'y' AND JMSType = 't{number % 7}' AND n > {number}"
        )
    verify_index(index)
    snapshot = index.freeze()
    verify_snapshot(snapshot)
    pairs = [row for row in statistics(snapshot).tuples if len(row.attributes) == 2]
    # Of the 3,600 pairs of a p and a q, none holds as much as those of a p and the type.
    assert 60 <= len(pairs) <= 120
    assert max(row.largest for row in statistics(snapshot).tuples) <= 20
    message = sr.Message(headers={"JMSType": "t1"}, properties={"p1": "x", "q0": "y", "n": 9_999})
    wanted = [f"s{n}" for n in range(6_000) if n % 60 == 1 and (n // 60) % 60 == 0 and n % 7 == 1]
    assert sorted(index.match(message)) == sorted(wanted)
