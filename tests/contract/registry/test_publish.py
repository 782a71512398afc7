"""Publishing: the folder has what the registry has, whatever came between."""

from __future__ import annotations

import random
import shutil
import threading

import pytest

import selectroute as sr
from selectroute.index.errors import SnapshotError
from selectroute.index.snapshot_files import revisions
from selectroute.index.specification import Destination, SubscriptionSpec, SubscriptionStatus
from selectroute.registry import publisher as publish
from selectroute.registry.errors import PublishError
from selectroute.registry.model import Operation
from selectroute.registry.publisher import RegistryPublisher
from selectroute.registry.registry import Registry
from tests.support.waiting import wait_until


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "snapshots"


def live(snapshot):
    """id → (selector, topic, dialect, seltype, destination) of what is not dead."""
    dead, rows = snapshot.dead, snapshot.subscriptions.to_pylist()
    names = ("selector", "topic", "dialect", "seltype", "destination")
    return {
        row["id"]: tuple(row[name] for name in names)
        for number, row in enumerate(rows)
        if dead is None or not dead[number]
    }


def wanted(registry):
    page = registry.list(limit=1_000, status="active")
    assert page.next_cursor is None
    rows = page.items
    return {row.id: (row.selector, row.topic, row.dialect, row.seltype, row.destination.text) for row in rows}


def check(registry, publisher):
    assert publisher.catch_up() == registry.revision == publisher.snapshot.revision
    assert live(publisher.snapshot) == wanted(registry)
    opened = sr.Snapshot.open(publisher.folder)
    assert opened.revision == registry.revision and live(opened) == wanted(registry)


def test_a_snapshot_has_the_destinations_also_when_only_they_change(registry, folder, monkeypatch):
    orders = Destination("queue", "ORDERS")
    registry.register(SubscriptionSpec("a = 1", destination=orders), id="a")
    registry.register(SubscriptionSpec("a = 1", destination=Destination("queue", "out")), id="b")
    with RegistryPublisher(registry, folder) as publisher:
        check(registry, publisher)
        registry.register(SubscriptionSpec("a = 2", destination=orders), id="c")
        registry.replace("b", SubscriptionSpec("a = 1", destination=orders))
        registry.replace("a", SubscriptionSpec("a = 1"))
        check(registry, publisher)
        destinations = {id: values[-1] for id, values in live(publisher.snapshot).items()}
        assert destinations == {"a": None, "b": "queue:ORDERS", "c": "queue:ORDERS"}


def test_an_empty_registry_is_an_empty_snapshot(registry, folder):
    with RegistryPublisher(registry, folder) as publisher:
        check(registry, publisher)
        assert publisher.snapshot.revision == 0 and len(publisher.snapshot) == 0


def test_every_kind_of_change_reaches_the_folder(registry, folder):
    body = SubscriptionSpec("//x", dialect="ibm-mq-extended", seltype="EXTENDED")
    steps = [
        lambda: registry.register(SubscriptionSpec("a = 1", topic="t/+"), id="s"),
        lambda: registry.replace("s", SubscriptionSpec("b = 2")),
        lambda: registry.register(SubscriptionSpec("a = 0x10", dialect="ibm-mq"), id="m"),
        lambda: registry.pause("s"),
        lambda: registry.change("s", {"selector": "c = 3"}),
        lambda: registry.resume("s"),
        lambda: registry.import_(['{"id": "i", "selector": "x = 1"}', '{"id": "j", "status": "paused"}']),
        lambda: registry.remove("s"),
        lambda: registry.remove("j"),
        lambda: registry.register(SubscriptionSpec("a = 9"), id="s"),
        *([lambda: registry.register(body, id="e")] if body.dialect in sr.DIALECTS else []),
        lambda: registry.skip_revision(),
    ]
    with RegistryPublisher(registry, folder) as publisher:
        for step in steps:
            step()
            check(registry, publisher)


def test_many_changes_of_one_subscription_are_published_as_what_they_come_to(registry, folder):
    with RegistryPublisher(registry, folder) as publisher:
        registry.register(SubscriptionSpec("a = 1"), id="s")
        publisher.catch_up()
        registry.remove("s")
        registry.register(SubscriptionSpec("a = 2"), id="s")
        registry.replace("s", SubscriptionSpec("a = 3", topic="x"))
        registry.register(SubscriptionSpec(), id="short-lived")
        registry.remove("short-lived")
        registry.register(SubscriptionSpec(), id="paused")
        registry.pause("paused")
        check(registry, publisher)
        assert revisions(folder) == [1, registry.revision]


def test_random_changes_are_published(registry, folder, monkeypatch):
    chance = random.Random(3)
    monkeypatch.setattr(publish, "MANY", 40)
    with RegistryPublisher(registry, folder) as publisher:
        for _ in range(30):
            operations, there = [], {one.id: one for one in registry.list(limit=1_000).items}
            for id in chance.sample([f"s{number}" for number in range(80)], chance.choice([1, 3, 60])):
                spec = SubscriptionSpec(f"a = {chance.randrange(9)}", topic=chance.choice([None, "t/#"]))
                if id not in there:
                    operations.append(Operation("add", id, spec))
                    continue
                other = "resume" if there[id].status is SubscriptionStatus.PAUSED else "pause"
                operations.append(Operation(chance.choice(["replace", "remove", other]), id, spec))
            registry.apply(operations)
            if chance.random() < 0.7:
                check(registry, publisher)
        check(registry, publisher)
    registry.verify()


def test_a_publisher_goes_on_where_the_last_one_ended(url, folder):
    with Registry.open(url) as registry:
        registry.register(SubscriptionSpec("a = 1"), id="s")
        with RegistryPublisher(registry, folder) as publisher:
            check(registry, publisher)
        registry.replace("s", SubscriptionSpec("a = 2"))
    with Registry.open(url) as registry, RegistryPublisher(registry, folder) as publisher:
        check(registry, publisher)
        assert revisions(folder) == [1, 2]


def test_a_selector_beyond_the_usual_limits_is_published(url, folder):
    long = " OR ".join(f"a{i} = {i}" for i in range(900))
    deep = "(" * 400 + "a = 1" + ")" * 400
    with (
        Registry.open(url, limits=sr.Limits(length=100_000, nesting=1_000)) as registry,
        RegistryPublisher(registry, folder) as publisher,
    ):
        registry.register(SubscriptionSpec(long))
        check(registry, publisher)
        registry.register(SubscriptionSpec(deep))
        check(registry, publisher)
        registry.import_([f'{{"selector": "{deep}"}}'])
        publisher.rebuild()
        assert live(publisher.snapshot) == wanted(registry)


def test_what_was_registered_under_larger_limits_is_published_under_the_usual_ones(url, folder, tmp_path):
    long = " OR ".join(f"a{i} = {i}" for i in range(900))
    with Registry.open(url, limits=sr.Limits(length=100_000)) as registry:
        registry.import_(
            [f'{{"id": "i{number}", "selector": "{long} OR b = {number}"}}' for number in range(30)]
        )
        registry.register(SubscriptionSpec("x" * 20_000, dialect="ibm-mq", seltype="EXTENDED"), id="extended")
    with Registry.open(url) as registry:
        with RegistryPublisher(registry, folder) as publisher:
            check(registry, publisher)
        for id in ("i1", "extended"):
            registry.pause(id)
            registry.resume(id)
        with RegistryPublisher(registry, folder) as publisher:
            check(registry, publisher)
        registry.verify()
        with pytest.raises(sr.InvalidSelectorError):
            registry.register(SubscriptionSpec("x" * 20_000, dialect="ibm-mq", seltype="EXTENDED"))


def test_following_publishes_each_change_as_it_comes(registry, folder):
    stop = threading.Event()
    with RegistryPublisher(registry, folder) as publisher:
        follower = threading.Thread(target=publisher.follow, args=(stop,))
        follower.start()
        try:
            for number in range(5):
                made = registry.register(SubscriptionSpec(f"a = {number}"))
                wait_until(lambda made=made: made.revision in revisions(folder), 60, "it is published", 0.001)
        finally:
            stop.set()
            follower.join()
        check(registry, publisher)


def test_following_goes_on_after_an_error_that_is_handed_over(registry, folder, monkeypatch):
    stop, told = threading.Event(), []
    with RegistryPublisher(registry, folder) as publisher:
        real, calls = publisher.catch_up, []

        def failing():
            calls.append(1)
            if len(calls) == 1:
                raise SnapshotError("the disk is full")
            stop.set()
            return real()

        monkeypatch.setattr(publisher, "catch_up", failing)
        publisher.follow(stop, failed=told.append)
        assert [str(error) for error in told] == ["the disk is full"] and len(calls) == 2
        calls.clear()
        stop.clear()
        with pytest.raises(SnapshotError):
            publisher.follow(stop)


def test_a_folder_has_one_publisher(registry, folder):
    with RegistryPublisher(registry, folder), pytest.raises(PublishError, match="another process publishes"):
        RegistryPublisher(registry, folder)
    RegistryPublisher(registry, folder).close()


def test_a_folder_of_others_is_left_alone(registry, folder, tmp_path):
    with Registry.open(f"sqlite:///{tmp_path}/other.db") as other, RegistryPublisher(other, folder) as its:
        its.catch_up()
    with pytest.raises(PublishError, match="another registry"):
        RegistryPublisher(registry, folder)
    sr.publish(sr.Index().freeze(), tmp_path / "built")
    with pytest.raises(PublishError, match="of no registry"):
        RegistryPublisher(registry, tmp_path / "built")


@pytest.mark.parametrize("more", [0, 1, 2, 6])
def test_a_registry_that_was_put_back_is_noticed_also_when_it_has_as_many_changes_again(tmp_path, more):
    path, copy = tmp_path / "r.db", tmp_path / "copy.db"
    with Registry.open(f"sqlite:///{path}") as registry:
        registry.register(SubscriptionSpec(), id="a")
    shutil.copy(path, copy)
    with Registry.open(f"sqlite:///{path}") as registry:
        registry.register(SubscriptionSpec("lost = 1"), id="b")
        with RegistryPublisher(registry) as publisher:
            publisher.catch_up()
            assert publisher.folder.path == tmp_path / "r.db.snapshots"
    shutil.copy(copy, path)
    with Registry.open(f"sqlite:///{path}") as registry:
        for number in range(more):
            registry.register(SubscriptionSpec(f"a = {number}"))
        said = "2 of a log that is not the registry's" if more else "2, the registry only 1"
        with pytest.raises(PublishError, match=f"revision {said}"):
            RegistryPublisher(registry)


def test_a_publisher_takes_the_changes_of_its_own_process_from_memory(registry, folder, monkeypatch):
    with RegistryPublisher(registry, folder) as publisher:
        registry.register(SubscriptionSpec("a = 1"), id="s")
        check(registry, publisher)
        monkeypatch.setattr(Registry, "follow_changes", None)
        registry.register(SubscriptionSpec("a = 2"), id="t")
        registry.replace("s", SubscriptionSpec("a = 3"))
        registry.remove("t")
        check(registry, publisher)
        registry.pause("s")
        check(registry, publisher)
        registry.skip_revision()
        check(registry, publisher)


def test_a_publisher_takes_the_changes_of_other_processes_from_the_log(registry, folder):
    with RegistryPublisher(registry, folder) as publisher, Registry.open(registry.url) as other:
        registry.register(SubscriptionSpec("a = 1"), id="s")
        check(registry, publisher)
        other.register(SubscriptionSpec("a = 2"), id="t")
        registry.register(SubscriptionSpec("a = 3"), id="u")
        assert registry.recent_changes(1) is None, "the change between is not of this process"
        check(registry, publisher)
        registry.import_(['{"id": "v", "selector": "a = 4"}'])
        registry.remove("u")
        assert registry.recent_changes(3) is None, "an import is not kept in memory"
        check(registry, publisher)
        registry.remove("t")
        assert registry.recent_changes(5).changed == {"t": None}
        check(registry, publisher)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"registry": 1}'])
def test_a_folder_that_does_not_say_whose_it_is_is_named(registry, folder, text):
    with RegistryPublisher(registry, folder) as publisher:
        publisher.catch_up()
    (folder / "registry.json").write_text(text)
    with pytest.raises(PublishError, match=r"registry\.json cannot be read"):
        RegistryPublisher(registry, folder)


def test_a_folder_that_could_not_be_taken_is_taken_later(registry, folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(PublishError, match=r"registry\.json cannot be written: No space left on device"):
        RegistryPublisher(registry, folder)
    monkeypatch.undo()
    with RegistryPublisher(registry, folder) as publisher:
        check(registry, publisher)


@pytest.mark.parametrize("damage", [lambda text: "{", lambda text: text.replace("base", "bass")])
def test_a_damaged_folder_is_named_and_can_be_built_again(registry, folder, damage):
    registry.register(SubscriptionSpec("a = 1"), id="s")
    with RegistryPublisher(registry, folder) as publisher:
        publisher.catch_up()
    [manifest] = folder.glob("manifest-*.json")
    manifest.write_text(damage(manifest.read_text()))
    with RegistryPublisher(registry, folder) as publisher:
        with pytest.raises(SnapshotError, match="damaged"):
            publisher.catch_up()
        assert publisher.rebuild() == 2 == registry.revision
        check(registry, publisher)


def test_the_folder_is_a_setting(registry, tmp_path):
    if registry._store.is_sqlite:
        assert registry.snapshots_folder.path == tmp_path / "registry.db.snapshots"
    else:
        with pytest.raises(PublishError, match="no folder is set"):
            _ = registry.snapshots_folder
    registry.set("snapshots", str(tmp_path / "here"))
    assert registry.snapshots_folder.path == tmp_path / "here"
    registry.verify()


def test_old_revisions_are_collected(registry, folder, monkeypatch):
    from selectroute.index.retention import collect

    monkeypatch.setattr(publish, "COLLECT_SECONDS", 0.0)
    monkeypatch.setattr(publish, "collect", lambda folder: collect(folder, grace_seconds=0))
    stop = threading.Event()
    with RegistryPublisher(registry, folder) as publisher:
        for number in range(6):
            registry.register(SubscriptionSpec(f"a = {number}"))
            publisher.catch_up()
        monkeypatch.setattr(registry, "next_revision", lambda *_: stop.set())
        publisher.follow(stop)
        assert revisions(folder) == [5, 6]
        monkeypatch.undo()
        check(registry, publisher)
