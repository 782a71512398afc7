"""HDFS of the tests itself: what tests of storage and of YARN take for granted."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

pytest.importorskip("pyspark")

from selectroute.testing import hadoop
from selectroute.testing.hadoop import Hadoop
from selectroute.testing.jars import JarError


def on_hdfs(test):
    """Mark a test that needs it: one HDFS for all of them."""
    return pytest.mark.slow(pytest.mark.xdist_group("hadoop")(test))


def call(hdfs, method, path, **query):
    """WebHDFS, which is HDFS for those who have no client of it."""
    text = "&".join(f"{name}={value}" for name, value in query.items())
    request = urllib.request.Request(f"{hdfs.web}/webhdfs/v1{path}?{text}", method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def put(hdfs, path, data):
    place = json.loads(call(hdfs, "PUT", path, op="CREATE", noredirect="true"))["Location"]
    with urllib.request.urlopen(urllib.request.Request(place, data, method="PUT"), timeout=60) as answer:
        assert answer.status == 201


@pytest.mark.nightly
@pytest.mark.parametrize("end", ["stop", "kill"], ids=["after a stop", "after a kill"])
@pytest.mark.parametrize("name", ["namenode", "datanode"])
@on_hdfs
def test_a_file_is_there_after_the_end_and_a_start_of_a_daemon(hdfs, name, end):
    path = f"/kept/{name}-{end}"
    put(hdfs, path, b"kept")
    getattr(hdfs.daemons[name], end)()
    hdfs.start()
    # The DataNode, which reads for those without a client, learns by its first call that the NameNode was
    # started again.
    with suppress(urllib.error.HTTPError):
        call(hdfs, "GET", path, op="OPEN")
    assert call(hdfs, "GET", path, op="OPEN") == b"kept"


@on_hdfs
def test_clients_find_the_file_system_by_the_folder_of_the_configuration(hdfs):
    assert hdfs.environment()["HADOOP_CONF_DIR"] == str(hdfs.conf)
    assert f"<value>{hdfs.url}</value>" in (hdfs.conf / "core-site.xml").read_text()
    assert hdfs.url.startswith("hdfs://127.0.0.1:") and not hdfs.yarn


def test_a_jar_that_cannot_be_fetched_is_one_sentence(tmp_path, monkeypatch):
    def refused(name, modules):
        raise JarError(f"{modules[0]} could not be fetched: the registry does not have it")

    monkeypatch.setattr(hadoop, "fetch", refused)
    with pytest.raises(JarError, match=r"^org\.apache\.hadoop:hadoop-client-minicluster:\S+ could not be"):
        Hadoop(tmp_path)
