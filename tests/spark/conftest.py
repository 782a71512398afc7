"""A world for a fan-out: folders, registries to publish, messages to drop in, and outputs to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from selectroute.testing.world import World
from tests.support.components import POSTGRES


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.input.mkdir()
    return made


@pytest.fixture
def delta(tmp_path: Path) -> World:
    """A world whose outcomes are Delta tables."""
    pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")
    made = World(tmp_path, table_format="delta")
    made.input.mkdir()
    return made


@pytest.fixture
def sqlite(world: World) -> Any:
    """The world, with queues in SQLite."""
    from tests.spark.queue_world import Queues

    return Queues(world, f"sqlite:///{world.root}/queues.db")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=POSTGRES)])
def queues(request: pytest.FixtureRequest) -> Any:
    """The world, with queues in either database."""
    made = request.getfixturevalue("sqlite")
    if request.param == "postgresql":
        made.url = request.getfixturevalue("postgres")()
    return made


@pytest.fixture
def pipe(spark: Any, kafka: Any, world: World, request: pytest.FixtureRequest) -> Any:
    """The world, with a topic of three partitions to read."""
    from tests.spark.kafka_world import Pipe

    name = "in-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[-60:]
    kafka.create(name, 3)
    return Pipe(spark, kafka, world, name)
