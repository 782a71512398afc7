"""The stages of the kernel where they are cut into blocks, grow, or share work, against the reference."""

import random

import numpy as np
import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.arrays import segment
from selectroute.index.invariants import verify_snapshot
from selectroute.match.columns.from_messages import from_messages
from selectroute.match.kernel.kernel import BLOCK, WAITING, emit


def check(selectors, messages, dialect="jms"):
    """The kernel finds what the reference evaluator finds. Returns the counters."""
    index = sr.Index()
    known = [sr.Selector(text, dialect) for text in selectors]
    for number, selector in enumerate(known):
        index.add(f"s{number}", selector)
    snapshot = index.freeze()
    verify_snapshot(snapshot)
    matches = snapshot.match(from_messages(messages, snapshot.reads))
    for message, found in zip(messages, matches, strict=True):
        wanted = [number for number, selector in enumerate(known) if selector.matches(message)]
        assert sorted(found.tolist()) == wanted
    return matches.counters


def of(**properties):
    return sr.Message(properties=properties)


NUMBERS = [
    None, "5", True, *range(-3, 12), -(2**63), 2**63 - 1, 2**53 + 1, sr.Int(4), sr.Float(2.0**24),
    sr.Float(4.5),
    sr.Float(float("nan")), -0.0, 0.0, 4.5, 2.0**53, 1e300, float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
ENDS = ["-9223372036854775808", "-2", "0", "3", "4", "9", "16777217"]
ENDS += ["9007199254740993", "9223372036854775807"]
REAL_ENDS = ["-1e308", "-0.0", "0.0", "4.5", "9007199254740992.0", "1e308"]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["jms", "ibm-jms", "ibm-mq"])
@pytest.mark.parametrize("ends", [ENDS, REAL_ENDS], ids=["longs", "doubles"])
def test_intervals_hold_for_the_values_between_their_ends(ends, dialect):
    forms = ["x > {} AND x < {}", "x >= {} AND x <= {}", "x > {} AND x <= {}", "x >= {} AND x < {}"]
    forms += ["NOT (x < {}) AND NOT (x > {})", "NOT (x <= {}) AND NOT (x >= {})", "x BETWEEN {} AND {}"]
    selectors = [form.format(low, high) for form in forms for low in ends for high in ends]
    check(selectors, [of(x=value) for value in NUMBERS], dialect)


@pytest.mark.slow
def test_many_intervals_cost_what_holds_and_not_what_there_is():
    chance = random.Random(5)
    selectors = []
    for number in range(3_000):
        low = chance.randrange(10_000)
        width = chance.choice([0, 1, 20, 5_000])
        more = " AND y = 1" if number % 3 == 0 else " AND s LIKE '%a'" if number % 3 == 1 else ""
        selectors.append(f"x BETWEEN {low} AND {low + width}{more}")
    messages = [
        of(x=chance.randrange(11_000), y=chance.randrange(3), s=chance.choice("ab")) for _ in range(60)
    ]
    check(selectors, messages)


def test_sorted_groups_of_every_size_are_cut_at_the_value():
    """Below, at and above the sizes at which the search counts, steps, and must not read on."""
    for size in (1, 2, 15, 16, 17, 33, 48, 63, 64, 65, 129, 600):
        selectors = [f"x > {bound}" for bound in range(size)] + [f"x <= {bound}.5" for bound in range(size)]
        check(selectors, [of(x=value) for value in (-1, 0, size // 2, size - 1, size, 2.5, sr.Float(1.0))])


def test_rows_beyond_a_block_and_more_visits_than_there_is_room_for():
    selectors = [f"a{k} = '{v}'" for k in range(12) for v in range(2)]
    index = sr.Index()
    for number, text in enumerate(selectors):
        index.add(f"s{number}", text)
    rows = 2 * BLOCK + 17
    chance = np.random.default_rng(2)
    values = chance.integers(0, 3, (12, rows))
    batch = pa.record_batch({f"a{k}": pa.array(values[k].astype(str)) for k in range(12)})
    matches = index.freeze().match(batch)
    wanted = (values < 2).sum(axis=0)
    assert np.diff(matches.offsets).tolist() == wanted.tolist()
    for row in (0, BLOCK - 1, BLOCK, rows - 1):
        assert sorted(matches[row].tolist()) == [2 * k + v for k, v in enumerate(values[:, row]) if v < 2]


def test_a_row_with_more_spans_than_there_is_room_for():
    """Every second interval holds, so each is a run by itself."""
    selectors = [f"x BETWEEN 0 AND {number % 2 * 10}" for number in range(2)]
    selectors += [f"x > {number} AND x < {20_000 if number % 2 else number + 1}" for number in range(9_000)]
    index = sr.Index()
    for number, text in enumerate(selectors):
        index.add(f"s{number}", text)
    [found] = index.freeze().match(pa.record_batch({"x": [10_000]}))
    assert sorted(found.tolist()) == list(range(3, 9_002, 2))


def test_identical_selectors_are_judged_once():
    counters = check(["x > 1 AND s LIKE '%a'"] * 50, [of(x=2, s="ba"), of(x=2, s="b"), of(x=0, s="ba")])
    assert counters.judged == 2


def test_a_guard_that_many_branches_share_gives_each_its_truth():
    wide = " OR ".join(f"(c = 'v{number % 5}' AND x > {number})" for number in range(60)) + " OR y + 1 > z"
    messages = [of(c="v1", x=value, y=y, z=1) for value in (30, "text", None) for y in (1, "no", None, True)]
    check([wide, f"NOT ({wide})"], messages, "ibm-jms")


def test_values_find_all_prefixes_that_they_have():
    texts = ["a", "ab", "abc", "abcdefgh", "abcdefghi", "abcdefghij", "abcdefgx", "b", "é", "éa", "zz"]
    texts += ["\U0001f600"]
    selectors = [f"s LIKE '{text}%'" for text in texts]
    selectors += [f"s LIKE '{text}_x%'" for text in texts] + [f"s LIKE '{text}%' AND x > 3" for text in texts]
    selectors += ["s LIKE 'abc'", "s LIKE 'a!%b%' ESCAPE '!'", "s LIKE '%b'", "t LIKE 'ab%'"]
    values = [*texts, *(text + "qx" for text in texts), "", "abcdefg", "abcdefghz", "a%bc", "A"]
    values += ["\U0001f601", "y" * 30]
    messages = [of(s=value, x=x, t="abx") for value in values for x in (3, 4)]
    messages += [of(s=value) for value in (None, 5, True)]
    check(selectors, messages)
    check(selectors, messages, "ibm-jms")


def test_pairs_of_many_attributes_find_what_the_message_has():
    chance = random.Random(3)
    names = [f"a{k}" for k in range(12)]
    selectors = []
    for number in range(800):
        one, other = chance.sample(names, 2)
        selectors.append(
            f"{one} = 'v{chance.randrange(9)}' AND {other} = 'v{chance.randrange(9)}' AND x > {number % 7}"
        )
    selectors += [f"{one} IS NULL AND {other} = 'v1'" for one in names for other in names if one != other]
    messages = [
        of(x=chance.randrange(8), **{name: f"v{chance.randrange(10)}" for name in chance.sample(names, 6)})
        for _ in range(60)
    ]
    check(selectors, messages)


def test_a_value_with_more_postings_than_are_loaded_at_once():
    count = WAITING + 4
    pairs = [(kind, name) for kind in range(30) for name in range(count)]
    pairs += [(kind, name) for kind in (7, 8) for name in range(3)]
    snapshot = sr.build_snapshot(
        (f"s{number}", f"kind = 'k{kind}' AND a{name} = 'x'", None)
        for number, (kind, name) in enumerate(pairs)
    )
    assert np.diff(snapshot.segments[0].tables.code_posting).max() > WAITING
    present = {kind: set(range(0, count, kind + 1)) for kind in (0, 1, 5, 7, 8, 200)}
    rows = [{f"a{name}": "x" for name in names} | {"kind": f"k{kind}"} for kind, names in present.items()]
    matches = snapshot.match(pa.RecordBatch.from_pylist(rows, pa.schema(
        [(name, pa.string()) for name in ("kind", *(f"a{name}" for name in range(count)))]
    )))  # fmt: skip
    for found, (kind, names) in zip(matches, present.items(), strict=True):
        wanted = [number for number, pair in enumerate(pairs) if pair[0] == kind and pair[1] in names]
        assert sorted(found.tolist()) == wanted


def test_strings_that_differ_in_one_byte_or_in_length_are_told_apart():
    texts = [("0123456789abcdef" * 4)[:size] for size in range(1, 60)]
    changed = [
        text[:place] + "#" + text[place + 1 :]
        for text in texts
        for place in (0, len(text) // 2, len(text) - 1)
    ]
    check([f"s = '{text}'" for text in texts], [of(s=text) for text in (*texts, *changed, "")])


def test_the_last_string_of_a_column_is_read_within_its_bytes():
    for values in (["a"], ["abcdefg"], ["abcdefgh"], ["x", "abcdefghi"], ["abcdefg", ""]):
        index = sr.Index()
        for number, text in enumerate(("a", "abcdefg", "abcdefgh", "abcdefghi", "x")):
            index.add(f"s{number}", f"s = '{text}'")
        for start in range(len(values)):
            column = pa.array(values).slice(start)
            found = index.freeze().match(pa.record_batch({"s": column}))
            assert np.diff(found.offsets).tolist() == [int(value != "") for value in values[start:]]


def test_runs_are_copied_in_their_order():
    source = np.arange(100, dtype=np.int32)[::-1].copy()
    source.flags.writeable = False
    runs = np.array([[3, 5], [0, 0], [90, 100], [4, 5]])
    wanted = np.concatenate([source[start:end] for start, end in runs])
    assert emit(runs, np.array([0, len(wanted)]), source).tolist() == wanted.tolist()
    assert emit(runs[:0], np.zeros(4, np.int64), source).tolist() == []


@pytest.mark.parametrize("most", [1 << 23, 3, 0], ids=["all-fit", "some-fit", "none-fits"])
def test_leaves_with_one_group_and_with_several_are_matched_alike(monkeypatch, most):
    # Those that do not fit into a word are read from the tables.
    monkeypatch.setattr(segment, "ENTRY_LIMIT", most)
    selectors = [f"k = 'a' AND x > {bound}" for bound in range(20)]  # one group of twenty entries
    selectors += ["k = 'b' AND x > 1", "k = 'b' AND x > 3"]
    selectors += ["k = 'c' AND x < 3", "k = 'c' AND x > 1", "k = 'c'"]  # three groups
    selectors += ["k = 'd'", "k = 'd'", "k = 'e' AND y >= 2.5"]
    made = sr.build_snapshot((f"s{number}", text, None) for number, text in enumerate(selectors))
    words = made.segments[0].leaf_groups[:, 1]
    known = np.count_nonzero(words >= 0)
    assert known == {1 << 23: 4, 3: 3, 0: 0}[most]  # a, b, d and e; c has several groups
    check(selectors, [of(k=k, x=x, y=y) for k in "abcdef" for x in (0, 2, 30, None, "z") for y in (2.5, 1)])


def test_leaves_are_known_only_where_nothing_is_judged():
    made = sr.build_snapshot(pa.table({"id": ["a", "b"], "selector": ["k = 1", "k = 1 AND s LIKE '%a'"]}))
    assert made.segments[0].leaf_groups.shape == (0, 2)


@pytest.mark.parametrize(
    "other",
    ["b = 1", "b = 1 AND t LIKE '%y%'", "b = 1 AND w < {}", "w < {}", "t LIKE '%y%'"],
    ids=["one key", "one residual", "residuals", "scanned", "one residual that is scanned"],
)
@pytest.mark.parametrize("messages", [1, 3, 100])
def test_one_span_of_subscriptions_of_which_every_other_was_found_before_is_as_many_runs(other, messages):
    selectors = [f"{'ac'[number % 2]} = 1 OR {other.format(20 + number)}" for number in range(200)]
    check(selectors, [of(a=1, b=1, w=5, t="xyz")] * messages)
