"""Running query: batches, the registry, and reports.

``fan_out`` is the entry point. ``side_thread`` follows the registry, reports first batches to it, and makes
backfills and replays, ``background_publisher`` sends a batch while the next one is routed, ``metrics`` are
for Prometheus.
"""
