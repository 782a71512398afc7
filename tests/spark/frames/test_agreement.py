"""Spark agrees with the reference evaluator, on generated selectors and messages and on the corpus."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectroute.match.columns.from_messages import from_messages
from selectroute.selector import DIALECTS
from selectroute.selector.names import INVALID_NAMES
from tests.spark import agreement
from tests.spark.agreement import as_sent
from tests.support.components import after_first

pytestmark = pytest.mark.spark


def as_read(batch, snapshot):
    """What the snapshot reads of the messages, and who breaks the rules on names, as ready columns."""
    return pa.Table.from_batches([from_messages(batch, snapshot.reads)])


def nested(batch, snapshot):
    """As sent, with a struct for each group of properties whose name is no property, too."""
    table = as_sent(batch)
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


@agreement.spark_jobs(4)
@given(agreement.REGISTRIES, agreement.BATCHES, st.sampled_from([as_read, as_sent, nested]))
def test_route_agrees_with_the_reference_on_generated_selectors_and_messages(spark, registry, batch, columns):
    snapshot = agreement.registered(registry)
    found = agreement.routed(spark, columns(batch, snapshot), snapshot)
    for message, ids in zip(batch, found, strict=True):
        assert ids == agreement.wanted(registry, message)


# The kernel is held against all of the corpus without Spark. What Spark adds, columns, needs one
# dialect: the one whose rules on names look at every column.
@pytest.mark.slow
@pytest.mark.parametrize(
    "dialect", after_first(pytest.mark.nightly, "ibm-mq", *(one for one in DIALECTS if one != "ibm-mq"))
)
def test_route_selects_exactly_the_true_rows_of_the_corpus(spark, dialect):
    snapshot, batch = agreement.corpus(dialect)
    assert (INVALID_NAMES in snapshot.reads) is (dialect == "ibm-mq")
    found = agreement.routed(spark, nested(batch, snapshot), snapshot)
    wrong = agreement.disagreements(found, dialect)
    assert not wrong, "\n".join(wrong)
