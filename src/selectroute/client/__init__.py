"""Client of a service: the methods of a registry and its queues, over HTTP.

::

    connect(url) ─→ RemoteRegistry ─→ queues() ─→ RemoteQueues ─→ RemoteQueue
                          └───────────────────────────┴─→ HttpClient: retries, timeouts, bounded responses
                                                          problems: an error response as an exception

`connect` (`selectroute.connect`) is the public entry point. `RemoteRegistry` has the methods of `Registry`
that do not need the database itself; ``registry/`` does not depend on this folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # each needs an extra, and a program may have one of them
    from selectroute.client.registry import RemoteRegistry, RemoteStreams
    from selectroute.registry.registry import Registry
    from selectroute.registry.reports import Streams

SubscriptionRegistry: TypeAlias = "Registry | RemoteRegistry"
"""Registry in a database or of a service. `Registry` documents the contract of each method; all raise
`RegistryError` and `StoreError`, and over a network also `ServiceUnreachableError`.
"""

StreamReports: TypeAlias = "Streams | RemoteStreams"
"""Streams of a registry: the methods that jobs and commands use."""
