"""Running query: starts the batches, publishes the registry beside them, reports.

``fan_out`` is the entrance. ``side_thread`` follows the registry and makes backfills and replays,
``background_publisher`` sends a batch while the next one is routed, ``effective_from`` reports first batches
to the registry, ``metrics`` are for Prometheus.
"""
