"""What it takes to hold Spark against the reference evaluator: shared by the ways of routing.

Registries and messages are generated, or are the corpus; what is right is what each selector says of each
message alone.
"""

from functools import cache

import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.match.columns.from_messages import from_messages
from selectroute.selector.names import spelling
from selectroute.topics import TopicFilter
from tests.support.components import NIGHTLY
from tests.support.corpus_rows import rows
from tests.support.strategies import checked_selectors, messages

TOPICS = (None, None, "a", "a/+", "#/b", "cars/#", "#/eu/#")

REGISTRIES = st.lists(st.tuples(checked_selectors(), st.sampled_from(TOPICS)), min_size=48, max_size=48)
BATCHES = st.lists(messages(), min_size=16, max_size=16)


def spark_jobs(examples):
    """Settings for examples of which each is a Spark job: ten times as many at night.

    No shrinking: a failure is shrunk by the same test of the kernel.
    """
    return settings(
        max_examples=examples * (10 if NIGHTLY else 1),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )


def as_sent(batch, snapshot=None):
    """All headers and properties of the messages as columns: Spark has to find out who breaks the rules on
    names.
    """
    names = {name for message in batch for name in (*message.headers, *message.properties)} | {"@topic"}
    return pa.Table.from_batches([from_messages(batch, sorted(names))])


def routed(spark, table, snapshot, **options):
    """The ids that `route` gives each message of a table, in their order: every message and each id once."""
    from selectroute.spark import route

    numbered = table.append_column("@row", pa.array(range(len(table))))
    frame = route(spark.createDataFrame(numbered), snapshot, **options)
    found = frame.select("`@row`", "subscriptions").collect()
    assert sorted(row["@row"] for row in found) == list(range(len(table))), "every message once"
    ids = snapshot.ids.to_pylist()
    by_row = {row["@row"]: [ids[ordinal] for ordinal in row["subscriptions"]] for row in found}
    assert all(len(set(each)) == len(each) for each in by_row.values()), "each subscription once"
    return [set(by_row[number]) for number in range(len(table))]


def registered(registry):
    """The snapshot of generated selectors with their topics: ids are ``s`` and the number."""
    index = sr.Index()
    for number, (selector, topic) in enumerate(registry):
        index.add(f"s{number}", selector, topic)
    return index.freeze()


def wanted(registry, message):
    """The ids that a message goes to by the reference evaluator."""
    return {
        f"s{number}"
        for number, (selector, topic) in enumerate(registry)
        if (topic is None or TopicFilter.parse(topic).matches(message.topic)) and selector.matches(message)
    }


@cache
def corpus(dialect):
    """The snapshot of all selectors of the corpus that are some in a dialect, and the corpus's messages.

    One job for all: each row's message meets every selector, and the row's own are looked at.
    """
    index, batch = sr.Index(), []
    for number, row in enumerate(rows()):
        batch.append(sr.Message.from_json(dict(row.message)))
        if row.verdict[dialect] in ("true", "false", "unknown"):
            index.add(str(number), sr.Selector(row.selector, dialect))
    assert len(index) > 800
    return index.freeze(), batch


def disagreements(found, dialect):
    """The rows of the corpus, a line each, whose selectors did not get just the messages they are true of.

    As columns of a frame, names that no selector can spell are no properties and break no rule: what `ibm-mq`
    says of messages with such names is left out here.
    """
    return [
        f"{row.selector!r} with {row.message}; {row}"
        for number, (row, ids) in enumerate(zip(rows(), found, strict=True))
        if (str(number) in ids) is not (row.verdict[dialect] == "true")
        and not (dialect == "ibm-mq" and any(map(spelling, row.message.get("properties", ()))))
    ]
