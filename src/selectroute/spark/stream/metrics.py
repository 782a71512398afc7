"""Metrics of a streaming job, for Prometheus: from its batches, and from what Spark says of its query.

No label holds what a message held: topics are those of the source (Kafka's), reasons are a fixed list.
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

_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)

_BEHIND: Final = "maxOffsetsBehindLatest"
"""What Spark's Kafka source says of itself: messages of one partition that are there and not yet read."""


class MetricsError(SelectRouteError):
    """Error: the metrics can't be served at this address."""


class StreamMetrics:
    """Counters of one job. `observe` takes its batches, `listener` what Spark says.

    Counters begin at 0 with the process, as Prometheus wants it: a restart goes on counting from what it
    routes itself, and batches that it skips because they were committed before count for nothing.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"selectroute_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"selectroute_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"selectroute_{name}", text, labels, registry=self.registry, buckets=_SECONDS)

        self._messages = counter("messages_total", "Messages taken in.", "topic")
        self._routed = counter("routed_total", "Messages that somebody got.")
        self._unrouted = counter("unrouted_total", "Messages that nobody wanted.")
        self._dead = counter("dead_letters_total", "Messages that could not be read or judged.", "reason")
        self._deliveries = counter("deliveries_total", "Messages for subscriptions.")
        self._refused = counter("refused_total", "Deliveries that nobody could judge or take.")
        self._queued = counter("queued_total", "Deliveries put to queues.")
        self._batches = counter("batches_total", "Batches committed.", "kind")
        self._batch_seconds = histogram("batch_seconds", "A batch from its pin to its accounting.")
        self._match_seconds = histogram("match_seconds", "What of that reading and matching took.")
        self._revision = gauge("registry_revision", "The revision of the newest batch.")
        self._last = gauge("last_batch_timestamp_seconds", "When the newest batch was done, since 1970.")
        self._running = gauge("query_running", "Whether Spark's query runs: 1 or 0.")
        self._heard = gauge(
            "query_heard_timestamp_seconds", "When a trigger ended or nothing had come, since 1970."
        )
        self._publishing = gauge(
            "publishing", "Whether a committed batch is being handed on and published: 1 or 0."
        )
        self._waiting = gauge(
            "destinations_waiting", "Destinations that take nothing now: full, or refusing.", "kind"
        )
        self._behind = gauge(
            "source_behind_messages", "Messages of the slowest partition not yet read.", "topic"
        )
        self._rates = gauge("query_rows_per_second", "Rows of the newest trigger.", "of")
        self._phases = gauge("query_phase_seconds", "What the newest trigger did, by Spark's names.", "phase")

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
        """Say from now on whether this job has a committed batch to hand on, and what takes nothing."""
        self._publishing.set_function(lambda: float(fan.publishing))
        for kind in fan.waiting:
            self._waiting.labels(kind).set_function(partial(_waiting, fan, kind))

    def listener(self) -> StreamingQueryListener:
        """Return what to give to ``spark.streams.addListener``."""
        return _Listener(self)

    def serve(self, port: int, host: str = "127.0.0.1") -> int:
        """Answer Prometheus at ``http://host:port/metrics`` until the process ends; return the port.

        Args:
            port: 0 for any that is free.
            host: loopback unless told otherwise: whoever reaches it sees all of it.

        Raises:
            MetricsError: it can't be listened on.
        """
        try:
            server, _ = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise MetricsError(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error
        return int(server.server_port)

    def started(self) -> None:
        """Note that the query runs."""
        self._running.set(1)
        self.heard()

    def terminated(self) -> None:
        """Note that the query has ended."""
        self._running.set(0)

    def heard(self) -> None:
        """Note that no batch is being done: a trigger has ended, or nothing has come."""
        self._heard.set(time.time())

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Take over Spark's own figures of a trigger.

        Args:
            progress: Spark's ``StreamingQueryProgress`` as its JSON has it.
        """
        self.heard()
        self._rates.labels("input").set(progress.get("inputRowsPerSecond") or 0.0)
        self._rates.labels("processed").set(progress.get("processedRowsPerSecond") or 0.0)
        for phase, milliseconds in (progress.get("durationMs") or {}).items():
            self._phases.labels(phase).set(milliseconds / 1000)
        for source in progress.get("sources") or ():
            metrics = source.get("metrics") or {}
            if _BEHIND in metrics:
                topics = sorted(source.get("endOffset") or {})
                self._behind.labels(",".join(topics)).set(float(metrics[_BEHIND]))


def _waiting(fan: FanOut, kind: str) -> float:
    return float(fan.waiting[kind])


class _Listener(StreamingQueryListener):
    """Spark calls it in a thread of its own, some instants after the fact."""

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
