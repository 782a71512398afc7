"""The scan list judged column by column, and LIKE asked once a string, against the reference evaluator."""

import random

import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.match.columns.batch import ColumnBatch
from selectroute.match.columns.from_messages import from_messages
from selectroute.match.encoding import lanes
from selectroute.match.encoding.lanes import FEWEST_ROWS, AttributeLanes, Lanes
from selectroute.match.kernel.kernel import BLOCK

PATTERNS = [f"s LIKE '%{a}%{b}'" for a in "abcé" for b in "abc_"] + [
    "s NOT LIKE '%a'",
    "s LIKE '%b%' OR n > 1",
]
SCANNED = [
    *PATTERNS,
    "n > 2 AND m < 5", "n > 2 AND m < 6", "n >= 2.5 AND m <= 5", "NOT (n < 3) AND m <> 4", "n <> 4 AND m = n",
    "n <> 2.5 AND m < 1.5e0", "n <> 3F AND m > 2F", "s <> 'ab' AND n + m > 6",
    "s NOT IN ('a', 'ab') AND m < 5",
    "n IS NOT NULL AND s LIKE '%b'", "NOT (n > 2) AND NOT (m <= 5)", "n BETWEEN 1 AND 6 AND m <> 2",
    "NOT (s = 'a') AND NOT (n = 3)", "NOT (s IN ('a', 'b'))", "NOT (t = TRUE) AND n <> 0", "t AND m <> n",
    "n > m", "n > 9223372036854775806 AND m <> 1", "n * 2 <> m OR s LIKE '_b'", "t <> FALSE AND m <> 3",
]  # fmt: skip
NUMBERS = {
    "longs": [None, *range(7), 2**53 + 1, 2**63 - 1],
    "ints": [sr.Int(number) for number in range(7)],
    "doubles": [None, 0.5, 2.5, 3.0, -0.0, float("nan"), float("inf"), 2.0**53],
    "floats": [sr.Float(2.5), sr.Float(3.0), sr.Float(2.0**24), sr.Float(float("nan"))],
    "nothing": [None],
    "mixed": [None, 1, sr.Int(2), 2.5, sr.Float(3.0), sr.Short(4), "5", True, 5, b"\x01"],
}
STRINGS = [None, "", "a", "b", "ab", "ba", "abc", "cab", "éa", "aéb", "é"]


def sent(numbers, rows, seed=3):
    chance = random.Random(seed)
    names = {"n": numbers, "m": numbers, "s": [*STRINGS, 5] if len(numbers) > 9 else STRINGS}
    names["t"] = [None, True, False, "TRUE"]
    made = [{name: chance.choice(values) for name, values in names.items()} for _ in range(rows)]
    plain = [{k: v for k, v in row.items() if v is not None and not isinstance(v, bytes)} for row in made]
    return [sr.Message(properties=row) for row in plain]


def built(selectors, dialect="jms"):
    ids = [f"s{number}" for number in range(len(selectors))]
    return sr.build_snapshot(pa.table({"id": ids, "selector": selectors, "dialect": [dialect] * len(ids)}))


def check(selectors, messages, dialect="jms"):
    known = [sr.Selector(text, dialect) for text in selectors]
    snapshot = built(selectors, dialect)
    matches = snapshot.match(from_messages(messages, snapshot.reads))
    for message, found in zip(messages, matches, strict=True):
        assert sorted(found.tolist()) == [i for i, one in enumerate(known) if one.matches(message)]


@pytest.mark.parametrize("rows", [1, FEWEST_ROWS - 1, FEWEST_ROWS, 300])
@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)
def test_scanned_selectors_agree_with_the_reference_on_columns_of_every_type(numbers, rows):
    check(SCANNED, sent(numbers, rows))


@pytest.mark.parametrize("dialect", ["ibm-jms", "ibm-mq"])
def test_scanned_selectors_agree_in_dialects_that_compare_otherwise(dialect):
    usable = []
    for text in SCANNED:
        try:
            usable.append(sr.Selector(text, dialect).text)
        except sr.InvalidSelectorError:
            continue
    assert len(usable) > 30
    check(usable, sent(NUMBERS["mixed"], 100), dialect)


def test_rows_beyond_a_block_are_judged_with_what_they_have():
    check(SCANNED[::3], sent(NUMBERS["longs"], 2 * BLOCK + 17))


@pytest.mark.slow
def test_ranges_that_hold_for_most_rows_end_from_entry_to_entry():
    """Sorted groups and intervals whose residuals differ, dense enough to be judged by columns."""
    chance = random.Random(4)
    texts = [f"n > {chance.randrange(4)} AND m <> {chance.randrange(7)}" for _ in range(60)]
    texts += [f"n < {chance.randrange(3, 8)} AND s LIKE '%{chance.choice('abc')}'" for _ in range(60)]
    texts += [f"n BETWEEN {chance.randrange(2)} AND {chance.randrange(2, 8)} AND m > n" for _ in range(40)]
    texts += [f"n BETWEEN {k} AND 9 AND s NOT LIKE '%{chance.choice('abc')}'" for k in range(30)]
    check(texts, sent(NUMBERS["longs"], 600))


@pytest.mark.parametrize("numbers", ["longs", "doubles"])
@pytest.mark.parametrize("operator", ["<>", "<", "<=", ">", ">="])
def test_a_comparison_that_is_left_to_columns_includes_its_bound_or_not(operator, numbers):
    """With so many bounds, entries of a sorted group have residuals of their own; some rows equal a bound."""
    texts = [f"n > {k % 4} AND m {operator} {k / 8 if k % 8 else k // 8}" for k in range(60)]
    check(texts, sent(NUMBERS[numbers], 200))


def test_selectors_alike_are_one_span_and_each_is_found_once():
    alike = ["s LIKE '%a' AND n <> 3"] * 20 + ["s LIKE '%a' OR s LIKE '%b' OR n <> m"] * 12
    check([*alike, "n <> 3 AND m <> 3", *alike], sent(NUMBERS["longs"], 100))


def test_a_message_whose_names_break_a_rule_is_taken_by_no_scanned_selector_that_minds():
    snapshot = built([f"n <> {k} AND m <> 1" for k in range(30)], "ibm-mq")
    rows = 40
    batch = pa.record_batch({"n": [1] * rows, "m": [2] * rows, "in": [None, "x"] * (rows // 2)})
    counts = [len(found) for found in snapshot.match(batch)]
    message = sr.Message(properties={"n": 1, "m": 2, "in": "x"})
    wanted = sum(sr.Selector(f"n <> {k} AND m <> 1", "ibm-mq").matches(message) for k in range(30))
    assert counts == [29, wanted] * (rows // 2)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_strings_that_come_again_have_the_same_verdicts_in_every_kind_of_column(type_):
    chance = random.Random(6)
    values = [chance.choice(STRINGS) for _ in range(3_000)]
    snapshot = built(PATTERNS)
    batch = pa.record_batch({"s": pa.array(values, pa.string()).cast(type_)})
    known = [sr.Selector(text) for text in PATTERNS]
    wanted = {
        value: [i for i, one in enumerate(known) if one.matches(sr.Message(properties={"s": value}))]
        for value in STRINGS
        if value is not None
    }
    for value, found in zip(values, snapshot.match(batch), strict=True):
        assert sorted(found.tolist()) == wanted.get(value, [])


def asked(snapshot, values):
    """The cells for the verdicts on a column, and how many patterns have some."""
    batch = ColumnBatch(pa.record_batch({"s": values}))
    [segment] = snapshot.segments
    columns = Lanes(snapshot, AttributeLanes(batch)).columns(segment, [False] * batch.rows)
    return columns.verdicts.cells, int(columns.verdicts.patterns[:, 2].sum())


def test_verdicts_are_kept_where_strings_come_again_and_in_bounded_memory(monkeypatch):
    snapshot = built([f"s LIKE '%{k}%'" for k in range(100)])
    again = [f"v{k % 50}" for k in range(1_000)]
    cells, patterns = asked(snapshot, again)
    assert (len(cells), patterns) == (100 * 50 // 4, 100)
    assert asked(snapshot, [f"v{k}" for k in range(1_000)])[1] == 0
    assert asked(snapshot, again[: FEWEST_ROWS - 1])[1] == 0
    monkeypatch.setattr(lanes, "MOST_CELLS", 1_030)
    cells, patterns = asked(snapshot, again)
    assert (len(cells), patterns) == (250, 20)
    found = snapshot.match(pa.record_batch({"s": again}))
    for value, numbers in zip(again, found, strict=True):
        assert sorted(numbers.tolist()) == [k for k in range(100) if str(k) in value]


def test_a_leaf_that_asks_like_rarely_does_not_number_its_strings():
    texts = [f"t = 't{k}' AND s LIKE '%{k}%'" for k in range(100)]
    snapshot = built(texts)
    assert snapshot.segments[0].crowded_patterns == []
    hot = built([f"t = 'hot' AND s LIKE '%{k}%'" for k in range(100)])
    [crowded] = hot.segments[0].crowded_patterns
    assert hot.segments[0].attributes[crowded].name == "s"
