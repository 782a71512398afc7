"""``selectroute registry``: a registry published, verified and described."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

import selectroute as sr
from selectroute.registry.registry import Registry
from tests.support.servers.serving import served
from tests.support.waiting import wait_until


@pytest.fixture
def database(database, run, monkeypatch):
    monkeypatch.setenv("SELECTROUTE_REGISTRY", database)
    for number in range(3):
        assert run("subscription", "add", f"a = {number}", "--id", f"s{number}")[0] == 0
    return database


def test_what_is_committed_is_published_where_streams_look_for_it(run, database, tmp_path):
    code, out, err = run("registry", "publish")
    folder = f"{tmp_path}/registry.db.snapshots"
    assert (code, out, err) == (0, f"revision 3: 3 active subscriptions in {folder}\n", "")
    assert sorted(sr.Snapshot.open(folder).ids.to_pylist()) == ["s0", "s1", "s2"]
    run("subscription", "pause", "s1")
    code, out, _ = run("registry", "publish", "-o", "json")
    assert json.loads(out) == {"revision": 4, "subscriptions": 2, "folder": folder}
    other = tmp_path / "elsewhere"
    assert run("registry", "publish", "--snapshots", other)[0] == 0
    assert len(sr.Snapshot.open(other)) == 2


def test_following_publishes_each_revision_until_it_is_told_to_stop(run, database, tmp_path):
    command = [sys.executable, "-m", "selectroute", "registry", "publish", "--follow"]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert following.stdout.readline().startswith("revision 3: 3 active")
        code, _, err = run("registry", "publish")
        assert code == 1 and "another process publishes" in err
        run("subscription", "add", "b = 1", "--id", "late")
        folder = tmp_path / "registry.db.snapshots"
        wait_until(
            lambda: following.poll() is not None or sr.Snapshot.open(folder).revision == 4, 60, "4 is there"
        )
        assert "late" in sr.Snapshot.open(folder).ids.to_pylist()
        os.kill(following.pid, signal.SIGTERM)
        said = following.communicate(timeout=60)[1]
        assert said.startswith(f"selectroute: publishing each revision of {database} to ")
        begun, ending = said.splitlines()
        assert begun.endswith("; Ctrl-C ends it") and ending.startswith("ending after the current revision")
        assert following.returncode == 0
    finally:
        following.kill()
        following.wait()


def test_a_whole_registry_is_sound_and_an_altered_one_is_named(run, database, tmp_path):
    code, out, _ = run("registry", "verify", "-o", "json")
    found = json.loads(out)
    assert code == 0 and (found["revision"], found["changes"], found["subscriptions"]) == (3, 3, 3)
    assert f"digest {found['digest']}" in run("registry", "verify")[1]
    with sqlite3.connect(tmp_path / "registry.db") as connection:
        connection.execute("UPDATE change SET op = 'pause' WHERE revision = 2")
    connection.close()
    code, out, err = run("registry", "verify")
    assert (code, out) == (1, "") and "change" in err and "2" in err


def test_info_says_what_a_registry_is(run, database, tmp_path):
    found = json.loads(run("registry", "info", "-o", "json")[1])
    assert (found["revision"], found["subscriptions"]) == (3, 3)
    assert found["snapshots"] == f"{tmp_path}/registry.db.snapshots"
    assert run("registry", "info")[1].startswith("revision      3\nsubscriptions 3\n")


def test_what_needs_the_database_is_not_done_through_a_service(run, database):
    with Registry.open(database) as opened, served(opened) as url:
        for verb in ("publish", "verify"):
            code, _, err = run("registry", verb, "--registry", url)
            assert code == 2 and "database" in err
        assert run("registry", "info", "--registry", url)[1] == "revision      3\n"


@pytest.mark.slow
@pytest.mark.xdist_group("postgres")
def test_a_server_has_no_folder_beside_it_to_publish_to(run, postgres):
    code, _, err = run("serve", "--registry", postgres(), "--port", 0)
    assert code == 1 and "no folder is set to publish revisions to: name one (--snapshots)" in err


def test_a_small_registry_that_is_damaged_is_not_served(run, tmp_path):
    with Registry.open(f"sqlite:///{tmp_path}/r.db") as registry:
        registry.register(sr.SubscriptionSpec("a = 1"), id="s1")
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection, connection:
        connection.execute("UPDATE change SET body = replace(body, 'a = 1', 'a = 7')")
    code, _, err = run("serve", "--registry", f"sqlite:///{tmp_path}/r.db", "--port", 0)
    assert code == 1 and "the table change is damaged" in err
