"""Busiest subscriptions: counted exactly by tasks, summed over a batch, equal to its deliveries."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from selectroute.spark.batch.router import Router
from selectroute.spark.tables.schemas import BUSIEST, DeliveryCounts, busiest_of
from selectroute.spark.task import writer

IDS = [f"s{number}" for number in range(40)]


@given(
    st.lists(st.lists(st.integers(0, len(IDS) - 1), max_size=60), max_size=5), st.integers(1, len(IDS) + 1)
)
def test_a_task_counts_as_a_counter_does(parts, most):
    counts, expected = DeliveryCounts(pa.array(IDS)), Counter()
    for part in parts:
        counts.add(np.array(part, dtype=np.int32))
        expected.update(IDS[ordinal] for ordinal in part)
    found = counts.busiest(most)
    assert found.items() <= expected.items()
    assert sorted(found.values()) == sorted(n for _, n in expected.most_common(most))


@given(st.lists(st.dictionaries(st.sampled_from(IDS), st.integers(1, 9)), max_size=5), st.integers(1, 50))
def test_the_busiest_of_all_tasks_come_first_and_equal_ones_by_id(tasks, most):
    total = sum(map(Counter, tasks), Counter())
    expected = sorted(total.items(), key=lambda one: (-one[1], one[0]))[:most]
    assert list(busiest_of(tasks, most).items()) == expected


def test_a_batch_names_its_busiest_with_the_numbers_of_its_deliveries(world, monkeypatch):
    monkeypatch.setattr(writer, "_ROW_GROUP", 7)  # many writes of a task
    world.publish(1, **{f"s{number:03}": f"n >= {number}" for number in range(BUSIEST + 50)})
    paths = [
        world.drop_json(f"{name}.jsonl", *({"properties": {"n": number}} for number in range(start, 200, 3)))
        for start, name in enumerate("abc")
    ]
    job = world.started(world.job())
    routers = [Router(job, world.source(job, 3), counts_busiest=counts) for counts in (True, False)]
    reports = []
    for number, router in enumerate(routers):
        router.commits.prepare()
        reports.append(router.route(number, paths, "q"))
    total = Counter(row["subscription"] for row in world.rows("deliveries") if row["batch"] == 0)
    assert len(total) == BUSIEST + 50 and total["s000"] == 200
    assert list(reports[0].busiest.items()) == total.most_common(BUSIEST)
    assert reports[1].busiest == {}, "they are counted for a registry only"
