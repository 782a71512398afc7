"""One message at a time: the same matches as the reference index, with memory that is used again."""

import threading

import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.index.changes import Add, Remove, Replace
from selectroute.match import one_row, single
from selectroute.match.encoding import encode
from selectroute.match.kernel import kernel

REGISTRY = [
    ("equal", "color = 'red'"),
    ("pair", "color = 'red' AND JMSType = 'car'"),
    ("range", "weight > 2500"),
    ("between", "JMSType = 'car' AND weight BETWEEN 10 AND 20.5"),
    ("either", "color = 'red' OR weight = 15 OR JMSPriority = 4"),
    ("prefix", "name LIKE 'ab%'"),
    ("pattern", "name LIKE '%yz' AND color <> 'blue'"),
    ("null", "color IS NULL"),
    ("null-of-none", "missing IS NULL AND JMSType = 'car'"),
    ("flag", "flag"),
    ("not", "NOT (weight <= 7)"),
    ("sum", "weight + 1 = 16"),
    ("real", "real < 0.5"),
    ("mode", "JMSDeliveryMode = 'PERSISTENT'"),
    ("id", "JMSCorrelationID = 'ID:1'"),
    ("any", None),
]
TOPICS = [("topic", "weight > 0", "cars/+"), ("level", None, "#/eu"), ("plain", None, "cars/eu")]
MESSAGES = [
    sr.Message(),
    sr.Message({"JMSType": "car"}, {"color": "red", "weight": 15}),
    sr.Message({"JMSType": "car", "JMSPriority": 4}, {"color": "blue", "weight": 3000.0}, "cars/eu"),
    sr.Message({"JMSCorrelationID": "ID:1", "JMSDeliveryMode": "PERSISTENT"}, {"name": "abxyz"}, "cars/eu"),
    sr.Message({"JMSCorrelationID": "ID:" + "0" * 48}, {"name": "äöyz", "color": None}, "bikes/eu"),
    sr.Message(properties={"weight": sr.Byte(15), "flag": True, "real": sr.Float(0.25)}),
    sr.Message(properties={"weight": sr.Int(-1), "flag": False, "real": float("nan")}),
    sr.Message(properties={"weight": "15", "flag": "true", "color": 1, "name": b"abyz"}),
    sr.Message(properties={"color": "red"}, unlike=("weight", "flag", "name")),
    sr.Message(properties={f"p{number}": number for number in range(100)} | {"color": "red"}),
]


def index_of(rows):
    index = sr.Index()
    for id, selector, *topic in rows:
        index.add(id, selector, *topic)
    return index


def matched(snapshot, message):
    ids = snapshot.match_one(message).ids()
    assert len(ids) == len(set(ids)), "each subscription once"
    return set(ids)


def agree(index, messages, snapshot=None):
    """Assert that a snapshot gives each message what the index gives it."""
    snapshot = index.freeze() if snapshot is None else snapshot
    for message in messages:
        assert matched(snapshot, message) == set(index.match(message)), message


def test_it_matches_as_the_index_does_whatever_came_before():
    agree(index_of([*REGISTRY, *TOPICS]), [*MESSAGES, *reversed(MESSAGES)])
    for row in [*REGISTRY, *TOPICS]:
        agree(index_of([row]), MESSAGES)
    agree(sr.Index(), MESSAGES)
    with pytest.raises(TypeError, match="a Message"):
        sr.Index().freeze().match_one({"color": "red"})


def test_it_has_ordinals_and_ids():
    snapshot = index_of(REGISTRY).freeze()
    found = snapshot.match_one(sr.Message({"JMSType": "car"}, {"color": "red"}))
    assert len(found) == len(found.ordinals) == 5
    assert repr(found) == "MessageMatches(5 matches)"
    assert found.ordinals.dtype == found.refused.dtype == "int32"
    assert found.ids() == [snapshot.ids[one].as_py() for one in found.ordinals]
    assert not len(found.refused)


def test_the_result_stays_as_it_is_when_the_next_message_is_matched():
    snapshot = index_of(REGISTRY).freeze()
    first = snapshot.match_one(MESSAGES[1])
    before = first.ordinals.tolist()
    snapshot.match_one(MESSAGES[3])
    assert first.ordinals.tolist() == before


def test_many_matches_have_room_and_come_once():
    index = index_of([(f"s{n}", f"a > {n} OR b = 1") for n in range(3_000)])
    agree(index, [sr.Message(properties={"a": 5_000, "b": 1}), sr.Message(properties={"a": 2_000})])


@pytest.mark.parametrize("dialect", ["ibm-jms", "ibm-mq", "mqe"])
def test_fields_with_several_names_are_read(dialect):
    texts = ("JMSPriority = 4", "JMSType = 'car'", "color IS NULL")
    agree(index_of([(text[:4], sr.Selector(text, dialect)) for text in texts]), MESSAGES)


def test_ids_as_octets_and_names_that_break_a_rule():
    index = sr.Index()
    index.add("id", sr.Selector(f'Root.MQMD.MsgId = "0x{"AB" * 24}"', "ibm-mq"))
    index.add("name", sr.Selector("color = 'red'", "ibm-mq"))
    red, broken = {"color": "red"}, {"color": "red", "JMSbad": 1}
    messages = [sr.Message(properties=properties) for properties in (red, broken, red)]
    agree(index, [sr.Message({"JMSMessageID": "ID:" + "AB" * 24}), *messages])


def test_long_strings_have_room():
    index = index_of(
        [("end", "name LIKE '%z'"), ("equal", "other = 'x'"), ("longest", f"name = '{'y' * 9_000}'")]
    )
    snapshot = index.freeze()
    for size in (10, 5_000, 9_000, 3 << 20, 20):
        names = ("y" * (size - 1) + last for last in "yz")
        agree(index, [sr.Message(properties={"other": "x", "name": name}) for name in names], snapshot)
    (idle,) = snapshot.__dict__["_idle_matchers"]
    assert len(idle._text) <= single._MOST_TEXT, "a huge message keeps no memory"


def test_many_leaves_have_room():
    index = index_of([(f"s{n}", f"a{n} = 1 OR b = {n} OR c > {n}") for n in range(1_500)])
    agree(index, [sr.Message(properties={f"a{n}": 1 for n in range(999)} | {"c": 700})] * 2)


def test_changes_and_removals_are_respected():
    index = index_of([*REGISTRY, *TOPICS])
    snapshot = index.freeze()
    for number in range(3):
        snapshot = snapshot.changed([Add(f"new-{number}", f"color = 'red' OR weight = {number}", None)])
        index.add(f"new-{number}", f"color = 'red' OR weight = {number}")
    snapshot = snapshot.changed([Remove("pair"), Replace("equal", "color = 'blue' OR weight = 15")])
    index.remove("pair")
    index.replace("equal", "color = 'blue' OR weight = 15")
    agree(index, MESSAGES, snapshot)


def test_subscriptions_that_share_entries_are_matched():
    texts = ("color = 'red' OR weight > 2", "weight > 2", "name LIKE '%z'")
    rows = [(f"s{n}", texts[n % 3]) for n in range(90)]
    agree(index_of(rows), MESSAGES, sr.build_snapshot(rows))


@pytest.mark.parametrize("rounds", [1, 200])
def test_threads_match_at_once(rounds):
    index = index_of([*REGISTRY, *TOPICS])
    expected = [set(index.match(message)) for message in MESSAGES]
    wrong = []

    def work(snapshot, start):
        start.wait()
        for _ in range(rounds):
            for message, ids in zip(MESSAGES, expected, strict=True):
                if matched(snapshot, message) != ids:
                    wrong.append(message)

    for _ in range(max(1, 40 // rounds)):  # a new snapshot is prepared by all threads at once
        arguments = index.freeze(), threading.Barrier(4)
        threads = [threading.Thread(target=work, args=arguments) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.slow
def test_a_message_has_the_kernel_that_is_compiled_for_batches():
    functions = (kernel.collect, encode.encode, encode.hash_strings, encode.find_prefixes)
    snapshot = index_of(REGISTRY).freeze()
    row = {"color": "red", "name": "abc", "weight": 7, "JMSType": "car"}
    snapshot.match(pa.RecordBatch.from_pylist([row]), missing="ignore")
    compiled_for = [set(function.signatures) for function in functions]
    snapshot.match_one(MESSAGES[1])
    one_row._match.recompile()  # loaded from the cache, it would not look for what it calls
    assert [set(function.signatures) for function in functions] == compiled_for
