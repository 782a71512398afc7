"""The thread that publishes, when it is told to end."""

import threading

from selectroute.registry.publisher import RegistryPublisher
from selectroute.service.subscriptions.publishing import Publishing


def test_stopping_does_not_wait_for_a_publication_that_takes_long(registry, monkeypatch):
    registry.import_(['{"id": "a"}'])
    begun, may_end = threading.Event(), threading.Event()
    publish_all = RegistryPublisher._publish_all

    def slow(self, revision):
        begun.set()
        assert may_end.wait(60)
        publish_all(self, revision)

    monkeypatch.setattr(RegistryPublisher, "_publish_all", slow)
    publishing = Publishing(registry)
    publishing.start()
    assert begun.wait(60)
    publishing.stop(0.01)
    assert publishing._thread.is_alive()
    may_end.set()
    publishing._thread.join()
    with RegistryPublisher(registry) as next_one:  # the folder is free, and whole
        assert next_one.catch_up() == 1


def test_stopping_finishes_what_is_nearly_done(registry):
    registry.import_(['{"id": "a"}'])
    publishing = Publishing(registry)
    publishing.start()
    publishing.caught_up(1, 60)
    publishing.stop(60)
    assert not publishing._thread.is_alive()
    assert publishing.snapshot.revision == 1


def test_of_two_processes_one_publishes_and_the_other_takes_over(registry, caplog):
    registry.import_(['{"id": "a"}'])
    first, second = Publishing(registry), Publishing(registry)
    first.start()
    assert first.caught_up(1, 60).revision == 1
    caplog.set_level("INFO")
    second.start()
    assert second.caught_up(1, 60).revision == 1 and second.state().failure is None
    assert first.is_publisher and not second.is_publisher
    registry.import_(['{"id": "b"}'])
    assert second.caught_up(2, 60).find(["b"]).tolist() != [-1]
    first.stop(60)
    registry.import_(['{"id": "c"}'])
    assert second.caught_up(3, 60).revision == 3
    assert second.is_publisher and not first.is_publisher
    second.stop(60)
    assert not second.is_publisher
    assert [
        one.message for one in caplog.records if "publishes" in one.message or "takes over" in one.message
    ]
    with RegistryPublisher(registry) as next_one:
        assert next_one.catch_up() == 3
