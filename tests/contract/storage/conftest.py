"""A folder on every storage: this machine, a store that speaks S3, HDFS."""

import os
import uuid

import pytest

from selectroute.selector.errors import SelectRouteError
from selectroute.storage import Location
from selectroute.testing.hadoop import running
from tests.support.components import missing
from tests.support.s3 import BUCKET, clients_of, s3_server


@pytest.fixture(scope="session")
def endpoint():
    with s3_server() as url:
        yield url


@pytest.fixture(scope="session")
def hadoop(tmp_path_factory):
    try:
        with running(tmp_path_factory.mktemp("hadoop") / "hdfs") as found:
            yield found
    except SelectRouteError as error:
        missing(str(error))


@pytest.fixture(
    params=[
        "local",
        pytest.param("s3", marks=pytest.mark.slow),
        pytest.param("hdfs", marks=(pytest.mark.slow, pytest.mark.xdist_group("hadoop"))),
    ]
)
def folder(request, tmp_path, monkeypatch):
    if request.param == "local":
        (tmp_path / "a folder").mkdir()
        yield Location.of(tmp_path / "a folder")
    elif request.param == "s3":
        with clients_of(request.getfixturevalue("endpoint")):
            yield Location.of(f"s3://{BUCKET}/{uuid.uuid4().hex}/a folder")
    else:
        hdfs = request.getfixturevalue("hadoop")
        monkeypatch.setitem(os.environ, "HADOOP_CONF_DIR", str(hdfs.conf))
        yield Location.of(f"{hdfs.url}/{uuid.uuid4().hex}/a folder")


@pytest.fixture
def file(folder):
    return folder / "lease.json"
