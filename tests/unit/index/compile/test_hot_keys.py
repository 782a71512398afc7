"""Hot keys are divided by further attributes where it pays, and every message still finds its clauses."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.index.compile import build, hot_keys
from selectroute.index.describe import statistics
from selectroute.index.errors import InvariantError
from selectroute.index.invariants import verify_snapshot
from selectroute.match.columns.from_messages import from_messages
from tests.support.merging import merge
from tests.unit.index.test_snapshot_files import with_tables

PAIR = "JMSType = 'car' AND color = 'red'"
OTHERS = [f"JMSType = 't{n % 50}' AND color = 'c{n // 50}' AND region = 'r0' AND w > 5" for n in range(900)]
"""So many clauses with other pairs, of one region, that their averages decide the tuple."""


def built(*selectors):
    snapshot = sr.build_snapshot((f"s{number}", text, None) for number, text in enumerate(selectors))
    verify_snapshot(snapshot)
    return snapshot


def tuples(snapshot):
    return {row.attributes: row for row in statistics(snapshot).tuples if row.entries}


def found(snapshot, **values):
    return snapshot.match(pa.record_batch({name: [value] for name, value in values.items()}))


def hot(regions, of_each=10):
    return [f"{PAIR} AND region = 'r{n % regions}' AND w > {n}" for n in range(of_each * regions)]


def test_a_hot_pair_is_divided_by_the_third_attribute():
    snapshot = built(*OTHERS, *hot(20))
    third = tuples(snapshot)["JMSType", "color", "region"]
    assert (third.keys, third.entries, third.largest) == (20, 200, 10)
    assert tuples(snapshot)["JMSType", "color"].entries == 900
    matches = found(snapshot, JMSType="car", color="red", region="r3", w=100)
    assert sorted(matches[0].tolist()) == [900 + n for n in range(200) if n % 20 == 3 and n < 100]
    assert matches.counters.judged == 0
    assert len(found(snapshot, JMSType="car", color="red", region="none", w=100)[0]) == 0


def test_cold_pairs_and_hot_ones_whose_clauses_are_alike_are_not_divided():
    few = [f"{PAIR} AND region = 'r{n}' AND w > {n}" for n in range(5)]
    alike = [f"{PAIR} AND region = 'one' AND w > {n}" for n in range(200)]
    for selectors in (alike, few):
        snapshot = built(*OTHERS, *selectors)
        assert set(tuples(snapshot)) == {("JMSType", "color")}
    assert not len(snapshot.segments[0].tables.divided_tuple)


def test_what_is_divided_is_divided_again():
    deep = [
        f"{PAIR} AND region = 'r{n % 12}' AND customer = {n // 12 % 24} AND w > {n}"
        for n in range(12 * 24 * 2)
    ]
    snapshot = built(*(f"{one} AND customer = 0" for one in OTHERS), *deep)
    paths = [path for path in tuples(snapshot) if len(path) == 4]
    assert len(paths) == 1
    assert set(paths[0]) == {"JMSType", "color", "region", "customer"}
    matches = found(snapshot, JMSType="car", color="red", region="r3", customer=5, w=10_000)
    assert sorted(matches[0].tolist()) == [900 + n for n in range(576) if n % 12 == 3 and n // 12 % 24 == 5]
    assert matches.counters.judged == 0


def test_what_has_not_the_third_attribute_stays_and_may_have_another():
    customers = [f"{PAIR} AND customer = {n} AND w > {n}" for n in range(40)]
    plain = [f"{PAIR} AND w > {n}" for n in range(10)]
    snapshot = built(*OTHERS, *hot(20), *customers, *plain)
    paths = tuples(snapshot)
    assert paths["JMSType", "color", "region"].entries == 200
    assert paths["JMSType", "color"].entries == 910
    last = len(OTHERS) + 200
    matches = found(snapshot, JMSType="car", color="red", region="none", customer=7, w=100)
    assert sorted(matches[0].tolist()) == [last + 7, *range(last + 40, last + 50)]


def test_members_of_in_are_keys_each_but_not_of_long_lists():
    short = [f"{PAIR} AND region IN ('a{n}', 'b{n}', 'all') AND w > 1" for n in range(30)]
    long = ", ".join(f"'m{n}'" for n in range(100))
    snapshot = built(*OTHERS, *short, f"{PAIR} AND region IN ({long}) AND w > 2")
    assert tuples(snapshot)["JMSType", "color", "region"].entries == 90
    for region, wanted in (("b7", [907]), ("all", [*range(900, 930)]), ("m50", [930])):
        matches = found(snapshot, JMSType="car", color="red", region=region, w=9)
        assert sorted(matches[0].tolist()) == wanted


def test_a_hot_value_of_one_attribute_is_divided_too():
    # Nearly all have an id of their own, so that by their averages an id is enough; one has many clauses.
    own = [f"id = 'i{n}' AND w > 5" for n in range(30_000)]
    shared = [f"id = 'hot' AND region = 'r{n}' AND w > {n}" for n in range(12)]
    snapshot = built(*own, *shared)
    assert tuples(snapshot)["id", "region"].entries == 12
    assert tuples(snapshot)["id",].entries == 30_000
    assert len(snapshot.segments[0].tables.divided_tuple) == 1
    assert found(snapshot, id="hot", region="r7", w=50)[0].tolist() == [30_007]


def test_programs_that_nobody_needs_any_more_are_dropped():
    snapshot = built(*OTHERS, *hot(500, of_each=2))
    kept = built(*OTHERS)
    assert statistics(snapshot).programs == statistics(kept).programs


def test_a_merge_divides_what_became_hot():
    snapshot = built(*OTHERS)
    changes = [sr.Add(f"n{n}", text) for n, text in enumerate(hot(20))]
    changed = snapshot.changed(changes)
    merged = merge(changed)
    verify_snapshot(merged)
    assert ("JMSType", "color", "region") in tuples(merged)


VALUES = {"a": "uv", "b": "uvwx", "c": "uvwxyz", "d": "uvw"}
equalities = st.fixed_dictionaries(
    {}, optional={name: st.lists(st.sampled_from(of), min_size=1, max_size=2) for name, of in VALUES.items()}
)
rests = st.sampled_from(
    ["", " AND w > 3", " AND w > 5 AND w < 8", " AND s LIKE '%x'", " AND w < 4 AND a <> 'w'"]
)


@st.composite
def selectors(draw):
    clauses = []
    for _ in range(draw(st.integers(1, 2))):
        keys = draw(equalities)
        parts = [
            f"{name} = '{values[0]}'"
            if len(set(values)) == 1
            else f"{name} IN ('{values[0]}', '{values[1]}')"
            for name, values in keys.items()
        ]
        clauses.append("(" + " AND ".join([*parts, "n = 1"]) + draw(rests) + ")")
    return " OR ".join(clauses)


messages = st.builds(
    lambda properties: sr.Message(properties=properties),
    st.fixed_dictionaries(
        {"n": st.sampled_from([1, 1, 1, 2])},
        optional={
            **{name: st.sampled_from([*of, 7]) for name, of in VALUES.items()},
            "w": st.integers(0, 10),
            "s": st.sampled_from(["x", "yx", "y"]),
        },
    ),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(selectors(), min_size=5, max_size=60), st.lists(messages, min_size=1, max_size=12))
def test_divided_leaves_agree_with_the_reference(registry, batch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_keys, "WORTH", 0.1)
        patch.setattr(build, "FEW", 2)
        snapshot = built(*registry)
    parsed = [sr.Selector(text) for text in registry]
    rows = snapshot.match(from_messages(batch, snapshot.reads))
    for row, message in zip(rows, batch, strict=True):
        wanted = [number for number, selector in enumerate(parsed) if selector.matches(message)]
        assert sorted(row.tolist()) == wanted


def test_the_generated_registries_are_divided():
    # What the property above is about must occur in it: all have `n = 1`, and few other values.
    texts = [
        f"n = 1 AND b = '{b}' AND c = '{c}' AND d = '{d}'" for b in "uvwx" for c in "uvwxyz" for d in "uvw"
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_keys, "WORTH", 0.1)
        assert len(built(*texts).segments[0].tables.divided_tuple)


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("divided_tuple", lambda a: a.__setitem__(0, 99), "a divided leaf is of a known tuple"),
        ("divided_tuple", lambda a: a.__setitem__(0, a[0] + 1), "beneath|tuple above"),
        ("tuple_above", lambda a: a.__setitem__(-1, -1), "one above it"),
        ("tuple_above", lambda a: a.__setitem__(-1, len(a) - 1), "comes after the one above it"),
        ("code_posting", lambda a: a.__setitem__(-2, a[-1]), "a divided leaf has a posting"),
        ("tuple_leaf", lambda a: a.__setitem__(-1, a[-1] + 1), "after the scan list"),
        ("slot", lambda a: a.__setitem__(np.flatnonzero(a >= 0)[-1], -1), "every other leaf has one key"),
    ],
)
def test_verify_notices_broken_divisions(name, change, sentence):
    snapshot = built(*OTHERS, *hot(20))
    tables = snapshot.segments[0].tables
    array = getattr(tables, name).copy()
    change(array)
    with pytest.raises(InvariantError, match=sentence):
        verify_snapshot(with_tables(snapshot, **{name: array}))


def test_residuals_without_a_term_are_the_same_where_what_is_left_is():
    others = {
        "term_first": np.array([0, 2, 4, 5]),
        "term_program": np.array([0, 1, 2, 1, 3]),
        "term_wanted": np.ones(5, np.uint8),
    }
    left = hot_keys.without(np.array([0, 1, 2, 1]), np.array([0, 2, 4, 3]), {}, others)
    assert left.tolist() == [3, 3, -1, 4]
    assert others["term_program"].tolist() == [0, 1, 2, 1, 3, 1, 2]
