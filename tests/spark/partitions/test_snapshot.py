"""Partitions without Spark: what is where, and that a message names every partition that can match it."""

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import selectroute as sr
from selectroute.index.changes import Remove, Replace
from selectroute.index.errors import RevisionExistsError, SnapshotNotFoundError
from selectroute.match.columns.batch import ColumnBatch
from selectroute.match.columns.from_messages import from_messages
from selectroute.match.encoding.lanes import AttributeLanes
from selectroute.selector.limits import UNLIMITED
from selectroute.spark.partitions.publish import publish_partitions
from selectroute.spark.partitions.route import MappedPartitions
from selectroute.spark.partitions.snapshot import (
    MAX_PARTITIONS,
    PartitionedSnapshot,
    open_partitions,
    ordinals_of,
)
from tests.support.strategies import checked_selectors, messages

TOPICS = (None, "a", "a/+", "#/b", "cars/#", "#/eu/#")


def index_of(*selectors, **named):
    index = sr.Index()
    for number, selector in enumerate(selectors):
        index.add(f"s{number}", selector)
    for name, selector in named.items():
        index.add(name, selector)
    return index


def lanes(batch):
    return AttributeLanes(ColumnBatch(batch))


def gathered(parts, batch):
    """The ordinals that the rest and the addressed partitions give each message, and how many came twice."""
    found = [[] for _ in range(batch.num_rows)]
    rest = parts.rest()
    if rest is not None:
        for row, ordinals in enumerate(rest.match(batch)):
            found[row] += ordinals_of(parts.refs[-1])[ordinals].tolist()
    rows, partitions = parts.addresses(lanes(batch))
    for partition in set(partitions.tolist()):
        chosen = rows[partitions == partition]
        matches = parts.part(partition).match(batch.take(pa.array(chosen)))
        for row, ordinals in zip(chosen, matches, strict=True):
            found[row] += ordinals_of(parts.refs[partition])[ordinals].tolist()
    return found


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(checked_selectors(), st.sampled_from(TOPICS)), min_size=24, max_size=24),
    st.lists(messages(), min_size=16, max_size=16),
    st.sampled_from([1, 2, 5, 25]),
)
def test_partitions_give_what_the_whole_gives_addressed_or_all_mapped(
    tmp_path_factory, registry, batch, partitions
):
    index = sr.Index()
    for number, (selector, topic) in enumerate(registry):
        index.add(f"s{number}", selector, topic)
    snapshot = index.freeze()
    parts = publish_partitions(snapshot, tmp_path_factory.mktemp("parts"), partitions)
    columns = from_messages(batch, snapshot.reads)
    whole = [sorted(ordinals.tolist()) for ordinals in snapshot.match(columns)]
    offsets, ordinals = MappedPartitions(parts).match(columns)
    mapped = [sorted(ordinals[first:last].tolist()) for first, last in pairwise(offsets)]
    assert mapped == whole, "each once"
    if partitions <= 5:
        assert [sorted(set(found)) for found in gathered(parts, columns)] == whole
    assert parts.ids.to_pylist() == snapshot.ids.to_pylist()
    assert parts.reads == snapshot.reads


def test_a_message_goes_only_where_its_keys_are_and_a_subscription_lies_only_there(tmp_path):
    index = index_of(*(f"JMSType = 't{number}' AND weight > {number % 7}" for number in range(1_000)))
    parts = publish_partitions(index.freeze(), tmp_path, 4)
    assert parts.tuples == (("JMSType",),)
    assert sum(parts.rows) == 1_000 and min(parts.rows[:4]) > 150 and parts.rows[-1] == 0
    known = pa.record_batch({"JMSType": [f"t{number}" for number in range(1_000)], "weight": [9] * 1_000})
    rows, _ = parts.addresses(lanes(known))
    assert sorted(rows.tolist()) == list(range(1_000)), "each goes to one partition"
    unknown = pa.record_batch({"JMSType": [f"u{number}" for number in range(1_000)], "weight": [9] * 1_000})
    rows, _ = parts.addresses(lanes(unknown))
    assert len(rows) < 120, "the keys of about 1 in 16 look as if they were in use"


def test_what_has_no_key_is_in_the_rest_and_in_no_partition(tmp_path):
    index = index_of(key="a = 'x'", two="a = 'x' OR weight > 3", scan="weight > 3", all=None)
    index.add("extended", "any text", dialect="ibm-mq", extended=True)
    parts = publish_partitions(index.freeze(), tmp_path, 3)
    assert parts.rest().ids.to_pylist() == ["1", "2", "3", "4"]
    assert sum(parts.rows[:-1]) == 1
    assert parts.extended == 1


def test_a_subscription_with_several_keys_lies_in_the_partition_of_each(tmp_path):
    values = [f"v{number}" for number in range(64)]
    index = index_of(
        "a IN (" + ", ".join(f"'{value}'" for value in values) + ") AND b > 1", "c = 3 OR d = TRUE"
    )
    parts = publish_partitions(index.freeze(), tmp_path, 4)
    assert parts.rows[:4].count(0) == 0 and parts.rows[-1] == 0
    batch = pa.record_batch({"a": values, "b": [2] * 64, "c": [3] * 64, "d": [True] * 64})
    assert [sorted(set(ordinals)) for ordinals in gathered(parts, batch)] == [[0, 1]] * 64


def test_a_registry_without_keys_or_without_subscriptions_has_empty_partitions(tmp_path):
    batch = pa.record_batch({"x": ["a", "b"]})
    for number, (index, expected) in enumerate([(index_of(None), [[0], [0]]), (sr.Index(), [[], []])]):
        parts = publish_partitions(index.freeze(), tmp_path / str(number), 2)
        assert gathered(parts, batch) == expected


def test_a_selector_that_was_accepted_under_larger_limits_is_published(tmp_path):
    index = index_of("a = 'y'")
    index.add("long", sr.Selector(f"a = '{'x' * 20_000}'", limits=UNLIMITED))
    index.add("extended", "any text", dialect="ibm-mq", extended=True)
    parts = publish_partitions(index.freeze(), tmp_path, 1)
    assert gathered(parts, pa.record_batch({"a": ["x" * 20_000, "y"]})) == [[1], [0]]


def test_what_was_removed_from_a_snapshot_is_in_no_partition(tmp_path):
    snapshot = index_of("a = 1", "a = 2", "b > 1").freeze().changed([Remove("s0"), Replace("s2", "a = 1")])
    parts = publish_partitions(snapshot, tmp_path, 2)
    batch = pa.record_batch({"a": [1, 2], "b": [3, 3]})
    whole = [sorted(ordinals.tolist()) for ordinals in snapshot.match(batch)]
    assert [sorted(ordinals) for ordinals in gathered(parts, batch)] == whole
    assert sum(parts.rows) == len(parts) == 2


def test_publishing_gives_the_snapshots_revision_or_the_next_and_never_replaces_one(tmp_path):
    first = publish_partitions(index_of("a = 1").freeze(), tmp_path, 2)
    second = publish_partitions(index_of("a = 1", "a = 2").freeze(), tmp_path, 3)
    assert (first.ref.revision, second.ref.revision) == (1, 2)
    assert publish_partitions(index_of("a = 1").freeze(revision=7), tmp_path, 1).ref.revision == 7
    with pytest.raises(RevisionExistsError, match="revision 7 is already published in partitions"):
        publish_partitions(index_of("a = 1").freeze(revision=7), tmp_path, 1)
    assert PartitionedSnapshot.open(tmp_path).ref.revision == 7
    assert PartitionedSnapshot.open(tmp_path, 2).partitions == 3
    assert len(PartitionedSnapshot.open(tmp_path, 2)) == 2
    with pytest.raises(SnapshotNotFoundError, match="revision 3 is not published in partitions"):
        PartitionedSnapshot.open(tmp_path, 3)
    with pytest.raises(SnapshotNotFoundError, match="no partitions are published"):
        PartitionedSnapshot.open(tmp_path / "none")


@pytest.mark.parametrize("partitions", [0, -1, MAX_PARTITIONS + 1])
def test_a_number_of_partitions_out_of_range_is_refused(tmp_path, partitions):
    with pytest.raises(sr.SnapshotError, match="must be 1 to 4,096"):
        publish_partitions(index_of("a = 1").freeze(), tmp_path, partitions)


def test_damage_is_found_before_anything_is_matched(tmp_path):
    parts = publish_partitions(index_of("a = 1").freeze(), tmp_path, 2)
    for name, use in (
        ("keys", lambda p: p.addresses(lanes(pa.record_batch({"a": [1]})))),
        ("ids", lambda p: p.ids),
    ):
        path = tmp_path / parts.files[name]["file"]
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(sr.SnapshotError, match="is damaged"):
            use(PartitionedSnapshot.open(tmp_path))
    manifest = tmp_path / "partitions-1.json"
    written = json.loads(manifest.read_text())
    written["subscriptions"] = 2
    manifest.write_text(json.dumps(written))
    with pytest.raises(sr.SnapshotError, match="is damaged"):
        PartitionedSnapshot.open(tmp_path)


def test_a_worker_refuses_partitions_that_the_driver_did_not_mean(tmp_path):
    parts = publish_partitions(index_of("a = 1").freeze(), tmp_path / "one", 2)
    other = publish_partitions(index_of("a = 2").freeze(), tmp_path / "other", 2)
    (tmp_path / "one" / "partitions-1.json").write_bytes(
        (tmp_path / "other" / "partitions-1.json").read_bytes()
    )
    assert parts.ref.digest != other.ref.digest
    with pytest.raises(sr.SnapshotError, match="were replaced after the driver"):
        open_partitions(parts.ref)


def test_the_plan_does_not_change_what_is_found_where_many_pairs_are_in_use(tmp_path):
    # More pairs of attributes than a plan takes: some clauses share a pair, others go by one attribute.
    rng = np.random.default_rng(5)
    selectors = []
    for _ in range(1_500):
        first, second = rng.choice(12, 2, replace=False)
        selectors.append(f"p{first} = 'v{rng.integers(3)}' AND p{second} = {rng.integers(3)}")
    snapshot = index_of(*selectors).freeze()
    parts = publish_partitions(snapshot, tmp_path, 3)
    columns = {
        f"p{i}": pa.array(rng.choice(["v0", "v1", "v2"], 40))
        if rng.integers(2)
        else pa.array(rng.integers(0, 3, 40))
        for i in range(12)
    }
    batch = pa.record_batch(columns)
    whole = [sorted(ordinals.tolist()) for ordinals in snapshot.match(batch)]
    assert [sorted(set(ordinals)) for ordinals in gathered(parts, batch)] == whole
    assert any(whole)
