"""What the arrays of a segment say of its clauses: groups, postings, intervals, prefixes."""

import numpy as np
import pytest

import selectroute as sr
from selectroute.arrays import tables as t
from selectroute.index.compile.dictionary import open_addressing
from selectroute.index.compile.layout import level_slices, levels
from selectroute.index.compile.prefixes import Prefixes, prefix_key
from selectroute.index.errors import InvariantError
from selectroute.index.invariants import verify_segment, verify_snapshot
from selectroute.index.snapshot import build_snapshot
from tests.unit.index.test_snapshot_files import with_tables


def segment_of(*selectors):
    index = sr.Index()
    for number, selector in enumerate(selectors):
        index.add(f"s{number}", selector)
    [segment] = index.freeze().segments
    verify_segment(segment)
    return segment


def flags_of(*selectors):
    return sorted(segment_of(*selectors).tables.group_flags.tolist())


def test_two_ends_of_one_attribute_are_an_interval_and_leave_nothing_to_judge():
    forms = "x > 1 AND x <= 5", "x BETWEEN 1 AND 5", "NOT (x < 1) AND NOT (x > 5)", "x < 5 AND x > 1"
    for selector in forms:
        [flags] = flags_of(selector)
        assert flags & t.INTERVAL and not flags & t.RESIDUAL
    [flags] = flags_of("y > 7 AND x > 1 AND x < 5")  # before a range that stands first
    assert flags & t.INTERVAL and flags & t.RESIDUAL


@pytest.mark.parametrize(
    "selector",
    ["x > 1 AND y < 5", "x > 1 AND x > 5", "x > 1 AND x < 5.5", "x > 1 AND NOT (x >= 5)", "x > 1 AND x < 5F"],
)
def test_ends_that_do_not_hold_for_the_same_values_are_no_interval(selector):
    [flags] = flags_of(selector)
    assert not flags & t.INTERVAL
    assert flags & t.RESIDUAL


def test_each_level_of_upper_ends_has_the_maxima_of_16_below():
    ends = np.arange(1_000, dtype=np.int64)[::-1].copy()
    found = levels(ends)
    assert [len(level) for level in found] == [1_000, 63, 4]
    assert found[1][:2].tolist() == [999, 983]
    assert level_slices(5, 1_000) == [slice(5, 1_005), slice(1_005, 1_068), slice(1_068, 1_072)]
    assert level_slices(0, 16) == [slice(0, 16)]
    assert level_slices(0, 17) == [slice(0, 17), slice(17, 19)]


def test_a_residual_that_many_entries_share_makes_a_group_of_its_own():
    shared = [f"weight > {number} AND s LIKE '%x'" for number in range(20)]
    others = [f"weight > {number} AND s LIKE '%{number}'" for number in range(5)]
    tables = segment_of(*shared, *others).tables
    sizes = np.diff(tables.entry_first)
    assert sorted(sizes.tolist()) == [5, 20]
    assert (tables.group_flags[sizes == 20] & t.UNIFORM).all()
    assert not (tables.group_flags[sizes == 5] & t.UNIFORM).any()


def test_a_pair_is_anchored_at_the_attribute_that_has_more_keys():
    selectors = [f"many = '{number}' AND few = '{number % 3}'" for number in range(60)]
    segment = segment_of(*(f"{one} AND x > {n}" for one in selectors for n in range(12)))
    tables = segment.tables
    names = [attribute.name for attribute in segment.attributes]
    if len(tables.posting_attribute):  # else `many` alone divides well enough
        assert {names[number] for number in tables.posting_attribute} == {"few"}


def test_a_prefix_is_filed_and_only_what_it_does_not_say_is_left():
    snapshot = build_snapshot([("a", "s LIKE 'abc%'", None), ("b", "s LIKE 'ab_d%' AND x > 1", None)])
    [segment] = snapshot.segments
    verify_snapshot(snapshot)
    assert segment.tables.group_first[1] == 0, "nothing is on the scan list"
    assert segment.scanned == {}
    assert segment.tables.prefix_bytes.tobytes() == b"ababc"
    assert sorted((segment.tables.group_flags & t.RESIDUAL).tolist()) == [0, t.RESIDUAL]
    assert not len(segment_of("s LIKE 'abc%' AND x = 'y'").tables.prefix_leaf), "an equality goes before it"
    # Where NULL is a key it has a leaf, too.
    assert segment_of("x IS NULL", "x = 'a'").tables.code_low[0] == t.CODE_NULL
    assert segment_of("x = 'a'").tables.code_low[0] > t.CODE_NULL


@pytest.mark.parametrize(
    "selector", ["s LIKE '%abc'", "s LIKE '_bc%'", "s NOT LIKE 'abc%'", "NOT (s LIKE 'a%')"]
)
def test_what_has_no_prefix_stays_on_the_scan_list(selector):
    segment = segment_of(selector)
    assert segment.tables.group_first[1] == 1
    assert sum(segment.scanned.values()) == 1


def test_the_parent_of_a_prefix_is_the_longest_other_one():
    texts = [b"a", b"ab", b"abc", b"abx", b"b", b"bcd"]
    arrays = Prefixes({0: texts[:5], 2: texts[5:]}).arrays(3)
    assert arrays["prefix_parent"].tolist() == [-1, 0, 1, 1, -1, -1]
    assert arrays["prefix_first"].tolist() == [0, 5, 5, 6]


def test_keys_of_prefixes_are_in_the_order_of_their_bytes():
    texts = sorted([b"", b"a", b"a\0", b"ab", b"\xff", b"\x80", b"abcdefgh", b"abcdefghi"])
    keys = [prefix_key(text) for text in texts]
    assert keys == sorted(keys)


def test_tables_side_by_side_each_reach_all_their_entries():
    chance = np.random.default_rng(1)
    hashes = chance.integers(0, 2**63, 300).astype(np.uint64)
    owner = np.sort(chance.integers(0, 20, 300))
    sizes = np.full(20, 64)
    first = np.arange(20) * 64
    table = open_addressing(hashes, first[owner], sizes[owner], 20 * 64)
    assert sorted(table[table >= 0].tolist()) == list(range(300))
    for number, hashed in enumerate(hashes):
        place = int(hashed) % 64
        while table[first[owner[number]] + place] != number:
            assert table[first[owner[number]] + place] >= 0
            place = (place + 1) % 64


def changed(tables, name, change):
    array = getattr(tables, name).copy()
    change(array)
    return {name: array}


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("high", lambda a: a.__setitem__(-1, a[-1] - 1), "the maximum|a maximum"),
        ("prefix_parent", lambda a: a.__setitem__(1, -1), "a parent is the longest prefix"),
        ("prefix_key", lambda a: a.__setitem__(0, 5), "a prefix has its key"),
        ("prefix_leaf", lambda a: a.__setitem__(0, a[1]), "every other leaf has one key"),
        ("posting_filter", lambda a: a.__setitem__(0, 0), "a posting's filter"),
        ("posting_attribute", lambda a: a.__setitem__(0, 99), "a posting reads a known attribute"),
        ("slot", lambda a: a.__setitem__(slice(None), np.roll(a, 1)), "posting"),
        ("tuple_leaf", lambda a: a.__setitem__(0, 0), "after the scan list are the tuples' leaves"),
        ("code_leaf", lambda a: a.__setitem__(slice(None), -1), "every other leaf has one key"),
        ("string_slot", lambda a: a.__ior__(np.uint64(1 << 63)), "hash|empty|known string|one slot"),
        ("group_high", lambda a: a.__setitem__(slice(None), -1), "an interval group has upper ends"),
        ("group_flags", lambda a: a.__ior__(np.uint16(t.UNIFORM)), "a uniform group"),
        ("term_wanted", lambda a: a.__ior__(np.uint8(4)), "the wanted truth of a term"),
    ],
)
def test_verify_notices_broken_access_paths(name, change, sentence):
    index = sr.Index()
    for number in range(40):
        index.add(f"i{number}", f"x BETWEEN {number} AND {90 - number}")
        for color in range(12):
            index.add(f"p{number}-{color}", f"a = '{number % 7}' AND b = '{color}' AND w > {number}")
    index.add("single", "c = 'only'")
    index.add("long", "s LIKE 'abc%' AND a1 LIKE '%y'")
    index.add("short", "s LIKE 'ab%'")
    snapshot = index.freeze()
    verify_snapshot(snapshot)
    tables = snapshot.segments[0].tables
    assert len(tables.slot) > 0
    with pytest.raises(InvariantError, match=sentence):
        verify_snapshot(with_tables(snapshot, **changed(tables, name, change)))
