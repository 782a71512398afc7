"""The mutable index: what it files where, what it refuses, what it explains."""

import gc

import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.index.compile.keys import MAX_ENTRIES
from selectroute.index.errors import (
    DuplicateSubscriptionError,
    InvalidIdError,
    InvariantError,
    UnknownSubscriptionError,
)
from selectroute.selector.limits import UNLIMITED
from selectroute.topics import InvalidTopicFilterError
from tests.support.index_invariants import verify_index

CAR = sr.Message(headers={"JMSType": "car"}, properties={"color": "blue", "weight": 3000}, topic="cars/eu")


@pytest.fixture
def index():
    index = sr.Index()
    index.add("blue", "JMSType = 'car' AND color = 'blue' AND weight > 2500", topic="cars/+")
    index.add("any")
    return index


def test_replace_keeps_the_topic_unless_one_is_given(index):
    index.replace("blue", "color = 'blue'")
    assert index["blue"].topic == "cars/+"
    assert [subscription.id for subscription in index] == ["blue", "any"], "and its place in the order"
    index.replace("blue", "color = 'blue'", topic=None)
    assert index["blue"].topic is None
    assert set(index.match(sr.Message(properties={"color": "blue"}))) == {"any", "blue"}


def test_half_of_a_surrogate_pair_is_refused_also_where_the_shape_is_known():
    index = sr.Index()
    for number in range(5):
        index.add(f"s{number}", f"a = 'value {number}'")
    with pytest.raises(sr.InvalidSelectorError, match="half of a surrogate pair"):
        index.add("half", "a = '\ud800'")
    assert len(index) == 5


def test_a_prompt_shows_what_users_need(index):
    index.add("s", "JMSType = 'car' AND weight > 5")
    shown = repr(index["s"])
    assert "weight > 5" in shown and "Clause" not in shown
    completed = {name for name in dir(index.freeze()) if not name.startswith("_")}
    assert {"match", "match_one", "changed", "find", "ids", "reads", "subscriptions", "dead"} <= completed
    assert not completed & {"deaths", "firsts", "dead_entries", "no_bytes", "readers"}


def test_many_are_added_up_to_the_first_that_is_refused():
    index = sr.Index()
    rows = [("a", "x = 1", None), ("b", "x = 2", "t/+"), ("c", "x =", None), ("d", "x = 3", None)]
    with pytest.raises(sr.InvalidSelectorError):
        index.add_many(rows)
    assert [subscription.id for subscription in index] == ["a", "b"]
    assert gc.isenabled()
    verify_index(index)


def test_a_rejected_change_changes_nothing(index):
    before = index.match(CAR)
    with pytest.raises(sr.InvalidSelectorError):
        index.replace("blue", "color = ")
    with pytest.raises(InvalidTopicFilterError):
        index.replace("blue", "color = 'blue'", topic="a+")
    with pytest.raises(DuplicateSubscriptionError, match="exists already"):
        index.add("blue")
    with pytest.raises(sr.InvalidSelectorError):
        index.add("new", "== 1")
    verify_index(index)
    assert index.match(CAR) == before
    assert len(index) == 2


@pytest.mark.parametrize(
    "call", [lambda i: i.remove("x"), lambda i: i.replace("x", ""), lambda i: i.explain("x", CAR)]
)
def test_unknown_subscription_is_named(index, call):
    with pytest.raises(UnknownSubscriptionError, match="there is no subscription 'x'"):
        call(index)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "x" * 129])
def test_an_id_of_other_characters_is_refused(name):
    with pytest.raises(InvalidIdError):
        sr.Index().add(name)


def test_a_message_only_judges_the_candidates_of_its_keys():
    index = sr.Index()
    for number in range(1_000):
        index.add(f"s{number}", f"JMSType = 't{number % 50}' AND color = 'c{number // 50}' AND weight > 5")
    index.match(sr.Message(headers={"JMSType": "t3"}, properties={"color": "c4", "weight": 9}))
    # The first few were filed before the index knew that one attribute alone is crowded.
    assert index.last_match.candidates <= 20


def test_explain_tells_the_path_the_candidates_and_the_truth_of_the_rest(index):
    explanation = index.explain("blue", CAR)
    assert explanation.matched
    assert ": 1 candidate, clause holds" in str(explanation)
    missed = index.explain("blue", sr.Message(properties={"color": "red"}, topic="cars/eu"))
    assert not missed.matched
    assert "UNKNOWN" in str(missed)
    assert "it matches every message" in str(index.explain("any", CAR))
    elsewhere = index.explain("blue", sr.Message(CAR.headers, CAR.properties, topic="boats"))
    assert not elsewhere.matched
    assert "topic filter cars/+: does not match" in str(elsewhere)
    index.add("long", sr.Selector(f"a = '{'x' * 20_000}'", limits=UNLIMITED))
    assert not index.explain("long", CAR).matched


def test_a_clause_without_equality_is_scanned_with_its_reason():
    index = sr.Index()
    index.add("range", "weight > 5")
    index.add("two", "a = b")
    index.add("like", "s LIKE '%x'")
    reasons = (", only ranges or <>", ": it does not compare one property with a constant", ", only LIKE")
    assert index.freeze().scanned == {f"it has no equality{reason}": 1 for reason in reasons}


def test_a_contradiction_is_filed_nowhere():
    index = sr.Index()
    index.add("never", "a = 1 AND a = 2")
    verify_index(index)
    assert index.match(sr.Message(properties={"a": 1})) == []
    assert len(index.freeze().segments[0].tables.entry_ordinal) == 0


def test_verify_notices_a_lost_entry(index):
    for buckets in index._buckets.values():
        next(iter(buckets.values())).clear()
    with pytest.raises(InvariantError, match="invariant broken"):
        verify_index(index)


def test_two_constants_in_a_part_that_stays_whole_can_be_frozen():
    """Once, one subscriber's comparison of two strings made every later snapshot fail."""
    index = sr.Index()
    index.add("strings", " AND ".join(["(a = 1 OR b = 1 OR 'x' = 'x')"] * 11))
    index.add("booleans", " AND ".join(["(a = 1 OR b = 1 OR TRUE <> TRUE)"] * 11))
    batch = pa.record_batch({"a": [1, 2]})
    assert [row.tolist() for row in index.freeze().match(batch)] == [[0, 1], [0]]


def test_an_in_list_times_many_alternatives_stays_bounded():
    values = ", ".join(f"'{number}'" for number in range(700))
    branches = " OR ".join(f"b > {number}" for number in range(400))
    index = sr.Index()
    index.add("s", f"a IN ({values}) AND ({branches})")
    snapshot = index.freeze()
    assert len(snapshot.segments[0].tables.entry_ordinal) <= MAX_ENTRIES
    assert snapshot.scanned == {"its equalities have too many values": 400}
    assert index.match(sr.Message(properties={"a": "7", "b": 9})) == ["s"]
    assert [len(row) for row in snapshot.match(pa.record_batch({"a": ["7", "x"], "b": [9, 9]}))] == [1, 0]
