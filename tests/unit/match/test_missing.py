"""Columns that selectors read and a batch does not have are said once, or are an error."""

import logging
import re

import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.match import match as match_module
from selectroute.match.columns import missing as module
from selectroute.match.columns.missing import MissingColumnError, missing_columns, report_missing


@pytest.fixture(autouse=True, scope="module")
def _compiled():
    """Nothing is logged of the compiler."""
    sr.warm()


@pytest.fixture(autouse=True)
def _nothing_was_said(monkeypatch):
    monkeypatch.setattr(module, "_logged", {})


def snapshot():
    return sr.build_snapshot([("a", "Sku = 'x' AND weight > 1"), ("b", "color = 'red'")])


BATCH = pa.record_batch({"sku": ["x"], "weight": [2]})


def test_a_column_in_other_letters_is_named_once(caplog):
    made = snapshot()
    for _ in range(3):
        assert made.match(BATCH).ids().to_pylist() == [[]]
    assert [record.getMessage() for record in caplog.records] == [
        "selectors read 2 columns that the batch does not have: Sku (there is sku), color; "
        "they are NULL for every message"
    ]
    assert caplog.records[0].name == "selectroute" and caplog.records[0].levelno == logging.WARNING


WHOLE = pa.record_batch({"Sku": ["x"], "weight": [2], "color": ["red"]})


def test_a_later_batch_that_lacks_one_is_noticed_too(caplog):
    made = snapshot()
    assert made.match(WHOLE).ids().to_pylist() == [["a", "b"]]
    assert made.match(pa.Table.from_batches([WHOLE]).slice(0, 0)).ids().to_pylist() == []
    assert not caplog.records
    made.match(WHOLE.drop_columns(["color"]))
    assert ["1 column" in record.getMessage() for record in caplog.records] == [True]


def test_it_can_be_an_error_or_be_ignored(caplog):
    with pytest.raises(MissingColumnError, match="Sku \\(there is sku\\), color") as error:
        snapshot().match(BATCH, missing="error")
    assert error.value.columns == ("Sku", "color")
    snapshot().match(BATCH, missing="ignore")
    assert not caplog.records
    with pytest.raises(ValueError, match="missing is 'no': give 'warn', 'error' or 'ignore'"):
        snapshot().match(BATCH, missing="no")


def test_a_column_of_an_unlike_type_is_named_once_or_an_error(caplog):
    made = sr.build_snapshot([("a", "NOT (at > 5)"), ("b", "color = 'red'")])
    batch = pa.record_batch({"at": pa.array([0], pa.timestamp("us")), "color": ["blue"]})
    for _ in range(3):
        assert made.match(batch).ids().to_pylist() == [["a"]]
    (record,) = caplog.records
    assert record.getMessage().startswith("column 'at' has type timestamp[us]: ")
    assert "the one subscription that reads it" in record.getMessage()
    with pytest.raises(sr.ColumnTypeError, match="column 'at' has type timestamp"):
        sr.build_snapshot([("a", "NOT (at > 5)")]).match(batch, unlike="error")


@pytest.mark.parametrize(
    ("column", "selectors", "said"),
    [
        (pa.array([0.23], pa.float32()), ["a = 0.23"], "compare it with 0.23, a double .*write 0.23F"),
        (pa.array([0.23], pa.float32()), ["a = 1 OR a = 0.1"], "compare it with 0.1, a double"),
        (pa.array([0.23], pa.float32()), ["a = 1E300"], r"compare it with 1e\+300, a double"),
        (pa.array([0.23], pa.float32()), ["a = 0.23F", "a = 0.5", "a > 0.23", "a = 3"], None),
        (pa.array([0.23]), ["a = 0.23", "a BETWEEN 1 AND 2", "a IS NULL", "a <> b"], None),
        (pa.array(["red"]), ["a = 'red'", "a = 5"], "column 'a' is string, .* compare it with numbers: "),
        (pa.array(["red"]).dictionary_encode(), ["JMSType = 'x' AND a > 5"], "compare it with numbers: "),
        (pa.array(["red"]), ["a = 'x'", "a LIKE 'x%'", "a IS NULL", "a <> 'y'"], None),
        (pa.array([5]), ["a IN ('5', '6')"], "column 'a' is int64, .* compare it with strings: "),
        (pa.array([5]), ["a LIKE '%5'"], "compare it with strings: "),
        (pa.array([5]), ["a = 5 OR a > 6.5", "a = 0.23F"], None),
        (pa.array([True]), ["a = 'true'", "a = 1"], "compare it with numbers and strings: "),
        (pa.array([True]), ["a = TRUE", "a", "NOT a"], None),
        (pa.array([["red"]]), ["a = 5"], "column 'a' has type list"),  # of no property: said once
    ],
)
@pytest.mark.filterwarnings("error")
def test_constants_that_no_value_of_a_column_can_equal_are_said_once(caplog, column, selectors, said):
    made = sr.build_snapshot((f"s{number}", text) for number, text in enumerate(selectors))
    for _ in range(2):
        made.match(pa.record_batch({"a": column}), missing="ignore")
    sentences = [record.getMessage() for record in caplog.records]
    assert len(sentences) == (said is not None), sentences
    assert said is None or re.search(said, sentences[0])


def test_a_delta_is_looked_at_and_who_ignores_types_hears_nothing(caplog):
    made = sr.build_snapshot([("a", "a = 'x'")]).changed([sr.Add("b", "a = 5")])
    made.match(pa.record_batch({"a": ["x"]}), unlike="ignore")
    assert not caplog.records
    made.match(pa.record_batch({"a": ["x"]}))
    assert ["with numbers" in record.getMessage() for record in caplog.records] == [True]


def test_one_name_of_a_field_with_several_will_do():
    reads = ("JMSPriority", "Root.MQMD.Priority", "color", "jms.Pri", "@invalid-names")
    assert missing_columns(reads, {"jms.Pri", "color"}) == []
    assert missing_columns(reads, {"Color"}) == ["JMSPriority", "color"]


def test_what_is_remembered_is_bounded(caplog):
    for number in range(3 * module._SENTENCES):
        report_missing([f"n{number}"], [], "the batch", "warn")
    assert len(module._logged) == module._SENTENCES


def test_many_names_are_counted_and_what_cannot_be_shown_is_not():
    many = str(MissingColumnError([f"n{i}" for i in range(50)], [], "the batch"))
    assert "50 columns" in many and "n19 and 30 more" in many and "n20" not in many
    assert "\x1b" not in str(MissingColumnError(["a\x1b[31m"], [], "the batch"))


def test_batches_with_the_same_columns_are_looked_at_once(monkeypatch):
    made, looked = snapshot(), []
    monkeypatch.setattr(match_module, "missing_columns", lambda *given: looked.append(given) or [])
    for _ in range(3):
        made.match(WHOLE)
    assert len(looked) == 1
