"""The thread that publishes, when it is told to end."""

from __future__ import annotations

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
