"""Counters of the service, in the text format of Prometheus. No label holds what a caller sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from selectroute.service.subscriptions.publishing import Publishing

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """Counters of one service, and what it reads off the registry when it is asked.

    Args:
        publishing: tells the state of the registry.
        waiting: tells how many requests wait for a message.
    """

    def __init__(self, publishing: Publishing, waiting: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "selectroute_http_requests_total",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "selectroute_http_request_seconds",
            "From the request to the last byte of its answer.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.match_seconds = Histogram(
            "selectroute_match_seconds",
            "One message of a request against the published snapshot.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.registry.register(_State(publishing, waiting))

    def text(self) -> bytes:
        """Return all of it, as Prometheus scrapes it."""
        return generate_latest(self.registry)


class _State(Collector):
    """Gauges: who waits for messages, the registry's revision, the snapshot that is published of it."""

    def __init__(self, publishing: Publishing, waiting: Callable[[], int]) -> None:
        self._publishing = publishing
        self._waiting = waiting

    def describe(self) -> Iterable[Metric]:
        return ()  # or they would be read when the service is made

    def collect(self) -> Iterable[Metric]:
        yield _gauge("queue_waiting", "Requests that wait for a message.", self._waiting())
        state = self._publishing.state()
        yield _gauge("registry_revision", "The newest committed revision.", state.revision)
        yield _gauge(
            "registry_lag_seconds",
            "How long ago the oldest change was committed that is not published yet.",
            state.lag_seconds,
        )
        if state.snapshot is not None:
            snapshot = state.snapshot
            yield _gauge("index_subscriptions", "Subscriptions in the snapshot.", len(snapshot))
            # The reasons are a few fixed sentences, none of which quotes a selector.
            scanned = GaugeMetricFamily(
                "selectroute_index_scan_subscriptions",
                "Clauses of the snapshot judged for every message, by the reason.",
                labels=("reason",),
            )
            for reason, count in snapshot.scanned.items():
                scanned.add_metric((reason,), count)
            yield scanned
            yield _gauge("index_bytes", "Bytes that matching reads of the snapshot.", snapshot.nbytes)


def _gauge(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(f"selectroute_{name}", help_, value)
