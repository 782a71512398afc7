"""Metrics of a streaming job for Prometheus: from its batches, and from Spark's progress reports.

No label has content of a message: topics are those of the source (Kafka's), reasons are a fixed list.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.router import BatchReport
from selectroute.spark.stream.fan_out import FanOut
from selectroute.spark.stream.reports import offsets_behind

_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class MetricsError(SelectRouteError):
    """Failure to serve the metrics at an address."""


class StreamMetrics:
    """Metrics of one job. `observe` counts its batches, `listener` receives Spark's reports.

    Counters start at 0 with the process, as is usual with Prometheus; batches that are skipped because they
    were committed before are not counted.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"selectroute_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"selectroute_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"selectroute_{name}", text, labels, registry=self.registry, buckets=_SECONDS)

        self._messages = counter("messages_total", "Messages read.", "topic")
        self._routed = counter("routed_total", "Messages with at least one delivery.")
        self._unrouted = counter("unrouted_total", "Messages without a delivery.")
        self._dead = counter("dead_letters_total", "Messages that could not be read or judged.", "reason")
        self._deliveries = counter("deliveries_total", "Deliveries to subscriptions.")
        self._refused = counter("refused_total", "Deliveries that could not be judged or were refused.")
        self._queued = counter("queued_total", "Deliveries put to queues.")
        self._sent = counter("sent_total", "Deliveries sent to Kafka.")
        self._batches = counter("batches_total", "Batches committed.", "kind")
        self._batch_seconds = histogram("batch_seconds", "Duration of a batch from pin to accounting.")
        self._match_seconds = histogram("match_seconds", "Duration of reading and matching a batch.")
        self._revision = gauge("registry_revision", "Revision of the newest batch.")
        self._last = gauge("last_batch_timestamp_seconds", "End of the newest batch, since 1970.")
        self._running = gauge("query_running", "Whether Spark's query runs: 1 or 0.")
        self._heard = gauge(
            "query_heard_timestamp_seconds", "End of the newest trigger, with or without input, since 1970."
        )
        self._waiting = gauge(
            "destinations_waiting", "Destinations that are full, or refuse deliveries, now.", "kind"
        )
        self._behind = gauge(
            "source_behind_messages", "Messages of the slowest partition not yet read.", "topic"
        )
        self._rates = gauge("query_rows_per_second", "Rows of the newest trigger.", "of")
        self._phases = gauge("query_phase_seconds", "Phases of the newest trigger, named by Spark.", "phase")

    def observe(self, report: BatchReport) -> None:
        """Count a batch."""
        self._last.set(time.time())
        if report.skipped:
            return
        counts = report.counts
        self._batches.labels(report.kind).inc()
        self._deliveries.inc(counts.deliveries)
        self._refused.inc(counts.refused)
        self._queued.inc(counts.queued)
        self._sent.inc(counts.sent)
        self._batch_seconds.observe(sum(report.seconds.values()))
        self._match_seconds.observe(report.seconds.get("match", 0.0))
        if report.kind != "stream":  # its messages were counted before
            return
        self._revision.set(report.revision)
        for topic, messages in (report.topics or {"": counts.messages}).items():
            self._messages.labels(topic).inc(messages)
        self._routed.inc(counts.routed)
        self._unrouted.inc(counts.unrouted)
        for reason, count in counts.reasons.items():
            self._dead.labels(reason).inc(count)

    def watch(self, fan: FanOut) -> None:
        """Export the gauges of this job: the destinations that refuse."""
        for kind in fan.waiting:
            self._waiting.labels(kind).set_function(partial(_waiting, fan, kind))

    def listener(self) -> StreamingQueryListener:
        """Return a listener for ``spark.streams.addListener``."""
        return _Listener(self)

    def serve(self, port: int, host: str = "127.0.0.1") -> int:
        """Serve Prometheus at ``http://host:port/metrics`` until the process ends; return the port.

        Args:
            port: the port, 0 for any free one.
            host: loopback by default, because there is no authentication.

        Raises:
            MetricsError: the address can't be listened on.
        """
        try:
            server, _ = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise MetricsError(f"can't listen on {host}:{port}: {error.strerror or error}") from error
        return int(server.server_port)

    def started(self) -> None:
        """Record that the query runs."""
        self._running.set(1)
        self.heard()

    def terminated(self) -> None:
        """Record that the query has ended."""
        self._running.set(0)

    def heard(self) -> None:
        """Record the time at which a trigger has ended, with or without input."""
        self._heard.set(time.time())

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Export Spark's own figures of a trigger.

        Args:
            progress: Spark's ``StreamingQueryProgress``, parsed from its JSON.
        """
        self.heard()
        self._rates.labels("input").set(progress.get("inputRowsPerSecond") or 0.0)
        self._rates.labels("processed").set(progress.get("processedRowsPerSecond") or 0.0)
        for phase, milliseconds in (progress.get("durationMs") or {}).items():
            self._phases.labels(phase).set(milliseconds / 1000)
        for topics, messages in offsets_behind(progress):
            self._behind.labels(topics).set(max(messages, default=0))


def _waiting(fan: FanOut, kind: str) -> float:
    return float(fan.waiting[kind])


class _Listener(StreamingQueryListener):
    """Listener that Spark calls in a thread of its own, shortly after each event."""

    def __init__(self, metrics: StreamMetrics) -> None:
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._metrics.started()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._metrics.progressed(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._metrics.heard()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._metrics.terminated()
