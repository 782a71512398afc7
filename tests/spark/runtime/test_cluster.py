"""The same code on a cluster: two executors, each a process and a JVM of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import selectroute as sr
from selectroute.index.warm import warm_up
from selectroute.spark import JavaError, publish_partitions
from selectroute.spark.session import find_java
from tests.support.components import missing

pytestmark = [pytest.mark.spark, pytest.mark.nightly]
ROOT = Path(__file__).parents[3]
ROWS = 2_000


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What `cluster_job` printed, and the snapshot and messages that it was given."""
    try:
        find_java()
    except JavaError as error:
        missing(str(error))
    warm_up()  # once here and not once in each executor
    folder = tmp_path_factory.mktemp("cluster")
    index = sr.Index()
    for number in range(300):
        index.add(f"s{number}", f"color = 'c{number % 20}' AND weight > {number}")
    index.add("any-of", "color IN ('c1', 'c2') OR size = 3")
    index.add("heavy", "weight > 390")
    snapshot = index.freeze()
    sr.publish(snapshot, folder / "snapshots")
    publish_partitions(snapshot, folder / "partitions", 3)
    batch = pa.record_batch(
        {
            "@id": [f"m{number}" for number in range(ROWS)],
            "color": [f"c{number % 23}" for number in range(ROWS)],
            "weight": pa.array([number % 400 for number in range(ROWS)], pa.int32()),
            "size": pa.array([number % 7 if number % 3 else None for number in range(ROWS)], pa.int16()),
        }
    )
    (folder / "messages").mkdir()
    for part in range(4):
        table = pa.Table.from_batches([batch.slice(part * ROWS // 4, ROWS // 4)])
        pq.write_table(table, folder / "messages" / f"{part}.parquet")
    folders = [str(folder / name) for name in ("snapshots", "partitions", "messages")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_job", "local-cluster[2,1,1024]", *folders],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    matched = [sorted(ordinals.tolist()) for ordinals in snapshot.match(batch)]
    return json.loads(done.stdout.splitlines()[-1]), snapshot, matched


@pytest.mark.parametrize("way", ["shared folder", "Spark's files", "partitions", "partitions in each worker"])
def test_two_executors_route_as_one_process_matches(found, way):
    result, _, matched = found
    assert result["executors"] == 2
    assert result[way] == sorted([f"m{number}", ordinals] for number, ordinals in enumerate(matched))


def test_two_executors_read_files_and_spell_deliveries_alike(found):
    result, snapshot, matched = found
    assert result["files"] == sorted(matched)
    ids = snapshot.ids.to_pylist()
    assert result["deliveries"] == sorted(
        [f"m{number}", ids[ordinal]] for number, ordinals in enumerate(matched) for ordinal in ordinals
    )
