"""Types of what is the same in a database and at a service."""

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
"""Streams of a registry, as far as jobs and commands use them."""
