"""Spark agrees with the reference evaluator, on generated selectors and messages and on the corpus."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.match import from_messages
from selectroute.topics import TopicFilter
from tests.corpus_rows import rows
from tests.strategies import messages, selectors

pytestmark = pytest.mark.spark

TOPICS = (None, "a", "a/+", "#/b", "cars/#")


def routed(spark, index, batch):
    """The ids that `route` gives each message, in the order of the messages."""
    from selectroute.spark import route

    snapshot = index.freeze()
    columns = from_messages(batch, snapshot.reads)
    table = pa.Table.from_batches([columns]).append_column("row", pa.array(range(len(batch))))
    found = route(spark.createDataFrame(table), snapshot).select("row", "subscriptions").collect()
    ids = snapshot.ids.to_pylist()
    by_row = {row["row"]: {ids[ordinal] for ordinal in row["subscriptions"]} for row in found}
    assert all(len(row["subscriptions"]) == len(by_row[row["row"]]) for row in found), "each once"
    return [by_row[number] for number in range(len(batch))]


# No shrinking: each example is a Spark job, and a failure is shrunk by the same test of the kernel.
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(
    st.lists(st.tuples(selectors(), st.sampled_from(TOPICS)), min_size=24, max_size=24),
    st.lists(messages(), min_size=16, max_size=16),
)
def test_route_agrees_with_the_reference_on_generated_selectors_and_messages(spark, registry, batch):
    index = sr.Index()
    for number, (selector, topic) in enumerate(registry):
        index.add(f"s{number}", selector, topic)
    judged = [(sr.Selector(selector), topic) for selector, topic in registry]
    for message, ids in zip(batch, routed(spark, index, batch), strict=True):
        assert ids == {
            f"s{number}"
            for number, (selector, topic) in enumerate(judged)
            if (topic is None or TopicFilter.parse(topic).matches(message.topic))
            and selector.matches(message)
        }


def test_route_selects_exactly_the_true_rows_of_the_corpus(spark):
    valid = [row for row in rows() if row.verdict.get("jms") in ("true", "false", "unknown")]
    index = sr.Index()
    for number, row in enumerate(valid):
        index.add(str(number), row.selector)
    found = routed(spark, index, [sr.Message.from_json(dict(row.message)) for row in valid])
    wrong = [
        str(row)
        for number, (row, ids) in enumerate(zip(valid, found, strict=True))
        if (str(number) in ids) is not (row.verdict["jms"] == "true")
    ]
    assert not wrong, "\n".join(wrong)
