"""A world in an object store, of which Spark's workers are clients, too."""

import pytest

from tests.support.remote_world import RemoteWorld, remote_folder


@pytest.fixture
def world(request):
    """The world, in an object store, or on HDFS if the test says so."""
    with remote_folder(request, getattr(request, "param", "s3")) as root:
        yield RemoteWorld(root)
