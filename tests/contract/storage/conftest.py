"""A folder on every storage: this machine, stores that speak S3, Azure and Google Cloud Storage, HDFS."""

import os
import uuid

import pytest

from selectroute.storage import Location
from tests.support.servers.s3 import BUCKET, clients_of


@pytest.fixture(
    params=[
        "local",
        pytest.param("s3", marks=pytest.mark.slow),
        pytest.param("azure", marks=pytest.mark.nightly),
        pytest.param("gcs", marks=pytest.mark.nightly),
        pytest.param("hdfs", marks=(pytest.mark.slow, pytest.mark.xdist_group("hadoop"))),
    ]
)
def folder(request, tmp_path, monkeypatch):
    if request.param == "local":
        (tmp_path / "a folder").mkdir()
        yield Location.of(tmp_path / "a folder")
    elif request.param == "s3":
        with clients_of(request.getfixturevalue("s3")):
            yield Location.of(f"s3://{BUCKET}/{uuid.uuid4().hex}/a folder")
    elif request.param in ("azure", "gcs"):
        store = request.getfixturevalue(request.param)
        with store.client():
            yield Location.of(f"{store.root}/{uuid.uuid4().hex}/a folder")
    else:
        hdfs = request.getfixturevalue("hdfs")
        monkeypatch.setitem(os.environ, "HADOOP_CONF_DIR", str(hdfs.conf))
        yield Location.of(f"{hdfs.url}/{uuid.uuid4().hex}/a folder")


@pytest.fixture
def file(folder):
    return folder / "lease.json"
