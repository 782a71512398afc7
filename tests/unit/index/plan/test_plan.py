"""The plan of access keys: crowded attributes get a second one, and the number of tuples stays bounded."""

import selectroute as sr
from selectroute.index.describe import statistics
from selectroute.index.invariants import verify_snapshot
from tests.support.index_invariants import verify_index


def tuples(index):
    return {row.attributes: row for row in statistics(index.freeze()).tuples}


def test_crowded_equalities_are_filed_as_pairs():
    index = sr.Index()
    for number in range(2_000):
        index.add(f"s{number}", f"JMSType = 't{number % 20}' AND color = 'c{number % 99}' AND a > {number}")
    found = tuples(index)
    assert found["JMSType", "color"].entries == 2_000
    assert found["JMSType", "color"].largest <= 2


def test_a_unique_equality_needs_no_second_attribute():
    index = sr.Index()
    for number in range(500):
        index.add(f"s{number}", f"JMSCorrelationID = 'id{number}' AND color = 'blue'")
    assert tuples(index)["JMSCorrelationID",].entries == 500
    index = sr.Index()
    index.add("s", "color IN ('a', 'b', 'c')")
    assert tuples(index)["color",].keys == 3, "each key of an IN"


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
