"""The demo's self-check finds what it is there to find. Spark's part is played by the kernel and a few
files.
"""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import selectroute as sr
from selectroute.demo.flights import read_flights, sample, to_messages, write_messages
from selectroute.demo.subscriptions import WATCHED, WATCHED_CHANGED, generate, write_jsonl
from selectroute.demo.verify import Judge, busiest

pytestmark = pytest.mark.slow

MESSAGES = 60


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    """A demo folder as a correct run leaves it: two batches, the watched subscription changed between
    them.
    """
    folder = tmp_path_factory.mktemp("demo")
    data = sample(read_flights(), MESSAGES)
    wanted = generate(data, 2_000, 1)
    history = [(WATCHED, 1, 2), (WATCHED_CHANGED, 2, None), *((one, 1, None) for one in wanted[1:])]
    write_jsonl(folder / "subscriptions.jsonl", history)
    paths = write_messages(to_messages(data), folder / "messages", files=2)
    (folder / "output" / "pins").mkdir(parents=True)
    for sink in ("unrouted", "dead-letters"):
        (folder / "output" / sink).mkdir()
    index = sr.Index()
    for one in wanted:
        index.add(one.id, one.selector, topic=one.topic)
    for batch, path in enumerate(paths):
        if batch == 1:
            index.replace(WATCHED.id, WATCHED_CHANGED.selector)
        _route(folder / "output", batch, batch + 1, path, index.freeze())
    return folder


def _route(output, batch, revision, path, snapshot):
    (output / "pins" / f"{batch}.json").write_text(
        json.dumps({"batch": batch, "revision": revision, "digest": ""})
    )
    delivered, unrouted = [], []
    for row, ordinals in enumerate(snapshot.match(pq.read_table(path))):
        place = {"revision": revision, "source": path.name, "offset": row}
        ids = snapshot.ids.take(pa.array(ordinals)).to_pylist()
        delivered += [{"subscription": id, **place} for id in ids]
        unrouted += [] if ids else [place]
    _write(output / "deliveries" / f"batch={batch}" / "part.parquet", delivered)
    _write(output / "unrouted" / f"batch={batch}" / "part.parquet", unrouted)


def _write(path, rows):
    if rows:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture
def folder(routed, tmp_path):
    return shutil.copytree(routed, tmp_path / "demo")


def _rewrite(folder, batch, change):
    """Apply ``change`` to the rows of a batch's deliveries."""
    path = folder / "output" / "deliveries" / f"batch={batch}" / "part.parquet"
    rows = pq.ParquetFile(path).read().to_pylist()
    _write(path, change(rows))


def test_correct_deliveries_pass_and_every_pair_was_judged(folder):
    check = Judge(folder).check(MESSAGES, seed=1)
    assert check.differences == []
    assert check.messages == MESSAGES
    assert check.judged == MESSAGES * 2_000
    assert check.matches > 0


def test_lost_delivery_is_found(folder):
    lost = []

    def drop(rows):
        lost.append(rows[3])
        return rows[:3] + rows[4:]

    _rewrite(folder, 0, drop)
    [difference] = Judge(folder).check(MESSAGES, seed=1).differences
    assert f"matches {lost[0]['subscription']}" in difference and "not delivered" in difference


def test_wrong_delivery_is_found(folder):
    _rewrite(folder, 0, lambda rows: [*rows, {**rows[0], "subscription": "nobody"}])
    [difference] = Judge(folder).check(MESSAGES, seed=1).differences
    assert "delivered to nobody" in difference


def test_doubled_delivery_is_found(folder):
    _rewrite(folder, 1, lambda rows: [*rows, rows[0]])
    [difference] = Judge(folder).check(MESSAGES, seed=1).differences
    assert "2 times" in difference


def test_message_missing_from_all_outputs_is_found(folder):
    shutil.rmtree(folder / "output" / "deliveries" / "batch=1")
    differences = Judge(folder).check(MESSAGES, seed=1).differences
    assert differences and all("0 batches" in difference for difference in differences)


def test_message_in_two_batches_is_found(folder):
    shutil.copytree(
        folder / "output" / "deliveries" / "batch=1", folder / "output" / "deliveries" / "batch=7"
    )
    differences = Judge(folder).check(MESSAGES, seed=1).differences
    assert differences and all("2 batches" in difference for difference in differences)


def test_delivery_at_another_revision_than_the_pin_is_found(folder):
    (folder / "output" / "pins" / "1.json").write_text(json.dumps({"batch": 1, "revision": 1, "digest": ""}))
    differences = Judge(folder).check(MESSAGES, seed=1).differences
    assert differences and all("pinned to 1" in difference for difference in differences)


def test_worked_example_is_a_real_match_at_its_revision(folder):
    worked = Judge(folder).check(0, seed=1).worked
    assert worked is not None
    assert sr.Selector(worked.subscription.selector).matches(worked.message)


def test_busiest_counts_deliveries(folder):
    counted = busiest(folder / "output", 3)
    assert len(counted) == 3
    assert [count for _, count in counted] == sorted((count for _, count in counted), reverse=True)
