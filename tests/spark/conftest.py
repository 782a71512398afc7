"""A world for a fan-out: folders, registries to publish, messages to drop in, and outputs to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from tests.support.components import POSTGRES
from tests.support.remote_world import RemoteWorld, remote_folder
from tests.support.world import World


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Folders on this machine, or with ``storages`` in the storage that a test names."""
    storage = getattr(request, "param", "parquet")
    if storage in ("s3", "hdfs"):
        with remote_folder(request, storage) as root:
            remote = RemoteWorld(root)
            yield remote
            remote.close()
        return
    made = request.getfixturevalue("delta") if storage == "delta" else World(tmp_path)
    made.input.mkdir(exist_ok=True)
    yield made


@pytest.fixture
def delta(tmp_path: Path) -> World:
    """A world whose outcomes are Delta tables."""
    pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")
    made = World(tmp_path, table_format="delta")
    made.input.mkdir()
    return made


@pytest.fixture
def sqlite(world: World, tmp_path: Path) -> Any:
    """The world, with queues in SQLite."""
    from tests.spark.queue_world import Queues

    return Queues(world, f"sqlite:///{tmp_path}/queues.db")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=POSTGRES)])
def queues(request: pytest.FixtureRequest, sqlite: Any) -> Any:
    """The world, with queues in either database."""
    if request.param == "postgresql":
        sqlite.url = request.getfixturevalue("postgres")()
    return sqlite


@pytest.fixture
def pipe(spark: Any, kafka: Any, world: World, request: pytest.FixtureRequest) -> Any:
    """The world, with a topic of three partitions to read."""
    from tests.spark.kafka_world import Pipe

    name = "in-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[-60:].strip("-")
    kafka.create(name, 3)
    return Pipe(spark, kafka, world, name)
