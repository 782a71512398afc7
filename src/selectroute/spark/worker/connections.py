"""Connections of a worker to Kafka, kept from task to task: to connect takes some milliseconds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from selectroute.spark.sources.kafka.config import KafkaCluster

if TYPE_CHECKING:  # needs the extra `kafka`
    from selectroute.kafka.client.wire import Wire

_open: dict[tuple[int, str, tuple[tuple[str, str], ...]], Wire] = {}
"""Connections by process, since they do not survive a fork, and cluster."""


def connected(cluster: KafkaCluster) -> Wire:
    """Return this process's connections to a cluster."""
    key = _key(cluster)
    if key not in _open:
        _open[key] = cluster.wire()
    return _open[key]


def disconnect() -> None:
    """Close this process's connections, after an error: the next task makes new ones."""
    for key in [one for one in _open if one[0] == os.getpid()]:
        _open.pop(key).close()


def _key(cluster: KafkaCluster) -> tuple[int, str, tuple[tuple[str, str], ...]]:
    return os.getpid(), cluster.servers, tuple(sorted(cluster.options.items()))
