"""Change leaves the index as it was, and is timed without what undoes it."""

import numpy as np
import pyarrow as pa
import pytest

from bench.matching.brute import expected
from bench.matching.churn import ENGINES, ChurnEngine, PublishedEngine
from bench.matching.engines import build, indexed, to_messages
from bench.workloads import replies
from bench.workloads.catalogue import WORKLOADS


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("workload", ["R", "Z"])
def test_after_a_run_the_index_is_what_it_was(name, workload):
    made = WORKLOADS[workload]
    texts = list(made.texts(350))
    index = indexed(texts[:300])
    batch = made.messages(1_000, 40, 0)
    engine = ChurnEngine(name, index, to_messages(batch), texts[300:])
    check = expected(list(made.conditions(300)), batch)
    assert engine.judge() == check
    outcome = engine.run()
    assert outcome.matches == len(index) == 300
    assert engine.messages == 50 and outcome.seconds > 0
    assert engine.judge() == check


def test_the_next_batch_knows_each_published_change(tmp_path):
    texts = list(replies.selectors(6, 1_000))
    asked = pa.RecordBatch.from_pydict({"JMSCorrelationID": replies.correlation_ids(np.arange(1_000, 1_006))})
    batch = replies.messages(1_000, 500)
    built = build(lambda: replies.selectors(1_000), tmp_path / "built")
    engine = PublishedEngine(built, batch, 500, asked, texts, tmp_path / "changed")
    assert engine.judge() == replies.expected(1_000, 500)
    outcome = engine.run()
    assert outcome.matches == 6  # of twelve: after each addition, and not after the removal
    assert len(outcome.each_ns) == engine.messages == 12
    engine.close()
