from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import selectroute as sr
from selectroute.arrays import tables as t
from selectroute.kafka.batches.decode import decode
from selectroute.kafka.binding import KafkaBinding
from selectroute.kafka.record import PartitionRecords, Record, RecordError, message_id, message_of
from selectroute.selector.values import UNSUPPORTED
from selectroute.spark.messages import DeadLetterBatch
from selectroute.spark.sources.kafka.convert import COLUMNS, FullRecords, RecordConverter, rows_of
from selectroute.spark.task.task import judge
from tests.spark.kafka_rows import SCHEMA, all_of, rows
from tests.support import record_batches
from tests.support.strategies import TIME_EDGES

MOST = 1 << 20
BINDING = KafkaBinding.of(
    [
        *("weight:int", "b:byte", "s:short", "n:long", "f:float", "d:double", "yes:boolean", "raw:bytes"),
        *("JMSCorrelationID:bytes", "kind=type", "price:double=$.order.price", "item=$.order.items[0]"),
        *("count:int=$.count", "hex:bytes=$.hex", "ok:boolean=$.ok", "customer=@key"),
        *("JMSTimestamp=@timestamp", "partition:int=@partition", "offset:long=@offset", "from=@topic"),
    ],
    separator=".",
)


def one(headers=(), binding=BINDING, names=("weight",), **more):
    """What becomes of one record: its columns, or its dead letter."""
    record = Record("t", 0, 7, 1_700_000_000_000, headers=headers, **more)
    messages, dead = all_of(RecordConverter(names, binding, MOST), rows([record]))
    assert len(messages) + len(dead) == 1
    return dead[7] if dead else messages[7]


def test_a_header_is_the_property_of_its_name_and_type_unless_the_binding_gives_it_to_another():
    names = ("weight", "yes", "f", "color", "JMSPriority", "kind", "type", "missing")
    headers = [
        *(("weight", b"-3"), ("yes", b"TRUE"), ("f", b"0.1"), ("color", "rosé".encode())),
        *(("JMSPriority", b"4"), ("type", b"car")),
    ]
    f = pytest.approx(0.1, abs=1e-8)
    wanted = {"weight": -3, "yes": True, "f": f, "color": "rosé", "JMSPriority": 4, "kind": "car"}
    assert one(headers, names=names) == wanted
    assert one([("weight", None)]) == {"weight": None}


def test_of_a_header_that_stands_several_times_the_last_counts():
    assert one([("weight", b"1"), ("a", b""), ("weight", b"x"), ("weight", b"2")]) == {"weight": 2}
    assert one([("weight", b"1"), ("weight", None)]) == {"weight": None}
    batch = rows([Record("t", 0, i, headers=[("a", b"%d" % j) for j in range(i % 4)]) for i in range(9)])
    messages, _ = all_of(RecordConverter(("a",), BINDING, MOST), batch)
    assert [messages[i]["a"] for i in range(6)] == [None, "0", "1", "2", None, "0"]


def test_a_name_may_be_as_long_as_one_that_a_selector_reads():
    name = "n" * 5_000
    record = Record("t", 0, 7, headers=[(name, b"1"), (name + "n", b"2")])
    assert message_of(record, BINDING, (name,)).properties[name] == "1"
    assert name not in message_of(record, BINDING, ("weight",)).properties
    assert one(record.headers, names=(name,)) == {name: "1"}


UNLIKE = {"tag": t.UNSUPPORTED, "bits": 0, "text": None}


def unlike(headers=(), names=("weight",), value=None):
    """The columns of one record that has a value of an unlike type, and what is said of it."""
    record = Record("t", 0, 7, 1_700_000_000_000, headers=headers, value=value)
    reader = RecordConverter(names, BINDING, MOST)
    messages, dead = all_of(reader, rows([record]))
    assert not dead
    ((name, found),) = reader.unlike.items()
    assert found.records == 1
    assert messages[7][name]["tag"] == t.UNSUPPORTED
    assert message_of(record, BINDING, names).value(name) is UNSUPPORTED
    return found.sentence(name, BINDING.field(name))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("weight", b"heavy", "as an int: 1 record has another value, the first"),
        ("weight", b"3000000000", "is not a valid int"),
        ("weight", b"0x1F", "is not a valid int"),
        ("weight", b"", "'' is not a valid int"),
        ("d", b"1e999", "is not a valid double"),
        ("d", b"inf", "is not a valid double"),
        ("yes", b"1", "is not a valid boolean"),
        ("color", b"\xff", "byte 0 is not UTF-8"),
        ("weight", b"\xff", "byte 0 is not UTF-8"),
        ("JMSCorrelationID", b"short", "24 bytes, not 5"),
        ("JMSPriority", b"10", "10 is not a valid JMSPriority"),
        ("JMSDeliveryMode", b"2", "is not a valid JMSDeliveryMode"),
        ("JMSRedelivered", b"no", "is not a valid boolean"),
    ],
)
def test_a_header_that_is_not_of_its_type_is_unlike_everything_and_no_dead_letter(name, text, said):
    sentence = unlike([(name, text)], (name,))
    assert said in sentence and "\n" not in sentence


@pytest.mark.parametrize(
    ("headers", "reason", "said"),
    [
        ([("a", b"")] * 1_001, "too-many-headers", "more than 1,000 headers"),
        ([("a", b"." * MOST)], "too-large", "1,048,577 bytes"),
    ],
)
def test_what_can_not_be_read_is_a_dead_letter_that_says_why(headers, reason, said):
    dead = one(headers)
    assert (dead.stage, dead.reason) == ("read", reason)
    assert said in dead.message


@pytest.mark.parametrize("topic", [b"a" * 65_536, b"/" * 1_000], ids=["bytes", "levels"])
def test_a_topic_that_no_message_may_have_makes_a_dead_letter(topic):
    binding = KafkaBinding.of(["@topic=where"])
    dead = one([("where", topic)], binding, ("@topic",))
    assert (dead.stage, dead.reason) == ("judge", "not-a-message") and "1,000 levels" in dead.message
    with pytest.raises(RecordError) as raised:
        message_of(Record("t", 0, 7, headers=[("where", topic)]), binding)
    assert dead.message == str(raised.value)
    assert one([("where", topic[1:])], binding, ("@topic",)) == {"@topic": topic[1:].decode()}


def test_who_does_not_read_a_value_of_an_unlike_type_gets_the_message():
    """As in a column: no other subscription loses a message, and IS NULL is false."""
    texts = {
        "above": "weight > 1",
        "not": "NOT (weight > 1)",
        "null": "weight IS NULL",
        "there": "weight IS NOT NULL",
        "text": "weight = 'heavy'",
        "color": "color = 'red'",
        "all": "",
    }
    index = sr.Index()
    for id_, text in texts.items():
        index.add(id_, text)
    for id_, text in (("mq", "NOT (weight > 1)"), ("mq-or", "color = 'red' OR weight = 1")):
        index.add(id_, text, dialect="ibm-mq")
    snapshot = index.freeze()
    for headers, wanted in (
        ([("weight", b"heavy"), ("color", b"red")], {"not", "there", "color", "all"}),
        ([("weight", b"5"), ("color", b"\xff")], {"above", "there", "all"}),
    ):
        records = [Record("t", 0, i, headers=headers if i % 2 else [("weight", b"7")]) for i in range(6)]
        reader = RecordConverter(snapshot.reads, BINDING, MOST)
        (found,) = reader.read(rows(records))
        (part,) = found.parts
        ((_, matches),) = judge(snapshot, part)
        got = [set(ids) for ids in matches.ids().to_pylist()]
        assert got == [wanted if i % 2 else {"above", "there", "all"} for i in range(6)]
        assert got == [set(index.match(message_of(one, BINDING, snapshot.reads))) for one in records]
        assert [one.records for one in reader.unlike.values()] == [3]


def test_what_no_selector_reads_may_be_anything():
    headers = [("weight", b"heavy"), ("color", b"\xff"), ("d", b"1")]
    assert one(headers, names=("d",), value=b"{") == {"d": 1.0}


@pytest.mark.parametrize(
    ("value", "name", "found"),
    [
        (b'{"order": {"price": 9.5}}', "price", 9.5),
        (b'{"order": {"price": 9}}', "price", 9.0),
        (b'{"order": {"price": null}}', "price", None),
        (b'{"order": 1}', "price", None),
        (b"[]", "price", None),
        (None, "price", None),
        (b' {"order": {"items": ["a", "b"]}}\n', "item", "a"),
        (b'{"order": {"items": []}}', "item", None),
        (b'{"ok": false}', "ok", False),
    ],
)
def test_a_field_of_the_body_is_a_property(value, name, found):
    assert one(names=(name,), value=value) == {name: found}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (b'{"order": {"price": "9.5"}}', "price"),
        (b'{"order": {"price": {}}}', "price"),
        (b'{"order": {"price": 1e999}}', "price"),
        (b'{"order": {"items": [1]}}', "item"),
        (b'{"order": {"items": ["\\ud800"]}}', "item"),
        (b'{"count": 7.0}', "count"),
        (b'{"count": true}', "count"),
        (b'{"count": 99999999999}', "count"),
        (b'{"count": ' + b"9" * 5_000 + b"}", "count"),
        (b'{"hex": "0"}', "hex"),
        (b'{"ok": 1}', "ok"),
        (b"{", "price"),
        (b"", "price"),
        (b'{"order": NaN}', "price"),
        (b'{"count": 7, "count": 8}', "count"),
        (b'"\xff"', "price"),
        (b"[" * 200_000, "price"),
    ],
)
def test_a_body_that_does_not_hold_what_is_bound_has_a_value_of_an_unlike_type(value, name):
    assert len(unlike(names=(name,), value=value)) < 300


def test_a_body_that_is_not_json_has_unlike_values_of_every_field_that_is_read():
    reader = RecordConverter(("price", "count", "weight"), BINDING, MOST)
    messages, dead = all_of(reader, rows([Record("t", 0, 7, headers=[("weight", b"1")], value=b"{")]))
    assert not dead
    assert (messages[7]["price"], messages[7]["count"], messages[7]["weight"]) == (UNLIKE, UNLIKE, 1)
    assert {name: one.records for name, one in reader.unlike.items()} == {"price": 1, "count": 1}


def test_one_bad_record_among_many_is_one_value_of_an_unlike_type():
    records = [Record("t", 0, i, headers=[("weight", b"x" if i == 700 else b"%d" % i)]) for i in range(1_000)]
    messages, dead = all_of(RecordConverter(("weight",), BINDING, MOST), rows(records))
    assert not dead
    found = [messages[i]["weight"] for i in range(1_000)]
    assert [one["bits"] for i, one in enumerate(found) if i != 700] == [i for i in range(1_000) if i != 700]
    assert found[700] == UNLIKE and {one["tag"] for one in found} == {t.INT, t.UNSUPPORTED}


def test_topics_are_levels_by_the_separator_or_by_a_header():
    batch = rows([Record(topic, 0, i) for i, topic in enumerate(["cars.eu", "cars.eu", "bikes"])])
    messages, _ = all_of(RecordConverter(("@topic",), BINDING, MOST), batch)
    assert [messages[i]["@topic"] for i in range(3)] == ["cars/eu", "cars/eu", "bikes"]
    messages, _ = all_of(RecordConverter(("@topic",), KafkaBinding(), MOST), batch)
    assert [messages[i]["@topic"] for i in range(3)] == ["cars.eu", "cars.eu", "bikes"]
    binding = KafkaBinding.of(["@topic=mqtt"])
    assert one([("mqtt", b"a/b")], binding, ("@topic",)) == {"@topic": "a/b"}
    assert one([], binding, ("@topic",)) == {}
    no_text = [("mqtt", b"\xff")]
    assert one(no_text, binding, ("@topic",)) == {"@topic": None}
    assert message_of(Record("t", 0, 0, headers=no_text), binding, ("@topic",)).topic is None


def test_rows_come_by_partition_with_their_offsets_and_the_rows_themselves():
    places = [("a", 0, 5), ("a", 0, 9), ("a", 1, 2), ("b", 1, 3), ("b", 1, 3), ("a", 0, 10)]
    batch = rows(
        [Record(*place, headers=[("weight", b"1")], value=b"%d" % i) for i, place in enumerate(places)]
    )
    found = list(RecordConverter(("weight",), BINDING, MOST).read(batch))
    assert [(one.topic, one.partition, one.rows.column("offset").to_pylist()) for one in found] == [
        *(("a", 0, [5, 9]), ("a", 1, [2]), ("b", 1, [3]), ("b", 1, [3]), ("a", 0, [10]))
    ]
    (part,) = found[0].parts
    assert found[0].of(part.rows[1:]).column("value").to_pylist() == [b"1"]
    assert list(RecordConverter(("weight",), BINDING, MOST).read(batch.slice(0, 0))) == []


def test_records_decoded_from_batches_are_read_as_the_reference_reads_them():
    headers = [("weight", b"3"), ("color", None), ("weight", b"7")]
    records = [
        Record("t", 3, k, time, b"k" * (k % 2) or None, b'{"count": 5}', headers[: k % 4])
        for k, time in enumerate(TIME_EDGES)
    ]
    stored = [(*one[2:6], tuple((name.encode(), text) for name, text in one.headers)) for one in records]
    batches = (record_batches.batch_bytes([record_batches.Record(*one)]) for one in stored)
    [part] = decode(b"".join(batches), "t", 3, 0)
    batch = rows_of(PartitionRecords("t", 3, part.records))
    records = [one._replace(timestamp=None if one.timestamp == -1 else one.timestamp) for one in records]
    names = ("weight", "color", "count", "customer", "JMSTimestamp", "partition", "offset", "from")
    found, dead = all_of(RecordConverter(names, BINDING, MOST), batch)
    assert (found, dead) == all_of(RecordConverter(names, BINDING, MOST), rows(records))
    assert len(found) == len(records)
    places = np.arange(len(records))
    messages = [list(FullRecords(one, BINDING).messages(places)) for one in (batch, rows(records))]
    assert messages[0] == messages[1] == [message_of(one, BINDING) for one in records]


LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def test_large_types_of_arrow_are_read_alike():
    types = {field.name: LARGE.get(field.type, field.type) for field in SCHEMA}
    types["headers"] = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    large = pa.schema([*types.items()])
    record = Record("cars.eu", 0, 1, 5, b"me", b"{}", [("weight", b"1"), ("JMSMessageID", b"ID:1")])
    names = ("weight", "customer", "@topic", "JMSMessageID")
    small, _ = all_of(RecordConverter(names, BINDING, MOST), rows([record]))
    large_too, _ = all_of(RecordConverter(names, BINDING, MOST), rows([record], large))
    wanted = {"weight": 1, "customer": "me", "@topic": "cars/eu", "JMSMessageID": "ID:1"}
    assert small[1] == large_too[1] == wanted


def test_a_hundred_thousand_headers_and_a_hundred_megabytes_are_dead_letters_and_the_rest_goes_on():
    records = [
        Record("t", 0, 0, headers=[(f"h{i}.{'x' * (i % 50)}", b"v") for i in range(100_000)]),
        Record("t", 0, 1, headers=[("weight", b"1")]),
        Record("t", 0, 2, value=b"\0" * (100 << 20), headers=[("weight", b"2")]),
        Record("t", 0, 3, headers=[("weight", b"3")]),
    ]
    messages, dead = all_of(RecordConverter(("weight", "@invalid-names"), BINDING, 50 << 20), rows(records))
    assert sorted(messages) == [1, 3]
    assert {row: one.reason for row, one in dead.items()} == {0: "too-many-headers", 2: "too-large"}
    messages, dead = all_of(RecordConverter(("weight",), BINDING, 128 << 20), rows(records[2:3]))
    assert messages[2]["weight"] == 2 and not dead, "it may be as large"


# -- against the reference: a record at a time, and the evaluator

TEXTS = {
    "weight": [b"1", b"-1", b"+5", b"007", b"2147483647", b"2147483648", b"x", b"1.0", b"", b" 1", b"0x10"],
    "b": [b"127", b"-128", b"128", b"0"],
    "s": [b"-32768", b"32768", b"1"],
    "n": [b"9223372036854775807", b"9223372036854775808", b"-0"],
    "f": [b"0.1", b"16777217", b"1e39", b"NaN", b"nan", b"-Infinity", b"+1.5", b".5", b"5.", b"1e-50", b"-0"],
    "d": [b"1e308", b"1e309", b"1_0", b"1d", b"0x1p3", b"1E5", b"Infinity", b"infinity", b"2.5"],
    "yes": [b"true", b"False", b"yes", b"0"],
    "raw": [b"", b"\xff\x00", b"abc"],
    "JMSCorrelationID": [b"c" * 24, b"short"],
    "JMSMessageID": [b"ID:" + b"0" * 48, b"ID:7", b"\xff"],
    "JMSPriority": [b"0", b"9", b"10", b"-1", b"4"],
    "JMSDeliveryMode": [b"PERSISTENT", b"NON_PERSISTENT", b"1"],
    "type": [b"car", b"truck", b"\xc3\x28"],
    "color": [b"red", b"blue", b"", "rosé".encode(), b"\x80"],
    "and": [b"1"], "a.b": [b"x"], "a.b.c": [b"y"], "JMSFoo": [b"z"], "": [b"nothing"],
}  # fmt: skip
BODIES = [
    None,
    b"{}",
    b"no",
    b"[1]",
    b'{"order": {"price": 2.5, "items": ["a"]}, "count": 3, "ok": true, "hex": "00ff"}',
    b'{"order": {"price": "2.5", "items": [1]}, "count": 3.5, "ok": null}',
    b'{"count": 3}',
    b'{"count": 3000000000}',
    b'{"order": {"price": 2, "items": [null]}, "hex": 1}',
]
SELECTORS = {
    "jms": [
        *("weight > 0", "b < 0", "s = 1", "n = 9223372036854775807", "f > 0.05", "d BETWEEN 2 AND 1e308"),
        *("yes = TRUE", "JMSPriority >= 4", "JMSDeliveryMode = 'PERSISTENT'", "kind = 'car'"),
        *("color IN ('red', '')", "type IS NOT NULL", "JMSMessageID LIKE 'ID:%'", "price > 2", "item = 'a'"),
        *("count = 3", "ok = TRUE", "customer = 'me'", "JMSTimestamp > 1600000000000", "f <> f"),
        *("partition = 1 AND offset > 5", "b IS NULL OR kind = 'truck'", "weight = 1 AND color = 'blue'"),
        "JMSCorrelationID IS NOT NULL",
    ],
    "ibm-mq": ["weight > 0", "color = 'red'", "TRUE", 'raw = "0xFF00"', "count IS NULL"],
}


def random_record(chance: random.Random, offset: int, careful: bool) -> Record:
    headers = []
    for name, texts in TEXTS.items():
        if chance.random() < 0.3:
            text = chance.choice(texts[:2] if careful else texts)
            headers.append((name, None if chance.random() < 0.1 else text))
    chance.shuffle(headers)
    headers += headers[: chance.choice([0, 0, 2])]
    return Record(
        chance.choice(["cars.eu", "cars.us"]),
        offset // 20,
        offset,
        chance.choice([None, 1_500_000_000_000, 1_700_000_000_123]),
        chance.choice([None, b"me", b"you", b"\xff"][: 3 if careful else 4]),
        chance.choice(BODIES[:2] if careful else BODIES),
        headers,
    )


@pytest.mark.parametrize("seed", range(12))
def test_what_is_read_and_matched_is_what_the_reference_says_of_each_record(seed):
    chance = random.Random(seed)
    dialect = "ibm-mq" if seed % 3 == 2 else "jms"
    chosen = chance.sample(SELECTORS[dialect], min(len(SELECTORS[dialect]), chance.choice([1, 3, 30])))
    selectors = {f"s{i}": sr.Selector(text, dialect=dialect) for i, text in enumerate(chosen)}
    index = sr.Index()
    for id_, selector in selectors.items():
        index.add(id_, selector, topic=chance.choice([None, "cars/+", "cars/eu"]))
    snapshot = index.freeze()
    records = [random_record(chance, i, careful=i % 2 == 0 or seed % 4 == 0) for i in range(200)]
    reader = RecordConverter(snapshot.reads, BINDING, MOST)
    kept = dead = 0
    for found in reader.read(rows(records)):
        for part in found.parts:
            offsets = part.rows.tolist()
            wanted = {}
            for offset in offsets:
                try:
                    wanted[offset] = message_of(records[offset], BINDING, snapshot.reads)
                except RecordError as error:
                    wanted[offset] = error
            if isinstance(part, DeadLetterBatch):
                dead += len(offsets)
                for error in wanted.values():
                    assert isinstance(error, RecordError), part
                continue
            kept += len(offsets)
            assert not [one for one in wanted.values() if isinstance(one, RecordError)]
            assert part.ids.to_pylist() == [message_id(records[offset], BINDING) for offset in offsets]
            (judged,) = judge(snapshot, part)
            assert not isinstance(judged, DeadLetterBatch), judged
            _, matches = judged
            for i, offset in enumerate(offsets):
                got = matches.ordinals[matches.offsets[i] : matches.offsets[i + 1]]
                expected = set(index.match(wanted[offset]))
                assert {snapshot.ids[int(o)].as_py() for o in got} == expected, records[offset]
                assert {id_ for id_ in expected if not selectors[id_].matches(wanted[offset])} == set()
    assert kept + dead == 200 and kept


@pytest.mark.spark
@pytest.mark.nightly
def test_what_spark_reads_from_a_broker_is_judged_or_a_dead_letter_record_by_record(spark, kafka):
    """Also a hundred megabytes, a hundred thousand headers, names that stand twice, and no headers at all."""
    index = sr.Index()
    index.add("heavy", sr.Selector("weight > 2"))
    index.add("cars", sr.Selector(""), topic="cars/+")
    topic = kafka.create("cars.reader", 2)
    snapshot = index.freeze()
    names, binding = snapshot.reads, KafkaBinding.of(["weight:int"], separator=".")
    kafka.produce(
        topic,
        [
            (0, b"k", b"v", [("weight", b"1"), ("weight", b"3")]),
            (0, None, None, []),
            (1, None, b"v", [("weight", b"heavy")]),
            (1, None, b"\0" * (100 << 20), [("weight", b"5")]),
            (1, None, b"v", [(f"h{i}", b"v") for i in range(100_000)]),
            (1, None, b"v", [("weight", b"4"), ("weight", None)]),
        ],
    )

    def judged(batches):
        reader = RecordConverter(names, binding, 4 << 20)
        for batch in batches:
            for records in reader.read(batch):
                for part in records.parts:
                    dead = isinstance(part, DeadLetterBatch)
                    found = [part.reason] * part.count if dead else part.columns.column("weight").to_pylist()
                    for offset, one in zip(part.rows.tolist(), found, strict=True):
                        said = f"{records.topic} {records.partition} {offset} {one}"
                        yield pa.RecordBatch.from_pylist([{"said": said}])

    rows_of_spark = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.address)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
        .select(*COLUMNS)
    )
    assert sorted(row.said for row in rows_of_spark.mapInArrow(judged, "said string").collect()) == [
        f"{topic} 0 0 3",
        f"{topic} 0 1 None",
        f"{topic} 1 0 {UNLIKE}",
        f"{topic} 1 1 too-large",
        f"{topic} 1 2 too-many-headers",
        f"{topic} 1 3 None",
    ]
