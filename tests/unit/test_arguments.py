"""Every public entrance answers an argument of the wrong kind with one sentence that says what to give."""

import re

import pyarrow as pa
import pytest

import selectroute as sr

WRONG = [5, 1.5, b"x", [1], object(), {1: 2}]
"""Of no kind that is wanted anywhere below, unless an entrance says so."""


@pytest.fixture(scope="module")
def index():
    index = sr.Index()
    index.add("a", "x = 1")
    return index


@pytest.fixture(scope="module")
def snapshot(index):
    return index.freeze()


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    with sr.Registry.open(f"sqlite:///{tmp_path_factory.mktemp('registry')}/r.db") as opened:
        yield opened


_SELECTOR = sr.Selector("a = 1")
_ID = "such as 'heavy'"
_MESSAGE = "give a Message"

# Each entrance: what is called with the wrong argument, its parameter, and a part of what it says to give.
ENTRANCES = {
    "Index.add id": (lambda w, f: f("index").add(w, "a = 1"), "subscription", _ID),
    "Index.add selector": (lambda w, f: sr.Index().add("b", w), "selector", "a text, a Selector"),
    "Index.add topic": (lambda w, f: sr.Index().add("b", "", w), "topic", "'cars/+'"),
    "Index.add dialect": (lambda w, f: sr.Index().add("b", "", dialect=w), "dialect", "ibm-mq"),
    "Index.add_many": (lambda w, f: sr.Index().add_many(w), "subscription", "(id, selector, topic)"),
    "Index.replace": (lambda w, f: f("index").replace(w, ""), "subscription", _ID),
    "Index.remove": (lambda w, f: f("index").remove(w), "subscription", _ID),
    "Index.match": (lambda w, f: f("index").match(w), "message", _MESSAGE),
    "Index.explain": (lambda w, f: f("index").explain("a", w), "message", _MESSAGE),
    "Index.freeze": (lambda w, f: f("index").freeze(w if w != 5 else "5"), "revision", "a number"),
    "Snapshot.match": (lambda w, f: f("snapshot").match(w), "messages", "pa.Table.from_pandas(df)"),
    "Snapshot.changed": (lambda w, f: f("snapshot").changed(w), "change", "sr.Add(id, selector)"),
    "Snapshot.changed Add": (lambda w, f: f("snapshot").changed([sr.Add(w)]), "id", _ID),
    "Snapshot.find": (lambda w, f: f("snapshot").find(w), "id", "heavy'"),
    "Snapshot.open": (lambda w, f: sr.Snapshot.open(w), "folder", "the path or URL of a snapshot folder"),
    "build_snapshot": (lambda w, f: sr.build_snapshot(w), "subscription", "(id, selector)"),
    "publish": (lambda w, f: sr.publish(w, "nowhere"), "snapshot", "index.freeze()"),
    "publish folder": (lambda w, f: sr.publish(f("snapshot"), w), "folder", "a snapshot folder"),
    "Publisher": (lambda w, f: sr.Publisher(w), "folder", "a snapshot folder"),
    "check": (lambda w, f: sr.check(w), "text", "'weight > 2500'"),
    "check dialect": (lambda w, f: sr.check("a = 1", w), "dialect", "ibm-mq"),
    "Selector": (lambda w, f: sr.Selector(w), "text", "'weight > 2500'"),
    "Selector limits": (lambda w, f: sr.Selector("a = 1", limits=w), "limits", "the Limits"),
    "Selector.matches": (lambda w, f: _SELECTOR.matches(w), "message", _MESSAGE),
    "Selector.evaluate": (lambda w, f: _SELECTOR.evaluate(w), "message", _MESSAGE),
    "Selector.explain": (lambda w, f: _SELECTOR.explain(w), "message", _MESSAGE),
    "check_property_names": (lambda w, f: sr.check_property_names(w), "name", "give"),
    "Registry.open": (lambda w, f: sr.Registry.open(w), "url", "sqlite:///PATH"),
    "connect": (lambda w, f: sr.connect(w), "url", "http://HOST:PORT"),
    "Registry.register": (lambda w, f: f("registry").register(w), "spec", "sr.SubscriptionSpec"),
    "Registry.get": (lambda w, f: f("registry").get(w), "id", _ID),
    "Registry.get_by_name": (lambda w, f: f("registry").get_by_name(w), "name", "the name"),
    "Registry.replace": (lambda w, f: f("registry").replace("a", w), "spec", "sr.SubscriptionSpec"),
    "Registry.remove": (lambda w, f: f("registry").remove(w), "id", _ID),
    "Registry.pause": (lambda w, f: f("registry").pause(w), "id", _ID),
    "Registry.resume": (lambda w, f: f("registry").resume(w), "id", _ID),
    "Registry.apply": (lambda w, f: f("registry").apply(w), "operation", "Operation"),
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_wrong_kind_is_one_sentence_that_names_the_parameter(entrance, wrong, request):
    call, parameter, wanted = ENTRANCES[entrance]
    with pytest.raises((TypeError, ValueError)) as error:
        call(wrong, request.getfixturevalue)
    sentence = str(error.value)
    assert re.search(rf"\b{parameter}", sentence) and wanted in sentence and "give" in sentence, sentence
    assert "\n" not in sentence and "object at" not in sentence.replace("<object object at", "")


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
def test_messages_and_queues_have_errors_of_their_own_kind(wrong):
    for parameter in ("headers", "properties"):
        if wrong == {1: 2}:
            continue
        with pytest.raises(sr.MessageError, match=parameter):
            sr.Message(**{parameter: wrong})
    queue = sr.MemoryQueue()
    if wrong != b"x":
        with pytest.raises(sr.MQError, match="Reason 2004"):
            queue.put(wrong)
    with pytest.raises(sr.MQError, match="Reason 2519"):
        queue.get(selector=wrong)


def test_every_public_name_is_looked_at():
    called = {name.split(".")[0].split(" ")[0] for name in ENTRANCES}
    own = {"Message", "MemoryQueue", "SqlQueue", "SqlQueues", "MessageError", "MQError"}
    numbers = {"Byte", "Double", "Float", "Int", "Long", "Short"}
    # Data without a check of its own: whatever takes it looks at it.
    data = {
        "Add",
        "Remove",
        "Replace",
        "Descriptor",
        "Limits",
        "MatchOptions",
        "QueueSettings",
        "Operation",
        "SubscriptionSpec",
    }
    given = {"Analysis", "DIALECTS", "Matches", "RemoteQueue", "RemoteRegistry", "Subscription"}
    given |= {"SubscriptionRegistry", "SubscriptionSpec", "Truth", "Warmed", "warm"}
    errors = {name for name in sr.__all__ if name.endswith("Error")}
    assert set(sr.__all__) <= called | own | numbers | data | given | errors


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([("heavy",)], "subscription 0 is ('heavy',): give (id, selector) or (id, selector, topic)"),
        ([("a", "x = 1"), ("b", "x", "t", "jms")], "subscription 1 is ('b', 'x', 't', 'jms'): give"),
        (["abc"], "subscription 0 is 'abc': give (id, selector)"),
        (
            [{"id": "a"}, ("b", "")],
            "subscription 0 is {'id': 'a'}: give (id, selector) or (id, selector, topic)",
        ),
        ([("a", 5)], "subscription 0 ('a'): its selector is an int: give a str or None"),
        ([(5, "a = 1", None)], "subscription 0 (5): its id is an int: give a str"),
        ([("a", "", 7)], "subscription 0 ('a'): its topic is an int: give a str or None"),
        ([{"selector": "a = 1"}], "subscription 0 is {'selector': 'a = 1'}: give it an 'id'"),
        ({"a": "x = 1"}, "subscriptions is a dict: give tuples (id, selector)"),
    ],
)
def test_rows_that_are_no_subscriptions_are_shown(rows, sentence):
    with pytest.raises((TypeError, ValueError)) as error:
        sr.build_snapshot(rows)
    assert str(error.value).startswith(sentence)


def test_rows_come_as_pairs_triples_dicts_and_selectors_in_a_dialect():
    pairs = sr.build_snapshot([("heavy", "weight > 2500"), ("topic", None, "cars/+"), ["all", ""]])
    assert pairs.subscriptions["topic"].to_pylist() == [None, "cars/+", None]
    dotted = sr.Selector("customer.city = 'Bonn'", "ibm-mq")
    rows = [{"id": "a", "selector": dotted}, {"id": "b", "selector": "x = 1", "topic": "t"}]
    dicts = sr.build_snapshot(rows)
    assert dicts.subscriptions["dialect"].to_pylist() == ["ibm-mq", "jms"]
    batch = pa.record_batch({"customer.city": ["Bonn"], "x": [1], "@topic": ["u"]})
    assert dicts.match(batch).ids().to_pylist() == [["a"]]
    assert len(sr.build_snapshot(pa.record_batch({"id": ["a"]}))) == 1
    with pytest.raises(sr.SelectRouteError, match=r"no field `selektor`: did you mean `selector`\?"):
        sr.build_snapshot([{"id": "a", "selektor": "x = 1"}])


def test_an_error_names_the_subscription_and_the_other_dialect():
    with pytest.raises(sr.BuildError) as error:
        sr.build_snapshot([("ok", "a = 1"), ("de", "a.b = 1")])
    assert str(error.value).startswith("subscription 'de' (row 1): ")
    assert error.value.id == "de" and "Selector(text, 'ibm-mq')" in str(error.value)


def test_frames_of_pandas_are_told_how(snapshot):
    frame = pytest.importorskip("pandas").DataFrame({"x": [1]})
    with pytest.raises(TypeError, match=r"messages is a pandas\.DataFrame: give .*pa\.Table\.from_pandas"):
        snapshot.match(frame)
    with pytest.raises(TypeError, match=r"subscriptions is a pandas\.DataFrame: give .*from_pandas"):
        sr.build_snapshot(frame)


def test_what_is_printed_says_what_it_is(index, snapshot, tmp_path):
    assert repr(index) == "Index(1 subscription)" and repr(sr.Index()) == "Index(0 subscriptions)"
    queue = sr.MemoryQueue()
    queue.put(b"x")
    assert repr(queue) == "MemoryQueue(1 message)"
    queue.close()
    assert repr(queue) == "MemoryQueue(closed)"
    assert re.fullmatch(r"Snapshot\(revision=None, 1 subscription, [\d,]+ bytes\)", repr(snapshot))
    found = snapshot.match(pa.record_batch({"x": [1, 2]}))
    assert repr(found) == "Matches(2 messages, 1 match)"
    assert found.ids().to_pylist() == [["a"], []]
    with sr.Registry.open(f"sqlite:///{tmp_path}/r.db") as registry:
        assert repr(registry) == f"Registry('sqlite:///{tmp_path}/r.db')"
    assert str(sr.check("a = 1 AND a = 2").warnings[0]).startswith("always-false: no message can satisfy")


@pytest.mark.spark
def test_entrances_of_spark(spark, snapshot, tmp_path):
    from selectroute import spark as ss

    pandas = pytest.importorskip("pandas")
    df = spark.range(1)
    cases = [
        (lambda w: ss.route(w, snapshot), "df", "a DataFrame of Spark"),
        (lambda w: ss.deliveries(w, snapshot), "df", "a DataFrame of Spark"),
        (lambda w: ss.route(df, w), "snapshot", "the path or URL of a snapshot folder"),
        (lambda w: ss.deliveries(df, w), "snapshot", "the path or URL of a snapshot folder"),
        (lambda w: ss.route(df, snapshot, w), "binding", "a Binding"),
        (lambda w: ss.deliveries(df, snapshot, keep=w), "keep", "'*' for all"),
        (lambda w: ss.match_files(w, [], snapshot), "spark", "the SparkSession"),
        (lambda w: ss.match_files(spark, w, snapshot), "paths", " message file"),
        (lambda w: ss.match_files(spark, [], w), "snapshot", "the path or URL of a snapshot folder"),
        (lambda w: ss.distribute(spark, w), "snapshot", "sr.Snapshot.open(folder)"),
        (ss.explain_output, "snapshot", "sr.Snapshot.open(folder)"),
        (ss.unpack, "packed", "a column"),
        (lambda w: ss.publish_partitions(w, tmp_path, 2), "snapshot", "sr.Snapshot.open(folder)"),
        (lambda w: ss.publish_partitions(snapshot, w, 2), "folder", "the path"),
        (ss.PartitionedSnapshot.open, "folder", "publish_partitions"),
        (ss.check, "job", "Job.of"),
        (lambda w: ss.start_fanout(spark, w), "job", "Job.of"),
        (lambda w: ss.rerun(spark, w, tmp_path), "job", "Job.of"),
        (lambda w: ss.local_session(w), "app", "the name"),
        (lambda w: ss.Binding(w if not isinstance(w, dict) else 5), "columns", "'JMSType'"),
        (lambda w: ss.Binding.from_dict(w if not isinstance(w, dict) else 5), "data", "'JMSType'"),
    ]
    for call, parameter, wanted in cases:
        for wrong in (*WRONG, pandas.DataFrame({"x": [1]})):
            with pytest.raises(TypeError) as error:
                call(wrong)
            sentence = str(error.value)
            assert re.match(rf"(one of )?{parameter} is ", sentence) and wanted in sentence, sentence
    with pytest.raises(TypeError, match=r"df is a Snapshot: give the DataFrame first, then the snapshot"):
        ss.route(snapshot, df)
