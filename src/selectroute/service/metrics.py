"""Metrics of the service, in the text format of Prometheus. Labels never contain a caller's input."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from selectroute.service.subscriptions.publishing import Publishing

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """Metrics of one service, and gauges that read the registry at each scrape.

    Args:
        publishing: gives the state of the registry.
        waiting: gives the count of requests that wait for a message.
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
            "Time from the request to the last byte of its response.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.match_seconds = Histogram(
            "selectroute_match_seconds",
            "Time to match one message of a request against the published snapshot.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.registry.register(_State(publishing, waiting))
        self._of_request: dict[tuple[str, str, int | None], tuple[Counter, Histogram]] = {}
        """Series of requests by method, route and status: finding one by its labels takes longer than adding
        to it.
        """

    def note_request(self, method: str, route: str, status: int | None, seconds: float) -> None:
        """Count an answered request."""
        series = self._of_request.get((method, route, status))
        if series is None:
            series = (
                self.requests.labels(method, route, str(status)),
                self.request_seconds.labels(method, route),
            )
            self._of_request[method, route, status] = series
        count, duration = series
        count.inc()
        duration.observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class _State(Collector):
    """Gauges: requests that wait for messages, the registry's revision, its publisher and snapshot."""

    def __init__(self, publishing: Publishing, waiting: Callable[[], int]) -> None:
        self._publishing = publishing
        self._waiting = waiting

    def describe(self) -> Iterable[Metric]:
        return ()  # otherwise registration would read the gauges

    def collect(self) -> Iterable[Metric]:
        yield _gauge("queue_waiting", "Requests that wait for a message.", self._waiting())
        yield _gauge(
            "registry_publisher",
            "1 if this process publishes the revisions, else 0: of all services of a registry, one does.",
            self._publishing.is_publisher,
        )
        state = self._publishing.state()
        yield _gauge("registry_revision", "The newest committed revision.", state.revision)
        yield _gauge(
            "registry_lag_seconds",
            "Age of the oldest committed change that is not published yet.",
            state.lag_seconds,
        )
        if state.snapshot is not None:
            snapshot = state.snapshot
            yield _gauge("index_subscriptions", "Subscriptions in the snapshot.", len(snapshot))
            # The reasons are a few fixed sentences without text of selectors.
            scanned = GaugeMetricFamily(
                "selectroute_index_scan_subscriptions",
                "Clauses of the snapshot evaluated for every message, by reason.",
                labels=("reason",),
            )
            for reason, count in snapshot.scanned.items():
                scanned.add_metric((reason,), count)
            yield scanned
            yield _gauge("index_bytes", "Bytes of the snapshot that matching reads.", snapshot.nbytes)


def _gauge(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(f"selectroute_{name}", help_, value)
