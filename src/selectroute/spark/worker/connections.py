"""Connections of a worker to Kafka and databases of queues, kept from task to task: to connect takes some
milliseconds.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from selectroute.spark.sources.kafka.config import KafkaCluster

if TYPE_CHECKING:  # needs the extras `kafka` and `service`
    from selectroute.kafka.cluster import Wire
    from selectroute.queues.sql.deliveries import QueueDeliveries

_open: dict[tuple[int, bool, str, tuple[tuple[str, str], ...]], Wire] = {}
"""Connections by process, since they do not survive a fork, by use, and by cluster."""

_databases: dict[tuple[int, str], QueueDeliveries] = {}
"""Databases of queues by process and URL."""


def connected(cluster: KafkaCluster, *, to_write: bool = False) -> Wire:
    """Return this process's connections to a cluster. A broker takes the requests of a connection one after
    the other, so those that write are not behind those that read.
    """
    key = os.getpid(), to_write, cluster.servers, tuple(sorted(cluster.options.items()))
    if key not in _open:
        _open[key] = cluster.wire()
    return _open[key]


def opened(url: str) -> QueueDeliveries:
    """Return this process's open database of queues."""
    from selectroute.queues.sql.deliveries import QueueDeliveries  # needs the extra `service`

    key = os.getpid(), url
    if key not in _databases:
        _databases[key] = QueueDeliveries(url)
    return _databases[key]


def disconnect() -> None:
    """Close this process's connections, after an error: the next task makes new ones."""
    own = os.getpid()
    for key in [one for one in _open if one[0] == own]:
        _open.pop(key).close()
    for database in [one for one in _databases if one[0] == own]:
        _databases.pop(database).close()
