"""EXTENDED subscriptions: a provider judges them, or that delivery alone is refused."""

import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.index.snapshot_files import publish
from selectroute.match.columns.from_messages import from_messages
from selectroute.selector import extended
from selectroute.selector.extended import ExtendedSelectionError


class Contains:
    """A provider for tests: ``contains x`` is TRUE where the body has x, ``field a 1`` where a is 1."""

    made = 0

    def __init__(self):
        Contains.made += 1

    def identifiers(self, selector):
        kind, *words = selector.split()
        if kind not in ("contains", "field", "fail"):
            raise ValueError(selector)
        return [words[0]] if kind == "field" else ["@body"]

    def matches(self, selector, message):
        kind, word, *rest = selector.split()
        if kind == "fail":
            raise RuntimeError("never")
        if kind == "field":
            return message.value(word) == sr.Long(int(rest[0]))
        return word in (message.body or "")


class Point:
    def __init__(self, name="test", loaded=Contains):
        self.name, self.value, self.loaded = name, f"tests:{name}", loaded

    def load(self):
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


@pytest.fixture
def install(monkeypatch):
    def installed(*points):
        monkeypatch.setattr(extended, "entry_points", lambda group: points)
        extended.installed.cache_clear()

    installed()
    yield installed
    extended.installed.cache_clear()


def registered() -> sr.Index:
    index = sr.Index()
    index.add("contains", "contains blue", "cars/#", dialect="ibm-mq", extended=True)
    index.add("field", "field a 1", dialect="ibm-mq", extended=True)
    index.add("plain", "a = 1", dialect="ibm-mq")
    index.add("all")
    return index


MESSAGES = [
    sr.Message(properties={"a": 1}, topic="cars/eu", body="a blue one"),
    sr.Message(properties={"a": 2}, topic="cars/eu", body="a red one"),
    sr.Message(properties={"a": 1}, topic="ships", body="blue"),
    sr.Message(properties={"a": 1, "JMSFoo": 1}, topic="cars/eu", body="blue"),
]
BATCH = pa.record_batch(
    {
        "a": [1, 2, 1, 1],
        "JMSFoo": [None, None, None, 1],
        "@topic": ["cars/eu", "cars/eu", "ships", "cars/eu"],
        "@body": ["a blue one", "a red one", "blue", "blue"],
    }
)


def kernel(index, batch=BATCH):
    snapshot = index.freeze()
    ids = snapshot.ids.to_pylist()
    matches = snapshot.match(batch)
    rows = [sorted(ids[i] for i in row) for row in matches]
    pairs = zip(matches.refused.rows.tolist(), matches.refused.ordinals, strict=True)
    refused = sorted((row, ids[i]) for row, i in pairs)
    if batch is BATCH:
        one_by_one = [snapshot.match_one(message) for message in MESSAGES]
        assert [sorted(one.ids()) for one in one_by_one] == rows
        assert sorted((row, ids[i]) for row, one in enumerate(one_by_one) for i in one.refused) == refused
    return rows, refused


def test_without_a_provider_that_delivery_alone_is_refused(install):
    index = registered()
    rows, refused = kernel(index)
    assert rows == [["all", "plain"], ["all"], ["all", "plain"], ["all"]]
    assert refused == [(0, "contains"), (0, "field"), (1, "contains"), (1, "field"), (2, "field")]
    for number, message in enumerate(MESSAGES):
        assert sorted(index.match(message)) == rows[number]
        assert list(index.last_match.refused) == [name for row, name in refused if row == number]
    explained = index.explain("contains", MESSAGES[0])
    assert not explained.matched and "2551" in str(explained)
    matches = index.freeze().match(pa.Table.from_batches([BATCH, BATCH]))
    assert matches.refused.rows.tolist() == [0, 0, 1, 1, 2, 4, 4, 5, 5, 6]


def test_a_provider_judges_what_reaches_it(install):
    install(Point())
    index = registered()
    rows, refused = kernel(index)
    assert rows == [["all", "contains", "field", "plain"], ["all"], ["all", "field", "plain"], ["all"]]
    assert refused == []
    assert index.freeze().reads == ("@body", "@invalid-names", "@topic", "a")
    for number, message in enumerate(MESSAGES):
        assert sorted(index.match(message)) == rows[number] and index.last_match.refused == ()
        for name in ("contains", "field"):
            assert index.explain(name, message).matched is (name in rows[number])
    snapshot = index.freeze()
    single = [sr.Message(topic="cars/x", body="blue"), sr.Message(topic="cars/x")]
    assert [0 in row for row in snapshot.match(from_messages(single, snapshot.reads))] == [True, False]


def test_a_provider_that_fails_refuses_the_one_delivery(install):
    install(Point())
    index = registered()
    index.add("broken", "fail always", dialect="ibm-mq", extended=True)
    rows, refused = kernel(index)
    assert refused == [(0, "broken"), (1, "broken"), (2, "broken")]
    assert rows[0] == ["all", "contains", "field", "plain"]


def test_a_provider_gets_what_does_not_parse_in_its_dialect_only(install):
    install(Point())
    index = sr.Index()
    index.add("e", "contains blue", dialect="ibm-mq")
    assert index["e"].seltype == "EXTENDED" and index.match(MESSAGES[0]) == ["e"]
    for text in ("neither nor", "contains " * 2_000):
        with pytest.raises(sr.InvalidSelectorError):
            index.add("f", text, dialect="ibm-mq")
    with pytest.raises(sr.InvalidSelectorError):
        index.add("f", "contains blue", dialect="jms")
    install()
    with pytest.raises(sr.InvalidSelectorError) as caught:
        index.add("f", "contains blue", dialect="ibm-mq")
    assert caught.value.reason == 2551


def test_what_is_extended_is_not_parsed_but_checked(install):
    index = sr.Index()
    with pytest.raises(ExtendedSelectionError, match="jms cannot be EXTENDED"):
        index.add("s", "x", extended=True)
    with pytest.raises(ExtendedSelectionError, match="must not be empty"):
        index.add("s", "", dialect="ibm-mq", extended=True)
    for text in ("x" * 20_000, "\ud800"):
        with pytest.raises(sr.InvalidSelectorError):
            index.add("s", text, dialect="ibm-mq", extended=True)
    assert len(index) == 0


def test_changing_a_subscription_changes_its_type(install):
    index = registered()
    index.replace("contains", "a = 2", dialect="ibm-mq")
    assert index["contains"].seltype == "STANDARD" and index["contains"].topic == "cars/#"
    assert "contains" in index.match(MESSAGES[1]) and "contains" not in index.last_match.refused
    index.replace("plain", "field a 1", dialect="ibm-mq", extended=True)
    index.match(MESSAGES[0])
    assert "plain" in index.last_match.refused
    index.remove("plain")
    index.match(MESSAGES[0])
    assert "plain" not in index.last_match.refused


def test_extended_subscriptions_survive_publication(install, tmp_path):
    publish(registered().freeze(), tmp_path)
    snapshot = sr.Snapshot.open(tmp_path)
    assert snapshot.subscriptions["seltype"].to_pylist() == ["EXTENDED", "EXTENDED", "STANDARD", "NONE"]
    assert len(snapshot.match(BATCH).refused) == 5
    install(Point())
    assert len(sr.Snapshot.open(tmp_path).match(BATCH).refused) == 0


def test_there_is_one_provider_at_most_and_it_must_load(install):
    install(Point("one"), Point("two"))
    with pytest.raises(ExtendedSelectionError, match="one = tests:one, two = tests:two"):
        extended.provider()
    install(Point("broken", ImportError("no such module")))
    with pytest.raises(ExtendedSelectionError, match="no such module"):
        extended.provider()
    with pytest.warns(RuntimeWarning, match="no such module"):
        assert kernel(registered())[1][0] == (0, "contains")


@pytest.mark.parametrize("names", [[[]], [1], ["ts"], None, ["a"] * 2_000, ["@ts"]])
@pytest.mark.parametrize("verdict", [None, "no", 1])
def test_a_provider_that_talks_nonsense_harms_nobody_else(install, names, verdict):
    class Nonsense(Contains):
        def identifiers(self, selector):
            return names

        def matches(self, selector, message):
            return verdict

    install(Point(loaded=Nonsense))
    times = pa.array([0] * 4, pa.timestamp("s"))
    batch = BATCH.append_column("ts", times).append_column("@ts", times)
    rows, refused = kernel(registered(), batch)
    assert rows == [["all", "plain"], ["all"], ["all", "plain"], ["all"]]
    assert len(refused) == 5
    before = Contains.made
    install(Point())
    assert extended.provider() is extended.provider() and Contains.made == before + 1
