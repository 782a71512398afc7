"""A world in an object store, of which Spark's workers are clients, too."""

from __future__ import annotations

import os

import pytest

from tests.support.remote_world import RemoteWorld, remote_folder

SECRET = "q8Zx-never-to-be-seen"
"""The secret key of the object store, and the password of the queues' database."""


@pytest.fixture
def world(request, monkeypatch, spark):
    """The world, in an object store, or on HDFS if the test says so."""
    with remote_folder(request, getattr(request, "param", "s3")) as root:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        # Workers get what the environment was when Spark started, and this.
        names = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "HADOOP_CONF"))}
        spark.sparkContext.environment.update(names)
        yield RemoteWorld(root)
        for name in names:
            del spark.sparkContext.environment[name]
