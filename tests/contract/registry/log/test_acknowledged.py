"""What was acknowledged is there when a registry is opened again, or the loss of it is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from selectroute.registry.changes import Operation
from selectroute.registry.errors import DamagedError, NotFoundError
from selectroute.registry.model import SubscriptionSpec
from selectroute.registry.registry import Registry

SUFFIXES = ("", "-wal", ".head")


def url(path):
    return f"sqlite:///{path}"


def copied(path: Path, to: Path) -> Path:
    """Copy a database that is open, as a crash would leave it."""
    to.mkdir()
    for suffix in SUFFIXES:
        shutil.copy(f"{path}{suffix}", to / f"{path.name}{suffix}")
    return to / path.name


@pytest.fixture
def crashed(tmp_path):
    """A database as a crash left it at revision 12, its log not yet put into its file."""
    path = tmp_path / "r.db"
    with Registry.open(url(path)) as registry:
        for number in range(12):
            registry.register(SubscriptionSpec(f"a = {number}"), id=f"s{number}")
        return copied(path, tmp_path / "crashed")


def test_what_was_acknowledged_is_there_after_a_crash(crashed):
    with Registry.open(url(crashed)) as registry:
        assert (registry.revision, len(registry)) == (12, 12)


def test_an_end_of_the_log_that_is_lost_is_named(crashed, tmp_path):
    log = Path(f"{crashed}-wal").read_bytes()
    named = 0
    for number, length in enumerate(range(0, len(log), len(log) // 40)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for suffix in SUFFIXES:
            shutil.copy(f"{crashed}{suffix}", folder)
        (folder / "r.db-wal").write_bytes(log[:length])
        try:
            with Registry.open(url(folder / "r.db"), verify=False) as registry:
                assert registry.revision == 12
        except DamagedError as error:
            assert "lost changes that were acknowledged" in str(error)
            assert "revision 12 was acknowledged" in str(error)
            named += 1
    assert named > 30


def test_a_damaged_end_of_the_log_is_named(crashed):
    log = bytearray(Path(f"{crashed}-wal").read_bytes())
    log[len(log) * 3 // 4] ^= 1
    Path(f"{crashed}-wal").write_bytes(log)
    with pytest.raises(DamagedError, match="revision 12 was acknowledged"):
        Registry.open(url(crashed))


def test_a_crash_between_the_commit_and_its_mark_is_no_loss(tmp_path, monkeypatch):
    path = tmp_path / "r.db"
    with Registry.open(url(path)) as registry:
        registry.register(SubscriptionSpec(), id="a")
        monkeypatch.setattr("selectroute.store.head.Head.advance", lambda *_: False)
        registry.register(SubscriptionSpec(), id="b")
        registry.apply([Operation("remove", "a")])
        copy = copied(path, tmp_path / "crashed")
    monkeypatch.undo()
    with Registry.open(url(copy)) as registry:
        assert registry.revision == 3
        registry.register(SubscriptionSpec(), id="c")
    with Registry.open(url(copy)) as registry:
        assert registry._store.acknowledged.number == 4


def test_an_older_copy_in_its_place_is_named_until_it_is_said_to_be_meant(tmp_path):
    path = tmp_path / "r.db"
    with Registry.open(url(path)) as registry:
        registry.register(SubscriptionSpec(), id="a")
    shutil.copy(path, tmp_path / "old.db")
    with Registry.open(url(path)) as registry:
        registry.register(SubscriptionSpec(), id="b")
    shutil.copy(tmp_path / "old.db", path)
    with pytest.raises(
        DamagedError, match=r"at revision 1, but revision 2 was acknowledged.*remove .*r\.db\.head"
    ):
        Registry.open(url(path))
    Path(f"{path}.head").unlink()
    with Registry.open(url(path)) as registry, pytest.raises(NotFoundError):
        registry.get("b")


def test_another_history_of_the_same_length_is_named(tmp_path):
    path = tmp_path / "r.db"
    with Registry.open(url(path)) as registry:
        registry.register(SubscriptionSpec(), id="a")
    shutil.copy(path, tmp_path / "other.db")
    with Registry.open(url(path)) as registry:
        registry.register(SubscriptionSpec(), id="b")
    with Registry.open(url(tmp_path / "other.db")) as registry:
        registry.register(SubscriptionSpec(), id="c")
    shutil.copy(tmp_path / "other.db", path)
    with pytest.raises(DamagedError, match="revision 2 is not the one that was acknowledged"):
        Registry.open(url(path))


def test_a_database_that_is_gone_is_no_new_one(tmp_path):
    path = tmp_path / "r.db"
    with Registry.open(url(path)) as registry:
        registry.register(SubscriptionSpec())
    path.unlink()
    for create in (True, False):
        with pytest.raises(DamagedError, match="there is no file"):
            Registry.open(url(path), create=create)
    assert not path.exists()
    with Registry.open(url(tmp_path / "new.db")):
        pass
    shutil.copy(tmp_path / "new.db", path)
    with pytest.raises(DamagedError, match="another registry"):
        Registry.open(url(path))


def test_a_copy_of_the_database_alone_is_a_registry(tmp_path):
    path = tmp_path / "r.db"
    with Registry.open(url(path)) as registry:
        registry.register(SubscriptionSpec())
    shutil.copy(path, tmp_path / "copy.db")
    with Registry.open(url(tmp_path / "copy.db")) as copy:
        assert copy.revision == 1
        copy.register(SubscriptionSpec())
    assert (tmp_path / "copy.db.head").exists()


def test_a_head_that_cannot_be_written_keeps_nobody_from_changing(tmp_path):
    path = tmp_path / "r.db"
    with Registry.open(url(path)) as registry:
        Path(f"{path}.head").mkdir()
        assert registry.register(SubscriptionSpec()).revision == 1
        Path(f"{path}.head").rmdir()
        registry.register(SubscriptionSpec())
        assert registry._store.head.read().number == 2


def test_only_a_database_in_a_file_has_a_head(registry):
    registry.register(SubscriptionSpec())
    assert (registry._store.head is not None) is registry._store.is_sqlite
    registry.skip_revision()
    registry.check_acknowledged()
    if registry._store.head is not None:
        assert registry._store.head.read().number == 2
