"""Running query: batches, the registry, and reports.

``fan_out`` is the entry point. ``side_thread`` follows the registry and makes backfills and replays,
``background_publisher`` sends a batch while the next one is routed, ``effective_from`` reports first batches
to the registry, ``metrics`` are for Prometheus.
"""
