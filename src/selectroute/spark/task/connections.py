"""Connections of a worker to queues and Kafka, kept from task to task."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from selectroute.spark.cluster import KafkaCluster

if TYPE_CHECKING:  # needs the extras `kafka` and `service`
    from selectroute.kafka.cluster import Wire
    from selectroute.queues.sql.deliveries import QueueDeliveries


_Connection = TypeVar("_Connection")


_open: dict[tuple[object, ...], Any] = {}
"""Connections by process, since they do not survive a fork, then by what they are connected to."""


def connected(cluster: KafkaCluster, *, to_write: bool = False) -> Wire:
    """Return this process's connections to a cluster. A broker takes the requests of a connection one after
    the other, so writers have connections of their own.
    """
    return _connected_once(cluster.wire, to_write, cluster.servers, *sorted(cluster.options.items()))


def opened(url: str) -> QueueDeliveries:
    """Return this process's open database of queues."""
    from selectroute.queues.sql.deliveries import QueueDeliveries  # needs the extra `service`

    return _connected_once(lambda: QueueDeliveries(url), url)


def _connected_once(connect: Callable[[], _Connection], *to: object) -> _Connection:
    key = os.getpid(), *to
    if key not in _open:
        _open[key] = connect()
    return _open[key]  # type: ignore[no-any-return]


def disconnect() -> None:
    """Close this process's connections, after an error: the next task makes new ones."""
    for key in [key for key in _open if key[0] == os.getpid()]:
        _open.pop(key).close()
