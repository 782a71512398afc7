"""What was acknowledged is there when a registry is opened again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.registry import Registry


def url(path):
    return f"sqlite:///{path}"


@pytest.fixture
def crashed(tmp_path):
    """A database as a crash left it at revision 12, its log not yet put into its file."""
    path = tmp_path / "r.db"
    (tmp_path / "crashed").mkdir()
    with Registry.open(url(path)) as registry:
        for number in range(12):
            registry.register(SubscriptionSpec(f"a = {number}"), id=f"s{number}")
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", tmp_path / "crashed")
        return tmp_path / "crashed" / path.name


def test_what_was_acknowledged_is_there_after_a_crash(crashed):
    with Registry.open(url(crashed)) as registry:
        assert (registry.revision, len(registry)) == (12, 12)


def test_a_log_that_a_disk_cut_off_leaves_whole_revisions(crashed, tmp_path):
    log = Path(f"{crashed}-wal").read_bytes()
    revisions = []
    for number, length in enumerate(range(0, len(log) + 1, len(log) // 40)):
        folder = tmp_path / str(number)
        folder.mkdir()
        shutil.copy(crashed, folder)
        (folder / "r.db-wal").write_bytes(log[:length])
        with Registry.open(url(folder / "r.db")) as registry:  # which verifies it
            assert len(registry) == registry.revision
            revisions.append(registry.revision)
    assert revisions == sorted(revisions) and {*range(1, 12)} <= {*revisions}


def test_a_copy_of_the_database_alone_is_a_registry(tmp_path):
    path = tmp_path / "r.db"
    with Registry.open(url(path)) as registry:
        registry.register(SubscriptionSpec())
    shutil.copy(path, tmp_path / "copy.db")
    with Registry.open(url(tmp_path / "copy.db")) as copy:
        assert copy.revision == 1
        copy.register(SubscriptionSpec())
