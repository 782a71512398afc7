"""Spark agrees with the reference evaluator, on generated selectors and messages and on the corpus."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.match import from_messages
from selectroute.selector import DIALECTS
from selectroute.selector.names import INVALID_NAMES
from selectroute.topics import TopicFilter
from tests.corpus_rows import rows
from tests.strategies import checked_selectors, messages

pytestmark = pytest.mark.spark

TOPICS = (None, "a", "a/+", "#/b", "cars/#")


def as_read(batch, snapshot):
    """What the snapshot reads of the messages, and who breaks the rules on names, as ready columns."""
    return pa.Table.from_batches([from_messages(batch, snapshot.reads)])


def as_sent(batch, snapshot):
    """All headers and properties of the messages as columns: Spark has to find out who breaks the rules."""
    names = {name for message in batch for name in (*message.headers, *message.properties)} | {"@topic"}
    return pa.Table.from_batches([from_messages(batch, sorted(names))])


def nested(batch, snapshot):
    """The same, with a struct for each group of properties whose name is no property, too."""
    table = as_sent(batch, snapshot)
    groups = {}
    for name in table.column_names:
        head, _, rest = name.partition(".")
        if not rest or head in ("", *table.column_names):
            head, rest = name, ""
        groups.setdefault(head, {})[rest] = table[name].combine_chunks()
    return pa.table(
        {
            head: fields.get("") or pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
            for head, fields in groups.items()
        }
    )


def routed(spark, index, batch, columns):
    """The ids that `route` gives each message, in the order of the messages."""
    from selectroute.spark import route

    snapshot = index.freeze()
    table = columns(batch, snapshot).append_column("@row", pa.array(range(len(batch))))
    found = route(spark.createDataFrame(table), snapshot).select("`@row`", "subscriptions").collect()
    ids = snapshot.ids.to_pylist()
    by_row = {row["@row"]: {ids[ordinal] for ordinal in row["subscriptions"]} for row in found}
    assert all(len(row["subscriptions"]) == len(by_row[row["@row"]]) for row in found), "each once"
    return [by_row[number] for number in range(len(batch))]


# No shrinking: each example is a Spark job, and a failure is shrunk by the same test of the kernel.
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(
    st.lists(st.tuples(checked_selectors(), st.sampled_from(TOPICS)), min_size=48, max_size=48),
    st.lists(messages(), min_size=16, max_size=16),
    st.sampled_from([as_read, as_sent, nested]),
)
def test_route_agrees_with_the_reference_on_generated_selectors_and_messages(spark, registry, batch, columns):
    index = sr.Index()
    for number, (selector, topic) in enumerate(registry):
        index.add(f"s{number}", selector, topic)
    for message, ids in zip(batch, routed(spark, index, batch, columns), strict=True):
        assert ids == {
            f"s{number}"
            for number, (selector, topic) in enumerate(registry)
            if (topic is None or TopicFilter.parse(topic).matches(message.topic))
            and selector.matches(message)
        }


def test_route_selects_exactly_the_true_rows_of_the_corpus_in_each_dialect(spark):
    # One job for all: each row's message meets every selector, and the row's own are looked at.
    index, batch = sr.Index(), []
    for number, row in enumerate(rows()):
        batch.append(sr.Message.from_json(dict(row.message)))
        for name in DIALECTS:
            if row.verdict[name] in ("true", "false", "unknown"):
                index.add(f"{number}-{name}", sr.Selector(row.selector, name))
    assert INVALID_NAMES in index.freeze().reads and len(index) > 4_000
    found = routed(spark, index, batch, nested)
    wrong = [
        f"{name}: {row.selector!r} with {row.message}; {row}"
        for number, (row, ids) in enumerate(zip(rows(), found, strict=True))
        for name in DIALECTS
        if (f"{number}-{name}" in ids) is not (row.verdict[name] == "true")
    ]
    assert not wrong, "\n".join(wrong)
